-- SPDX-License-Identifier: MIT
-- Queues: coroutines, callbacks, and what happens to what is under way.

local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local function new_image(options) return assert(qcow2.create(qcow2.memory "disk", options or { size = "16M" })) end

--- What the function raises, with its position, which busted's own asserts leave out.
local function raised(func)
    local good, message = pcall(func)
    assert.is_false(good)
    return message
end

describe("a queue", function()
    for _, aio in ipairs { "auto", "threads", "sync" } do
        it("carries out what coroutines ask for, with aio " .. aio, function()
            local image <close> = new_image()
            local queue <close> = assert(image:queue { depth = 4, aio = aio })
            local read = {}
            for i = 0, 63 do
                queue:spawn(function()
                    local bytes = ("%08d"):format(i):rep(512)
                    assert(queue:write(i * 65536 + 100, bytes))
                    read[i] = assert(queue:read(i * 65536 + 100, 4096)) == bytes
                end)
            end
            assert(queue:run())
            for i = 0, 63 do assert.is_true(read[i]) end
            assert.equal(("%08d"):format(63), image:read(63 * 65536 + 100, 8))
        end)
    end

    it("calls back", function()
        local image <close> = new_image()
        local queue <close> = assert(image:queue())
        local results, buffer = {}, qcow2.buffer(8)
        queue:write(0, "12345678", function(...) results.write = { ... } end)
        queue:run()
        queue:read(2, 4, function(...) results.read = { ... } end)
        queue:read_into(0, buffer, 4, 4, function(...) results.read_into = { ... } end)
        queue:flush(function(...) results.flush = { ... } end)
        queue:run()
        queue:write_zeroes(0, 4, { unmap = true }, function(...) results.zeroes = { ... } end)
        queue:discard(65536, 65536, function(...) results.discard = { ... } end)
        queue:read(16 << 20, 1, function(...) results.beyond = { ... } end)
        assert.is_boolean(queue:poll())
        queue:run()
        assert.same({ true }, results.write)
        assert.same({ "3456" }, results.read)
        assert.same({ true }, results.read_into)
        assert.equal("\0\0\0\0001234", buffer:get())
        assert.same({ true }, results.flush)
        assert.same({ true }, results.zeroes)
        assert.same({ true }, results.discard)
        assert.equal("EINVAL", results.beyond[3])
        assert.equal("\0\0\0\0005678", image:read(0, 8))
        assert.is_false(queue:poll())
    end)

    it("gives failures as the image's methods do", function()
        local fault = qcow2.fault(qcow2.memory "disk")
        local image <close> = assert(qcow2.create(fault, { size = "1M" }))
        local queue <close> = assert(image:queue { depth = 2 })
        fault:fail { op = "write", nth = 1, times = 1, code = "EIO" }
        local first, second
        queue:spawn(function()
            first = { queue:write(0, "x") }
            second = { queue:write(0, "y") }
        end)
        queue:run()
        assert.is_nil(first[1])
        assert.equal("EIO", first[3])
        assert.same({ true }, second)
    end)

    it("hands on what a coroutine raises", function()
        local image <close> = new_image()
        local queue <close> = assert(image:queue())
        queue:spawn(function()
            assert(queue:write(0, "x"))
            error "a word of its own"
        end)
        assert.error_matches(function() queue:run() end, "a word of its own")
        assert(queue:run())
    end)

    it("ends what is under way when it is closed or forgotten", function()
        local path_folder, remove = oracle.temp_dir()
        local image = assert(qcow2.create(path_folder .. "/disk.qcow2", { size = "16M" }))
        do
            local queue <close> = assert(image:queue { depth = 16 })
            for i = 0, 15 do queue:write(i << 20, ("%02d"):format(i):rep(2048), function() error "nobody is told" end) end
        end
        for i = 0, 15 do assert.equal(("%02d"):format(i):rep(2048), image:read(i << 20, 4096)) end
        assert(image:queue { depth = 2 }):write(0, qcow2.buffer(65536):fill(7), print)
        assert.error_matches(function() image:close() end, "attempt to close an image with 1 open")
        collectgarbage()
        collectgarbage()
        assert.equal(("\7"):rep(65536), image:read(0, 65536))
        assert(image:close())
        remove()
    end)

    it("survives the end of the whole state with requests under way", function()
        local folder, remove = oracle.temp_dir()
        local script = ([[
            local qcow2 = require "qcow2"
            image = assert(qcow2.create("%s/disk.qcow2", { size = "64M" }))
            queue = assert(image:queue { depth = 64, aio = "threads" })
            for i = 0, 63 do queue:write(i << 20, qcow2.buffer(1 << 20):fill(i), function() end) end
        ]]):format(folder)
        local file = assert(io.open(folder .. "/script.lua", "w"))
        file:write(script)
        file:close()
        assert.is_true(os.execute(("%s %s/script.lua"):format(oracle.lua, folder)))
        local image <close> = assert(qcow2.open(folder .. "/disk.qcow2"))
        for i = 0, 63 do assert.equal(string.char(i):rep(10), image:read((i << 20) + 5000, 10)) end
        remove()
    end)

    it("serves coroutines in the order in which they came", function()
        local image <close> = new_image()
        local queue <close> = assert(image:queue { depth = 1, aio = "threads" })
        local order = {}
        for name = 1, 3 do
            queue:spawn(function()
                for _ = 1, 3 do
                    assert(queue:write(0, "x"))
                    order[#order + 1] = name
                end
            end)
        end
        assert(queue:run())
        assert.same({ 1, 2, 3, 1, 2, 3, 1, 2, 3 }, order)
    end)

    it("may be closed by what it calls", function()
        for _, go in ipairs { "run", "poll" } do
            local image <close> = new_image()
            local queue = assert(image:queue { depth = 4, aio = "sync" })
            local told = 0
            for _ = 1, 3 do
                queue:write(0, "x", function()
                    told = told + 1
                    queue:close()
                end)
            end
            queue[go](queue)
            assert.equal(1, told)
            assert.matches("queue_spec.*closed queue", raised(function() queue:write(0, "x", print) end))
        end
    end)

    it("blames whoever misuses it", function()
        local image <close> = new_image()
        local queue <close> = assert(image:queue())
        assert.matches("queue_spec", raised(function() queue:write({}, "x", print) end))
        assert.matches("queue_spec.*the length must be bytes", raised(function() queue:read(0, {}, print) end))
        assert.matches("queue_spec.*unknown option 'unmpa' %(did you mean 'unmap'", raised(function() queue:write_zeroes(0, 1, { unmpa = true }, print) end))
        assert.matches("queue_spec.*unknown option 'unmpa' %(did you mean 'unmap'", raised(function() image:write_zeroes(0, 1, { unmpa = true }) end))
        assert.matches("queue_spec.*unknown option 'shrnk' %(did you mean 'shrink'", raised(function() image:resize(1 << 20, { shrnk = true }) end))
    end)

    it("refuses misuse", function()
        local image <close> = new_image()
        local queue <close> = assert(image:queue { depth = 1 })
        assert.matches("queue_spec.*a callback is needed outside of a coroutine", raised(function() queue:write(0, "x") end))
        assert.error_matches(function() queue:write(0, "x", 3) end, "a callback must be a function")
        assert.error_matches(function() queue:write(-1, "x", print) end, "offset must be 0 or more")
        assert.error_matches(function() queue:read_into(0, qcow2.buffer(4), 5, 1, print) end, "the position passes the end")
        assert.error_matches(function() image:queue { depht = 1 } end, "unknown option 'depht' %(did you mean 'depth'%?%)")
        assert.same({ nil, "depth is 0; whole numbers from 1 to 1024 are allowed", "EINVAL" }, { image:queue { depth = 0 } })
        queue:close()
        assert.error_matches(function() queue:flush(print) end, "closed queue")
    end)
end)
