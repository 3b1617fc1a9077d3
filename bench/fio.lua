-- SPDX-License-Identifier: MIT
-- Is our job engine as fast as fio, and does it measure the same? The same 4 KiB jobs on one raw file, full of bytes, by the installed
-- fio and by image:bench, in turn. IOPS come from what each says itself, so that fio's start is not in them.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local json = require "qcow2.simplebench.json"
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local statistics = require "qcow2.simplebench.statistics"
local support = require "support"

local GiB, MiB = 1 << 30, 1 << 20
local PERCENTILES = { { "p50", "50.000000" }, { "p90", "90.000000" }, { "p99", "99.000000" }, { "p99.9", "99.900000" } }
local ENGINES = {
    { id = "psync", aio = "sync", ioengine = "psync", iodepth = 1 },
    { id = "io_uring", aio = "io_uring", ioengine = "io_uring", iodepth = 1 },
    { id = "io_uring, depth 32", aio = "io_uring", ioengine = "io_uring", iodepth = 32 },
}

-- invalidate=0, scramble_buffers=0: image:bench drops no cache and writes its buffers as they are. thread=1: its workers are threads.
-- disable_slat, disable_clat: it too takes the time twice for a request, from its start to its end.
local FIO = "fio --name=job --output-format=json --filename=%s --rw=%s --ioengine=%s --iodepth=%d --direct=%d --time_based --runtime=%dms" ..
    " --bs=4k --size=%d --norandommap --thread --invalidate=0 --scramble_buffers=0 --allow_file_create=0" ..
    " --disable_slat=1 --disable_clat=1 --lat_percentiles=1 --percentile_list=50:90:99:99.9"

local function cases()
    local list = {}
    for _, rw in ipairs { "randread", "randwrite" } do
        for _, engine in ipairs(ENGINES) do
            list[#list + 1] = { id = ("%s, %s"):format(rw, engine.id), rw = rw, direction = rw:gsub("^rand", ""), engine = engine }
        end
    end
    return list
end

-- ---- one run: iops, and the percentiles in seconds ----

local function run_fio(case, setting)
    local engine, path = case.engine, support.quote(setting.path)
    local output, message = support.capture(FIO:format(path, case.rw, engine.ioengine, engine.iodepth, setting.cache == "none" and 1 or 0,
        math.floor(setting.runtime * 1000), setting.size))
    if not output then return nil, message end
    local document, wrong = json.decode(output:match "{.*}" or "")
    if not document then return nil, ("%s: %s"):format(wrong, output) end
    local found, percentiles = document.jobs[1][case.direction], {}
    for _, names in ipairs(PERCENTILES) do percentiles[names[1]] = found.lat_ns.percentile[names[2]] / 1e9 end
    return { iops = found.iops, percentiles = percentiles }
end

local function run_ours(case, setting)
    local image <close> = assert(qcow2.open(setting.path, { format = "raw", cache = setting.cache }))
    local result, message = image:bench {
        rw = case.rw, bs = "4K", iodepth = case.engine.iodepth, aio = case.engine.aio, runtime = setting.runtime, norandommap = true,
    }
    if not result then return nil, message end
    local found, percentiles = result[case.direction], {}
    for _, names in ipairs(PERCENTILES) do percentiles[names[1]] = found.latency[names[1]] end
    return { iops = found.iops, percentiles = percentiles, latency = found.latency.buckets }
end

-- ---- latency ----

local function median_of(runs, percentile)
    local values = {}
    for _, run in ipairs(runs) do
        if run.percentiles then values[#values + 1] = run.percentiles[percentile] * 1e6 end
    end
    return #values > 0 and ("%.1f"):format(statistics.median(values)) or "-"
end

--- Both sides' percentiles beside each other: the medians of all runs.
local function latency_table(bench)
    local rows = { { "" } }
    for _, names in ipairs(PERCENTILES) do
        for _, env in ipairs(bench.envs) do table.insert(rows[1], ("%s %s"):format(names[1], env.side)) end
    end
    for _, case in ipairs(bench.cases) do
        local row = { case.id }
        for _, names in ipairs(PERCENTILES) do
            for _, env in ipairs(bench.envs) do row[#row + 1] = median_of(bench.results[case.id][env.id].runs, names[1]) end
        end
        rows[#rows + 1] = row
    end
    return { title = "latency from submission to completion, µs", rows = rows }
end

-- ---- the scenario ----

local function fio_version()
    local output = support.capture "fio --version"
    return output and output:match "^(fio%-%S+)" or support.stop "fio: there is no fio here; install it, or put it on PATH"
end

--- The file that both work on, every byte of it written.
local function make_file(setting)
    local place = support.place(setting, "fio.raw")
    setting.path = place.target()
    local image <close> = assert(qcow2.create(setting.path, { size = setting.size, format = "raw" }))
    assert(image:bench { rw = "write", bs = "1M" })
    assert(image:flush())
    assert(image:close())
    return place
end

return support.scenario {
    name = "fio",
    question = "Is the job engine as fast as fio, and does it measure the same?",
    count = 10,
    usage = "usage: fio.lua [OPTION…]\n\n",
    measure = function(setting)
        if setting.disk ~= "file" then support.stop "fio: it knows no simulated disks; --disk can only be file" end
        local envs = { { id = fio_version(), side = "fio", run = run_fio }, { id = "image:bench", side = "ours", run = run_ours } }
        setting.size, setting.runtime = setting.quick and 64 * MiB or GiB, setting.quick and 0.3 or 2
        setting.cache = support.cache(setting)
        local place = make_file(setting)
        local bench = simplebench.bench(function(env, case) return env.run(case, setting) end, envs, cases(), setting.run)
        place.remove()
        bench.notes = { ("4 KiB, a file of %d MiB, %g s a run, cache=%s"):format(setting.size // MiB, setting.runtime, setting.cache) }
        return { bench, latency_table(bench) }
    end,
}
