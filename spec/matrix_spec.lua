-- SPDX-License-Identifier: MIT

--- Every shape of image, in both directions: what we make and write is clean and equal for qemu-img, and what qemu-img makes
-- and qemu-io writes reads back here, byte for byte, and stays clean when we go on writing. A seeded sample of the shapes; all of
-- them when QCOW2_WHOLE is 1. QCOW2_SEED repeats a run.
local Model = require "spec.support.model"
local Random = require "spec.support.random"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"
local verbs = require "spec.support.verbs"

local SAMPLE = 64
local LONGEST = 300000 -- bytes in one request
local SIZE_MAX = 16 << 20
local PREALLOCATIONS = { "off", "metadata", "falloc", "full" }

--- Every combination, in a fixed order.
local function all_shapes()
    local shapes = {}
    local function add(bits, compat, refcount_bits, extended_l2, data)
        for _, preallocation in ipairs(PREALLOCATIONS) do
            shapes[#shapes + 1] = {
                cluster_size = 1 << bits, compat = compat, refcount_bits = refcount_bits, preallocation = preallocation,
                extended_l2 = extended_l2, data = data, number = #shapes + 1,
            }
        end
    end
    for bits = 9, 21 do
        add(bits, "0.10", 16)
        for order = 0, 6 do add(bits, "1.1", 1 << order) end
    end
    for bits = 9, 21 do
        for _, data in ipairs { "plain", "raw" } do add(bits, "1.1", 16, false, data) end
        if bits >= 14 then
            for _, data in ipairs { "none", "plain", "raw" } do add(bits, "1.1", 16, true, data) end
        end
    end
    return shapes
end

