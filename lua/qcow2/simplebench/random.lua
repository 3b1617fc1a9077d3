-- SPDX-License-Identifier: MIT

--- Random numbers that are the same everywhere for the same seed.
--
-- The generator (xorshift64*, seeded through one step of splitmix64) is our own, so that neither the Lua version nor another
-- user of math.random changes what a seed gives.
-- @module qcow2.simplebench.random

local random = {}

local Generator = {}
Generator.__index = Generator

--- Makes a generator.
-- @int seed any integer
-- @treturn Generator
function random.new(seed)
    local z = seed + 0x9e3779b97f4a7c15
    z = (z ~ z >> 30) * 0xbf58476d1ce4e5b9
    z = (z ~ z >> 27) * 0x94d049bb133111eb
    z = z ~ z >> 31
    return setmetatable({ state = z ~= 0 and z or 1 }, Generator)
end

local function step(generator)
    local x = generator.state
    x = x ~ x >> 12
    x = x ~ x << 25
    x = x ~ x >> 27
    generator.state = x
    return x * 0x2545f4914f6cdd1d
end

--- A float from 0 up to, but not including, 1.
-- @treturn number
function Generator:float() return (step(self) >> 11) * 0x1p-53 end

--- A whole number from 1 to n.
-- @int n below 2^31
-- @treturn integer
function Generator:upto(n) return ((step(self) >> 32) * n >> 32) + 1 end

--- A number from the normal distribution with mean 0 and deviation 1.
-- @treturn number
function Generator:normal()
    local radius = math.sqrt(-2 * math.log(1 - self:float()))
    return radius * math.cos(2 * math.pi * self:float())
end

--- Draws as many values as there are, any of them any number of times. Written out, since bootstrapping does little else.
-- @tparam {number,...} values fewer than 2^31
-- @treturn number their sum
function Generator:sum_of_sample(values)
    local x, count, sum = self.state, #values, 0
    for _ = 1, count do
        x = x ~ x >> 12
        x = x ~ x << 25
        x = x ~ x >> 27
        sum = sum + values[((x * 0x2545f4914f6cdd1d >> 32) * count >> 32) + 1]
    end
    self.state = x
    return sum
end

--- Puts a list into any order, in place.
-- @tparam table list
-- @treturn table the same
function Generator:shuffle(list)
    for i = #list, 2, -1 do
        local j = self:upto(i)
        list[i], list[j] = list[j], list[i]
    end
    return list
end

return random
