-- SPDX-License-Identifier: MIT
-- The face of an image: what each method takes, gives and raises, and how objects print.
local qcow2 = require "qcow2"

describe("an image", function()
    local image

    before_each(function() image = assert(qcow2.create(qcow2.memory("disk"), { size = "64M" })) end)
    after_each(function() image:close() end)

    it("reads back what was written, and zeroes elsewhere", function()
        assert.is_true(image:write(1000, "hello"))
        assert.equal("hello", image:read(1000, 5))
        assert.equal("\0hello\0", image:read(999, 7))
        assert.equal("", image:read(0, 0))
        assert.equal(("\0"):rep(10), image:read((64 << 20) - 10, 10))
    end)

    it("writes from buffers and reads into parts of them", function()
        local buffer = qcow2.buffer("abcdefgh")
        assert.is_true(image:write(70000, buffer))
        local target = qcow2.buffer(16)
        assert.is_true(image:read_into(70002, target, 4, 3))
        assert.equal("\0\0\0\0cde" .. ("\0"):rep(9), target:get())
        assert.has_error(function() image:read_into(0, target, 17) end)
        assert.has_error(function() image:read_into(0, target, 8, 9) end)
    end)

    it("answers a range past its end with EINVAL and a sentence", function()
        for _, call in ipairs {
            function() return image:read((64 << 20) - 1, 2) end,
            function() return image:write(64 << 20, "x") end,
            function() return image:write_zeroes(math.maxinteger, 1) end,
            function() return image:discard(0, (64 << 20) + 1) end,
        } do
            local result, message, code = call()
            assert.is_nil(result)
            assert.equal("EINVAL", code)
            assert.matches("passes the end of 'disk' %(67108864 bytes%)", message)
        end
    end)

    it("raises on misuse", function()
        assert.error_matches(function() image:read(-1, 1) end, "offset must be 0 or more")
        assert.error_matches(function() image:read(0, 1.5) end, "no integer representation")
        assert.error_matches(function() image:write(0, 12) end, "string or qcow2.Buffer expected")
        assert.error_matches(function() image:write(0) end, "string or qcow2.Buffer expected")
        image:close()
        assert.error_matches(function() image:read(0, 1) end, "closed image")
        assert.error_matches(function() qcow2.open("x", { chache = "none" }) end, "did you mean 'cache'")
    end)

    it("closes once or twice, by call and by scope", function()
        assert.is_true(image:close())
        assert.is_true(image:close())
        local seen
        do
            local scoped <close> = assert(qcow2.create(qcow2.memory(), { size = 4096 }))
            seen = scoped
        end
        assert.equal("qcow2.Image (closed)", tostring(seen))
    end)

    it("zeroes and discards", function()
        image:write(0, ("x"):rep(200000))
        assert.is_true(image:write_zeroes(10, 100000))
        assert.equal(("x"):rep(10) .. ("\0"):rep(100000) .. "x", image:read(0, 100011))
        assert.is_true(image:discard(65536, 65536))
        assert.equal(("\0"):rep(65536), image:read(65536, 65536))
    end)

    it("prints usefully", function()
        assert.equal("qcow2.Image 'disk' (qcow2, 64 MiB, 64 KiB clusters, read and write)", tostring(image))
        image:write(5 << 16, "x")
        assert.matches("guest offset 0x50000, 65536 bytes: normal at host offset 0x50000 COPIED", tostring(image:clusters()))
        assert.matches("L2 entry 5 at 0x40028: host offset 0x50000, COPIED", tostring(image:explain(5 << 16)))
        assert.matches("0: offset 0x40000 COPIED", tostring(image:l1()))
        assert.matches("version +3\n", tostring(image.header))
        assert.matches("virtual size: 64 MiB %(67108864 bytes%)", tostring(image:info()))
        assert.equal("qcow2.Buffer (3 bytes)", tostring(qcow2.buffer("abc")))
        assert.equal("qcow2.Storage (memory 'm')", tostring(qcow2.memory("m")))
    end)

    it("shows its header, tables and refcounts", function()
        image:write(0, "x")
        assert.equal(3, image.header.version)
        assert.equal(16, image.header.cluster_bits)
        assert.equal(0x40000, image:l1()[1].offset)
        assert.equal("normal", image:l2(0)[1].type)
        assert.equal(1, (image:refcount(0)))
        assert.equal(0, (image:refcount(1000)))
        local _, covered = image:refcount(1 << 20)
        assert.is_false(covered)
        local none, message, code = image:l2(7)
        assert.is_nil(none)
        assert.equal("EINVAL", code)
        assert.matches("entries 0 to 0", message)
    end)

    it("counts what it did", function()
        image:write(4096, ("x"):rep(4096))
        image:flush()
        local stats = image:stats()
        assert.equal(1, stats.writes)
        assert.equal(4096, stats.written_bytes)
        assert.equal(1, stats.clusters_allocated)
        assert.equal(0, stats.cow_written_bytes) -- a fresh cluster: nothing around the guest's bytes
        assert.is_true(stats.file.syncs >= 1)
        assert.is_true(stats.l2_cache.entries > 0)
    end)

    it("grows and shrinks", function()
        image:write((64 << 20) - 3, "end")
        assert.is_true(image:resize(10 << 30))
        assert.equal(10 << 30, image:size())
        assert.equal("end\0", image:read((64 << 20) - 3, 4))
        image:write((10 << 30) - 1, "x")
        local none, message = image:resize(4096)
        assert.is_nil(none)
        assert.matches("shrink = true", message)
        assert.is_true(image:resize(1000, { shrink = true }))
        assert.equal(1024, image:size()) -- whole sectors
        assert.is_true(image:resize(64 << 20))
        assert.equal("\0\0\0", image:read((64 << 20) - 3, 3))
    end)
end)

