-- SPDX-License-Identifier: MIT
-- Benchmark jobs: what they do to an image, what they measure, and what they refuse.

local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local FORMS = { "auto", "io_uring", "threads", "sync" }

local function has_io_uring()
    local image <close> = assert(qcow2.create(qcow2.memory "probe", { size = "64K" }))
    return (image:bench { aio = "io_uring" }) ~= nil
end

--- What the function raises, with its position, which busted's own asserts leave out.
local function raised(func)
    local good, message = pcall(func)
    assert.is_false(good)
    return message
end

describe("a benchmark job", function()
    local folder, remove
    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    for _, aio in ipairs(FORMS) do
        it("does as many operations as it is told to, with aio " .. aio, function()
            if aio == "io_uring" and not has_io_uring() then return pending "no io_uring here" end
            local image <close> = assert(qcow2.create(folder .. "/ops.qcow2", { size = "8M" }))
            local result = assert(image:bench { rw = "randwrite", bs = "4K", iodepth = 8, number_ios = 500, aio = aio })
            assert.equal(500, result.write.operations)
            assert.equal(500 * 4096, result.write.bytes)
            assert.equal(500, result.write.latency.count)
            assert.equal(0, result.read.operations)
            local latency = result.write.latency
            assert.is_true(latency.min <= latency.p50 and latency.p50 <= latency.p99 and latency.p99 <= latency.max)
            assert.is_true(latency.min <= latency.mean and latency.mean <= latency.max)
            assert.equal(1, latency:above(0))
            assert.equal(0, latency:above(latency.max))
        end)

        it("covers its range exactly once when nothing bounds it, with aio " .. aio, function()
            if aio == "io_uring" and not has_io_uring() then return pending "no io_uring here" end
            local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M", cluster_size = 4096 }))
            assert(image:bench { rw = "randwrite", bs = 4096, offset = "256K", size = "512K", iodepth = 16, buffer_pattern = 0xa5, aio = aio })
            assert.equal(("\0"):rep(256 << 10), image:read(0, 256 << 10))
            assert.equal(("\xa5"):rep(512 << 10), image:read(256 << 10, 512 << 10))
            assert.equal(("\0"):rep(256 << 10), image:read(768 << 10, 256 << 10))
        end)
    end

    it("writes in mixes, flushes after so many writes, and runs several at once", function()
        local path = folder .. "/mix.qcow2"
        local image = assert(qcow2.create(path, { size = "16M" }))
        local result = assert(image:bench {
            rw = "randrw", rwmixread = 70, rwmixtrim = 10, bs = "4K", iodepth = 4, numjobs = 3, offset_increment = "4M", size = "4M",
            number_ios = 400, fsync = 10,
        })
        assert.equal(1200, result.read.operations + result.write.operations + result.trim.operations)
        assert.is_true(result.read.operations > 650 and result.read.operations < 870)
        assert.is_true(result.trim.operations > 60 and result.trim.operations < 190)
        local syncs = 0
        for _, job in ipairs(result.jobs) do
            assert.equal(job.write.operations // 10, job.sync.operations)
            syncs = syncs + job.sync.operations
        end
        assert.equal(3, #result.jobs)
        assert.equal(syncs, result.sync.operations)
        assert(image:close())
        if not oracle.missing then assert.equal(0, (oracle.check(path))) end
    end)

    it("verifies what it wrote, where jobs share every cluster", function()
        local path = folder .. "/verify.qcow2"
        local image = assert(qcow2.create(path, { size = "4M" }))
        local result = assert(image:bench {
            rw = "randrw", rwmixtrim = 20, bs = "4K", stride = "16K", offset_increment = "4K", numjobs = 4, iodepth = 8,
            number_ios = 1500, fsync = 100, verify = true,
        })
        assert.is_true(result.verified >= 4 * 200)
        assert(image:close())
        if not oracle.missing then assert.equal(0, (oracle.check(path))) end
    end)

    it("finds bytes that somebody else has changed", function()
        local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))
        local _, message, code = qcow2.bench {
            { image = image, rw = "randrw", bs = 4096, verify = true, number_ios = 20000, iodepth = 4 },
            { image = image, rw = "write", bs = 4096, number_ios = 100000, iodepth = 4 },
        }
        assert.equal("EILSEQ", code)
        assert.matches("job 1: verify: the 4096 bytes at offset %d+ are not those of write %d+", message)
    end)

    it("keeps to its rate and its time, leaves ramp_time out, and shows the course", function()
        local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))
        local result = assert(image:bench { rw = "read", bs = 4096, rate = 4096 * 100, runtime = "500ms" })
        assert.is_true(result.read.operations >= 40 and result.read.operations <= 55, result.read.operations)
        result = assert(image:bench {
            rw = "read", bs = 4096, rate = 4096 * 100, ramp_time = 0.3, runtime = 0.2, interval = "50ms",
        })
        assert.is_true(result.read.operations <= 25, result.read.operations)
        assert.is_true(#result.series >= 3 and #result.series <= 6)
        local sum = 0
        for _, sample in ipairs(result.series) do sum = sum + sample.read.operations end
        assert.equal(result.read.operations, sum)
    end)

    it("tells its progress and can be stopped", function()
        local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))
        local calls = {}
        local result = assert(image:bench {
            rw = "randread", runtime = 60, rate = "1M", progress_interval = "20ms", progress = function(now)
                calls[#calls + 1] = now.operations
                return #calls < 3
            end,
        })
        assert.equal(3, #calls)
        assert.is_true(calls[1] <= calls[2] and calls[2] <= calls[3])
        assert.is_true(result.seconds < 30)
    end)

    it("ends on a simulated disk that it never has to ask", function()
        local disk = qcow2.model { kind = "ssd", storage = qcow2.memory "disk" }
        local image <close> = assert(qcow2.create(disk, { size = "16M" }))
        local before = qcow2.model_clock(disk)
        local result = assert(image:bench { rw = "randread", runtime = "10ms" }) -- nothing is allocated: no table, no bytes
        assert.equal(10000, result.read.operations)
        assert.equal(1e-6, result.read.latency.min)
        assert.equal(1e-6, result.read.latency.max)
        assert.is_true(qcow2.model_clock(disk) - before < 0.011)
    end)

    it("tells its progress on a simulated disk too", function()
        local image <close> = assert(qcow2.create(qcow2.model { kind = "hdd", storage = qcow2.memory "disk" }, { size = "64M" }))
        assert(image:bench { rw = "write", bs = "1M" })
        local calls = 0
        local result = assert(image:bench {
            rw = "randread", runtime = "10h", progress_interval = "5ms", progress = function()
                calls = calls + 1
                return calls < 3
            end,
        })
        assert.equal(3, calls)
        assert.is_true(result.seconds < 36000)
    end)

    it("takes many requests on one simulated disk", function()
        local image <close> = assert(qcow2.create(qcow2.model { kind = "nvme", storage = qcow2.memory "disk" }, { size = "64M" }))
        local result = assert(image:bench { rw = "randwrite", numjobs = 4, iodepth = 1024, number_ios = 2000 })
        assert.equal(8000, result.write.operations)
    end)

    it("issues every flush that is due, the last one too", function()
        local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))
        for _, case in ipairs { { 8, 4, 2 }, { 8, 3, 2 }, { 8, 1, 8 }, { 8, 9, 0 } } do
            local result = assert(image:bench { rw = "write", number_ios = case[1], fsync = case[2] })
            assert.equal(case[3], result.sync.operations)
        end
    end)

    it("keeps a course of no more parts than it may", function()
        local image <close> = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))
        local result = assert(image:bench { rw = "read", rate = 4096 * 200, number_ios = 20, interval = "1us" })
        assert.equal(20, result.read.operations)
        assert.is_true(#result.series <= 16384)
    end)

    it("runs jobs on one thread under a scheduler", function()
        local image <close> = assert(qcow2.create(folder .. "/sched.qcow2", { size = "16M" }))
        for _, scheduler in ipairs { "none", "fair", { low_latency = false, write_depth = "any-sync", quantum = 2 } } do
            local results = assert(qcow2.bench({
                { image = image, name = "writer", rw = "randwrite", iodepth = 16, number_ios = 300 },
                { image = image, name = "reader", rw = "randread", iodepth = 2, number_ios = 300, offset = "8M" },
            }, { scheduler = scheduler }))
            assert.equal(300, results[1].write.operations)
            assert.equal(300, results[2].read.operations)
            assert.equal("reader", results[2].name)
        end
    end)

    it("gives the first failure, with what was measured until then", function()
        local fault = qcow2.fault(qcow2.memory "disk")
        local image = assert(qcow2.create(fault, { size = "4M" }))
        assert(image:bench { rw = "write", bs = "64K" })
        fault:fail { op = "read", nth = 5, times = 0, code = "EIO" }
        local results, message, code, measured = qcow2.bench { { image = image, rw = "randread", bs = "4K", number_ios = 1000 } }
        assert.is_nil(results)
        assert.equal("EIO", code)
        assert.matches("^job 1: ", message)
        assert.equal(1, measured[1].read.errors)
        assert.is_true(measured[1].read.operations < 1000)
    end)
