-- SPDX-License-Identifier: MIT
-- What do overlap checks cost? Writes into an image with many internal snapshots, for each template of overlap_check.

local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"

local USAGE = [[
usage: overlap.lua [--dir DIR] [--count N] [--snapshots N] [--json FILE]

  --dir DIR      where the images are made (default: a new folder in $TMPDIR or /tmp, removed afterwards)
  --count N      runs that count in each cell (default 7), after one that does not
  --snapshots N  internal snapshots, made by qemu-img (default 100; 0 needs no qemu-img)
  --json FILE    writes every run and the machine's facts
]]

local MiB, CLUSTER, CLUSTERS, REWRITES = 1 << 20, 65536, 2048, 10

local ENVS = { { id = "none" }, { id = "constant" }, { id = "cached" }, { id = "all" } }
local CASES = {
    { id = "first writes", rounds = 1 },       -- copy-on-write of clusters that the snapshots share, 4 KiB each
    { id = "rewrites", rounds = REWRITES },    -- in place, 4 KiB each
}

local function stop(message)
    io.stderr:write("overlap: ", message, "\n")
    os.exit(1, true)
end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

local function shell(command) return os.execute(command) or stop("failed: " .. command) end

local function parse(arguments)
    local options, i = { count = 7, snapshots = 100 }, 1
    local names = { ["--dir"] = "dir", ["--count"] = "count", ["--snapshots"] = "snapshots", ["--json"] = "json" }
    while arguments[i] do
        local name, value = names[arguments[i]], arguments[i + 1]
        if not name or not value then
            io.write(USAGE)
            os.exit(arguments[i] == "--help", true)
        end
        options[name] = type(options[name]) == "number" and (math.tointeger(tonumber(value)) or stop(value .. " is no number")) or value
        i = i + 2
    end
    return options
end

--- An image of 1 GiB with its first clusters full, and snapshots of it.
local function make_base(path, snapshots)
    local image <close> = assert(qcow2.create(path, { size = 1024 * MiB }))
    local buffer = qcow2.buffer(MiB):fill(7)
    for i = 0, CLUSTERS * CLUSTER // MiB - 1 do assert(image:write(i * MiB, buffer)) end
    assert(image:close())
    for i = 1, snapshots do shell(("qemu-img snapshot -c s%d %s"):format(i, quote(path))) end
end

local function write_all(image, buffer, offset)
    for i = 0, CLUSTERS - 1 do assert(image:write(i * CLUSTER + offset, buffer)) end
end

--- Seconds for one case, and the metadata reads that it needed (reads beyond those of copied clusters).
local function measure(base, copy)
    return function(env, case)
        shell(("cp --sparse=always %s %s"):format(quote(base), quote(copy)))
        local image <close> = assert(qcow2.open(copy, { overlap_check = env.id }))
        local buffer = qcow2.buffer(4096):fill(9)
        if case.rounds > 1 then write_all(image, buffer, 0) end
        local reads, started = image:stats().file.reads, qcow2.clock()
        for round = 1, case.rounds do write_all(image, buffer, round * 4096) end
        local seconds = qcow2.clock() - started
        case.reads = case.reads or {}
        case.reads[env.id] = image:stats().file.reads - reads
        return { seconds = seconds }
    end
end

local function main(options)
    local dir = options.dir
    if not dir then
        local pipe <close> = assert(io.popen 'mktemp -d "${TMPDIR:-/tmp}/overlap.XXXXXX"')
        dir = pipe:read "l"
    end
    local base, copy = dir .. "/overlap-base.qcow2", dir .. "/overlap.qcow2"
    make_base(base, options.snapshots)
    local bench = simplebench.bench(measure(base, copy), ENVS, CASES, { count = options.count, clock = qcow2.clock })
    os.remove(base)
    os.remove(copy)
    if not options.dir then os.remove(dir) end
    io.write(("overlap: %d snapshots, %d clusters of 64 KiB, writes of 4 KiB\n\n"):format(options.snapshots, CLUSTERS))
    io.write(simplebench.text(bench), "\nreads from the file:\n")
    for _, case in ipairs(CASES) do
        local words = {}
        for _, env in ipairs(ENVS) do words[#words + 1] = ("%s %d"):format(env.id, case.reads[env.id]) end
        io.write(("  %s: %s\n"):format(case.id, table.concat(words, ", ")))
    end
    if options.json then
        local file = assert(io.open(options.json, "w"))
        file:write(simplebench.json(bench))
        assert(file:close())
    end
end

main(parse(arg))
