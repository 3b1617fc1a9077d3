-- SPDX-License-Identifier: MIT
-- What does allocation cost the filesystem, and how long? 4 KiB random writes into raw files and qcow2 images with each kind of
-- preallocation, and for the clusters of those without: zeroes written, zeroes by fallocate, nothing.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local GiB, MiB = 1 << 30, 1 << 20

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

local function options_with(base, more)
    local options = {}
    for name, value in pairs(base) do options[name] = value end
    for name, value in pairs(more or {}) do options[name] = value end
    return options
end

local function measure(setting)
    return function(env, case)
        local at = setting.disk == "file" and { disk = "file", dir = case.dir } or setting
        local place = support.place(at, "prealloc.img")
        local target = place.target()
        local created, message = qcow2.create(target, options_with(env.create, { size = case.size }))
        if not created then return { error = message } end
        created:close()
        local format = env.create.format or "qcow2"
        local image <close> = assert(qcow2.open(target, options_with({ cache = support.cache(at), format = format }, env.open)))
        local result = assert(image:bench {
            rw = "randwrite", bs = "4K", iodepth = 8, ramp_time = case.ramp, runtime = case.runtime, interval = case.runtime / 20,
        })
        image:close()
        place.remove()
        local latency, course = support.details(result.write, result.series, "write")
        return support.result(setting, { iops = result.write.iops, latency = latency, course = course })
    end
end

--- A row for each directory that was named, or for the one place there is; with and without the start-up burst.
local function cases(setting)
    local list, size = {}, setting.quick and 64 * MiB or GiB
    local dirs = setting.disk == "file" and #setting.rest > 0 and setting.rest or { setting.dir }
    for _, dir in ipairs(dirs) do
        local name = #dirs > 1 and dir .. ", " or ""
        local runtime = setting.quick and 0.2 or 5
        list[#list + 1] = { id = name .. "from the start", dir = dir, size = size, ramp = 0, runtime = runtime }
        list[#list + 1] = { id = name .. "after ramp_time", dir = dir, size = size, ramp = runtime, runtime = runtime }
    end
    return list
end

return support.scenario {
    name = "prealloc",
    question = "What does allocation cost the filesystem, and how long?",
    disks = "file,ssd",
    count = 5,
    usage = "usage: prealloc.lua [OPTION…] [DIRECTORY…]\n\n  DIRECTORY            a row for each: filesystems to compare\n",
    measure = function(setting)
        return { simplebench.bench(measure(setting), ENVS, cases(setting), setting.run) }
    end,
}
