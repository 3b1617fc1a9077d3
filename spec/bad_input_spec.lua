-- SPDX-License-Identifier: MIT
-- Bad arguments, bad files and bad metadata: each gets one sentence that names the thing, nothing is created or changed, and
-- memory stays bounded by what the file really holds.
local Random = require "spec.support.random"
local core = require "qcow2.core"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local SEED = Random.seed_of_run()
local CLUSTER = 65536

--- Asserts that a call failed with that code and a sentence that holds the pattern.
local function refused(code, pattern, result, message, name)
    assert.is_nil(result)
    assert.is_string(message)
    assert.matches(pattern, message)
    assert.equal(code, name)
end

--- A storage with an image of 64 MiB that holds `bytes` at 0 and something in the next clusters.
local function victim(options)
    local storage = qcow2.memory "victim"
    options = options or {}
    options.size = options.size or "64M"
    local image = assert(qcow2.create(storage, options))
    for i = 0, 3 do assert(image:write(i * CLUSTER, ("v"):rep(CLUSTER))) end
    assert(image:close())
    return storage
end

local function be64(number) return (">I8"):pack(number) end
local function be32(number) return (">I4"):pack(number) end

local function all_bytes(storage) return storage:read(0, assert(storage:length())) end

describe("arguments", function()
    local folder, remove

    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    it("that cannot be are refused before a file is made", function()
        local path = folder .. "/never.qcow2"
        for _, case in ipairs {
            { { size = -1 }, "size is %-1" }, { { size = 1.5 }, "size" }, { { size = "12 parsecs" }, "12 parsecs" }, { { size = "9E" }, "size" },
            { { size = "1M", cluster_size = 3000 }, "cluster_size is 3000" }, { { size = "1M", cluster_size = 256 }, "cluster_size" },
            { { size = "1M", cluster_size = "4M" }, "cluster_size" }, { { size = "1M", refcount_bits = 3 }, "refcount_bits" },
            { { size = "1E", cluster_size = 512 }, "128 GiB" }, { { size = "1M", compat = "0.10", refcount_bits = 8 }, "0.10" },
            { { size = "1M", compat = "0.10", lazy_refcounts = true }, "lazy_refcounts" }, { {}, "size is missing" },
            { { size = "1M", backing_file = ("n"):rep(1024) }, "1024 bytes" },
        } do
            refused("EINVAL", case[2], qcow2.create(path, case[1]))
        end
        assert.is_nil(io.open(path))
        assert.error_matches(function() qcow2.create(path, { size = "1M", clustersize = 1 }) end, "did you mean 'cluster_size'")
        assert.error_matches(function() qcow2.create(path, { size = true }) end, "size")
        assert.is_nil(io.open(path))
    end)

    it("that name no usable file say which and why", function()
        refused("ENOENT", "/no/such/dir", qcow2.create("/no/such/dir/x.qcow2", { size = "1M" }))
        refused("ENOENT", "missing.qcow2", qcow2.open(folder .. "/missing.qcow2"))
        local none, message = qcow2.open(folder)
        assert.is_nil(none)
        assert.matches(folder:gsub("%p", "%%%0"), message)
        local empty = folder .. "/empty"
        assert(io.open(empty, "w")):close()
        none, message = qcow2.open(empty, { format = "qcow2" })
        assert.is_nil(none)
        assert.matches("empty", message)
    end)

    it("that end in the middle of a full disk leave the image sound", function()
        local mount = folder .. "/small"
        local mounted = os.execute(("mkdir %s && mount -t tmpfs -o size=1m tmpfs %s 2>/dev/null"):format(mount, mount))
        if not mounted then return pending "a tmpfs cannot be mounted here" end
        finally(function() os.execute("umount " .. mount) end)
        local path = mount .. "/full.qcow2"
        local image = assert(qcow2.create(path, { size = "64M" }))
        assert(image:write(0, ("f"):rep(CLUSTER)))
        assert(image:flush())
        local code
        for i = 1, 40 do
            local done, _, name = image:write(i * CLUSTER, ("x"):rep(CLUSTER))
            code = not done and name or code
        end
        assert.equal("ENOSPC", code)
        assert.equal(("f"):rep(CLUSTER), image:read(0, CLUSTER))
        os.execute(("mount -o remount,size=16m %s"):format(mount))
        for i = 1, 40 do assert(image:write(i * CLUSTER, ("y"):rep(CLUSTER))) end
        assert(image:close())
        image = assert(qcow2.open(path, { read_only = true }))
        assert.equal(("y"):rep(CLUSTER), image:read(40 * CLUSTER, CLUSTER))
        image:close()
        if not oracle.missing then assert.equal(0, (oracle.check(path))) end
    end)
end)

