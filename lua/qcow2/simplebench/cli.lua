-- SPDX-License-Identifier: MIT

--- The command line that benchmark scripts share: options, progress, reports, baselines and the exit status.
--
--     local cli = require "qcow2.simplebench.cli"
--     local options, rest = cli.parse(arg, { usage = "…", flags = { "--mine" }, values = { "--size" } })
--     local result = simplebench.bench(func, envs, cases, options.run)
--     os.exit(cli.finish(options, report, { result }), true)
-- @module qcow2.simplebench.cli

local baseline = require "qcow2.simplebench.baseline"
local machine = require "qcow2.simplebench.machine"
local progress = require "qcow2.simplebench.progress"
local text_table = require "qcow2.simplebench.table"

local cli = {}

local FLAGS = { "--quick", "--any-machine", "--help" }
local VALUES = {
    "--count", "--seed", "--order", "--dir", "--json", "--csv", "--markdown", "--html", "--save", "--baseline", "--baselines",
    "--fail-if-slower",
}

cli.HELP = [[
  --quick              small and short, to see that it runs; files are in /dev/shm unless --dir is given
  --count N            so many runs in each cell (default: until the medians are known to 1 %, 10 to 300)
  --order ORDER        interleaved (default) or random
  --seed N             of the order and of the bootstrap (default 1)
  --dir DIR            where files are made (default: a new folder in $TMPDIR or /tmp, removed afterwards)
  --json FILE, --csv FILE, --markdown FILE, --html FILE
                       reports besides the one on the terminal
  --save NAME          keep the results as a baseline; --baselines DIR says where (default .baselines)
  --baseline NAME      compare with one, which must be of the same machine unless --any-machine is given
  --fail-if-slower P   exit with 1 when a case is slower than the baseline by more than P (such as 5%)
]]

local function stop(message)
    io.stderr:write(message, "\n")
    os.exit(2, true)
end

