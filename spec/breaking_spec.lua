-- SPDX-License-Identifier: MIT
-- What people who tried to break the engine broke: each once, so that it stays mended.

local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

describe("broken once:", function()
    local folder, remove
    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    local function path(name) return folder .. "/" .. name end

    local function new(name, options)
        local image = assert(qcow2.create(path(name), options or { size = "1M" }))
        assert(image:write(0, "precious"))
        assert(image:close())
        return path(name)
    end

    local function unharmed(name)
        local image <close> = assert(qcow2.open(name, { read_only = true, backing = false }))
        assert.equal("precious", image:read(0, 8))
    end

    it("a second image in one storage does not take the first one's locks with it", function()
        local storage = qcow2.file(new "shared", { write = true })
        local writer <close> = assert(qcow2.open(storage))
        assert(qcow2.open(storage, { read_only = true })):close()
        assert.equal("EBUSY", select(3, qcow2.open(storage)))
        assert.equal("EAGAIN", select(3, qcow2.open(path "shared")))
        assert(writer:close())
        assert(qcow2.open(path "shared")):close()
    end)

    it("create does not replace what is open", function()
        local memory = qcow2.memory()
        local image <close> = assert(qcow2.create(memory, { size = "1M" }))
        image:write(0, "precious")
        local none, _, code = qcow2.create(memory, { size = "2M" })
        assert.is_nil(none)
        assert.equal("EBUSY", code)
        assert.equal("precious", image:read(0, 8))
        local held <close> = assert(qcow2.open(new "held"))
        for _, target in ipairs { path "held", qcow2.file(path "held", { write = true }) } do
            none, _, code = qcow2.create(target, { size = "5M", preallocation = "metadata" })
            assert.is_nil(none)
            assert.equal("EAGAIN", code)
        end
        assert.equal("precious", held:read(0, 8))
    end)

    it("options with code in them cannot close the image that they are for", function()
        local function closing(object)
            return setmetatable({}, { __index = function() object:close() end })
        end
        local image = assert(qcow2.create(qcow2.memory(), { size = "1M" }))
        assert.error_matches(function() image:write_zeroes(0, 65536, closing(image)) end, "closed image")
        image = assert(qcow2.create(qcow2.memory(), { size = "1M" }))
        assert.error_matches(function() image:resize(0, closing(image)) end, "closed image")
        local storage = qcow2.fault(qcow2.memory())
        assert.error_matches(function() storage:fail(closing(storage)) end, "closed storage")
    end)

    it("finalizers cannot close an image that is being looked at", function()
        for _ = 1, 300 do
            local image = assert(qcow2.create(qcow2.memory(), { size = "1G" }))
            setmetatable({}, { __gc = function() image:close() end })
            pcall(function()
                for _ = 1, 20 do
                    image:read_header()
                    image:l1_entries()
                    image:stats()
                    image:read(0, 70000)
                end
            end)
            collectgarbage "step"
        end
    end)

    it("save does not replace its own file, or what is open", function()
        local storage = qcow2.file(new "own", { write = true })
        local none, message = storage:save(path "own")
        assert.is_nil(none)
        assert.matches("is the file of this storage", message)
        unharmed(path "own")
        local image <close> = assert(qcow2.open(new "open"))
        none, message = qcow2.memory():save(path "open")
        assert.is_nil(none)
        assert.matches("lock", message)
        assert.equal("precious", image:read(0, 8))
    end)

    it("autoclear bits stay until the first change", function()
        local name = new "autoclear"
        oracle.patch(name, 88, ("\0"):rep(7) .. "\1")
        assert(qcow2.open(name)):close()
        assert.equal(1, oracle.bytes(name, 95, 1):byte())
        local image = assert(qcow2.open(name))
        assert(image:flush())
        assert.equal(1, oracle.bytes(name, 95, 1):byte())
        assert(image:write(0, "precious"))
        assert.equal(0, oracle.bytes(name, 95, 1):byte())
        assert(image:close())
    end)

    it("a refused open changes nothing", function()
        new "base"
        local name = new("top", { size = "1M", backing_file = "base", backing_format = "qcow2" })
        oracle.patch(name, 88, ("\0"):rep(7) .. "\1")
        assert(os.rename(path "base", path "gone"))
        local before = oracle.bytes(name)
        assert.equal("ENOENT", select(3, qcow2.open(name)))
        assert.equal(before, oracle.bytes(name))
    end)

    it("cache sizes are the top image's, and no more than it can use", function()
        new("small", { size = "1M", cluster_size = 512 })
        local image = assert(qcow2.create(path "over", { size = "1M", backing_file = "small", backing_format = "qcow2" }))
        image:close()
        image = assert(qcow2.open(path "over", { l2_cache_entry_size = 4096, l2_cache_size = "7E", refcount_cache_size = "1T" }))
        assert.equal("precious", image:read(0, 8))
        local stats = image:stats()
        assert.is_true(stats.l2_cache.entries * stats.l2_cache.entry_size <= 65536)
        assert.is_true(stats.refcount_cache.entries * stats.refcount_cache.entry_size <= 512 << 10)
        image:close()
    end)

    it("paths with a zero byte are no paths", function()
        assert.error_matches(function() qcow2.create(path "nul\0zz", { size = "1M" }) end, "a path or a storage expected")
        assert.error_matches(function() qcow2.memory():save(path "nul\0zz") end, "a path has no zero byte")
        assert.is_nil(io.open(path "nul"))
    end)

    it("a failed create leaves a symbolic link where it is", function()
        os.execute(("ln -s target '%s'"):format(path "link"))
        local script = ([[trap '' XFSZ; ulimit -f 64; exec %s -e "require('qcow2').create('%s', %s)"]]):format(
            oracle.lua, path "link", "{ size = '8M', format = 'raw', preallocation = 'full' }")
        os.execute("bash -c '" .. script:gsub("'", "'\\''") .. "'")
        assert.is_true((os.execute(("test -L '%s' && ! test -e '%s'"):format(path "link", path "target"))))
    end)

    it("a file that may not grow a step ahead still grows by what is needed", function()
        local script = ([[trap '' XFSZ; ulimit -f 2000; exec %s -e "
            local image = assert(require('qcow2').create('%s', { size = '16M' }))
            local offset = 0
            while image:write(offset, ('x'):rep(100000)) do offset = offset + 100000 end
            image:close()
            io.write(offset)"]]):format(oracle.lua, path "limited")
        local pipe <close> = assert(io.popen("bash -c '" .. script:gsub("'", "'\\''") .. "'"))
        local written = pipe:read "n"
        assert.is_true(written >= 1500000, written)
        if not oracle.missing then assert.equal(0, (oracle.check(path "limited"))) end
    end)

    it("a memory storage's name is no path", function()
        new("base.raw", { size = "1M", format = "raw" })
        local image <close> = assert(qcow2.create(qcow2.memory(path "base.raw"), {
            size = "1M", backing_file = "base.raw", backing_format = "raw",
        }))
        assert.equal("precious", image:read(0, 8))
    end)

    it("formats that we do not know are named", function()
        new "vm"
        local image = assert(qcow2.create(path "vmtop", { size = "1M", backing_file = "vm", backing_format = "qcow2" }))
        image:close()
        local bytes = oracle.bytes(path "vmtop", 0, 1024)
        oracle.patch(path "vmtop", bytes:find("qcow2", 100, true) - 1, "vmdkx")
        local none, message, code = qcow2.open(path "vmtop")
        assert.is_nil(none)
        assert.equal("ENOTSUP", code)
        assert.matches("format 'vmdkx' of the backing file of .*vmtop' is not known", message)
    end)
end)
