-- SPDX-License-Identifier: MIT
-- Memory: what opening an image of a terabyte costs beside its caches, and that opening and closing leaves nothing behind.
local core = require "qcow2.core"
local qcow2 = require "qcow2"

--- Resident memory of this process in KiB.
local function resident()
    for line in io.lines "/proc/self/status" do
        local kib = line:match "^VmRSS:%s+(%d+)"
        if kib then return tonumber(kib) end
    end
end

local function settled()
    collectgarbage()
    collectgarbage()
    return resident()
end

describe("memory", function()
    it("#resident stays within 4 MiB when an image of 1 TiB with all its metadata is opened", function()
        local path = os.tmpname()
        assert(qcow2.create(path, { size = "1T", preallocation = "metadata" })):close()
        local before = settled()
        local image = assert(qcow2.open(path))
        local after = settled()
        assert.equal("normal", image:lookup((1 << 40) - 1, 1).type)
        image:close()
        os.remove(path)
        assert.is_true(after - before <= 4096, ("opening took %d KiB"):format(after - before))
    end)

    it("#resident is flat over 10,000 images opened and closed", function()
        local storage = qcow2.memory()
        assert(qcow2.create(storage, { size = "1G" })):close()
        local _, held = core.memory_stats()
        local before
        for i = 1, 10000 do
            local image = assert(qcow2.open(storage))
            image:read(0, 1)
            image:close()
            if i == 1000 then before = settled() end
        end
        local _, held_after = core.memory_stats()
        assert.equal(held, held_after)
        assert.is_true(settled() - before <= 512, ("it grew by %d KiB"):format(resident() - before))
    end)

    it("is given back by __gc as by close", function()
        local storage = qcow2.memory()
        local first = assert(qcow2.create(storage, { size = "1G" }))
        first:write(0, "x") -- the storage holds the pages from now on
        first:close()
        collectgarbage()
        local _, held = core.memory_stats()
        for _ = 1, 100 do
            assert(qcow2.open(storage)):write(0, "x")
            collectgarbage()
        end
        collectgarbage()
        collectgarbage()
        local _, held_after = core.memory_stats()
        assert.equal(held, held_after)
    end)

    it("of tables that nobody uses is given back after cache_clean_interval", function()
        local storage = qcow2.memory()
        local image = assert(qcow2.create(storage, { size = "1G" }))
        for i = 0, 31 do image:write(i << 25, "x") end
        image:close()
        image = assert(qcow2.open(storage, { cache_clean_interval = 1 }))
        for i = 0, 31 do image:read(i << 25, 1) end
        local _, held = core.memory_stats()
        for _ = 1, 4 do
            os.execute "sleep 1.1"
            image:read(0, 1)
        end
        local _, held_after = core.memory_stats()
        assert.is_true(held_after <= held - 30, ("%d blocks before, %d after"):format(held, held_after))
        image:close()
    end)
end)
