-- SPDX-License-Identifier: MIT
-- Every I/O operation, and every allocation, fails in turn, for create, open, write, flush and close, until the body passes clean. Each
-- time: the failure is reported with a sentence, nothing is left in memory, the image is sound, and what was
-- flushed is there; after a failure that passes, going on works.
local Model = require "spec.support.model"
local Random = require "spec.support.random"
local core = require "qcow2.core"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local SIZE = 1 << 20
local MOST = 3000 -- more failures than any body has operations

--- A body of work: tables are allocated, refcounts grow, clusters are written, rewritten, zeroed and given up.
-- Each step is {verb, …}; the model follows what succeeded.
local function steps()
    local random, list = Random.new(7), {}
    for i = 0, 11 do list[#list + 1] = { "write", i * 70000 % (SIZE - 5000), random:bytes(3000) } end
    list[#list + 1] = { "write_zeroes", 0, 9000 }
    list[#list + 1] = { "discard", 512 * 200, 512 * 40 }
    list[#list + 1] = { "flush" }
    for i = 0, 5 do list[#list + 1] = { "write", i * 90001 % (SIZE - 5000), random:bytes(2000) } end
    list[#list + 1] = { "flush" }
    return list
end

local STEPS = steps()

local function follow(model, step)
    if step[1] == "write" then model:write(step[2], step[3]) else model:zero(step[2], step[3]) end
end

--- Runs the body. `model` takes what succeeded; bytes of a step that failed are unknown and noted in `unknown`.
-- Returns the first failure, if any.
local function run(image, model, unknown)
    local message, code
    for _, step in ipairs(STEPS) do
        local done, why, name = image[step[1]](image, step[2], step[3])
        if not done and not message then message, code = why, name end
        if step[1] ~= "flush" then
            follow(model, step)
            if not done then unknown[#unknown + 1] = { step[2], type(step[3]) == "string" and #step[3] or step[3] } end
        end
    end
    return message, code
end

--- Makes the unknown ranges of both the same, so that the rest can be compared.
local function settle(image, model, unknown)
    for _, range in ipairs(unknown) do
        assert(image:write(range[1], ("s"):rep(range[2])))
        model:write(range[1], ("s"):rep(range[2]))
    end
end

local OPEN = { l2_cache_size = 1024, l2_cache_entry_size = 512, refcount_cache_size = 512 }

local function new_memory()
    local memory = qcow2.memory "under"
    assert(qcow2.create(memory, { size = SIZE, cluster_size = 512 })):close()
    return memory
end

local function check(memory, path)
    if oracle.missing then return end
    assert(memory:save(path))
    local code, text = oracle.check(path)
    assert.is_true(code == 0 or code == 3, text)
end

--- One failure put in by `arm`; `disarm` takes it out. Returns whether the body passed clean.
local function attempt(memory, disk, arm, disarm, path)
    local model, unknown = Model.new(SIZE), {}
    arm()
    local image, message, code = qcow2.open(disk, OPEN)
    if not image then
        disarm()
        assert.is_string(message)
        assert.matches("^E", code)
        return false
    end
    message, code = run(image, model, unknown)
    disarm()
    if message then
        assert.matches("%a", message)
        assert.matches("^E", code)
    end
    settle(image, model, unknown)
    assert(image:flush())
    assert.is_nil(model:difference(image))
    assert(image:close())
    local again = assert(qcow2.open(memory, { read_only = true }))
    assert.is_nil(model:difference(again))
    again:close()
    check(memory, path)
    return message == nil
end

local function held()
    collectgarbage()
    local _, blocks = core.memory_stats()
    return blocks
end

--- Fails the 1st, 2nd, … until a body passes clean. `arms(disk, n)` gives arm and disarm.
local function each_failure(path, arms)
    local before = held()
    for nth = 1, MOST do
        local memory = new_memory()
        local disk = assert(qcow2.fault(memory))
        local arm, disarm, hit = arms(disk, nth)
        attempt(memory, disk, arm, disarm, path)
        local over = not hit()
        disk:close()
        memory:close()
        assert.equal(before, held(), ("after failure %d"):format(nth))
        if over then return nth end
    end
    error "the body never passed clean"
end

describe("a failure of", function()
    local folder, remove

    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    for _, how in ipairs {
        { op = "any", code = "EIO" }, { op = "write", code = "ENOSPC", partial = true }, { op = "sync", code = "EIO" }, { op = "read", code = "EIO" },
    } do
        it(("one %s operation (%s) is reported, and going on works"):format(how.op, how.code), function()
            local count = each_failure(folder .. "/image.qcow2", function(disk, nth)
                return function() disk:fail { op = how.op, nth = nth, code = how.code, partial = how.partial } end,
                    function()
                        how.failed = select(2, disk:fault_counts())
                        disk:fail()
                    end,
                    function() return how.failed > 0 end
            end)
            assert.is_true(count > 1)
        end)
    end

    it("one allocation is reported, and going on works", function()
        local count = each_failure(folder .. "/image.qcow2", function(_, nth)
            local asked
            return function()
                asked = core.memory_stats()
                core.memory_fail_at(nth)
            end, function()
                core.memory_fail_at(0)
                asked = core.memory_stats() - asked
            end, function() return asked >= nth end
        end)
        assert.is_true(count > 20)
    end)

    it("every operation from some moment on keeps what was flushed before it", function()
        for nth = 1, 400, 7 do
            local memory = new_memory()
            local image = assert(qcow2.open(memory, OPEN))
            assert(image:write(100000, ("flushed"):rep(1000)))
            assert(image:flush())
            assert(image:close())
            local disk = assert(qcow2.fault(memory))
            image = assert(qcow2.open(disk, OPEN))
            disk:fail { op = "any", nth = nth, times = 0, code = "EIO" }
            local written = 0
            for i = 0, 40 do written = written + (image:write(i * 2000, "x") and 1 or 0) end
            image:flush()
            local closed, message, code = image:close()
            if written > 0 and select(2, disk:fault_counts()) > 0 then -- else there was nothing to flush
                assert.is_nil(closed)
                assert.is_string(message)
                assert.equal("EIO", code)
            end
            disk:close()
            image = assert(qcow2.open(memory, { read_only = true }))
            assert.equal(("flushed"):rep(1000), image:read(100000, 7000))
            image:close()
            check(memory, folder .. "/image.qcow2")
        end
    end)

    it("create leaves no half image", function()
        local before = held()
        for nth = 1, 100 do
            local memory = qcow2.memory()
            local disk = assert(qcow2.fault(memory))
            disk:fail { op = "any", nth = nth, code = "EIO" }
            local image, message, code = qcow2.create(disk, { size = SIZE, preallocation = "metadata" })
            local _, failed = disk:fault_counts()
            if image then image:close() end
            disk:close()
            if failed > 0 and not image then
                assert.is_string(message)
                assert.equal("EIO", code)
            end
            memory:close()
            image = nil -- luacheck: ignore
            assert.equal(before, held())
            if failed == 0 then return end
        end
        error "create never passed clean"
    end)
end)
