-- SPDX-License-Identifier: MIT
-- Simulated disks and the scheduler, from Lua: the same numbers each time, and the shapes that theory gives.

local qcow2 = require "qcow2"

local function raw_on(kind, options)
    local wanted = { kind = kind }
    for name, value in pairs(options or {}) do wanted[name] = value end
    local disk = assert(qcow2.model(wanted))
    return assert(qcow2.create(disk, { size = "8G", format = "raw" })), disk
end

describe("a simulated disk", function()
    it("gives the same numbers to the last digit", function()
        local function numbers()
            local disk = assert(qcow2.model { kind = "hdd" })
            local image <close> = assert(qcow2.create(disk, { size = "4G" }))
            local result = assert(image:bench { rw = "randrw", bs = "16K", iodepth = 8, number_ios = 400, numjobs = 3, fsync = 50 })
            return ("%.17g %.17g %.17g %.17g"):format(result.read.latency.mean, result.write.latency.stdev, result.sync.latency.max,
                qcow2.model_clock(disk))
        end
        assert.equal(numbers(), numbers())
    end)

    it("takes the time of its parts for one random read", function()
        local image <close>, disk = raw_on("ssd", { read_time = "100us", command_time = "10us", interface_rate = "500M", channel_rate = "400M" })
        local before = qcow2.model_clock(disk)
        assert(image:read(1 << 30, 4096))
        local expected = 100e-6 + 10e-6 + 4096 / (500 * 2 ^ 20) + 4096 / (400 * 2 ^ 20)
        assert.is_true(math.abs(qcow2.model_clock(disk) - before - expected) < 1e-8)
    end)

    it("lets metadata, flushes and copy-on-write take time too", function()
        local disk = assert(qcow2.model { kind = "ssd", storage = qcow2.memory "below" })
        local image <close> = assert(qcow2.create(disk, { size = "1G" }))
        local before = qcow2.model_clock(disk)
        assert(image:write(0, "x"))
        local written = qcow2.model_clock(disk)
        assert(image:flush())
        assert.is_true(written > before and qcow2.model_clock(disk) > written + 1e-3) -- two flushes of 0.5 ms at least
    end)

    it("shows its parameters, takes them in any spelling, and refuses what makes no disk", function()
        local facts = qcow2.model_parameters(assert(qcow2.model {
            kind = "hdd", rpm = 15000, seek_average = "3ms", seek_full = "9ms", capacity = "300G",
        }))
        assert.equal(15000, facts.rpm)
        assert.equal(0.003, facts.seek_average)
        assert.equal(300 << 30, facts.capacity)
        assert.matches("^hdd: capacity 300 GiB, .*rpm 15000, .*seek_average 3 ms", tostring(facts))
        assert.matches("there is no simulated disk 'floppy'", select(2, qcow2.model { kind = "floppy" }))
        assert.matches("rpm is 1, not from", select(2, qcow2.model { rpm = 1 }))
        assert.matches("do not rise", select(2, qcow2.model { seek_track = "20ms" }))
        assert.error_matches(function() qcow2.model { kind = "ssd", rpm = 7200 } end, "unknown option 'rpm'")
        assert.is_nil(qcow2.model_parameters(qcow2.memory()))
    end)

    it("has one clock for all jobs, which must lie on it", function()
        local one <close> = raw_on "ssd"
        local other <close> = raw_on "ssd"
        local none, message, code = qcow2.bench { { image = one, number_ios = 1 }, { image = other, number_ios = 1 } }
        assert.is_nil(none)
        assert.equal("EINVAL", code)
        assert.matches("do not lie on one simulated disk", message)
    end)

    it("works below queues", function()
        local image <close>, disk = raw_on "nvme"
        local queue <close> = assert(image:queue { depth = 8 })
        local before = qcow2.model_clock(disk)
        for i = 0, 7 do queue:read(i << 14, 4096, function(bytes) assert.equal(4096, #bytes) end) end
        queue:run()
        local together = qcow2.model_clock(disk) - before
        before = qcow2.model_clock(disk)
        for i = 0, 7 do assert(image:read(i << 14, 4096)) end
        assert.is_true(together < (qcow2.model_clock(disk) - before) / 4)
    end)
end)

describe("the scheduler on a simulated hdd", function()
    local function run(jobs, scheduler)
        local image <close> = raw_on("hdd", { write_cache = 0 })
        for _, job in ipairs(jobs) do job.image = image end
        return assert(qcow2.bench(jobs, { scheduler = scheduler }))
    end

    local function streams(rw, iodepth)
        local jobs = {}
        for i = 1, 8 do
            jobs[i] = { rw = rw, bs = "64K", iodepth = iodepth, offset = (i - 1) << 30, size = "1G", runtime = "4s" }
        end
        return jobs
    end

    local function sum_up(results, direction)
        local bandwidth, longest = 0, 0
        for i = 1, 8 do
            bandwidth = bandwidth + results[i][direction].bandwidth
            longest = math.max(longest, results[i][direction].latency.max)
        end
        return bandwidth, longest
    end

    it("keeps sequential readers sequential, and with low_latency bounds the longest wait", function()
        local none = sum_up(run(streams("read", 1), "none"), "read")
        local off, off_longest = sum_up(run(streams("read", 1), { low_latency = false }), "read")
        local on, on_longest = sum_up(run(streams("read", 1), { low_latency = true }), "read")
        assert.is_true(off > 5 * none and on > 5 * none)
        assert.is_true(off_longest > 0.6, off_longest) -- seven slices of 100 ms
        assert.is_true(on_longest < 0.4, on_longest)   -- about the target of 300 ms
    end)

    it("wins back with the delayed-sync rule what the any-sync rule costs writers", function()
        local bandwidth = {}
        for _, rule in ipairs { "off", "any-sync", "delayed-sync" } do
            local jobs = streams("write", 8)
            jobs[9] = { rw = "randread", bs = "4K", rate = 20 * 4096, runtime = "4s" }
            bandwidth[rule] = sum_up(run(jobs, { write_depth = rule }), "write")
            bandwidth[rule .. " alone"] = sum_up(run(streams("write", 8), { write_depth = rule }), "write")
        end
        assert.is_true(bandwidth["any-sync"] < bandwidth.off / 4)
        assert.is_true(bandwidth["delayed-sync"] > bandwidth.off * 0.95)
        assert.equal(bandwidth["off alone"], bandwidth["delayed-sync alone"])
        assert.equal(bandwidth["off alone"], bandwidth["any-sync alone"])
    end)

    it("limits writers once a reader has been delayed", function()
        local jobs = streams("write", 8)
        jobs[9] = { rw = "randread", bs = "4K", rate = 20 * 4096, runtime = "4s" }
        local free = sum_up(run(jobs, { write_depth = "delayed-sync" }), "write")
        jobs = streams("write", 8)
        jobs[9] = { rw = "randread", bs = "4K", rate = 20 * 4096, runtime = "4s" }
        local limited = sum_up(run(jobs, { write_depth = "delayed-sync", expire_sync = "1ms" }), "write")
        assert.is_true(limited < free / 2)
    end)

    it("does not starve writers beside a reader whose operations are long", function()
        local results = run({
            { rw = "randread", bs = "1M", iodepth = 32, runtime = "10s" }, { rw = "randwrite", bs = "4K", runtime = "10s" },
        }, "fair")
        assert.is_true(results[2].write.operations > 20, results[2].write.operations)
        assert.is_true(results[2].write.latency.max < 2, results[2].write.latency.max)
    end)

    it("refuses slices of nothing, which would never end", function()
        local image <close> = raw_on "hdd"
        local none, message, code = image:bench { scheduler = { slice_async = 0 }, number_ios = 1 }
        assert.is_nil(none)
        assert.equal("EINVAL", code)
        assert.matches("needs a quantum, and slices", message)
    end)
end)

describe("a job in virtual time", function()
    it("ends when its runtime is over, however low its rate", function()
        local image <close> = raw_on "ssd"
        local result = assert(image:bench { rw = "read", bs = "1M", rate = 4096, runtime = 1 })
        assert.is_true(result.seconds >= 1 and result.seconds < 1.1, result.seconds)
        assert.equal(1, result.read.operations)
    end)

    it("counts writes that become zero writes as writes", function()
        local disk = assert(qcow2.model { kind = "ssd" })
        assert(qcow2.create(disk, { size = "8M" })):close()
        local image <close> = assert(qcow2.open(disk, { detect_zeroes = "on" }))
        local result = assert(image:bench { rw = "write", number_ios = 100, buffer_pattern = "zeroes" })
        assert.equal(100, result.write.operations)
        assert.equal(0, result.trim.operations)
    end)
end)
