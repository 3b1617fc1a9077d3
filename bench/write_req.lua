-- SPDX-License-Identifier: MIT
-- Does a write that allocates copy what it need not? One request in every new cluster of an image, for ways to fill the rest.

local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"

local USAGE = [[
usage: write_req.lua [COLUMN...] [--dir DIR] [--count N] [--quick] [--json FILE]

A COLUMN is a qemu-img program, or the engine with what it does to the rest of a new cluster:
engine:cow=write (writes zeroes), engine:cow=zero (lets the file zero it), engine:cow=skip (nothing, where it is zero).
Default: engine:cow=write, engine:cow=skip, and the installed qemu-img when there is one.

  --dir DIR    where the image is made (default: a new folder in $TMPDIR or /tmp, removed afterwards)
  --count N    runs that count in each cell (default 5), after one that does not
  --quick      an image of 128 MiB instead of 1 GiB, and 3 runs
  --json FILE  writes every run and the machine's facts
  --help       prints this
]]

local KiB, MiB = 1 << 10, 1 << 20
local PATTERN = 165 -- what both sides write: bytes that nobody can take for zeroes

local CASES = {
    { id = "cluster front", block = 4 * KiB, offset = 0, cluster = MiB },
    { id = "cluster middle", block = 4 * KiB, offset = 512 * KiB, cluster = MiB },
    { id = "cross cluster", block = MiB, offset = 4 * KiB, cluster = MiB },
    { id = "cluster 64K", block = 4 * KiB, offset = 0, cluster = 64 * KiB },
}

local WORK = { "reads", "writes", "zeroes", "allocates", "truncates", "discards", "syncs", "read_bytes", "written_bytes", "zeroed_bytes" }

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- What a command printed, errors included; nil when it failed, and what it printed.
local function capture(command)
    local pipe = assert(io.popen(command .. " 2>&1"))
    local output = pipe:read "a"
    if pipe:close() then return output end
    return nil, (output:gsub("%s+$", ""):gsub("\n", "; "))
end

local function stop(message)
    io.stderr:write("write_req: ", message, "\n")
    os.exit(1, true)
end

-- ---- arguments ----

