-- SPDX-License-Identifier: MIT
-- What does a deep backing chain cost? Opening one, and reading where no level has anything, against its depth. The chain's files
-- are empty overlays, so each read asks every level. Next to it qemu-img: `info` opens what we open, `bench` reads what we read.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local qcow2 = require "qcow2"
local qemu_columns = require "qemu_columns"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local SIZE = 64 * support.MiB
local READ, STEP = 4096, 65536 -- bytes in a read, and between reads: one cluster each
local DEPTHS, QUICK_DEPTHS = { 1, 10, 25, 50, 100, 200 }, { 1, 20, 200 }

local USAGE = [[
usage: chain.lua [OPTION…]

Opens chains of 1 to 200 backing files, and reads through them.
]] .. qemu_columns.HELP

local function level_path(dir, level) return ("%s/chain-%d.qcow2"):format(dir, level) end

local function make_chain(dir, depth)
    for level = 0, depth do
        local below = level > 0 and ("chain-%d.qcow2"):format(level - 1) or nil
        local options = { size = SIZE, backing_file = below, backing_format = below and "qcow2" }
        assert(assert(qcow2.create(level_path(dir, level), options)):close())
    end
end

local function remove_chain(dir, depth)
    for level = 0, depth do os.remove(level_path(dir, level)) end
end

-- ---- opening ----

local function open_here(path)
    local start = qcow2.clock()
    assert(assert(qcow2.open(path, { read_only = true })):close())
    return qcow2.clock() - start
end

--- The whole program runs, so its own start is in it: the case of depth 1 shows how much that is.
local function open_there(path, program)
    local start = qcow2.clock()
    assert(support.capture(("%s info --backing-chain %s"):format(support.quote(program), support.quote(path))))
    return qcow2.clock() - start
end

local function opening(setting)
    return function(env, case)
        local path = level_path(setting.dir, case.depth)
        return { seconds = env.program and open_there(path, env.program) or open_here(path) }
    end
end

-- ---- reading ----

local function read_here(path, count)
    local image <close> = assert(qcow2.open(path, { read_only = true }))
    local result = assert(image:bench { rw = "read", bs = READ, stride = STEP, number_ios = count })
    return result.read.iops
end

local function read_there(path, program, count)
    local text = assert(support.capture(("%s bench -f qcow2 -c %d -d 1 -s %d -S %d %s"):format(
        support.quote(program), count, READ, STEP, support.quote(path))))
    return count / assert(tonumber(text:match "Run completed in ([%d.]+) seconds"))
end

local function reading(setting)
    local count = SIZE // STEP * (setting.quick and 1 or 4)
    return function(env, case)
        local path = level_path(setting.dir, case.depth)
        return { iops = env.program and read_there(path, env.program, count) or read_here(path, count) }
    end
end

return support.scenario {
    name = "chain",
    question = "What does a deep backing chain cost?",
    disks = "file",
    usage = USAGE,
    values = { "--qemu-img" },
    measure = function(setting)
        local envs, cases = { { id = "engine" }, table.unpack(qemu_columns.of(setting.options.qemu_img)) }, {}
        local depths = setting.quick and QUICK_DEPTHS or DEPTHS
        for i, depth in ipairs(depths) do cases[i] = { id = ("depth %d"):format(depth), depth = depth } end
        make_chain(setting.dir, depths[#depths])
        local opened = simplebench.bench(opening(setting), envs, cases, setting.run)
        local read = simplebench.bench(reading(setting), envs, cases, setting.run)
        remove_chain(setting.dir, depths[#depths])
        opened.title, opened.question = "opening", "How long does opening a chain take?"
        read.title, read.question = "reading", "How many reads of 4 KiB that no level has anything for?"
        return { opened, read }
    end,
}
