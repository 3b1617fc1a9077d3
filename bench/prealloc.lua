-- SPDX-License-Identifier: MIT
-- What does allocation cost the filesystem, and how long? 4 KiB random writes into raw files and qcow2 images with each kind of
-- preallocation, and for the clusters of those without: zeroes written, zeroes by fallocate, nothing; on XFS also with extent size hints.
-- And how long making the file takes. qemu-img takes part in the making alone: its `bench` writes in order and never at random.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local qcow2 = require "qcow2"
local qemu_columns = require "qemu_columns"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local GiB, MiB = 1 << 30, 1 << 20

local USAGE = [[
usage: prealloc.lua [OPTION…] [DIRECTORY…]

  DIRECTORY            a row for each: filesystems to compare
]] .. qemu_columns.HELP

local ENVS = {
    { id = "raw, off", create = { format = "raw", preallocation = "off" } },
    { id = "raw, falloc", create = { format = "raw", preallocation = "falloc" } },
    { id = "raw, full", create = { format = "raw", preallocation = "full" } },
    { id = "qcow2, cow=write", create = { preallocation = "off" }, open = { cow = "write" } },
    { id = "qcow2, cow=zero", create = { preallocation = "off" }, open = { cow = "zero" } },
    { id = "qcow2, cow=skip", create = { preallocation = "off" }, open = { cow = "skip" } },
    { id = "qcow2, metadata", create = { preallocation = "metadata" } },
    { id = "qcow2, falloc", create = { preallocation = "falloc" } },
    { id = "qcow2, full", create = { preallocation = "full" } },
}

local HINT_ENVS = table.move(ENVS, 1, #ENVS, 1, {})
for _, hint in ipairs { "64K", "1M" } do
    table.insert(HINT_ENVS, { id = "raw, hint " .. hint, create = { format = "raw", extent_size_hint = hint } })
    table.insert(HINT_ENVS, { id = "qcow2, hint " .. hint, create = { extent_size_hint = hint } })
end

local function options_with(base, more)
    local options = {}
    for name, value in pairs(base) do options[name] = value end
    for name, value in pairs(more or {}) do options[name] = value end
    return options
end

-- ---- extent size hints ----

--- Whether files in the directory can have them (they can on XFS).
local function has_hints(dir)
    local path = dir .. "/hint.raw"
    local image, _, code = qcow2.create(path, { size = MiB, format = "raw", extent_size_hint = "64K" })
    if image then image:close() end
    os.remove(path)
    if not image and code ~= "ENOTSUP" then support.stop("prealloc: no file can be made in " .. dir) end
    return image ~= nil
end

-- ---- random writes ----

local function measure(env, case)
    local place = support.place(case.at, "prealloc.img")
    local target = place.target()
    local created, message = qcow2.create(target, options_with(env.create, { size = case.size }))
    if not created then return { error = message } end
    created:close()
    local format = env.create.format or "qcow2"
    local image <close> = assert(qcow2.open(target, options_with({ cache = support.cache(case.at), format = format }, env.open)))
    local result = assert(image:bench {
        rw = "randwrite", bs = "4K", iodepth = 8, ramp_time = case.ramp, runtime = case.runtime, interval = case.runtime / 20,
    })
    image:close()
    place.remove()
    local latency, course = support.details(result.write, result.series, "write")
    return support.result(case.at, { iops = result.write.iops, latency = latency, course = course })
end

--- A row for each place, with and without the start-up burst.
local function cases(places, named, setting)
    local list, size, runtime = {}, setting.size, setting.runtime
    for _, at in ipairs(places) do
        local name = named and at.dir .. ", " or ""
        list[#list + 1] = { id = name .. "from the start", at = at, size = size, ramp = 0, runtime = runtime }
        list[#list + 1] = { id = name .. "after ramp_time", at = at, size = size, ramp = runtime, runtime = runtime }
    end
    return list
end

-- ---- making ----

local MODES = { raw = { "off", "falloc", "full" }, qcow2 = { "off", "metadata", "falloc", "full" } }

local function make_ours(path, case)
    local start = qcow2.clock()
    local image <close>, message = qcow2.create(path, { format = case.format, preallocation = case.mode, size = case.size })
    if not image then return nil, message end
    image:close()
    return { seconds = qcow2.clock() - start }
end

local function make_qemu(path, case, program)
    local command = ("%s create -q -f %s -o preallocation=%s %s %d"):format(
        support.quote(program), case.format, case.mode, support.quote(path), case.size)
    local start = qcow2.clock()
    local output, message = support.capture(command)
    if not output then return nil, message end
    return { seconds = qcow2.clock() - start }
end

local function measure_making(env, case)
    local place = support.place(case.at, "prealloc.img")
    local result, message = (env.program and make_qemu or make_ours)(place.target(), case, env.program)
    place.remove()
    return result, message
end

local function making_cases(places, named, setting)
    local list, size = {}, setting.size
    for _, at in ipairs(places) do
        for _, format in ipairs { "raw", "qcow2" } do
            for _, mode in ipairs(MODES[format]) do
                local name = named and at.dir .. ", " or ""
                list[#list + 1] = { id = ("%s%s, %s"):format(name, format, mode), at = at, format = format, mode = mode, size = size }
            end
        end
    end
    return list
end

local function bench_making(qemus, places, named, setting)
    local envs = { { id = "engine" }, table.unpack(qemus) }
    local bench = simplebench.bench(measure_making, envs, making_cases(places, named, setting), setting.run)
    bench.title, bench.question = "making the file", "How long does it take to make a file with each kind of preallocation?"
    bench.notes = { "each side syncs what it has written or allocated; a qemu-img column has the start of its process in it" }
    return bench
end

-- ---- the scenario ----

--- Ends the script at once where no files can be made: not after minutes in other directories.
local function check_directory(dir)
    local path = dir .. "/probe.raw"
    local file, message = io.open(path, "w")
    if not file then support.stop("prealloc: " .. message) end
    file:close()
    os.remove(path)
end

--- The directories named, or the one place there is.
local function places_of(setting)
    if setting.disk ~= "file" then return { setting } end
    local places = {}
    for i, dir in ipairs(#setting.rest > 0 and setting.rest or { setting.dir }) do
        check_directory(dir)
        places[i] = { disk = "file", dir = dir, hints = has_hints(dir) }
    end
    return places
end

return support.scenario {
    name = "prealloc",
    question = "What does allocation cost the filesystem, and how long?",
    disks = "file,ssd",
    count = 5,
    usage = USAGE,
    values = { "--qemu-img" },
    measure = function(setting)
        setting.size, setting.runtime = setting.quick and 64 * MiB or GiB, setting.quick and 0.2 or 5
        local qemus = qemu_columns.of(setting.options.qemu_img) -- first, so that a wrong one is known before anything is measured
        local places, plain, hinted, found = places_of(setting), {}, {}, {}
        for _, at in ipairs(places) do table.insert(at.hints and hinted or plain, at) end
        local function add(title, group, envs) -- of directories that have the same columns
            if #group == 0 then return end
            local bench = simplebench.bench(measure, envs, cases(group, #places > 1, setting), setting.run)
            bench.title = title
            found[#found + 1] = bench
        end
        add(nil, plain, ENVS)
        add("with extent size hints", hinted, HINT_ENVS)
        if setting.disk == "file" then found[#found + 1] = bench_making(qemus, places, #places > 1, setting) end
        return found
    end,
}
