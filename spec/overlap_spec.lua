-- SPDX-License-Identifier: MIT
-- Overlap checks: every section by name stops a write that a damaged table sends onto metadata, and none of them reads
-- the disk for it, whatever number of snapshots there is.
local qcow2 = require "qcow2"
local oracle = require "spec.support.oracle"

local CLUSTER = 65536

--- An image of one L2 table and three data clusters; where its parts lie.
local function make()
    local storage = qcow2.memory("victim")
    local image = assert(qcow2.create(storage, { size = "64M" }))
    for i = 0, 2 do assert(image:write(i * CLUSTER, ("d"):rep(CLUSTER))) end
    local parts = {
        ["main-header"] = 0,
        ["refcount-table"] = image.header.refcount_table_offset,
        ["refcount-block"] = 2 * CLUSTER,
        ["active-l1"] = image.header.l1_table_offset,
        ["active-l2"] = image:l1()[1].offset,
    }
    assert(image:close())
    return storage, parts
end

--- Sends guest cluster 1 to the host offset.
local function redirect(storage, l2_offset, host_offset)
    assert(storage:write(l2_offset + 8, (">I8"):pack(host_offset | 1 << 63)))
end

local NAMES = {
    ["main-header"] = "main header", ["active-l1"] = "active L1 table", ["active-l2"] = "active L2 table",
    ["refcount-table"] = "refcount table", ["refcount-block"] = "refcount block",
}

describe("overlap_check", function()
    for section, name in pairs(NAMES) do
        it("stops a write onto the " .. name .. " when " .. section .. " is checked", function()
            local storage, parts = make()
            if parts[section] == 0 then return end -- an entry cannot name offset 0
            redirect(storage, parts["active-l2"], parts[section])
            local image = assert(qcow2.open(storage, { overlap_check = { template = "none", [section] = true } }))
            local done, message, code = image:write(CLUSTER, "x")
            assert.is_nil(done)
            assert.equal("ECORRUPT", code)
            assert.matches(("guest offset 65536 is mapped to host offset %d, which holds the %s"):format(parts[section], name), message)
            done, message = image:write(0, "y")
            assert.is_nil(done)
            assert.matches("marked corrupt", message)
            assert.equal("ddd", image:read(0, 3))
            image:close()
            assert.equal(2, (">I8"):unpack(storage:read(72, 8)) & 2)
        end)

        it("lets it pass when " .. section .. " is not checked", function()
            local storage, parts = make()
            if parts[section] == 0 then return end
            redirect(storage, parts["active-l2"], parts[section])
            local image = assert(qcow2.open(storage, { overlap_check = { template = "all", [section] = false } }))
            assert.is_true(image:write(CLUSTER + 40000, "x"))
        end)
    end

    it("stops a write onto snapshots' tables, and reads no metadata for it", function()
        if oracle.missing then return pending(oracle.missing) end
        local folder, remove = oracle.temp_dir()
        finally(remove)
        local path = folder .. "/snapshots.qcow2"
        local image = assert(qcow2.create(path, { size = "64M" }))
        for i = 0, 15 do image:write(i * CLUSTER, ("d"):rep(CLUSTER)) end
        image:close()
        for i = 1, 100 do oracle.must(oracle.img, "snapshot", "-c", "s" .. i, path) end
        local reads = {}
        for _, template in ipairs { "none", "all" } do
            oracle.must("cp", path, path .. ".copy")
            image = assert(qcow2.open(path .. ".copy", { overlap_check = template }))
            local before = image:stats().file.reads
            for i = 0, 15 do assert(image:write(i * CLUSTER, ("n"):rep(CLUSTER))) end
            for i = 0, 15 do assert(image:write(i * CLUSTER, ("m"):rep(4096))) end
            reads[template] = image:stats().file.reads - before
            image:close()
        end
        assert.equal(reads.none, reads.all)
        image = assert(qcow2.open(path, { read_only = true }))
        local table_offset, l2_offset = image.header.snapshots_offset, image:l1()[1].offset
        image:close()
        local inactive_l1 = (">I8"):unpack(oracle.bytes(path, table_offset, 8))
        for name, offset in pairs { ["snapshot table"] = table_offset, ["inactive L1 table"] = inactive_l1 } do
            oracle.must("cp", path, path .. ".copy")
            oracle.patch(path .. ".copy", l2_offset + 8, (">I8"):pack(offset | 1 << 63))
            image = assert(qcow2.open(path .. ".copy", { overlap_check = "all" }))
            assert.is_true(image:write(2 * CLUSTER, "x")) -- makes the L2 table ours
            local done, message = image:write(CLUSTER, "x")
            assert.is_nil(done, name)
            assert.matches("holds the " .. name, message)
            image:close()
        end
    end)
end)
