-- SPDX-License-Identifier: MIT

--- External data files: where names lead, what an image does without its file, and that a raw one alone is the whole disk after
-- every step. What lies in such images is compared with qemu-img in the matrix.
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local KIB = 1024

describe("an external data file", function()
    local folder, remove
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    local function create(options)
        options.size, options.data_file = options.size or "1M", options.data_file or "disk.data"
        return qcow2.create(folder .. "/disk.qcow2", options)
    end

    local function data() return oracle.bytes(folder .. "/disk.data") end

    it("is made beside the image, and holds each byte at its guest offset", function()
        local image <close> = assert(create {})
        assert(image:write(300 * KIB + 5, "hello"))
        assert(image:flush())
        assert.equal(1 << 20, #data())
        assert.equal("hello", data():sub(300 * KIB + 6, 300 * KIB + 10))
        assert.equal("disk.data", image:info()["format-specific"].data["data-file"])
        assert.equal(300 * KIB // 65536 * 65536, image:clusters(300 * KIB, 1)[1].host_offset // 65536 * 65536)
    end)

    it("that is raw is the whole disk after every step", function()
        local image <close> = assert(create { data_file_raw = true })
        local function same()
            assert(image:flush())
            assert.equal(image:read(0, image:size()), data())
        end
        assert(image:write(70 * KIB, ("x"):rep(200 * KIB)))
        same()
        assert(image:write_zeroes(100 * KIB, 50 * KIB))
        same()
        assert(image:write_zeroes(128 * KIB, 64 * KIB, { unmap = true }))
        same()
        assert(image:discard(192 * KIB, 64 * KIB))
        assert.equal(("\0"):rep(64 * KIB), image:read(192 * KIB, 64 * KIB))
        same()
        assert(image:write(192 * KIB, "y"))
        same()
        assert(image:resize((2 << 20) + 512))
        same()
        assert(image:write((2 << 20), ("z"):rep(512)))
        same()
        assert(image:resize(100 * KIB, { shrink = true }))
        same()
        assert(image:resize(1 << 20))
        assert.equal(("\0"):rep(100), image:read(100 * KIB, 100))
        same()
    end)

    it("keeps the flag that says it is raw over writes", function()
        assert(assert(create { data_file_raw = true }):close())
        local image <close> = assert(qcow2.open(folder .. "/disk.qcow2"))
        assert(image:write(0, "x"))
        assert.equal(2, image.header.autoclear_features)
        assert(image:flush())
        assert.equal("\2", oracle.bytes(folder .. "/disk.qcow2", 95, 1))
    end)

    it("is not opened where no bytes are asked for", function()
        assert(assert(create {}):close())
        assert(os.remove(folder .. "/disk.data"))
        local image <close> = assert(qcow2.open(folder .. "/disk.qcow2", { open_data_file = false, read_only = true }))
        assert.equal("disk.data", image:info()["format-specific"].data["data-file"])
        assert.equal("unallocated", image:clusters()[1].type)
        local bytes, message = image:read(0, 1)
        assert.is_nil(bytes)
        assert.matches("was opened without its external data file", message)
    end)

    it("that is missing is named", function()
        assert(assert(create {}):close())
        assert(os.remove(folder .. "/disk.data"))
        local image, message, code = qcow2.open(folder .. "/disk.qcow2")
        assert.is_nil(image)
        assert.matches("data file '.*/disk%.data' of '.*/disk%.qcow2'", message)
        assert.equal("ENOENT", code)
    end)

    it("may be another one than the image says", function()
        local image = assert(create {})
        assert(image:write(0, "moved"))
        assert(image:close())
        assert(os.rename(folder .. "/disk.data", folder .. "/elsewhere"))
        image = assert(qcow2.open(folder .. "/disk.qcow2", { data_file = folder .. "/elsewhere" }))
        assert.equal("moved", image:read(0, 5))
        assert(image:close())
    end)

    it("is refused for images that have none, and where it is the image itself", function()
        assert(assert(qcow2.create(folder .. "/plain.qcow2", { size = "1M" })):close())
        local image, message = qcow2.open(folder .. "/plain.qcow2", { data_file = folder .. "/plain.qcow2" })
        assert.is_nil(image)
        assert.matches("has no external data file", message)
        image, message = create { data_file = "disk.qcow2" }
        assert.is_nil(image)
        assert.matches("is the image itself", message)
    end)

    it("is locked as the image is", function()
        local image <close> = assert(create {})
        assert(image:write(0, "x"))
        local copy = folder .. "/copy.qcow2"
        assert(image:flush())
        oracle.copy(folder .. "/disk.qcow2", copy)
        local other, message = qcow2.open(copy)
        assert.is_nil(other)
        assert.matches("another process", message)
    end)

    it("takes each byte over a backing file", function()
        local below = assert(qcow2.create(folder .. "/below.qcow2", { size = "1M" }))
        assert(below:write(0, ("b"):rep(200 * KIB)))
        assert(below:close())
        local image <close> = assert(create { backing_file = "below.qcow2", backing_format = "qcow2" })
        assert(image:write(70 * KIB, ("o"):rep(KIB)))
        assert(image:write_zeroes(130 * KIB, KIB))
        assert.equal(("b"):rep(70 * KIB) .. ("o"):rep(KIB) .. ("b"):rep(59 * KIB) .. ("\0"):rep(KIB) .. ("b"):rep(69 * KIB), image:read(0, 200 * KIB))
    end)

    it("that an entry does not agree with is damage", function()
        local image = assert(create {})
        assert(image:write(0, ("x"):rep(128 * KIB)))
        local table_offset = image:l1()[1].offset or image:l1()[1].l2_offset
        assert(image:close())
        oracle.patch(folder .. "/disk.qcow2", table_offset + 8, string.pack(">I8", 1 << 63 | 5 * 65536))
        image = assert(qcow2.open(folder .. "/disk.qcow2", { read_only = true }))
        assert.equal("x", image:read(0, 1))
        local bytes, message, code = image:read(65536, 1)
        assert.is_nil(bytes)
        assert.matches("guest offset 65536 is mapped to offset 327680 of the external data file", message)
        assert.equal("ECORRUPT", code)
        assert(image:close())
    end)
end)

describe("subclusters", function()
    it("move only what was asked for, over a backing file", function()
        local folder <const>, remove = oracle.temp_dir()
        local below = assert(qcow2.create(folder .. "/below.qcow2", { size = "1M" }))
        assert(below:write(0, ("b"):rep(1 << 20)))
        assert(below:close())
        local image = assert(qcow2.create(folder .. "/top.qcow2", {
            cluster_size = "128K", extended_l2 = true, backing_file = "below.qcow2", backing_format = "qcow2",
        }))
        assert(image:write(256 * KIB + 8 * KIB, ("t"):rep(4 * KIB)))
        local stats = image:stats()
        assert.equal(0, stats.cow_read_bytes + stats.cow_written_bytes)
        assert(image:write(256 * KIB + 21 * KIB, ("t"):rep(2 * KIB))) -- 1 KiB before it and 1 KiB behind it come from below
        stats = image:stats()
        assert.equal(2 * KIB, stats.cow_read_bytes)
        assert.equal(2 * KIB, stats.cow_written_bytes)
        assert.equal(("b"):rep(8 * KIB) .. ("t"):rep(4 * KIB) .. ("b"):rep(9 * KIB) .. ("t"):rep(2 * KIB) .. ("b"):rep(9 * KIB),
            image:read(256 * KIB, 32 * KIB))
        assert(image:close())
        remove()
    end)

    it("that are all given up give the cluster back", function()
        local image <close> = assert(qcow2.create(qcow2.memory(), { size = "1M", extended_l2 = true }))
        assert(image:write(0, ("x"):rep(64 * KIB)))
        local host = image:clusters(0, 1)[1].host_offset
        for part = 0, 31 do assert(image:discard(part * 2 * KIB, 2 * KIB)) end
        assert(image:flush())
        assert.equal("zero", image:clusters(0, 65536)[1].type)
        assert.equal(0, (image:refcount(host // 65536)))
    end)
end)
