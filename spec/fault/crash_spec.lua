-- SPDX-License-Identifier: MIT
-- Crashes: a seeded workload runs over storage that forgets what was not synced. At each of many moments the storage is rebuilt as
-- a power failure could have left it (none, all, or a random part of the unsynced sectors). It must open, hold every byte that
-- was flushed, and show no corruption to qemu-img check; leaks are allowed.
local Model = require "spec.support.model"
local Random = require "spec.support.random"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"
local verbs = require "spec.support.verbs"

local SEED = Random.seed_of_run()
local WHOLE = os.getenv "QCOW2_WHOLE"
local SECTOR = 512

--- A model that also knows, for each sector, everything it has held since the last flush.
local Watched = setmetatable({}, { __index = Model })
Watched.__index = Watched

local function watched(size)
    local model = setmetatable(Model.new(size), Watched)
    model.flushed, model.since = Model.new(size), {}
    return model
end

local function sectors_of(offset, length) return offset // SECTOR, (offset + length - 1) // SECTOR end

--- Notes what the sectors hold now, before or after a change.
function Watched:note(offset, length)
    local first, last = sectors_of(offset, length)
    for sector = first, last do
        local seen = self.since[sector] or {}
        seen[#seen + 1] = Model.read(self, sector * SECTOR, math.min(SECTOR, self.size - sector * SECTOR))
        self.since[sector] = seen
    end
end

function Watched:write(offset, bytes)
    if #bytes == 0 then return end
    self:note(offset, #bytes)
    Model.write(self, offset, bytes)
    self:note(offset, #bytes)
end

function Watched:zero(offset, length)
    if length <= 0 then return end
    self:note(offset, length)
    Model.zero(self, offset, length)
    self:note(offset, length)
end

--- Everything so far is durable.
function Watched:flush()
    self.flushed, self.since = Model.copy(self), {}
end

--- Whether each byte of the part is one that its place has held: as flushed, or since.
local function each_byte_was_there(part, flushed, seen)
    if part == flushed then return true end
    for _, state in ipairs(seen) do
        if part == state then return true end
    end
    for i = 1, #part do
        local byte = part:byte(i)
        local ok = byte == flushed:byte(i)
        for _, state in ipairs(seen) do ok = ok or byte == state:byte(i) end
        if not ok then return false end
    end
    return true
end

--- A sector changed since the flush may hold in each of its bytes whatever that byte has held since (the fault file may lose one
--- of two writes to parts of a sector). One that did not change must be as flushed.
function Watched:judge(image)
    local step = 64 * SECTOR
    for offset = 0, self.size - 1, step do
        local length = math.min(step, self.size - offset)
        local bytes = assert(image:read(offset, length))
        if bytes ~= self.flushed:read(offset, length) then
            for at = offset, offset + length - 1, SECTOR do
                local part = bytes:sub(at - offset + 1, at - offset + math.min(SECTOR, self.size - at))
                if not each_byte_was_there(part, self.flushed:read(at, #part), self.since[at // SECTOR] or {}) then
                    return ("the sector at %d holds what was never there"):format(at)
                end
            end
        end
    end
    return nil
end

--- Rebuilds the storage after a crash and judges it. Returns a sentence when something is wrong.
local function crash(disk, model, random, path)
    local keep = random:choice { 0, 100, 50, random:between(1, 99), random:between(1, 99) }
    local left = assert(disk:crash(random:bits(), keep))
    local saved = path and assert(left:save(path))
    local image, message = qcow2.open(left, { read_only = true })
    if not image then return "it does not open: " .. message end
    local wrong = model:judge(image)
    image:close()
    if wrong or not saved then return wrong end
    local code, text = oracle.check(path)
    return code ~= 0 and code ~= 3 and "qemu-img check: " .. text or nil
end

local function one_run(random, options, crashes, path)
    local memory = qcow2.memory "crash"
    local create = { size = options.size, cluster_size = options.unit, refcount_bits = options.refcount_bits, compat = options.compat }
    assert(qcow2.create(memory, create)):close()
    local disk = assert(qcow2.fault(memory, { crashes = true }))
    local image = assert(qcow2.open(disk, { l2_cache_size = 1024, l2_cache_entry_size = 512, refcount_cache_size = 512, cow = options.cow }))
    local model = watched(options.size)
    for number = 1, crashes do
        for _ = 1, random:between(1, 12) do
            verbs.step(random, image, model, options)
            if random:one_in(8) then
                assert(image:flush())
                model:flush()
            end
        end
        local wrong = crash(disk, model, random, path)
        assert.is_nil(wrong, ("crash %d, QCOW2_SEED=%d: %s"):format(number, SEED, wrong))
    end
    assert(image:close())
    disk:close()
end

local CASES = {
    { unit = 512, refcount_bits = 16, size = 300 << 10, longest = 3000, cow = "skip" },
    { unit = 512, refcount_bits = 64, size = 300 << 10, longest = 3000, cow = "write" },
    { unit = 1024, refcount_bits = 1, size = 1 << 20, longest = 6000, cow = "zero" },
    { unit = 4096, refcount_bits = 16, size = 2 << 20, longest = 20000, cow = "skip", compat = "0.10" },
    { unit = 65536, refcount_bits = 16, size = 8 << 20, longest = 100000, cow = "skip" },
}

describe(("a crash (QCOW2_SEED=%d)"):format(SEED), function()
    for index, case in ipairs(CASES) do
        case.discard_zeroes, case.compresses = true, true
        it(("leaves flushed bytes and sound metadata, clusters of %d, refcounts of %d bits"):format(case.unit, case.refcount_bits), function()
            local random = Random.new(SEED + index)
            one_run(random, case, WHOLE and 2000 or 60, nil)
        end)

        it(("leaves what qemu-img check calls sound, clusters of %d, refcounts of %d bits"):format(case.unit, case.refcount_bits), function()
            if oracle.missing then return pending(oracle.missing) end
            local folder, remove = oracle.temp_dir()
            finally(remove)
            one_run(Random.new(SEED + 100 + index), case, WHOLE and 400 or 25, folder .. "/crashed.qcow2")
        end)
    end
end)