describe("clusters that are given up", function()
    it("are all free when the image is closed, however many there are", function()
        local storage = qcow2.memory "many"
        local image = assert(qcow2.create(storage, { size = "4M", cluster_size = 512, refcount_bits = 64 }))
        image:write(0, ("x"):rep(4 << 20))
        assert.is_true(image:discard(0, 4 << 20))
        assert(image:close())
        image = assert(qcow2.open(storage, { read_only = true }))
        local used = 0
        for cluster = 0, storage:length() // 512 do used = used + (image:refcount(cluster) > 0 and 1 or 0) end
        image:close()
        assert.is_true(used < 600, used .. " clusters are still in use") -- tables alone
    end)

    it("keep their bytes when discards are ignored", function()
        local storage = qcow2.memory "kept"
        local image = assert(qcow2.create(storage, { size = "1M" }))
        image:write(0, ("k"):rep(65536))
        image:close()
        image = assert(qcow2.open(storage, { discard = "ignore" }))
        assert.is_true(image:discard(0, 65536))
        assert.equal(("k"):rep(65536), image:read(0, 65536))
        image:close()
    end)
end)

describe("one storage", function()
    it("has one writer at a time", function()
        local storage = qcow2.memory "shared"
        local image = assert(qcow2.create(storage, { size = "1M" }))
        local none, message, code = qcow2.open(storage)
        assert.is_nil(none)
        assert.equal("'shared': it is open for writing already", message)
        assert.equal("EBUSY", code)
        image:close()
        assert(qcow2.open(storage)):close()
    end)
end)

describe("a raw image", function()
    it("that was probed does not come to look like qcow2", function()
        local storage = qcow2.memory "raw"
        assert(qcow2.create(storage, { format = "raw", size = "1M" })):close()
        local image = assert(qcow2.open(storage))
        local done, message, code = image:write(0, "QFI\xfb rest")
        assert.is_nil(done)
        assert.equal("EPERM", code)
        assert.matches("open it with format raw", message)
        assert.is_true(image:write(0, "QFX"))
        image:close()
        image = assert(qcow2.open(storage, { format = "raw" }))
        assert.is_true(image:write(0, "QFI\xfb rest"))
        image:close()
    end)

    it("reads and writes through the same face", function()
        local storage = qcow2.memory("raw")
        local image = assert(qcow2.create(storage, { format = "raw", size = "1M" }))
        assert.is_true(image:write(512, "raw"))
        assert.is_true(image:write_zeroes(513, 1))
        assert.equal("r\0w", image:read(512, 3))
        assert.equal("r\0w", storage:read(512, 3))
        assert.is_nil(image.header)
        assert.is_nil(image:l1())
        assert.equal("raw", image:info().format)
        assert.is_true(image:flush())
        assert.is_true(image:close())
    end)
end)

