-- SPDX-License-Identifier: MIT

--- Benchmark jobs in native workers, in fio's words.
--
--     local result = assert(img:bench { rw = "randread", bs = "4K", iodepth = 32, runtime = "5s" })
--     print(result)                      --> a line for each direction
--     print(result.read.iops, result.read.latency["p99"])
--
-- Each job has a thread of its own and keeps `iodepth` requests under way. Jobs on a simulated disk, or under a scheduler, share one
-- thread; on a simulated disk time is virtual, and the same jobs give the same numbers anywhere, whatever `aio` says.
-- @module qcow2.bench

local core = require "qcow2.core"
local known_options = require "qcow2.known_options"
local image_options = require "qcow2.options"

local bench = {}

local DIRECTIONS = { "read", "write", "trim", "sync" }
local PERCENTILES = { "p50", "p90", "p95", "p99", "p99.9", "p99.99" }
local JOBS_MAX, SERIES_MAX = 1024, 1 << 14 -- as the core has them
local SEED_STEP = 0xd1342543de82ef95 -- not that of the generator, whose streams would overlap

-- rw: shares of reads, writes and trims; those in a mix come from rwmixread and rwmixtrim
local PATTERNS = {
    read = { reads = 1 }, write = { writes = 1 }, trim = { trims = 1 }, rw = { mix = true }, trimwrite = { writes = 1, trims = 1 },
}

local JOB = {
    { name = "image", kind = "any" },
    { name = "name", kind = "string", max = 200 },
    {
        name = "rw", kind = "choice", default = "read", aliases = { readwrite = "rw" },
        choices = {
            "read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim", "trimwrite", "randtrimwrite",
        },
    },
    { name = "bs", kind = "size", min = 1, max = 1 << 30, default = 4096 },
    { name = "offset", kind = "size", default = 0 },
    { name = "size", kind = "size", min = 1 },
    { name = "offset_increment", kind = "size", default = 0 },
    { name = "stride", kind = "size", min = 1 },
    { name = "iodepth", kind = "integer", min = 1, max = 1024, default = 1 },
    { name = "numjobs", kind = "integer", min = 1, max = 1024, default = 1 },
    { name = "number_ios", kind = "integer", min = 1 },
    { name = "runtime", kind = "seconds", default = 0 },
    { name = "ramp_time", kind = "seconds", default = 0 },
    { name = "rate", kind = "size", default = 0 },
    { name = "rwmixread", kind = "percent", default = 50 },
    { name = "rwmixtrim", kind = "percent", default = 0 },
    { name = "fsync", kind = "integer", default = 0 },
    { name = "norandommap", kind = "boolean", default = false },
    { name = "randseed", kind = "integer", default = 0x89 },
    { name = "buffer_pattern", kind = "any", default = "random" },
    { name = "verify", kind = "boolean", default = false },
    { name = "interval", kind = "seconds", default = 0 },
}

local SCHEDULER = {
    { name = "kind", kind = "choice", choices = { "none", "fair" }, default = "fair" },
    { name = "low_latency", kind = "boolean", default = true },
    { name = "write_depth", kind = "choice", choices = { "off", "any-sync", "delayed-sync" }, default = "delayed-sync" },
    { name = "slice_sync", kind = "seconds" },
    { name = "slice_async", kind = "seconds" },
    { name = "slice_idle", kind = "seconds" },
    { name = "expire_sync", kind = "seconds" },
    { name = "expire_async", kind = "seconds" },
    { name = "target_latency", kind = "seconds" },
    { name = "quantum", kind = "integer", min = 1, max = 1024 },
}

local RUN = {
    { name = "aio", kind = "choice", choices = image_options.AIO },
    { name = "scheduler", kind = "any" },
    { name = "progress", kind = "any" },
    { name = "progress_interval", kind = "seconds", default = 200000000 },
}

-- ---- options ----