describe("a header", function()
    it("cut anywhere is refused with a sentence", function()
        local whole = all_bytes(victim())
        for length = 0, 600 do
            local storage = qcow2.memory "cut"
            storage:write(0, whole:sub(1, length))
            local image, message = qcow2.open(storage, { format = "qcow2" })
            assert.is_nil(image, "a file of " .. length .. " bytes opened")
            assert.matches("'cut': %a", message)
        end
    end)

    for name, patch in pairs {
        ["l1_table_offset %a* ?.*not a multiple"] = { 40, be64(0x30001) },
        ["refcount_table_offset .*not a multiple"] = { 48, be64(0x10200) },
        ["passes the file's end"] = { 40, be64(1 << 40) },
        ["l1_size at offset 36"] = { 36, be32(0xffffffff) },
        ["refcount_table_clusters at offset 56"] = { 56, be32(0x7fffffff) },
        ["cluster_bits at offset 20"] = { 20, be32(40) },
        ["version"] = { 4, be32(9) },
        ["incompatible"] = { 72, be64(1 << 40) },
        ["but an L1 table of 8 bytes lies at 0x10000"] = { 40, be64(0x10000) },
        ["crypt_method"] = { 32, be32(1) },
    } do
        it("with a bad field is refused: " .. name, function()
            local storage = victim()
            storage:write(patch[1], patch[2])
            local before = all_bytes(storage)
            collectgarbage()
            collectgarbage "stop" -- nothing but the open may change what is held
            local _, held = core.memory_stats()
            local image, message = qcow2.open(storage)
            local _, held_after = core.memory_stats()
            collectgarbage "restart"
            assert.is_nil(image)
            assert.matches(name, message)
            assert.equal(before, all_bytes(storage))
            assert.equal(held, held_after)
        end)
    end
end)