describe("a backing chain", function()
    local folder

    before_each(function()
        folder = os.tmpname()
        os.remove(folder)
        assert(os.execute("mkdir " .. folder))
    end)
    after_each(function() os.execute("rm -rf " .. folder) end)

    it("shows through, and is copied around small writes", function()
        local base = assert(qcow2.create(folder .. "/base.qcow2", { size = "1M" }))
        base:write(0, ("b"):rep(1 << 20))
        base:close()
        local top = assert(qcow2.create(folder .. "/top.qcow2", { backing_file = "base.qcow2", backing_format = "qcow2", size = "2M" }))
        assert.equal("bbb", top:read(500000, 3))
        assert.equal("b\0", top:read((1 << 20) - 1, 2))
        top:write(500000, "top")
        assert.equal("btopb", top:read(499999, 5))
        assert.equal(("b"):rep(100), top:read(458752, 100))
        assert.equal(65536 - 3, top:stats().cow_read_bytes)
        assert.matches("the backing file shows through.*/base.qcow2' %(qcow2%)", tostring(top:explain(0)))
        top:close()
        local alone = assert(qcow2.open(folder .. "/top.qcow2", { backing = false, read_only = true }))
        assert.equal("\0\0", alone:read(0, 2))
        alone:close()
    end)

    it("names a missing file and a loop", function()
        local top = assert(qcow2.create(folder .. "/a.qcow2", { size = "1M" }))
        top:close()
        assert(qcow2.create(folder .. "/b.qcow2", { backing_file = "a.qcow2", backing_format = "qcow2" })):close()
        os.remove(folder .. "/a.qcow2")
        local none, message, code = qcow2.open(folder .. "/b.qcow2")
        assert.is_nil(none)
        assert.equal("ENOENT", code)
        assert.matches("backing file of '.*/b.qcow2': .*a.qcow2", message)
        os.execute(("ln -s b.qcow2 %s/a.qcow2"):format(folder))
        none, message = qcow2.open(folder .. "/b.qcow2", { read_only = true })
        assert.is_nil(none)
        assert.matches("loop", message)
    end)

    it("is explained down to the level that has the byte", function()
        local base = assert(qcow2.create(folder .. "/e0.raw", { size = "1M", format = "raw" }))
        base:close()
        assert(qcow2.create(folder .. "/e1.qcow2", { backing_file = "e0.raw", backing_format = "raw", size = "4M" })):close()
        local middle = assert(qcow2.open(folder .. "/e1.qcow2"))
        middle:write(65536, "m")
        middle:close()
        local top <close> = assert(qcow2.create(folder .. "/e2.qcow2", { backing_file = "e1.qcow2", backing_format = "qcow2" }))
        local levels = {}
        for _, step in ipairs(top:explain(65536)) do levels[#levels + 1] = step.what end
        assert.same({ "header", "L1 entry", "L2 entry", "backing file", "header", "L1 entry", "L2 entry", "refcount" }, levels)
        assert.matches("backing file '.*/e1.qcow2' %(qcow2%).*\n.*\n.*\n.*host cluster %d+ .*: refcount 1", tostring(top:explain(65536)))
        assert.matches("e0.raw' %(raw%)\n  raw image: offset 0 of the file$", tostring(top:explain(0)))
        assert.matches("e0.raw' %(raw%)\n  ends before that %(1048576 bytes%): reads as zeroes$", tostring(top:explain(2 << 20)))
    end)
end)

describe("an image with extended L2 entries", function()
    it("is explained with entries of 16 bytes", function()
        local image <close> = assert(qcow2.create(qcow2.memory(), { size = "2G", extended_l2 = true }))
        local offset = (1 << 28) + (3 << 16) -- an L2 table of 4096 entries maps 256 MiB
        assert(image:write(offset, "x"))
        local way = image:explain(offset)
        local l1, l2 = way[2], way[3]
        assert.same({ "L1 entry", 1 }, { l1.what, l1.index })
        assert.same({ "L2 entry", 3 }, { l2.what, l2.index })
        assert.equal(l2.table_offset + 48, l2.entry_offset)
    end)
end)

describe("create over a file that is there", function()
    local folder, remove
    setup(function() folder, remove = require("spec.support.oracle").temp_dir() end)
    teardown(function() remove() end)

    local function precious(name)
        local path = folder .. "/" .. name
        local image = assert(qcow2.create(path, { size = "1M" }))
        assert(image:write(0, "precious"))
        assert(image:close())
        return path
    end

    local function unharmed(path)
        local image <close> = assert(qcow2.open(path, { read_only = true, backing = false }))
        assert.equal("precious", image:read(0, 8))
    end

    it("leaves it as it is when the backing file is that file, or leads to it", function()
        local path = precious "p.qcow2"
        for _, options in ipairs { { backing_file = "p.qcow2" }, { backing_file = "p.qcow2", size = "2M" }, { backing_file = path } } do
            local image, message, code = qcow2.create(path, options)
            assert.is_nil(image)
            assert.equal("EINVAL", code)
            assert.matches("p.qcow2' itself is in that chain", message)
        end
        assert(qcow2.create(folder .. "/mid.qcow2", { backing_file = "p.qcow2" })):close()
        assert.matches("itself is in that chain", select(2, qcow2.create(path, { backing_file = "mid.qcow2" })))
        unharmed(path)
    end)

    it("leaves it as it is when the backing file is missing, or is no image", function()
        local path = precious "q.qcow2"
        local image, message, code = qcow2.create(path, { size = "10M", backing_file = "nope.qcow2" })
        assert.is_nil(image)
        assert.equal("ENOENT", code)
        assert.matches("^backing_file: .*nope.qcow2", message)
        assert.is_nil((qcow2.create(path, { size = "10M", backing_file = "q.qcow2.none", backing_format = "raw" })))
        assert.is_nil((qcow2.create(folder .. "/new.qcow2", { size = "10M", backing_file = "nope.qcow2" })))
        assert.is_nil(io.open(folder .. "/new.qcow2"))
        unharmed(path)
    end)
end)

describe("misuse", function()
    local image = assert(qcow2.create(qcow2.memory "disk", { size = "64M" }))

    for name, case in pairs {
        ["l2 with a word"] = { function() image:l2 "x" end, "l2: the index must be a whole number from 0 on, not string" },
        ["clusters with a word"] = { function() image:clusters "x" end, "clusters: the offset is 'x'; a size is" },
        ["clusters from below 0"] = { function() image:clusters(-1) end, "clusters: the offset must be bytes .* not %-1" },
        ["explain between bytes"] = { function() image:explain(1.5) end, "explain: the offset must be bytes .* not 1.5" },
        ["a method without its image"] = { function() image.explain(0) end, "explain: an image expected, got number" },
        ["resize to a table"] = { function() image:resize {} end, "resize: the size must be bytes .* not table" },
        ["create without a path"] = { function() qcow2.create(nil, { size = 1 }) end, "create: a path or a storage expected, got nil" },
        ["open of a number"] = { function() qcow2.open(5) end, "open: a path or a storage expected, got number" },
        ["fault with a misspelt option"] = {
            function() qcow2.fault(qcow2.memory(), { crash = true }) end, "fault: unknown option 'crash' %(did you mean 'crashes'%?%)",
        },
        ["file with a misspelt option"] = { function() qcow2.file("x", { wirte = true }) end, "file: unknown option 'wirte' %(did you mean 'write'" },
    } do
        it("of " .. name .. " raises at its line", function()
            local good, message = pcall(case[1])
            assert.is_false(good)
            assert.matches("image_spec.lua:%d+: " .. case[2], message)
        end)
    end

    it("is not what a raw image is asked", function()
        local raw <close> = assert(qcow2.create(qcow2.memory "raw", { size = "1M", format = "raw" }))
        for _, name in ipairs { "l1", "l2", "refcount" } do
            local none, message, code = raw[name](raw, 0)
            assert.is_nil(none)
            assert.matches("a raw image has no", message)
            assert.equal("ENOTSUP", code)
        end
    end)

    it("is not a size in words", function()
        assert(image:resize "65M")
        assert.equal(65 << 20, image:size())
        assert.equal(1, #image:clusters("1M", "64K"))
    end)
end)
