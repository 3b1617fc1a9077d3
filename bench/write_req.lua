-- SPDX-License-Identifier: MIT
-- Does a write that allocates copy what it need not? One request in every new cluster of an image, for ways to fill the rest.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local last_runs = require "last_runs"
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"
local support = require "support"

local USAGE = [[
usage: write_req.lua [OPTION…] [COLUMN…]

A COLUMN is a qemu-img program, or the engine with what it does to the rest of a new cluster:
engine:cow=write (writes zeroes), engine:cow=zero (lets the file zero it), engine:cow=skip (nothing, where it is zero).
Default: engine:cow=write, engine:cow=skip, and on real files the installed qemu-img when there is one.

]]

local KiB, MiB = 1 << 10, 1 << 20
local PATTERN = 165 -- what both sides write: bytes that nobody can take for zeroes

local CASES = {
    { id = "cluster front (4K at 0 of 1M)", block = 4 * KiB, offset = 0, cluster = MiB },
    { id = "cluster middle (4K at 512K of 1M)", block = 4 * KiB, offset = 512 * KiB, cluster = MiB },
    { id = "cross cluster (1M at 4K of 1M)", block = MiB, offset = 4 * KiB, cluster = MiB },
    { id = "cluster 64K (4K at 0 of 64K)", block = 4 * KiB, offset = 0, cluster = 64 * KiB },
}

local WORK = { "reads", "writes", "zeroes", "allocates", "truncates", "discards", "syncs", "read_bytes", "written_bytes", "zeroed_bytes" }

-- ---- columns ----

local function engine_column(word)
    local cow = word:match "^engine:cow=(%l+)$"
    if cow ~= "write" and cow ~= "skip" and cow ~= "zero" then
        support.stop(("column '%s' is not known; engine:cow=write, engine:cow=skip and engine:cow=zero are"):format(word))
    end
    return { id = word, cow = cow }
end

local function qemu_column(program)
    local found, message = support.qemu_img(program)
    return found and { id = "qemu-img " .. found.version, program = program }, message
end

--- The columns with their names, which have to differ; no qemu-img on simulated disks.
local function columns(words, disk)
    local envs, seen = {}, {}
    local function add(env)
        if env.program and disk ~= "file" then return end
        if seen[env.id] then env.id = ("%s (%s)"):format(env.id, env.program or #envs + 1) end
        if seen[env.id] then support.stop(("column '%s' is there twice"):format(env.id)) end
        seen[env.id], envs[#envs + 1] = true, env
    end
    for _, word in ipairs(words) do
        if word:find "^engine" then add(engine_column(word)) else
            local env, message = qemu_column(word)
            add(env or support.stop(message))
        end
    end
    if #words == 0 then
        add(engine_column "engine:cow=write")
        add(engine_column "engine:cow=skip")
        local installed = qemu_column "qemu-img"
        if installed then add(installed) end
    end
    return envs
end

-- ---- one run: the time of the requests alone, without opening, closing or flushing, as `qemu-img bench` takes it ----

local function difference(after, before)
    local work = {}
    for _, name in ipairs(WORK) do work[name] = after[name] - before[name] end
    return work
end

local function run_engine(env, case, setting)
    local place = support.place(setting, "write_req.qcow2")
    local target = place.target()
    assert(qcow2.create(target, { size = setting.size, cluster_size = case.cluster })):close()
    local image <close> = assert(qcow2.open(target, { cache = setting.cache_mode, cow = env.cow }))
    local bytes = assert(qcow2.buffer(case.block)):fill(PATTERN)
    local count, step, offset = setting.size // case.cluster - 1, case.cluster, case.offset
    local before, start = image:stats().file, place.clock(target)
    for _ = 1, count do
        assert(image:write(offset, bytes))
        offset = offset + step
    end
    local seconds, work = place.clock(target) - start, difference(image:stats().file, before)
    image:close()
    place.remove()
    return support.result(setting, { seconds = seconds, requests = count, work = work })
end

local function run_qemu(env, case, setting)
    local program, path = support.quote(env.program), support.quote(setting.dir .. "/write_req.qcow2")
    local output, message = support.capture(("%s create -q -f qcow2 -o cluster_size=%d %s %d"):format(program, case.cluster, path, setting.size))
    if not output then return nil, message end
    output, message = support.capture(("%s bench -w --pattern=%d -c %d -d 1 -s %d -o %d -S %d -t %s -f qcow2 %s"):format(
        program, PATTERN, setting.size // case.cluster - 1, case.block, case.offset, case.cluster, setting.cache_mode, path))
    os.remove(setting.dir .. "/write_req.qcow2")
    if not output then return nil, message end
    local seconds = tonumber(output:match "Run completed in ([%d.]+) seconds")
    if not seconds then return nil, "no time in what it printed: " .. output end
    return { seconds = seconds }
end

-- ---- the engine's work ----

--- The kinds of work that any column did, in order.
local function kinds_of_work(bench)
    local used, kinds = {}, {}
    for _, _, run in last_runs(bench, "work") do
        for _, name in ipairs(WORK) do used[name] = used[name] or run.work[name] > 0 end
    end
    for _, name in ipairs(WORK) do
        if used[name] then kinds[#kinds + 1] = name end
    end
    return kinds
end

--- What the engine did for one request, on average of the last run: a table for the report.
local function work_table(bench)
    local rows, kinds = { { "" } }, kinds_of_work(bench)
    for _, name in ipairs(kinds) do table.insert(rows[1], (name:gsub("_", " "))) end
    for case, env, run in last_runs(bench, "work") do
        local row = { ("%s, %s"):format(case.id, env.id) }
        for _, name in ipairs(kinds) do
            local each_time = run.work[name] / run.requests
            row[#row + 1] = (each_time < 100 and "%.3g" or "%.0f"):format(each_time)
        end
        rows[#rows + 1] = row
    end
    return { title = "the engine's operations on the file, for one request", rows = rows }
end

return support.scenario {
    name = "write_req",
    question = "Does a write that allocates copy what it need not?",
    usage = USAGE,
    disks = "file,ssd,hdd",
    measure = function(setting)
        setting.size, setting.cache_mode = setting.quick and 64 * MiB or 1024 * MiB, support.cache(setting)
        local function measure(env, case) return (env.program and run_qemu or run_engine)(env, case, setting) end
        local bench = simplebench.bench(measure, columns(setting.rest, setting.disk), CASES, setting.run)
        bench.notes = {
            ("image %d MiB, one request in each cluster, cache=%s, no flush"):format(setting.size // MiB, setting.cache_mode),
        }
        return { bench, work_table(bench) }
    end,
}