end)

describe("bench refuses", function()
    local image = assert(qcow2.create(qcow2.memory "disk", { size = "1M" }))

    for name, case in pairs {
        ["a pattern that there is not"] = { { rw = "randreed" }, "rw is 'randreed'" },
        ["a block beyond the range"] = { { bs = "2M" }, "bs is 2097152; the range has 1048576 bytes" },
        ["a range beyond the end"] = { { offset = "512K", size = "1M" }, "passes the end of the image" },
        ["jobs beyond the end"] = { { numjobs = 4, offset_increment = "512K" }, "3 times offset_increment 524288 pass the end" },
        ["jobs whose offsets are past every number"] =
            { { numjobs = 1024, offset_increment = math.maxinteger // 512 }, "1023 times offset_increment 18014398509481983 pass the end" },
        ["an offset past every image"] = { { offset = math.maxinteger }, "offset 9223372036854775807" },
        ["a course of more parts than are kept"] = { { runtime = 10, interval = "1us" }, "interval divides the runtime into 10000000 parts" },
        ["no depth at all"] = { { iodepth = 0 }, "iodepth is 0" },
        ["a time that is none"] = { { runtime = "3 days" }, "runtime is '3 days'; seconds" },
        ["a percentage above 100"] = { { rw = "rw", rwmixread = 101 }, "rwmixread is 101; percent" },
        ["to verify blocks that overlap"] = { { verify = true, bs = 4096, stride = 512 }, "verify needs a stride" },
        ["to verify blocks that jobs share"] = { { verify = true, numjobs = 2 }, "verify with numjobs" },
        ["a pattern of bytes that is none"] = { { buffer_pattern = 256 }, "buffer_pattern is 256" },
        ["a scheduler that there is not"] = { { scheduler = "cfq" }, "kind is 'cfq'" },
        ["a quantum of nothing"] = { { scheduler = { quantum = 0 } }, "quantum is 0" },
    } do
        it(name, function()
            local result, message, code = image:bench(case[1])
            assert.is_nil(result)
            assert.equal("EINVAL", code)
            assert.is_truthy(message:find(case[2], 1, true), message)
        end)
    end

    it("more jobs than there may be", function()
        local job = { image = image, numjobs = 600 }
        local results, message, code = qcow2.bench { job, job }
        assert.is_nil(results)
        assert.equal("EINVAL", code)
        assert.equal("the first 2 groups of jobs have 1200 jobs; at most 1024 are allowed", message)
    end)

    it("to verify blocks that share no cluster with less than they take", function()
        local result, message = image:bench { verify = true, numjobs = 4, bs = 512, stride = 1024, offset_increment = 512 }
        assert.is_nil(result)
        assert.matches("verify with numjobs", message)
    end)

    it("jobs on one ring that have more under way than it takes", function()
        local results, message, code = qcow2.bench({ { image = image, numjobs = 8, iodepth = 1024, number_ios = 1 } }, { scheduler = "none" })
        assert.is_nil(results)
        assert.equal("EINVAL", code)
        assert.equal("8 jobs that share a ring have 8192 requests under way (iodepth); at most 1024 are allowed", message)
    end)

    it("misuse", function()
        assert.matches("bench_spec.*options must be a table, not a string", raised(function() image:bench "x" end))
        assert.error_matches(function() image:bench { iodeph = 3 } end, "unknown option 'iodeph' %(did you mean 'iodepth'%?%)")
        assert.error_matches(function() qcow2.bench {} end, "a list of jobs expected")
        assert.error_matches(function() qcow2.bench { { rw = "read" } } end, "needs an image")
    end)

    it("to close or resize an image under a run", function()
        local closed, resized
        assert(image:bench {
            runtime = 10, rate = "1M", progress_interval = "10ms", progress = function()
                closed, resized = { pcall(image.close, image) }, { pcall(image.resize, image, 2 << 20) }
                return false
            end,
        })
        assert.is_false(closed[1])
        assert.matches("attempt to close an image with 1 open", closed[2])
        assert.matches("attempt to resize an image with 1 open", resized[2])
        assert(image:resize(2 << 20))
    end)
end)
