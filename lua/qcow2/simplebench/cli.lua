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
local numbers = require "qcow2.simplebench.numbers"
local progress = require "qcow2.simplebench.progress"
local report = require "qcow2.simplebench.report"
local shell = require "qcow2.simplebench.shell"
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
  --baseline NAME      compare with one, which must be of the same settings, and of the same machine unless --any-machine is given
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

local BASELINES = ".baselines" -- the folder, where none is named

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

--- A path by its parts, so that the same file is found under two spellings.
local function tidy(path)
    local parts = {}
    for part in path:gmatch "[^/]+" do
        if part ~= "." then parts[#parts + 1] = part end
    end
    return (path:find "^/" and "/" or "") .. table.concat(parts, "/")
end

--- Refuses to write one file twice; each is first written under its name with ".new".
local function check_files(options)
    local taken = {}
    local function take(name, path)
        path = tidy(path)
        for _, one in ipairs { path, path .. ".new" } do
            if taken[one] then stop(("--%s and --%s would write the same file, '%s'"):format(taken[one], name, one)) end
        end
        taken[path], taken[path .. ".new"] = name, name
    end
    for _, name in ipairs(report.FORMATS) do
        if options[name] then take(name, options[name]) end
    end
    if options.save then
        local path, message = baseline.path(options.baselines or BASELINES, options.save)
        take("save", path or stop(message))
    end
end

local function known_options(spec)
    local known, shared = {}, {}
    for _, name in ipairs(VALUES) do shared[name] = true end
    for kind, lists in pairs { flag = { FLAGS, spec.flags or {} }, value = { VALUES, spec.values or {} } } do
        for _, list in ipairs(lists) do
            for _, name in ipairs(list) do known[name] = kind end
        end
    end
    return known, shared
end

--- The value of an option: what follows its "=", or the next word, but for one that looks like an option.
local function value_of(name, given, following)
    if given then return given end
    if not following then stop(("%s needs a value"):format(name)) end
    if following:find "^%-%-" then
        stop(("%s needs a value, and '%s' looks like an option; if it is meant, say %s=%s"):format(name, following, name, following))
    end
    return following
end

--- Reads the option that begins at words[i]; returns where the next one begins.
local function read_option(words, i, options, known, shared, nearest)
    local name, given = words[i]:match "^(%-%-[^=]+)=(.*)$"
    name = name or words[i]
    if not known[name] then unknown(name, known, nearest) end
    if known[name] == "flag" then
        if given then stop(("%s takes no value, and has '%s'"):format(name, given)) end
        options[key_of(name)] = true
        return i + 1
    end
    local value = value_of(name, given, words[i + 1])
    if value == "" and shared[name] then stop(("%s needs a value"):format(name)) end
    options[key_of(name)] = value
    return given and i + 1 or i + 2
end

--- Reads a command line. Wrong ones end the program with 2, --help with 0.
-- @tparam {string,...} words
-- @tparam table spec usage (text before the shared options' help), flags and values (lists of more options, "--name"), nearest (a
--   function of a word and a list of names that finds the one it may have been meant to be)
-- @treturn table options by name, underscores for dashes; and `run`, for simplebench.bench
-- @treturn {string,...} what are no options
function cli.parse(words, spec)
    local options, rest, i = {}, {}, 1
    local known, shared = known_options(spec)
    while words[i] do
        if words[i] == "--" then
            table.move(words, i + 1, #words, #rest + 1, rest)
            break
        elseif words[i]:find "^%-" then i = read_option(words, i, options, known, shared, spec.nearest)
        else rest[#rest + 1], i = words[i], i + 1
        end
    end
    if options.help then
        io.write(spec.usage, cli.HELP)
        os.exit(0, true)
    end
    read_numbers(options)
    check_files(options)
    options.live = progress.new(io.stderr)
    options.run = { seed = options.seed, order = options.order, progress = options.live.event }
    options.run.count = options.count
    return options, rest
end

--- A path that no program takes for an option.
local function no_option(path) return path:find "^%-" and "./" .. path or path end

--- Makes a new folder. All of what mktemp prints but the last line end is its name: with a line end within, one line alone would name
-- another folder, which would be removed afterwards.
local function new_folder(name, in_memory)
    local template = shell.quote(name .. ".XXXXXX")
    local memory = in_memory and ("mktemp -d -p /dev/shm -- %s 2>/dev/null || "):format(template) or ""
    local pipe <close> = assert(io.popen(memory .. ('mktemp -d -- "${TMPDIR:-/tmp}"/%s'):format(template)))
    return pipe:read("a"):match "^(.+)\n$" or stop "mktemp made no folder"
end

--- A folder for files: the one named, or a new one.
-- @tparam table options
-- @tparam string name of the script
-- @treturn table path; closing it removes the folder if it was made here, with all that is in it
function cli.workplace(options, name)
    if options.dir then return setmetatable({ path = no_option(options.dir) }, { __close = function() end }) end
    local path = no_option(new_folder(name, options.quick))
    return setmetatable({ path = path }, { __close = function() os.execute("rm -rf -- " .. shell.quote(path)) end })
end

-- ---- the end ----

local function show_baseline(options, found)
    local rows = { { "against " .. options.baseline, "ratio", "interval", "p" } }
    for _, one in ipairs(found) do
        local comparison = one.comparison
        local interval = comparison.interval
        rows[#rows + 1] = {
            ("%s %s, %s"):format(one.title or "", one.case, one.env), comparison.differs and numbers.ratio(comparison.ratio) or "~",
            interval and ("%s to %s"):format(numbers.ratio(interval.low), numbers.ratio(interval.high)) or "",
            comparison.p and ("%.2g"):format(comparison.p) or "",
        }
    end
    io.write("\n", text_table.layout(rows))
end

local NOT_COMPARED = {
    { "only_there", "in the baseline, but not in this run" }, { "only_here", "in this run, but not in the baseline" },
    { "incomparable", "in both, but not to be compared (failed, 0, or of another dimension)" },
}

--- A line for each kind of cell that the comparison leaves out.
local function show_others(others)
    for _, kind in ipairs(NOT_COMPARED) do
        local count = others[kind[1]]
        if count > 0 then io.write(("%s: %d %s\n"):format(kind[2], count, count == 1 and "cell" or "cells")) end
    end
end

--- False when something got slower than is allowed.
local function gate(options, benches, facts)
    local document, message = baseline.load(options.baselines or BASELINES, options.baseline)
    local found, others = nil, message
    if document then found, others = baseline.compare(document, benches, facts, options.any_machine) end
    if not found then stop(others) end
    show_baseline(options, found)
    show_others(others)
    local slower, untold = baseline.slower(found, options.fail_if_slower or math.huge), baseline.untold(found)
    if untold > 0 then io.write(("too few runs to tell in %d of %d cells: the gate passes them\n"):format(untold, #found)) end
    for _, one in ipairs(slower) do
        io.write(("slower than allowed: %s %s, %s: × %s\n"):format(
            one.title or "", one.case, one.env, numbers.ratio(one.comparison.ratio)))
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

--- Keeps the results as a baseline, in a folder that is made where it is missing.
local function save_baseline(options, benches, facts)
    local directory = options.baselines or BASELINES
    if not os.execute("mkdir -p -- " .. shell.quote(directory)) then stop(("'%s' could not be made"):format(directory)) end
    local saved, message = baseline.save(directory, options.save, benches, facts)
    if not saved then stop(message) end
end

--- Ends a script: shows the report, writes the files asked for, saves and compares baselines.
-- @tparam table options what parse returned
-- @tparam table shown the report, see qcow2.simplebench.report
-- @tparam {table,...} benches what is in it, for baselines; whether it was quick is added to the settings of each
-- @treturn boolean whether all runs succeeded and nothing is slower than allowed: the exit status
function cli.finish(options, shown, benches)
    for _, bench in ipairs(benches) do
        bench.settings = bench.settings or {}
        bench.settings.quick = options.quick == true
    end
    options.live.finish()
    io.write(shown:text())
    local facts = shown.machine or machine.facts(options.dir)
    local saved, message = shown:save { json = options.json, csv = options.csv, markdown = options.markdown, html = options.html }
    if not saved then stop(message) end
    local fast_enough = not options.baseline or gate(options, benches, facts)
    if options.save then save_baseline(options, benches, facts) end
    return fast_enough and not any_failed(benches)
end

return cli
