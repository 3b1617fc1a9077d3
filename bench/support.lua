-- SPDX-License-Identifier: MIT
-- What the scenarios share: disks, real and simulated; columns; and running one scenario, or several, into one report.
--
-- A scenario is a table: name, question, disks (those that it runs on when none are named), usage (of its own options), flags and values
-- (more options), count (of runs, where not as many as it takes), and measure(setting), which returns a list of results for the
-- report. `setting` has disk ("file", "hdd", "ssd", "nvme"), dir (for files), quick, run (options of simplebench.bench), options and rest
-- (the command line). What measure leaves in its size, runtime and cache goes into baselines, which are compared only where these are
-- the same; what else numbers depend on it puts into a result's settings.

local cli = require "qcow2.simplebench.cli"
local nearest = require "qcow2.nearest"
local qcow2 = require "qcow2"
local report = require "qcow2.simplebench.report"
local shell = require "qcow2.simplebench.shell"
local simplebench = require "qcow2.simplebench"

local support = {}

support.MiB, support.GiB = 1 << 20, 1 << 30

local KINDS = { file = true, hdd = true, ssd = true, nvme = true }

function support.stop(message)
    io.stderr:write(message, "\n")
    os.exit(2, true)
end

support.quote = shell.quote

--- What a command prints; or nil and what it says instead.
function support.capture(command)
    local pipe <close> = io.popen(command .. " 2>&1")
    local text = pipe:read "a"
    local good = pipe:close()
    if good then return text end
    return nil, (text:gsub("%s+$", ""))
end

-- ---- where images lie ----

