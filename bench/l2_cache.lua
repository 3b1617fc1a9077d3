-- SPDX-License-Identifier: MIT
-- What does a small cache cost? 4 KiB random reads over the whole disk, with an L2 cache that covers half of it and one that covers all:
-- whole tables as entries, or 4 KiB of them. And 32 jobs, each in 32 MiB of its own below an L2 table of its own. There is no column for
-- qemu-img: its `bench` reads in order or by a step, never at random, and has no jobs.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
local JOBS = 32

local CASES = {
    { id = "16 GiB, 64 KiB clusters, 1 MiB cache", size = 16 * GiB, cluster = 64 * KiB, cache = MiB, iodepth = 32 },
    { id = "2 TiB, 2 MiB clusters, 4 MiB cache", size = 2048 * GiB, cluster = 2 * MiB, cache = 4 * MiB, iodepth = 32 },
    { id = "32 jobs, 128 KiB cache", size = 16 * GiB, cluster = 64 * KiB, cache = 128 * KiB, iodepth = 1, jobs = JOBS, span = 32 * MiB },
}

local ENVS = {
    { id = "whole tables", entry = function(case) return case.cluster end, cache = function(case) return case.cache end },
    { id = "4 KiB entries", entry = function() return 4 * KiB end, cache = function(case) return case.cache end },
    { id = "cache covers all", entry = function() return 4 * KiB end, cache = function(case) return case.size // (case.cluster // 8) end },
}

local function job_of(case, setting)
    local job = { rw = "randread", bs = "4K", iodepth = case.iodepth, number_ios = setting.number_ios, interval = "100ms" }
    if case.jobs then
        job.numjobs, job.size, job.offset_increment = case.jobs, case.span, case.size // case.jobs
        job.number_ios = job.number_ios // case.jobs
    end
    return job
end

--- A run on an image that is made once for each case and kept.
local function measure(setting, images)
    return function(env, case)
        local kept = images[case.id]
        if not kept then
            kept = support.place(setting, ("l2_cache-%d.qcow2"):format(case.cluster), { capacity = "4T" })
            assert(qcow2.create(kept.target(), { size = case.size, cluster_size = case.cluster, preallocation = "metadata" })):close()
            images[case.id] = kept
        end
        local image <close> = assert(qcow2.open(kept.target(), {
            cache = support.cache(setting), l2_cache_size = env.cache(case), l2_cache_entry_size = env.entry(case), read_only = true,
        }))
        local result = assert(image:bench(job_of(case, setting)))
        local latency, course = support.details(result.read, result.series, "read")
        return support.result(setting, { iops = result.read.iops, latency = latency, course = course })
    end
end

return support.scenario {
    name = "l2_cache",
    question = "What does an L2 cache cost that does not cover the disk?",
    disks = "file,ssd",
    usage = "usage: l2_cache.lua [OPTION…]\n\n",
    measure = function(setting)
        local images = {}
        setting.number_ios = setting.quick and 500 or 20000
        local bench = simplebench.bench(measure(setting, images), ENVS, CASES, setting.run)
        bench.settings = { number_ios = setting.number_ios }
        for _, image in pairs(images) do image.remove() end
        if setting.disk == "file" then
            bench.notes = { "only tables are in the file: data reads come from holes, so they cost no disk time, and misses weigh the more" }
        end
        return { bench }
    end,
}