local function parse(arguments)
    local options, columns, i = { count = 5, size = 1024 * MiB }, {}, 1
    local function value(name)
        i = i + 1
        return arguments[i] or stop(name .. " wants a value")
    end
    while arguments[i] do
        local word = arguments[i]
        if word == "--help" then
            io.write(USAGE)
            os.exit(0, true)
        elseif word == "--dir" then options.dir = value(word)
        elseif word == "--json" then options.json = value(word)
        elseif word == "--quick" then options.quick = true
        elseif word == "--count" then options.given_count = value(word)
        elseif word:sub(1, 1) == "-" then stop(("unknown option '%s'; --help says what there is"):format(word))
        else columns[#columns + 1] = word
        end
        i = i + 1
    end
    if options.quick then options.count, options.size = 3, 128 * MiB end
    if options.given_count then options.count = math.tointeger(tonumber(options.given_count)) end
    if not options.count or options.count < 1 then stop(("--count is '%s'; it is a whole number from 1 on"):format(options.given_count)) end
    return options, columns
end

local function engine_column(word)
    local cow = word:match "^engine:cow=(%l+)$"
    if cow ~= "write" and cow ~= "skip" and cow ~= "zero" then
        stop(("column '%s' is not known; engine:cow=write, engine:cow=skip and engine:cow=zero are"):format(word))
    end
    return { id = word, kind = "engine", cow = cow }
end

local function qemu_column(program)
    local output, message = capture(quote(program) .. " --version")
    local version = output and output:match "^qemu%-img version ([%w._-]+)"
    if not version then return nil, ("'%s' is no qemu-img: %s"):format(program, message or "it says so with --version") end
    return { id = "qemu-img " .. version, kind = "qemu", program = program, version = version }
end

--- The columns with their names, which have to differ.
local function environments(words)
    local envs, seen = {}, {}
    local function add(env)
        if seen[env.id] then env.id = ("%s (%s)"):format(env.id, env.program or #envs + 1) end
        if seen[env.id] then stop(("column '%s' is there twice"):format(env.id)) end
        seen[env.id], envs[#envs + 1] = true, env
    end
    for _, word in ipairs(words) do
        if word:find "^engine" then add(engine_column(word)) else
            local env, message = qemu_column(word)
            add(env or stop(message))
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
    local created <close> = assert(qcow2.create(setting.path, { size = setting.size, cluster_size = case.cluster }))
    assert(created:close())
    local image <close> = assert(qcow2.open(setting.path, { cache = setting.cache, cow = env.cow }))
    local bytes = assert(qcow2.buffer(case.block)):fill(PATTERN)
    local count, step, offset = setting.size // case.cluster - 1, case.cluster, case.offset
    local before = image:stats().file
    local start = qcow2.clock()
    for _ = 1, count do
        assert(image:write(offset, bytes))
        offset = offset + step
    end
    local seconds = qcow2.clock() - start
    return { seconds = seconds, requests = count, work = difference(image:stats().file, before) }
end

local function run_qemu(env, case, setting)
    local program, path = quote(env.program), quote(setting.path)
    local output, message = capture(("%s create -q -f qcow2 -o cluster_size=%d %s %d"):format(program, case.cluster, path, setting.size))
    if not output then return nil, message end
    output, message = capture(("%s bench -w --pattern=%d -c %d -d 1 -s %d -o %d -S %d -t %s -f qcow2 %s"):format(
        program, PATTERN, setting.size // case.cluster - 1, case.block, case.offset, case.cluster, setting.cache, path))
    if not output then return nil, message end
    local seconds = tonumber(output:match "Run completed in ([%d.]+) seconds")
    if not seconds then return nil, "no time in what it printed: " .. output end
    return { seconds = seconds }
end

-- ---- the whole ----

--- A folder of our own, or the one named; the image in it goes when this is closed.
local function workplace(dir)
    local made = not dir
    if made then
        local output, message = capture 'mktemp -d "${TMPDIR:-/tmp}/write_req.XXXXXX"'
        dir = output and output:gsub("\n$", "") or stop(message)
    end
    local path = ("%s/write_req.qcow2"):format(dir)
    if not made then
        local there <close> = io.open(path)
        if there then stop(("'%s' is there already, and would be overwritten"):format(path)) end
    end
    return setmetatable({ path = path, dir = dir }, {
        __close = function()
            os.remove(path)
            if made then os.remove(dir) end
        end,
    })
end

--- "none", or "writeback" with a note where the filesystem has no O_DIRECT; the same for all columns.
local function choose_cache(path)
    local created <close>, message = qcow2.create(path, { size = MiB })
    if not created then stop(message) end
    created:close()
    local image <close> = qcow2.open(path, { cache = "none" })
    if image then return "none" end
    io.write "note: this filesystem has no O_DIRECT; every column uses cache=writeback\n"
    return "writeback"
end

local function show_progress(at)
    if at.initial then io.stderr:write(("\r\27[K%s, %s"):format(at.case.id, at.env.id)) else io.stderr:write "." end
end

--- What the engine did for one request, on average of the last run.
local function work_table(bench)
    local rows, used = {}, {}
    local function each(visit)
        for _, case in ipairs(bench.cases) do
            for _, env in ipairs(bench.envs) do
                local runs = bench.results[case.id][env.id].runs
                local last = runs[#runs]
                if last.work then visit(case, env, last) end
            end
        end
    end
    each(function(_, _, last)
        for _, name in ipairs(WORK) do used[name] = used[name] or last.work[name] > 0 end
    end)
    rows[1] = { "" }
    for _, name in ipairs(WORK) do
        if used[name] then rows[1][#rows[1] + 1] = (name:gsub("_", " ")) end
    end
    each(function(case, env, last)
        local row = { ("%s, %s"):format(case.id, env.id) }
        for _, name in ipairs(WORK) do
            local each_time = last.work[name] / last.requests
            if used[name] then row[#row + 1] = (each_time < 100 and "%.3g" or "%.0f"):format(each_time) end
        end
        rows[#rows + 1] = row
    end)
    return #rows > 1 and simplebench.table.layout(rows)
end

local function write_json(path, bench, setting)
    bench.setting = { image_size = setting.size, cache = setting.cache, pattern = PATTERN }
    local file, message = io.open(path, "w")
    if not file then stop(message) end
    file:write(simplebench.json(bench))
    if not file:close() then stop(("'%s' could not be written"):format(path)) end
end

--- Runs everything in one folder; true when no run failed.
local function main(options, envs)
    local place <close> = workplace(options.dir)
    local setting = { path = place.path, size = options.size, cache = choose_cache(place.path) }
    local function measure(env, case)
        os.remove(setting.path)
        return (env.kind == "engine" and run_engine or run_qemu)(env, case, setting)
    end
    local terminal = os.getenv "TERM" ~= nil and os.getenv "CI" == nil and os.execute "test -t 2"
    local bench = simplebench.bench(measure, envs, CASES, {
        count = options.count, clock = qcow2.clock, progress = terminal and show_progress,
    })
    if terminal then io.stderr:write "\r\27[K" end
    io.write(("write_req: image %d MiB, one request in each cluster, cache=%s, no flush\n\n"):format(setting.size // MiB, setting.cache))
    io.write(simplebench.text(bench))
    local work = work_table(bench)
    if work then io.write("\nthe engine's operations on the file, for one request:\n\n", work) end
    if options.json then write_json(options.json, bench, setting) end
    for _, row in pairs(bench.results) do
        for _, result in pairs(row) do
            if result.n_failed > 0 then return false end
        end
    end
    return true
end

local options, columns = parse(arg)
os.exit(main(options, environments(columns)), true)
