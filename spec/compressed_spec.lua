-- SPDX-License-Identifier: MIT
-- Compressed clusters: qemu-img's read here, ours read and checked there, at every cluster size and with every codec that is here.

local Random = require "spec.support.random"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local SEED = Random.seed_of_run()
local SIZE = 3 << 20
local has_zstd = qcow2.create(qcow2.memory(), { size = "1M", compression_type = "zstd" }) ~= nil

local folder, remove

--- Text, noise, zeroes and repeats, in stretches of all lengths.
local function content(random, size)
    local parts, length = {}, 0
    while length < size do
        local want = random:between(1, 150000)
        local kind = random:between(1, 4)
        local part
        if kind == 1 then part = random:bytes(want)
        elseif kind == 2 then part = ("\0"):rep(want)
        elseif kind == 3 then part = random:bytes(37):rep(want // 37 + 1)
        else
            local lines = {}
            for i = 1, want // 8 do lines[i] = ("%d\n"):format(i * 7) end
            part = table.concat(lines)
        end
        parts[#parts + 1] = part
        length = length + #part
    end
    return table.concat(parts):sub(1, size)
end

local function save(path, bytes)
    local file <close> = assert(io.open(path, "wb"))
    file:write(bytes)
end

local function shapes()
    local list = {}
    for bits = 9, 21 do
        list[#list + 1] = { cluster_size = 1 << bits }
        if has_zstd then list[#list + 1] = { cluster_size = 1 << bits, compression_type = "zstd" } end
    end
    list[#list + 1] = { cluster_size = 65536, compat = "0.10" }
    list[#list + 1] = { cluster_size = 65536, extended_l2 = true }
    list[#list + 1] = { cluster_size = 4096, refcount_bits = 1 } -- no host cluster can be shared
    list[#list + 1] = { cluster_size = 4096, refcount_bits = 2 }
    return list
end

local function name_of(shape)
    return ("clusters of %d, %s%s%s%s"):format(shape.cluster_size, shape.compression_type or "zlib", shape.compat and ", version 2" or "",
        shape.extended_l2 and ", extended L2" or "", shape.refcount_bits and (", refcounts of %d bits"):format(shape.refcount_bits) or "")
end

describe(("compressed clusters (QCOW2_SEED=%d)"):format(SEED), function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    for index, shape in ipairs(shapes()) do
        it("of qemu-img's are read: " .. name_of(shape), function()
            if oracle.missing then return pending(oracle.missing) end
            local random = Random.new(SEED + index)
            local bytes = content(random, SIZE)
            local raw, path = folder .. "/disk.raw", folder .. "/disk.qcow2"
            save(raw, bytes)
            local options = {}
            for name, value in pairs(shape) do options[#options + 1] = ("%s=%s"):format(name, value == true and "on" or value) end
            oracle.must(oracle.img, "convert", "-c", "-f", "raw", "-O", "qcow2", "-o", table.concat(options, ","), raw, path)
            local image <close> = assert(qcow2.open(path))
            assert.equal(bytes, image:read(0, SIZE))
            for _ = 1, 200 do
                local offset = random:between(0, SIZE - 6000)
                local length = random:between(1, 6000)
                assert(bytes:sub(offset + 1, offset + length) == image:read(offset, length))
            end
            for _ = 1, 20 do -- overwritten in part
                local offset, part = random:between(0, SIZE - 6000), random:bytes(random:between(1, 6000))
                assert(image:write(offset, part))
                bytes = bytes:sub(1, offset) .. part .. bytes:sub(offset + #part + 1)
            end
            image:close()
            save(raw, bytes)
            assert.equal(0, (oracle.check(path)))
            assert.equal(0, (oracle.compare(path, raw)))
        end)

        it("of ours are read by qemu-img: " .. name_of(shape), function()
            local random, size = Random.new(SEED + 100 + index), SIZE + 512 * 3 -- the last cluster is cut
            local bytes, path, unit = content(random, size), folder .. "/disk.qcow2", shape.cluster_size
            local options = { size = size }
            for name, value in pairs(shape) do options[name] = value end
            local image <close> = assert(qcow2.create(path, options))
            local at = 0
            while at < size do
                local length = math.min(random:between(1, math.max(1, 200000 // unit)) * unit, size - at)
                assert(image:write_compressed(at, bytes:sub(at + 1, at + length), { level = random:one_in(2) and random:between(1, 9) or nil }))
                at = at + length
            end
            assert.equal(bytes, image:read(0, size))
            local stats = image:stats()
            assert.is_true(stats.compressed_writes > 0)
            assert.is_true(stats.compressed_bytes < stats.compressed_writes * unit)
            image:close()
            local report = qcow2.check(path)
            assert.same({ 0, 0, stats.compressed_writes }, { report.corruptions, report.leaks, report["compressed-clusters"] })
            if oracle.missing then return end
            assert.equal(0, (oracle.check(path)))
            save(folder .. "/disk.raw", bytes)
            assert.equal(0, (oracle.compare(path, folder .. "/disk.raw")))
        end)
    end

    it("share host clusters, and are given back when the last one goes", function()
        local image <close> = assert(qcow2.create(folder .. "/disk.qcow2", { size = "64M" }))
        for i = 0, 99 do assert(image:write_compressed(i * 65536, ("%08d"):format(i):rep(8192))) end
        assert.is_true(image:stats().clusters_allocated <= 2)
        local run = image:clusters(0, 65536)[1]
        assert.equal("compressed", run.type)
        local cluster = run.host_offset // 65536
        local shared = image:refcount(cluster)
        assert.is_true(shared > 1)
        assert(image:write(0, "x"))
        assert(image:discard(65536, 65536))
        assert(image:flush())
        assert.equal(shared - 2, image:refcount(cluster))
        assert.equal("x0000000", image:read(0, 8))
        assert.equal("00000099", image:read(99 * 65536, 8))
        assert(image:discard(0, 64 << 20))
        assert(image:flush())
        assert.equal(0, image:refcount(cluster))
    end)

    it("that do not shrink are stored as they are", function()
        local random = Random.new(SEED)
        local image <close> = assert(qcow2.create(folder .. "/disk.qcow2", { size = "4M" }))
        local noise = {}
        for i = 1, 65536 / 8 do noise[i] = (">I8"):pack(random:bits()) end
        assert(image:write_compressed(0, table.concat(noise)))
        assert.equal("normal", image:clusters(0, 65536)[1].type)
        assert.equal(table.concat(noise), image:read(0, 65536))
        assert.equal(0, image:stats().compressed_writes)
    end)

    it("are whole clusters, in images that can have them", function()
        local image <close> = assert(qcow2.create(folder .. "/disk.qcow2", { size = 200000 }))
        for _, range in ipairs { { 1, 65536 }, { 0, 65535 }, { 65536, 100 } } do
            local done, message, code = image:write_compressed(range[1], ("x"):rep(range[2]))
            assert.same({ nil, "EINVAL" }, { done, code })
            assert.matches("not one of whole clusters of 65536 bytes", message)
        end
        assert(image:write_compressed(3 * 65536, ("x"):rep(image:size() - 3 * 65536)))
        local done, message, code = image:write_compressed(0, ("x"):rep(65536), { level = 10 })
        assert.same({ nil, "EINVAL" }, { done, code })
        assert.matches("level is 10; 1 to 9 are allowed", message)
        local raw <close> = assert(qcow2.create(folder .. "/disk.raw", { size = 65536, format = "raw" }))
        done, message, code = raw:write_compressed(0, ("x"):rep(65536))
        assert.same({ nil, "ENOTSUP" }, { done, code })
        assert.matches("a raw image: nothing can be compressed", message)
        local beside <close> = assert(qcow2.create(folder .. "/beside.qcow2", { size = 65536, data_file = "data" }))
        done, message, code = beside:write_compressed(0, ("x"):rep(65536))
        assert.same({ nil, "ENOTSUP" }, { done, code })
        assert.matches("an external data file: nothing can be compressed", message)
    end)

    it("that cannot be unpacked are an error that says where, and harm nothing else", function()
        local path = folder .. "/disk.qcow2"
        local image = assert(qcow2.create(path, { size = "1M" }))
        assert(image:write_compressed(0, ("spoilt "):rep(10000):sub(1, 65536)))
        assert(image:write_compressed(65536, ("sound "):rep(11000):sub(1, 65536)))
        local host = image:clusters(0, 65536)[1].host_offset
        image:close()
        oracle.patch(path, host, ("\255"):rep(20))
        image = assert(qcow2.open(path))
        for _, length in ipairs { 65536, 100 } do
            local bytes, message, code = image:read(0, length)
            assert.same({ nil, "EIO" }, { bytes, code })
            assert.matches(("guest offset 0: the compressed cluster at host offset %d of '.*' cannot be unpacked"):format(host), message)
        end
        assert.is_nil((image:write(10, "part of it")))
        assert.equal("sound ", image:read(65536, 6))
        assert(image:write(0, ("n"):rep(65536)))
        assert.equal("n", image:read(0, 1))
        image:close()
    end)
end)