--- A place for one image: in a file, or in memory below simulated disks.
-- @return a table: target() gives a path, or a new simulated disk over the same bytes, whose clock begins at 0; clock(target) gives
--   seconds; settle(target) lets what a disk still does, and its turning, come to a whole second; remove() throws the image away
function support.place(setting, name, disk_options)
    local place = {}
    if setting.disk == "file" then
        local path = ("%s/%s"):format(setting.dir, name)
        os.remove(path)
        function place.target() return path end
        function place.remove() os.remove(path) end
        function place.settle() end
        place.clock = qcow2.clock
        return place
    end
    local memory, disks = qcow2.memory(name), {}
    function place.target()
        local wanted = { kind = setting.disk, storage = memory }
        for key, value in pairs(disk_options or {}) do wanted[key] = value end
        disks[#disks + 1] = assert(qcow2.model(wanted))
        return disks[#disks]
    end
    function place.remove() -- at once: the collector does not see how much memory is behind them
        for _, disk in ipairs(disks) do disk:close() end
        memory:close()
    end
    function place.settle(disk) qcow2.model_wait(disk, math.ceil(qcow2.model_clock(disk)) + 1) end
    place.clock = qcow2.model_clock
    return place
end

--- A run's result on the setting's disk: what a simulation gives is exact.
function support.result(setting, result)
    result.exact = setting.disk ~= "file" or nil
    return result
end

--- "none" where the directory's filesystem has O_DIRECT, else "writeback"; for files, so that all columns do the same.
function support.cache(setting)
    if setting.disk ~= "file" then return "none" end
    if setting.cache then return setting.cache end
    local path = setting.dir .. "/probe.raw"
    assert(qcow2.create(path, { size = support.MiB, format = "raw" })):close()
    local image <close> = qcow2.open(path, { cache = "none", format = "raw" })
    os.remove(path)
    setting.cache = image and "none" or "writeback"
    return setting.cache
end

--- The installed qemu-img, or the one named: {program, version}; or nil and why not.
function support.qemu_img(program)
    local output, message = support.capture(support.quote(program) .. " --version")
    local version = output and output:match "^qemu%-img version ([%w._-]+)"
    if not version then return nil, ("'%s' is no qemu-img: %s"):format(program, message or "it says so with --version") end
    return { program = program, version = version }
end

--- One latency distribution and course of a job's result, for reports.
function support.details(direction, series, name)
    local course = { interval = series.interval, unit = "IOPS" }
    for i, sample in ipairs(series) do course[i] = sample[name].operations / series.interval end
    return direction.latency.buckets, #course > 0 and course or nil
end

-- ---- running ----

local function disks_of(options, scenario)
    local disks, seen = {}, {}
    for disk in (options.disk or scenario.disks or "file"):gmatch "[^,]+" do
        if not KINDS[disk] then support.stop(("--disk is '%s'; file, hdd, ssd and nvme are known"):format(disk)) end
        if seen[disk] then support.stop(("--disk names %s twice"):format(disk)) end
        seen[disk], disks[#disks + 1] = true, disk
    end
    if #disks == 0 then support.stop "--disk is empty; file, hdd, ssd and nvme are known" end
    return disks
end

local function title_of(scenario, disk) return ("%s on %s"):format(scenario.name, disk == "file" and "real files" or "a simulated " .. disk) end

--- What the numbers of a result depend on, as far as the scenario chose it.
local function settings_of(found, setting)
    local settings = found.settings or {}
    for _, name in ipairs { "size", "runtime", "cache" } do
        if settings[name] == nil then settings[name] = setting[name] end
    end
    return settings
end

--- Runs a scenario on each disk and adds what it found to the report. Returns the results that baselines keep.
local function measure(scenario, options, rest, place, into)
    local benches = {}
    for _, disk in ipairs(disks_of(options, scenario)) do
        local setting = { disk = disk, dir = place, quick = options.quick, run = {}, options = options, rest = rest }
        for name, value in pairs(options.run) do setting.run[name] = value end
        setting.run.clock = qcow2.clock
        setting.run.count = options.count or options.quick and 3 or scenario.count
        setting.run.warmup = options.quick and 0 or nil
        for _, found in ipairs(scenario.measure(setting)) do
            found.title = found.title and ("%s: %s"):format(title_of(scenario, disk), found.title) or title_of(scenario, disk)
            found.question = found.question or scenario.question
            if found.rows then
                into:add_table(found)
            else
                found.settings = settings_of(found, setting)
                into:add(found)
                benches[#benches + 1] = found
            end
        end
    end
    return benches
end

local OWN = [[
  --disk LIST          file, hdd, ssd, nvme: real files, or simulated disks in virtual time
]]

--- Measures scenarios into one report, and ends the program.
local function run(scenarios, title, options, rest)
    for _, scenario in ipairs(scenarios) do disks_of(options, scenario) end -- a wrong one ends it before anything is measured
    local place <close> = cli.workplace(options, "qcow2-bench")
    local into = report.new { title = title, machine = simplebench.machine(place.path, { qcow2 = "scm-1" }) }
    local benches = {}
    for _, scenario in ipairs(scenarios) do
        local found = measure(scenario, options, rest, place.path, into)
        table.move(found, 1, #found, #benches + 1, benches)
    end
    os.exit(cli.finish(options, into, benches), true)
end

--- Runs one scenario as a program, with its own options.
local function start(scenario, words)
    local options, rest = cli.parse(words, {
        usage = (scenario.usage or "") .. OWN, flags = scenario.flags, values = { "--disk", table.unpack(scenario.values or {}) },
        nearest = nearest,
    })
    run({ scenario }, scenario.name, options, rest)
end

local ALL_USAGE = [[
usage: %s [OPTION…]

Runs scenarios into one report, each with its own columns and rows. What one alone takes, it takes only when it is run alone.

%s

  --only LIST          these scenarios, between commas
]]

local function names_of(scenarios)
    local names = {}
    for i, scenario in ipairs(scenarios) do names[i] = scenario.name end
    return names
end

--- The scenarios named in a list between commas, all without one.
local function chosen(scenarios, list)
    if not list then return scenarios end
    local known, found, order = {}, {}, {}
    for _, scenario in ipairs(scenarios) do known[scenario.name] = true end
    for name in list:gmatch "[^,]+" do
        if not known[name] then
            local near = nearest(name, names_of(scenarios))
            support.stop(("--only: there is no scenario '%s'%s"):format(name, near and (" (did you mean %s?)"):format(near) or ""))
        end
        found[name] = true
    end
    if not next(found) then support.stop "--only is empty" end
    for _, scenario in ipairs(scenarios) do
        if found[scenario.name] then order[#order + 1] = scenario end
    end
    return order
end

--- Runs scenarios as one program.
-- @tparam {table,...} scenarios
-- @tparam string title of the report
-- @tparam {string,...} words the command line: the options that all scripts share, --disk and --only
function support.start_all(scenarios, title, words)
    local lines = {}
    for i, scenario in ipairs(scenarios) do lines[i] = ("  %-20s %s"):format(scenario.name, scenario.question) end
    local usage = ALL_USAGE:format(words[0]:match "[^/]*$", table.concat(lines, "\n")) .. OWN
    local options, rest = cli.parse(words, { usage = usage, values = { "--disk", "--only" }, nearest = nearest })
    if rest[1] then
        local near = nearest(rest[1], names_of(scenarios))
        support.stop(("'%s' is no option%s; --help says what there is"):format(rest[1], near and (" (did you mean --only %s?)"):format(near) or ""))
    end
    run(chosen(scenarios, options.only), title, options, rest)
end

--- The end of a scenario's file: runs it when it is the program, returns it when another file asks for it.
function support.scenario(scenario)
    local program = (arg and arg[0] or ""):match "([%w_]+)%.lua$"
    if program == scenario.name then start(scenario, arg) end
    return scenario
end

return support