local function unknown(word, known, nearest)
    local names = {}
    for name in pairs(known) do names[#names + 1] = name end
    table.sort(names)
    local near = nearest and nearest(word, names)
    stop(("unknown option '%s'%s; --help says what there is"):format(word, near and (" (did you mean %s?)"):format(near) or ""))
end

local function key_of(name) return (name:gsub("^%-%-", ""):gsub("%-", "_")) end

local function whole_number(given, name, least)
    local number = math.tointeger(tonumber(given))
    if number and number >= least then return number end
    return stop(("--%s is '%s'; it is a whole number from %d on"):format(name, given, least))
end

local function read_numbers(options)
    if options.count then options.count = whole_number(options.count, "count", 1) end
    options.seed = options.seed and whole_number(options.seed, "seed", 0) or 1
    if options.order and options.order ~= "random" and options.order ~= "interleaved" then
        stop(("--order is '%s'; it is interleaved or random"):format(options.order))
    end
    if options.fail_if_slower then
        local percent = tonumber((options.fail_if_slower:gsub(" ?%%$", "")))
        if not percent or percent < 0 then stop(("--fail-if-slower is '%s'; it is a percentage"):format(options.fail_if_slower)) end
        options.fail_if_slower = percent / 100
        if not options.baseline then stop "--fail-if-slower needs a --baseline" end
    end
end

--- Reads a command line. Wrong ones end the program with 2, --help with 0.
-- @tparam {string,...} words
-- @tparam table spec usage (text before the shared options' help), flags and values (lists of more options, "--name"), nearest (a
--   function of a word and a list of names that finds the one it may have been meant to be)
-- @treturn table options by name, underscores for dashes; and `run`, for simplebench.bench
-- @treturn {string,...} what are no options
function cli.parse(words, spec)
    local known, options, rest, i = {}, {}, {}, 1
    for _, list in ipairs { FLAGS, spec.flags or {} } do
        for _, name in ipairs(list) do known[name] = "flag" end
    end
    for _, list in ipairs { VALUES, spec.values or {} } do
        for _, name in ipairs(list) do known[name] = "value" end
    end
    while words[i] do
        local name, value = words[i]:match "^(%-%-[%w-]+)=?(.*)$"
        if words[i] == "--" then
            table.move(words, i + 1, #words, #rest + 1, rest)
            break
        elseif not words[i]:find "^%-" then rest[#rest + 1] = words[i]
        elseif not known[name or ""] then unknown(name or words[i], known, spec.nearest)
        elseif known[name] == "flag" then options[key_of(name)] = true
        else
            if value == "" then
                i = i + 1
                value = words[i]
            end
            options[key_of(name)] = value or stop(("%s needs a value"):format(name))
        end
        i = i + 1
    end
    if options.help then
        io.write(spec.usage, cli.HELP)
        os.exit(0, true)
    end
    read_numbers(options)
    options.live = progress.new(io.stderr)
    options.run = { seed = options.seed, order = options.order, progress = options.live.event }
    options.run.count = options.count
    return options, rest
end

--- A folder for files: the one named, or a new one.
-- @tparam table options
-- @tparam string name of the script
-- @treturn table path; closing it removes the folder if it was made here, with all that is in it
function cli.workplace(options, name)
    if options.dir then return setmetatable({ path = options.dir }, { __close = function() end }) end
    local memory = options.quick and "mktemp -d -p /dev/shm %s.XXXXXX 2>/dev/null || " or ""
    local command = (memory .. 'mktemp -d "${TMPDIR:-/tmp}/%s.XXXXXX"'):gsub("%%s", name)
    local pipe <close> = assert(io.popen(command))
    local path = pipe:read "l" or stop "mktemp made no folder"
    return setmetatable({ path = path }, { __close = function() os.execute(("rm -rf -- '%s'"):format(path)) end })
end

-- ---- the end ----

local function show_baseline(options, found)
    local rows = { { "against " .. options.baseline, "ratio", "interval", "p" } }
    for _, one in ipairs(found) do
        local comparison = one.comparison
        local interval = comparison.interval
        rows[#rows + 1] = {
            ("%s %s, %s"):format(one.title or "", one.case, one.env), comparison.differs and ("%.3f"):format(comparison.ratio) or "~",
            interval and ("%.3f to %.3f"):format(interval.low, interval.high) or "", comparison.p and ("%.2g"):format(comparison.p) or "",
        }
    end
    io.write("\n", text_table.layout(rows))
end

--- False when something got slower than is allowed.
local function gate(options, benches, facts)
    local document, message = baseline.load(options.baselines or ".baselines", options.baseline)
    local found
    if document then found, message = baseline.compare(document, benches, facts, options.any_machine) end
    if not found then stop(message) end
    show_baseline(options, found)
    local slower, untold = baseline.slower(found, options.fail_if_slower or math.huge), baseline.untold(found)
    if untold > 0 then io.write(("too few runs to tell in %d of %d cells: the gate passes them\n"):format(untold, #found)) end
    for _, one in ipairs(slower) do
        io.write(("slower than allowed: %s %s, %s: × %.3f\n"):format(one.title or "", one.case, one.env, one.comparison.ratio))
    end
    return #slower == 0
end

local function any_failed(benches)
    for _, bench in ipairs(benches) do
        for _, row in pairs(bench.results) do
            for _, result in pairs(row) do
                if result.n_failed > 0 then return true end
            end
        end
    end
    return false
end

--- Ends a script: shows the report, writes the files asked for, saves and compares baselines.
-- @tparam table options what parse returned
-- @tparam table report see qcow2.simplebench.report
-- @tparam {table,...} benches what is in it, for baselines
-- @treturn boolean whether all runs succeeded and nothing is slower than allowed: the exit status
function cli.finish(options, report, benches)
    options.live.finish()
    io.write(report:text())
    local facts = report.machine or machine.facts(options.dir)
    local saved, message = report:save { json = options.json, csv = options.csv, markdown = options.markdown, html = options.html }
    if not saved then stop(message) end
    local fast_enough = not options.baseline or gate(options, benches, facts)
    if options.save then
        local directory = options.baselines or ".baselines"
        os.execute(("mkdir -p -- '%s'"):format(directory))
        saved, message = baseline.save(directory, options.save, benches, facts)
        if not saved then stop(message) end
    end
    return fast_enough and not any_failed(benches)
end

return cli