--- The byte that buffers are filled with, or nil for random ones; or nil and a sentence.
local function fill_of(value)
    if value == "random" then return nil end
    if value == "zeroes" then return 0 end
    if math.type(value) == "integer" and value >= 0 and value <= 255 then return value end
    return nil, ("buffer_pattern is %s; 'random', 'zeroes' and a byte from 0 to 255 are allowed"):format(known_options.quoted(value))
end

local function shares_of(flat)
    local pattern = PATTERNS[flat.rw:gsub("^rand", "")]
    if not pattern.mix then return pattern.reads or 0, pattern.writes or 0, pattern.trims or 0 end
    local rest = 100 - flat.rwmixtrim
    return rest * flat.rwmixread, rest * (100 - flat.rwmixread), 100 * flat.rwmixtrim
end

--- What the job's options say about each other and about its image: the first sentence, or nil.
local function conflict_of(flat, image_size)
    local room, others = image_size - flat.offset, flat.numjobs - 1
    if room < 0 or others > 0 and flat.offset_increment > room // others then
        return ("offset %d and %d times offset_increment %d pass the end of the image (%d bytes)"):format(
            flat.offset, others, flat.offset_increment, image_size)
    end
    local last = flat.offset + others * flat.offset_increment
    flat.stride = flat.stride or flat.bs
    flat.size = flat.size or image_size - last
    if flat.size > image_size - last then
        return ("size %d at offset %d passes the end of the image (%d bytes)"):format(flat.size, last, image_size)
    end
    if flat.interval > 0 and flat.runtime // flat.interval > SERIES_MAX then
        return ("interval divides the runtime into %d parts; at most %d are allowed"):format(flat.runtime // flat.interval, SERIES_MAX)
    end
    if flat.size < flat.bs then return ("bs is %d; the range has %d bytes"):format(flat.bs, flat.size) end
    if not flat.verify then return nil end
    if flat.stride < flat.bs then return ("verify needs a stride of bs (%d) at least, not %d"):format(flat.bs, flat.stride) end
    local apart = flat.offset_increment >= flat.size or
        flat.offset_increment >= flat.bs and flat.offset_increment <= flat.stride // flat.numjobs
    if flat.numjobs > 1 and not apart then
        return "verify with numjobs needs blocks of its own for each job: offset_increment of size, or of bs within stride"
    end
    return nil
end

--- One job's options as the core takes them, a list of numjobs; or nil and a sentence.
local function jobs_of(given, image)
    local flat, message, misuse = known_options.read(JOB, given)
    if misuse then error("bench: " .. message, 4) end
    if not flat then return nil, message end
    if getmetatable(image) ~= core.image_metatable then error("bench: a job needs an image", 4) end
    local fill, wrong = fill_of(flat.buffer_pattern)
    message = wrong or conflict_of(flat, image:size())
    if message then return nil, message end
    local reads, writes, trims = shares_of(flat)
    local list = {}
    for i = 0, flat.numjobs - 1 do
        list[i + 1] = {
            image = image, iodepth = flat.iodepth, number_ios = flat.number_ios, runtime = flat.runtime, ramp_time = flat.ramp_time,
            rate = flat.rate, fsync = flat.fsync, verify = flat.verify, interval = flat.interval, fill = fill,
            reads = reads, writes = writes, trims = trims, random = flat.rw:find "^rand" ~= nil, norandommap = flat.norandommap,
            offset = flat.offset + i * flat.offset_increment, size = flat.size, bs = flat.bs, stride = flat.stride,
            randseed = flat.randseed + i * SEED_STEP,
        }
    end
    return list, flat
end

local function scheduler_of(value)
    if value == nil then return nil end
    if type(value) == "string" then value = { kind = value } end
    local flat, message, misuse = known_options.read(SCHEDULER, value)
    if misuse then error("bench: scheduler: " .. message, 4) end
    return flat, message
end

-- ---- results ----

local function seconds_of(nanoseconds) return nanoseconds / 1e9 end

local latency_methods = {}

--- The share (0 to 1) of operations that took longer than a limit, to the bucket.
function latency_methods.above(latency, limit)
    local above = 0
    for _, bucket in ipairs(latency.buckets) do
        if bucket[1] > limit then above = above + bucket[3] end
    end
    return latency.count == 0 and 0 or above / latency.count
end

local latency_metatable = { __index = latency_methods }

local function latency_from(raw)
    local latency = { count = raw.count, buckets = raw.buckets }
    for _, name in ipairs { "min", "mean", "stdev", "max", table.unpack(PERCENTILES) } do latency[name] = seconds_of(raw[name]) end
    for _, bucket in ipairs(raw.buckets) do bucket[1], bucket[2] = seconds_of(bucket[1]), seconds_of(bucket[2]) end
    return setmetatable(latency, latency_metatable)
end

local function time_text(seconds)
    if seconds >= 1 then return ("%.2f s"):format(seconds) end
    if seconds >= 1e-3 then return ("%.2f ms"):format(seconds * 1e3) end
    return ("%.1f µs"):format(seconds * 1e6)
end

local result_metatable = {}

function result_metatable.__tostring(result)
    local lines = {}
    for _, name in ipairs(DIRECTIONS) do
        local direction = result[name]
        if direction.operations > 0 then
            local latency = direction.latency
            lines[#lines + 1] = ("%-5s %10.0f IOPS  %8.1f MiB/s  latency mean %s, p50 %s, p99 %s, max %s"):format(
                name, direction.iops, direction.bandwidth / (1 << 20), time_text(latency.mean), time_text(latency.p50),
                time_text(latency.p99), time_text(latency.max))
        end
    end
    lines[#lines + 1] = ("in %s"):format(time_text(result.seconds))
    return table.concat(lines, "\n")
end

--- The course over time: for each interval its start in seconds, and operations and bytes by direction.
local function series_from(raw, interval)
    local series = { interval = seconds_of(interval) }
    for i, sample in ipairs(raw) do
        series[i] = { time = seconds_of((i - 1) * interval) }
        for _, name in ipairs(DIRECTIONS) do series[i][name] = { operations = sample[name][1], bytes = sample[name][2] } end
    end
    return series
end

local function result_from(raw, flat)
    local seconds = seconds_of(raw.elapsed)
    local result = {
        name = flat.name, seconds = seconds, verified = raw.verified, error = raw.error, code = raw.code,
        cpu = {
            user = seconds_of(raw.user_cpu), system = seconds_of(raw.system_cpu),
            voluntary_switches = raw.voluntary_switches, involuntary_switches = raw.involuntary_switches,
        },
        series = series_from(raw.series, flat.interval),
    }
    for _, name in ipairs(DIRECTIONS) do
        local direction = raw[name]
        result[name] = {
            operations = direction.operations, bytes = direction.bytes, errors = direction.errors,
            iops = seconds > 0 and direction.operations / seconds or 0,
            bandwidth = seconds > 0 and direction.bytes / seconds or 0,
            latency = latency_from(direction.latency),
        }
    end
    return setmetatable(result, result_metatable)
end

-- ---- running ----

local function wait(run, options)
    if not options.progress then
        run:wait()
        return
    end
    local started = core.clock()
    while not run:wait(options.progress_interval) do
        local go_on = options.progress { operations = run:progress(), seconds = core.clock() - started }
        if go_on == false then run:stop() end
    end
end

--- Results by group of numjobs, each with `jobs` for its members.
local function collect(run, groups)
    local results, first = {}, 1
    for i, group in ipairs(groups) do
        local result = result_from(run:result(first, group.numjobs), group)
        if group.numjobs > 1 then
            result.jobs = {}
            for j = 1, group.numjobs do result.jobs[j] = result_from(run:result(first + j - 1, 1), group) end
        end
        results[i] = result
        first = first + group.numjobs
    end
    return results
end

local function failure_of(results)
    for i, result in ipairs(results) do
        if result.error then
            return ("job %s: %s"):format(result.name or i, result.error), result.code
        end
    end
    return nil
end

local function run_jobs(jobs, groups, options)
    local run <close>, message, code = core.bench(jobs, { aio = options.aio, scheduler = options.scheduler })
    if not run then return nil, message, code end
    local started
    started, message, code = run:start()
    if not started then return nil, message, code end
    wait(run, options)
    local results = collect(run, groups)
    message, code = failure_of(results)
    if message then return nil, message, code, results end
    return results
end

--- Runs jobs, on one image or on several, at the same time.
--
-- A job's options: image, name, rw ("read", "write", "randread", "randwrite", "rw", "randrw", "trim", "randtrim", "trimwrite",
-- "randtrimwrite"), bs (bytes; 4K), offset (0), size (to the image's end), offset_increment (added to offset for each of numjobs; 0), stride
-- (from one block's start to the next one's; bs), iodepth (1), numjobs (1), number_ios (operations of each job; once over the range), runtime and
-- ramp_time (seconds, or "500ms"; 0), rate (bytes a second; 0: no limit), rwmixread (50) and rwmixtrim (0) in percent, fsync (a flush after
-- so many writes; 0), norandommap (false), randseed (137), buffer_pattern ("random", "zeroes", or a byte), verify (false: write what can be
-- judged, judge every read, and read everything back), interval (seconds, of the time series, which has 16384 parts at most; 0: none).
-- A "rw" is half reads and half writes unless rwmixread says otherwise; a "trimwrite" is half trims and half writes.
-- @tparam {table,...} jobs
-- @tparam[opt] table opts aio ("auto", "io_uring", "threads", "sync"; as the first image was opened), scheduler ("none", "fair", or a table of kind,
--   low_latency, write_depth ("off", "any-sync", "delayed-sync"), slice_sync, slice_async, slice_idle, expire_sync, expire_async,
--   target_latency, quantum), progress (called every progress_interval seconds of real time with {operations, seconds}; returning false stops)
-- @return for each job {name, seconds, read, write, trim, sync, cpu, series, verified, jobs}; a direction has operations, bytes, errors, iops,
--   bandwidth (bytes a second) and latency (seconds: min, mean, stdev, max, p50 to p99.99, buckets of {from, to, count}, and the method
--   above(limit)); or nil, message, code, and the results all the same where the jobs ran
function bench.run(jobs, opts)
    if type(jobs) ~= "table" or #jobs == 0 then error("bench: a list of jobs expected", 2) end
    local options, message, misuse = known_options.read(RUN, opts)
    if misuse then error("bench: " .. message, 2) end
    if not options then return nil, message, "EINVAL" end
    options.scheduler, message = scheduler_of(options.scheduler)
    if message then return nil, message, "EINVAL" end
    local flat_jobs, groups = {}, {}
    for i, given in ipairs(jobs) do
        local list, flat = jobs_of(given, type(given) == "table" and given.image)
        if not list then return nil, ("job %s: %s"):format(i, flat), "EINVAL" end
        groups[i] = flat
        table.move(list, 1, #list, #flat_jobs + 1, flat_jobs)
        if #flat_jobs > JOBS_MAX then
            return nil, ("the first %d groups of jobs have %d jobs; at most %d are allowed"):format(i, #flat_jobs, JOBS_MAX), "EINVAL"
        end
    end
    return run_jobs(flat_jobs, groups, options)
end

--- Runs one job on an image: `image:bench { … }`. The options of a job and those of a run, in one table.
-- @return the job's result; or nil, message, code
function bench.on_image(image, given)
    local job, run = { image = image }, {}
    if given ~= nil and type(given) ~= "table" then error(("bench: options must be a table, not a %s"):format(type(given)), 2) end
    for key, value in pairs(given or {}) do
        local for_run = false
        for _, option in ipairs(RUN) do for_run = for_run or option.name == key end
        if for_run then run[key] = value else job[key] = value end
    end
    local results, message, code = bench.run({ job }, run)
    if not results then return nil, (message:gsub("^job 1: ", "")), code end
    return results[1]
end

return bench
