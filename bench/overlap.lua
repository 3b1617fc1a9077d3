-- SPDX-License-Identifier: MIT
-- What do metadata overlap checks cost? Writing a whole image through a buffer byte by byte (putc), in blocks, and rewriting it (read,
-- change, write back), for each template of overlap_check, without and with internal snapshots; and first writes over what they share.
-- qemu-img takes part in a table of its own, of blocks alone: its `bench` has no byte-by-byte writes, and no rewrites.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local last_runs = require "last_runs"
local qcow2 = require "qcow2"
local qemu_columns = require "qemu_columns"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local KiB, MiB = 1 << 10, 1 << 20
local BLOCK, BUFFER, CLUSTER = 16 * KiB, 8 * KiB, 64 * KiB
local BLOCKS_MAX = 32 * MiB -- against qemu-img, whose check of all takes milliseconds for each block
local PATTERN = 7 -- the byte in all blocks, old and new

local USAGE = [[
usage: overlap.lua [OPTION…] [SECTION…]

A SECTION of the check (such as inactive-l2) adds a column with that one alone; none, constant, cached and all are there anyway.

  --snapshots N        internal snapshots, made by qemu-img (default 100; 0 needs no qemu-img)
]] .. qemu_columns.HELP

local function envs_of(words)
    local envs = { { id = "none" }, { id = "constant" }, { id = "cached" }, { id = "all" } }
    for _, env in ipairs(envs) do env.check = env.id end
    for _, section in ipairs(words) do envs[#envs + 1] = { id = section, check = { template = "none", [section] = true } } end
    return envs
end

-- ---- the phases: each writes `size` bytes and gives the longest single step ----

local function each_block(size, block, clock, step)
    local longest, before = 0, clock()
    for offset = 0, size - block, block do
        step(offset)
        local now = clock()
        longest, before = math.max(longest, now - before), now
    end
    return longest
end

local PHASES = {}

--- As C's putc does: bytes go into a buffer one by one, and the buffer to the image when it is full.
function PHASES.putc(image, size, clock)
    local buffer = qcow2.buffer(BUFFER)
    return each_block(size, BUFFER, clock, function(offset)
        for at = 0, BUFFER - 1 do buffer:set(at, "c") end
        assert(image:write(offset, buffer))
    end)
end

PHASES["put block"] = function(image, size, clock)
    local buffer = qcow2.buffer(BLOCK):fill(PATTERN)
    return each_block(size, BLOCK, clock, function(offset) assert(image:write(offset, buffer)) end)
end

function PHASES.rewrite(image, size, clock)
    local buffer = qcow2.buffer(BLOCK)
    return each_block(size, BLOCK, clock, function(offset)
        assert(image:read_into(offset, buffer))
        buffer:set(0, "changed")
        assert(image:write(offset, buffer))
    end)
end

--- 4 KiB into each cluster: with snapshots, copy-on-write of all of them.
PHASES["first write"] = function(image, size, clock)
    local buffer = qcow2.buffer(4 * KiB):fill(9)
    return each_block(size, CLUSTER, clock, function(offset) assert(image:write(offset, buffer)) end)
end

-- ---- the image ----

--- How many snapshots: as many as asked for, or 100, which without a qemu-img becomes none.
local function snapshots_of(asked)
    local wanted = math.tointeger(tonumber(asked or 100))
    if not wanted or wanted < 0 then support.stop(("--snapshots is '%s'; it is a whole number from 0 on"):format(asked)) end
    if wanted == 0 then return 0 end
    local found, message = support.qemu_img "qemu-img"
    if not found and asked then support.stop("--snapshots: " .. message) end
    return found and wanted or 0
end

--- An image with its first part full, and snapshots of it, as a file; and as bytes for simulated disks.
local function make_base(setting, snapshots)
    local path = setting.dir .. "/overlap-base.qcow2"
    local image <close> = assert(qcow2.create(path, { size = 4 * setting.size }))
    local buffer = qcow2.buffer(MiB):fill(PATTERN)
    for offset = 0, setting.size - MiB, MiB do assert(image:write(offset, buffer)) end
    assert(image:close())
    for i = 1, snapshots do
        local done, message = support.capture(("qemu-img snapshot -c s%d %s"):format(i, support.quote(path)))
        if not done then support.stop("overlap: " .. message) end
    end
    return path
end

--- A fresh copy of the base on the setting's disk.
local function copy_base(setting, base)
    local place = support.place(setting, "overlap.qcow2")
    local target = place.target()
    if setting.disk == "file" then
        assert(support.capture(("cp --sparse=always %s %s"):format(support.quote(base), support.quote(target))))
    else
        local file = assert(qcow2.file(base))
        for offset = 0, file:length() - 1, MiB do
            assert(target:write(offset, file:read(offset, math.min(MiB, file:length() - offset))))
        end
        file:close()
    end
    return place, target
end

local function measure(setting, base)
    return function(env, case)
        local place, target = copy_base(setting, base)
        local image <close> = assert(qcow2.open(target, { overlap_check = env.check }))
        local size = case.phase == "putc" and setting.size // 8 or setting.size
        local function clock() return place.clock(target) end
        place.settle(target)
        local reads, start = image:stats().file.reads, clock()
        local longest = PHASES[case.phase](image, size, clock)
        local seconds = clock() - start
        reads = image:stats().file.reads - reads
        image:close()
        place.remove()
        return support.result(setting, { seconds = seconds, longest = longest, reads = reads })
    end
end

-- ---- blocks in order, by the engine's jobs and by `qemu-img bench` ----

local function job_seconds(path, case)
    local image <close> = assert(qcow2.open(path, { overlap_check = case.check }))
    local result, message = image:bench { rw = "write", bs = BLOCK, number_ios = case.count, buffer_pattern = PATTERN }
    return result and result.seconds, message
end

local function qemu_seconds(path, case, program)
    local image = ("driver=qcow2,overlap-check=%s,file.driver=file,file.filename=%s"):format(case.check, path:gsub(",", ",,"))
    local output, message = support.capture(("%s bench -w --pattern=%d -c %d -d 1 -s %d -S %d -t writeback --image-opts %s"):format(
        support.quote(program), PATTERN, case.count, BLOCK, BLOCK, support.quote(image)))
    if not output then return nil, message end
    return tonumber(output:match "Run completed in ([%d.]+) seconds"), "no time in what it printed: " .. output
end

local function measure_blocks(setting, base)
    return function(env, case)
        local place, path = copy_base(setting, base)
        local seconds, message = (env.program and qemu_seconds or job_seconds)(path, case, env.program)
        place.remove()
        if not seconds then return nil, message end
        return { seconds = seconds }
    end
end

--- Both sides write the same blocks over the same image, each with its own way of I/O; nil without any qemu-img.
local function bench_blocks(qemus, setting, base, snapshots)
    local envs, cases = { { id = "engine" }, table.unpack(qemus) }, {}
    if #qemus == 0 then return nil end
    for _, template in ipairs { "none", "constant", "cached", "all" } do
        cases[#cases + 1] = {
            id = ("check %s, %d snapshots"):format(template, snapshots), check = template, count = math.min(setting.size, BLOCKS_MAX) // BLOCK,
        }
    end
    local bench = simplebench.bench(measure_blocks(setting, base), envs, cases, setting.run)
    bench.title, bench.question = "against qemu-img", "How long do the same blocks in order take, with each kind of check?"
    return bench
end

--- The longest single step, and the reads from the file, of the last run.
local function step_table(bench)
    local rows = { { "", "check", "longest step ms", "reads from the file" } }
    for case, env, run in last_runs(bench, "longest") do
        rows[#rows + 1] = { case.id, env.id, ("%.3f"):format(run.longest * 1e3), ("%d"):format(run.reads) }
    end
    return { title = "latency and reads", rows = rows }
end

return support.scenario {
    name = "overlap",
    question = "What do metadata overlap checks cost?",
    disks = "file,hdd",
    count = 15,
    usage = USAGE,
    values = { "--snapshots", "--qemu-img" },
    measure = function(setting)
        local snapshots, qemus = snapshots_of(setting.options.snapshots), qemu_columns.of(setting.options.qemu_img)
        setting.size = setting.quick and 16 * MiB or setting.disk == "file" and 256 * MiB or 64 * MiB
        local base, cases = make_base(setting, snapshots), {}
        for _, phase in ipairs { "putc", "put block", "rewrite", "first write" } do
            cases[#cases + 1] = { id = ("%s, %d snapshots"):format(phase, snapshots), phase = phase }
        end
        local bench = simplebench.bench(measure(setting, base), envs_of(setting.rest), cases, setting.run)
        local blocks = setting.disk == "file" and bench_blocks(qemus, setting, base, snapshots) or nil
        os.remove(base)
        return { bench, step_table(bench), blocks }
    end,
}
