-- SPDX-License-Identifier: MIT

--- Numbers that depend on a seed alone, so that a failed run can be had again; and the seed of this run.
local Random = {}
Random.__index = Random

--- The seed of the run: QCOW2_SEED, or one that the clock gives.
function Random.seed_of_run()
    return math.tointeger(tonumber(os.getenv "QCOW2_SEED") or os.time() * 1000 + math.floor(os.clock() * 1e6) % 1000)
end

--- A generator (splitmix64).
function Random.new(seed) return setmetatable({ state = seed }, Random) end

--- 64 random bits.
function Random:bits()
    self.state = self.state + 0x9e3779b97f4a7c15
    local z = self.state
    z = (z ~ (z >> 30)) * 0xbf58476d1ce4e5b9
    z = (z ~ (z >> 27)) * 0x94d049bb133111eb
    return z ~ (z >> 31)
end

--- A whole number from low to high, both included.
function Random:between(low, high) return low + (self:bits() >> 1) % (high - low + 1) end

--- One of the list's items.
function Random:choice(list) return list[self:between(1, #list)] end

--- True once in `n` times.
function Random:one_in(n) return self:between(1, n) == 1 end

local POOL_LENGTH = 1 << 20
local pool

--- Bytes that do not repeat for a long way, so that none is at home in another's place.
local function bytes_of_pool()
    if not pool then
        local words, source = {}, Random.new(1)
        for i = 1, POOL_LENGTH // 8 do words[i] = ("<I8"):pack(source:bits() | 0x0101010101010101) end
        pool = table.concat(words)
    end
    return pool
end

--- `length` bytes: never zero, and different for each call.
function Random:bytes(length)
    local text, start = bytes_of_pool(), self:between(1, POOL_LENGTH)
    local bytes = text:sub(start, start + length - 1)
    if #bytes == length then return bytes end
    length = length - #bytes
    return bytes .. text:rep(length // POOL_LENGTH) .. text:sub(1, length % POOL_LENGTH)
end

return Random
