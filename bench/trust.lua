-- SPDX-License-Identifier: MIT
-- Can the comparison be trusted? The same column twice, many times: how often are they called different? And with 3 % more work in one
-- of them, how often is that found? Real runs, at simplebench's default settings.

local cli = require "qcow2.simplebench.cli"
local nearest = require "qcow2.nearest"
local qcow2 = require "qcow2"
local simplebench = require "qcow2.simplebench"

local MiB = 1 << 20
local OPERATIONS = 5000 -- of 4 KiB, in one run

local USAGE = [[
usage: trust.lua [OPTION…]

  --same N             comparisons of a column with itself (default 200)
  --slower N           comparisons with one that does 3 % more (default 100)
                       0 leaves either out
  --verbose            a line on standard error after each comparison
]]

--- Seconds for reads at random, of which `extra` in a hundred are done once more.
local function measure(image, buffer)
    return function(env)
        local state, start = 1, qcow2.clock()
        local count = OPERATIONS + OPERATIONS * env.extra // 100
        for _ = 1, count do
            state = state * 6364136223846793005 + 1442695040888963407
            assert(image:read_into((state >> 40) % 16384 * 4096, buffer))
        end
        return { seconds = qcow2.clock() - start }
    end
end

local function count_different(func, tries, extra, run, verbose)
    local different, runs = 0, 0
    for i = 1, tries do
        local options = { clock = qcow2.clock, seed = i }
        for name, value in pairs(run) do options[name] = options[name] or value end
        local bench = simplebench.bench(func, { { id = "a", extra = 0 }, { id = "b", extra = extra } }, { { id = "reads" } }, options)
        if bench.comparisons.reads.b.differs then different = different + 1 end
        runs = runs + #bench.results.reads.a.runs
        if verbose then io.stderr:write(("%d/%d: %d\n"):format(i, tries, different)) end
    end
    return different, runs / tries
end

local function tries_of(options, name, default)
    local tries = math.tointeger(tonumber(options[name] or default))
    if tries and tries >= 0 then return tries end
    io.stderr:write(("--%s is '%s'; it is a whole number from 0 on\n"):format(name, options[name]))
    os.exit(2, true)
end

--- Compares as often as asked for and writes the line that says what came of it: `what`, with how many of how many, percent, and runs.
local function show(what, func, tries, extra, options)
    if tries == 0 then return end
    local different, runs = count_different(func, tries, extra, options.run, options.verbose)
    io.write(what:format(different, tries, 100 * different / tries, runs), "\n")
end

local options = cli.parse(arg, { usage = USAGE, flags = { "--verbose" }, values = { "--same", "--slower" }, nearest = nearest })
local same, slower = tries_of(options, "same", 200), tries_of(options, "slower", 100)
local place <close> = cli.workplace(options, "qcow2-trust")
local image <close> = assert(qcow2.create(place.path .. "/trust.qcow2", { size = 64 * MiB }))
assert(image:bench { rw = "write", bs = "1M" })
local func = measure(image, qcow2.buffer(4096))

show("the same column twice: %d of %d called different (%.1f %%), %.1f runs each", func, same, 0, options)
show("3 %% more work: %d of %d found (%.1f %%), %.1f runs each", func, slower, 3, options)
