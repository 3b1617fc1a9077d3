-- SPDX-License-Identifier: MIT
-- Is latency fair when many read and write at once? Sequential and random reads and writes of many streams on one image under an I/O
-- scheduler: low_latency off and on, and the rule for how many writes may be under way, with readers beside the writers. There is no
-- column for qemu-img: its `bench` is one stream.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local last_runs = require "last_runs"
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local GiB, MiB = 1 << 30, 1 << 20

local TESTS = {
    { name = "sequential reads", rw = "read", direction = "read", iodepth = 1 },
    { name = "random reads", rw = "randread", direction = "read", iodepth = 1 },
    { name = "sequential writes", rw = "write", direction = "write", iodepth = 8 },
    { name = "random writes", rw = "randwrite", direction = "write", iodepth = 8 },
}

local LATENCY_ENVS = { { id = "low_latency off", low_latency = false }, { id = "low_latency on", low_latency = true } }

local DEPTH_ENVS = {
    { id = "write depth: off", write_depth = "off" }, { id = "any sync", write_depth = "any-sync" },
    { id = "delayed sync", write_depth = "delayed-sync" },
}

local function latency_cases(setting)
    local list = {}
    for _, test in ipairs(TESTS) do
        for _, threads in ipairs(setting.quick and { 8 } or { 8, 16 }) do
            list[#list + 1] = { id = ("%s, %d"):format(test.name, threads), test = test, threads = threads }
        end
    end
    return list
end

local function depth_cases()
    return {
        { id = "sequential writes, 8, no reader", test = TESTS[3], threads = 8, readers = 0 },
        { id = "sequential writes, 8, a reader now and then", test = TESTS[3], threads = 8, readers = 1 },
    }
end

--- The streams, each in its own part of the image; and readers that ask for 20 blocks a second.
local function jobs_of(case, image, setting)
    local span = setting.size // case.threads // (64 << 10) * (64 << 10)
    local jobs, time = {}, setting.runtime
    for i = 1, case.threads do
        jobs[i] = {
            image = image, rw = case.test.rw, bs = "64K", iodepth = case.test.iodepth, offset = (i - 1) * span, size = span, runtime = time,
            interval = time / 20,
        }
    end
    for _ = 1, case.readers or 0 do
        jobs[#jobs + 1] = { image = image, rw = "randread", bs = "4K", rate = 20 * 4096, runtime = time, name = "reader" }
    end
    return jobs
end

--- The measures of tiobench, over all streams of a direction.
local function sum_up(results, count, direction)
    local sum = { bytes = 0, operations = 0, latency = 0, max = 0, above = { [2] = 0, [10] = 0 }, seconds = 0, cpu = 0, buckets = {} }
    for i = 1, count do
        local one = results[i][direction]
        sum.bytes, sum.operations = sum.bytes + one.bytes, sum.operations + one.operations
        sum.latency = sum.latency + one.latency.mean * one.operations
        sum.max, sum.seconds = math.max(sum.max, one.latency.max), math.max(sum.seconds, results[i].seconds)
        for limit in pairs(sum.above) do sum.above[limit] = sum.above[limit] + one.latency:above(limit) * one.operations end
        for _, bucket in ipairs(one.latency.buckets) do
            local merged = sum.buckets[bucket[1]] or { bucket[1], bucket[2], 0 }
            merged[3] = merged[3] + bucket[3]
            sum.buckets[bucket[1]] = merged
        end
    end
    sum.cpu = results[1].cpu.user + results[1].cpu.system -- of the one thread that runs them all
    return sum
end

local function latency_of(sum)
    local list = {}
    for _, bucket in pairs(sum.buckets) do list[#list + 1] = bucket end
    table.sort(list, function(a, b) return a[1] < b[1] end)
    return list
end

--- An image, made once for a setting. A file is written full: a filesystem reads holes from no disk. A simulated disk takes its time
-- over any block, written or not, so there the image stays empty.
local function make_image(setting)
    local place = support.place(setting, "tiobench.raw", { write_cache = setting.disk == "hdd" and 0 or nil })
    local image = assert(qcow2.create(place.target(), { size = setting.size, format = "raw" }))
    if setting.disk == "file" then assert(image:bench { rw = "write", bs = "1M" }) end
    assert(image:close())
    return place
end

local function measure(setting, place)
    return function(env, case)
        local image <close> = assert(qcow2.open(place.target(), { format = "raw", cache = support.cache(setting) }))
        local results = assert(qcow2.bench(jobs_of(case, image, setting), {
            scheduler = { kind = "fair", low_latency = env.low_latency ~= false, write_depth = env.write_depth or "delayed-sync" },
        }))
        local sum = sum_up(results, case.threads, case.test.direction)
        local reader = results[case.threads + 1]
        return support.result(setting, {
            rate = sum.bytes / sum.seconds, sum = sum, latency = latency_of(sum),
            reader = reader and { mean = reader.read.latency.mean, max = reader.read.latency.max },
        })
    end
end

local function milliseconds(seconds) return ("%.2f"):format(seconds * 1e3) end

--- The published table's columns, of the last run. A simulation has no CPU time worth showing.
local function tiobench_table(bench, setting)
    local rows = { { "", "scheduler", "MB/s", "CPU %", "avg lat ms", "max lat ms", ">2 s %", ">10 s %", "CPU eff" } }
    for case, env, run in last_runs(bench, "sum") do
        local sum = run.sum
        local cpu = setting.disk == "file" and 100 * sum.cpu / sum.seconds or nil
        rows[#rows + 1] = {
            case.id, env.id, ("%.2f"):format(run.rate / 1e6), cpu and ("%.1f"):format(cpu) or "-", milliseconds(sum.latency / sum.operations),
            milliseconds(sum.max), ("%.5f"):format(100 * sum.above[2] / sum.operations), ("%.5f"):format(100 * sum.above[10] / sum.operations),
            cpu and ("%.0f"):format(run.rate / 1e6 / (cpu / 100)) or "-",
        }
    end
    return { title = "as tiobench shows it", rows = rows }
end

local function reader_table(bench)
    local rows = { { "", "scheduler", "reader avg ms", "reader max ms" } }
    for case, env, run in last_runs(bench, "sum") do
        local reader = run.reader
        rows[#rows + 1] = { case.id, env.id, reader and milliseconds(reader.mean) or "-", reader and milliseconds(reader.max) or "-" }
    end
    return { title = "the reader beside the writers", rows = rows }
end

return support.scenario {
    name = "tiobench",
    question = "Is latency fair when many read and write at once?",
    disks = "file,hdd",
    count = 5,
    usage = "usage: tiobench.lua [OPTION…]\n\n",
    measure = function(setting)
        setting.size = setting.disk ~= "file" and 8 * GiB or setting.quick and 64 * MiB or GiB
        setting.runtime = setting.quick and (setting.disk == "file" and 0.3 or 5) or (setting.disk == "file" and 5 or 60)
        local place = make_image(setting)
        local latency = simplebench.bench(measure(setting, place), LATENCY_ENVS, latency_cases(setting), setting.run)
        latency.title = "low_latency"
        local depth = simplebench.bench(measure(setting, place), DEPTH_ENVS, depth_cases(), setting.run)
        depth.title = "write depth"
        place.remove()
        return { latency, tiobench_table(latency, setting), depth, reader_table(depth) }
    end,
}