--- A sample in which every cluster size is met, and every kind.
local function sample(shapes, random)
    for i = #shapes, 2, -1 do
        local j = random:between(1, i)
        shapes[i], shapes[j] = shapes[j], shapes[i]
    end
    local chosen, rest, met = {}, {}, {}
    for _, shape in ipairs(shapes) do
        local kind = ("extended_l2 %s, data %s"):format(shape.extended_l2, shape.data)
        local list = met[shape.cluster_size] and met[kind] and rest or chosen
        list[#list + 1] = shape
        met[shape.cluster_size], met[kind] = true, true
    end
    return table.move(rest, 1, SAMPLE - #chosen, #chosen + 1, chosen)
end

local function name_of(shape)
    return ("cluster_size %d, compat %s, refcount_bits %d, preallocation %s%s%s"):format(
        shape.cluster_size, shape.compat, shape.refcount_bits, shape.preallocation, shape.extended_l2 and ", extended L2" or "",
        (shape.data or "none") ~= "none" and (", %s data file"):format(shape.data) or "")
end

local function data_path(path) return path .. ".data" end

--- The shape's options for create; `on` and `off` are what says yes and no there.
local function options_of(shape, path, on)
    local has_data = (shape.data or "none") ~= "none"
    return {
        cluster_size = shape.cluster_size, compat = shape.compat, refcount_bits = shape.refcount_bits,
        preallocation = shape.preallocation, extended_l2 = shape.extended_l2 and on or nil,
        data_file = has_data and data_path(path) or nil, data_file_raw = shape.data == "raw" and on or nil,
    }
end

local function size_of(random, shape)
    return math.min(random:between(1, 600) * 512 + shape.cluster_size * random:between(0, 20), SIZE_MAX)
end

local function open_options(random)
    return {
        cow = random:choice { "write", "zero", "skip" }, l2_cache_size = random:choice { 512, 4096, 1 << 20 },
        l2_cache_entry_size = random:choice { 512, nil }, refcount_cache_size = random:choice { 512, 65536 },
        cache = random:choice { "unsafe", "unsafe", "writeback", "none" }, overlap_check = "all",
    }
end

local function verb_options(shape)
    return {
        unit = shape.cluster_size, discard_unit = shape.extended_l2 and shape.cluster_size // 32 or nil,
        longest = math.min(3 * shape.cluster_size, LONGEST), discard_zeroes = true,
    }
end

--- Random verbs by us, with one close and open on the way.
local function write_here(random, path, model, shape, steps)
    local image = assert(qcow2.open(path, open_options(random)))
    for step = 1, steps do
        verbs.step(random, image, model, verb_options(shape))
        if step == steps // 2 then
            assert(image:close())
            image = assert(qcow2.open(path, open_options(random)))
        end
    end
    assert(image:flush())
    assert(image:close())
end

local function assert_same_there(path, model, shape)
    local code, text = oracle.check(path)
    assert.equal(0, code, text)
    oracle.write_raw(model, path .. ".raw")
    code, text = oracle.compare(path, path .. ".raw")
    assert.equal(0, code, text)
    if shape.data ~= "raw" then return end
    code, text = oracle.run("cmp", "-n", ("%d"):format(model.size), data_path(path), path .. ".raw") -- the reference's may be longer
    assert.equal(0, code, text)
end

local function assert_same_here(path, model)
    local image <close> = assert(qcow2.open(path, { read_only = true }))
    assert.equal(model.size, image:size())
    assert.is_nil(model:difference(image))
end

--- One random qemu-io command, done to the model too.
local function foreign_command(random, model, unit)
    local length = math.min(random:between(1, math.min(3 * unit, LONGEST)), model.size)
    if random:one_in(2) then length = math.min(random:between(1, 3) * unit, model.size) end
    local offset = random:between(0, model.size - length)
    if random:one_in(2) then
        offset = offset // unit * unit
        length = math.min(length, model.size - offset)
    end
    local what = random:choice { "write", "write", "write", "zero", "unmap", "discard", "flush" }
    if what == "flush" then return "flush" end
    if what == "write" then
        local pattern = random:between(1, 255)
        model:write(offset, string.char(pattern):rep(length))
        return ("write -P %d %d %d"):format(pattern, offset, length)
    end
    if what == "discard" then
        local first = (offset + unit - 1) // unit * unit
        local last = offset + length == model.size and model.size or (offset + length) // unit * unit
        if last > first then model:zero(first, last - first) end
        return ("discard %d %d"):format(offset, length)
    end
    model:zero(offset, length)
    return ("write -z %s%d %d"):format(what == "unmap" and "-u " or "", offset, length)
end

local function write_there(random, path, model, unit, count)
    local commands = {}
    for i = 1, count do commands[i] = foreign_command(random, model, unit) end
    local code, text = oracle.qemu_io(path, commands)
    assert.equal(0, code, text)
    assert.not_matches("failed", text)
end

local function ours_there(random, path, shape)
    local model = Model.new(size_of(random, shape))
    local options = options_of(shape, path, true)
    options.size = model.size
    assert(assert(qcow2.create(path, options)):close())
    write_here(random, path, model, shape, random:between(20, 60))
    assert_same_there(path, model, shape)
    if shape.data == "raw" then assert.equal(model.size, #oracle.bytes(data_path(path))) end
end

local function theirs_here(random, path, shape)
    local model = Model.new(size_of(random, shape))
    oracle.create(path, model.size, options_of(shape, path, "on"))
    write_there(random, path, model, shape.cluster_size, random:between(20, 50))
    assert_same_here(path, model)
    write_here(random, path, model, shape, random:between(10, 20))
    assert_same_there(path, model, shape)
end

local seed = Random.seed_of_run()
local shapes = all_shapes()
local whole = os.getenv "QCOW2_WHOLE" == "1"
local chosen = whole and shapes or sample(all_shapes(), Random.new(seed))

describe(("the matrix, %d of %d shapes (QCOW2_SEED=%d%s)"):format(#chosen, #shapes, seed, whole and " QCOW2_WHOLE=1" or ""), function()
    if oracle.missing then
        pending("compares with qemu-img: " .. oracle.missing)
        return
    end

    local folder, remove
    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    for _, shape in ipairs(chosen) do
        -- The seed of a shape does not depend on which others are chosen.
        it("ours is clean and equal there: " .. name_of(shape), function()
            ours_there(Random.new(seed + 2 * shape.number), folder .. "/ours.qcow2", shape)
        end)
        it("theirs reads back here: " .. name_of(shape), function()
            local path = folder .. "/theirs.qcow2"
            os.remove(path)
            theirs_here(Random.new(seed + 2 * shape.number + 1), path, shape)
        end)
    end
end)