describe("corrupt metadata", function()
    --- Patches, expects the call to fail with the sentence, and the rest to stay readable.
    local function met(offset_of, bytes, call, pattern)
        local storage = victim()
        local image = assert(qcow2.open(storage, { read_only = true }))
        local offset = offset_of(image)
        image:close()
        assert(storage:write(offset, bytes))
        image = assert(qcow2.open(storage))
        refused("ECORRUPT", pattern, call(image))
        local done, message = image:write(2 * CLUSTER, "x")
        assert.is_nil(done)
        assert.matches("marked corrupt", message)
        image:close()
        assert.equal(2, (">I8"):unpack(storage:read(72, 8)) & 2)
        refused("ECORRUPT", "marked corrupt", qcow2.open(storage))
        assert(qcow2.open(storage, { read_only = true })):close()
    end

    local function l2(image) return image:l1()[1].offset end

    it("in an L2 entry fails the request that meets it, and no other", function()
        met(function(image) return l2(image) + 8 end, be64(0x51001 | 1 << 63 | 0x100), function(image)
            assert.equal("vvv", image:read(0, 3))
            return image:read(CLUSTER, 1)
        end, "L2 entry at offset %d+ %(guest offset 65536%) is invalid")
    end)

    it("in an L1 entry is named with its offset", function()
        met(function(image) return image.header.l1_table_offset end, be64(0x41000 | 1 << 63), function(image) return image:read(0, 1) end,
            "L1 entry 0 at offset 196608: L2 table offset 266240 is not cluster%-aligned")
        met(function(image) return image.header.l1_table_offset end, be64(1 << 40 | 1 << 63), function(image) return image:read(0, 1) end,
            "L1 entry 0 at offset 196608: .* lies outside the file")
        met(function(image) return image.header.l1_table_offset end, be64(0x40000 | 1 << 60), function(image) return image:write(0, "x") end,
            "L1 entry 0 at offset 196608: reserved bits")
    end)

    it("in the refcount table is named with its offset", function()
        local function allocate(image) return image:write(32 << 20, "x") end
        met(function() return 0x10000 end, be64(0x20200), allocate, "refcount table entry 0 at offset 65536: .*not cluster%-aligned")
        met(function() return 0x10000 end, be64(1 << 45), allocate, "refcount table entry 0 at offset 65536: .*outside the file")
    end)

    it("that puts one table onto another is refused before either is written", function()
        local block, l1 = 0x20000, 0x30000
        met(function(image) return image.header.l1_table_offset end, be64(block | 1 << 63), function(image) return image:write(0, "x") end,
            "L1 entry 0 at offset 196608: at L2 table offset 131072 lies the refcount block")
        met(function() return 0x10000 end, be64(l1), function(image) return image:write(32 << 20, "x") end,
            "refcount table entry 0 at offset 65536: at refcount block offset 196608 lies the active L1 table")
    end)

    it("that says the header's cluster is free does not get it overwritten, whatever is checked", function()
        local storage = victim()
        storage:write(0x20000, "\0\0")
        local image = assert(qcow2.open(storage, { overlap_check = "none" }))
        refused("ECORRUPT", "offset 0 .*holds the main header", image:write(32 << 20, "x"))
        image:close()
        assert.equal("QFI\xfb", storage:read(0, 4))
    end)

    it("that maps a cluster outside the file is refused before it is written", function()
        met(function(image) return l2(image) + 8 end, be64(1 << 40 | 1 << 63), function(image) return image:write(CLUSTER, "x") end,
            "guest offset 65536 is mapped to host offset %d+, which lies outside the file")
    end)

    it("that has lost the refcount block of the file's start does not get the header overwritten", function()
        met(function() return 0x10000 end, be64(0), function(image) return image:write(32 << 20, "x") end,
            "free host cluster at offset 0 .* holds the main header")
    end)

    it("that says a table's cluster is free does not get it overwritten", function()
        met(function() return 0x20000 + 2 * 3 end, "\0\0", function(image) return image:write(32 << 20, "x") end,
            "free host cluster at offset 196608 .* holds the active L1 table")
    end)
end)

describe("random damage", function()
    it(("never crashes, hangs or takes much memory (QCOW2_SEED=%d)"):format(SEED), function()
        local random = Random.new(SEED)
        local whole = {}
        for index, options in ipairs {
            { cluster_size = 512, size = "1M" }, { size = "64M" }, { cluster_size = 4096, compat = "0.10", size = "8M" },
        } do
            local storage = qcow2.memory()
            local image = assert(qcow2.create(storage, options))
            for i = 0, 9 do image:write(i * 50000, random:bytes(3000)) end
            image:close()
            whole[index] = all_bytes(storage)
        end
        for _ = 1, 1500 do
            local storage = qcow2.memory()
            storage:write(0, random:choice(whole))
            for _ = 1, random:between(1, 6) do
                local offset = random:one_in(2) and random:between(0, 200) or random:between(0, storage:length() - 9)
                storage:write(offset, random:one_in(2) and be64(random:bits() >> random:between(0, 63)) or string.char(random:between(0, 255)))
            end
            local image = qcow2.open(storage, { format = "qcow2", overlap_check = random:choice { "none", "all" } })
            if image then
                local size = math.min(image:size(), 1 << 20)
                image:read(0, size)
                for _ = 1, 5 do image:write(random:between(0, math.max(0, size - 100)), "damage") end
                image:write_zeroes(0, size // 2)
                image:clusters(0, size)
                image:flush()
                image:close()
            end
        end
        collectgarbage()
        assert.is_true(collectgarbage "count" < 200000)
    end)
end)
