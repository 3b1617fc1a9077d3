-- SPDX-License-Identifier: MIT
-- A scenario to copy: what does reading in order cost, by block size? Replace question, environments (columns), cases (rows), and measure.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local MiB = 1 << 20

local ENVS = { -- columns: what is compared; the first is what the others are compared with
    { id = "raw", create = { format = "raw" } },
    { id = "qcow2", create = { format = "qcow2" } },
}

local CASES = { -- rows: what it is compared in
    { id = "4 KiB", bs = "4K" },
    { id = "64 KiB", bs = "64K" },
}

--- One run: seconds, iops or rate (bytes per second), and whatever else is worth keeping.
local function measure(setting)
    return function(env, case)
        local place = support.place(setting, "skeleton.img")
        local image <close> = assert(qcow2.create(place.target(), { size = 64 * MiB, format = env.create.format }))
        assert(image:bench { rw = "write", bs = "1M" })
        local result = assert(image:bench { rw = "read", bs = case.bs, interval = "10ms" })
        local latency, course = support.details(result.read, result.series, "read")
        image:close()
        place.remove()
        return support.result(setting, { iops = result.read.iops, latency = latency, course = course })
    end
end

return support.scenario {
    name = "skeleton",
    question = "What does reading in order cost?",
    disks = "file,ssd",
    usage = "usage: skeleton.lua [OPTION…]\n\n",
    measure = function(setting) return { simplebench.bench(measure(setting), ENVS, CASES, setting.run) } end,
}
