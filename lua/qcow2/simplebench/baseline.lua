-- SPDX-License-Identifier: MIT

--- Results kept under a name, to compare with later.
-- @module qcow2.simplebench.baseline

local baseline_check = require "qcow2.simplebench.baseline_check"
local compare = require "qcow2.simplebench.compare"
local files = require "qcow2.simplebench.files"
local json = require "qcow2.simplebench.json"
local machine = require "qcow2.simplebench.machine"

local baseline = {}

--- The file of a baseline.
-- @tparam string directory
-- @tparam string name
-- @treturn string; or nil and a message
function baseline.path(directory, name)
    if not name:find "^[%w._-]+$" or name:find "^%.+$" then
        return nil, ("a baseline's name has letters, digits, '.', '_' and '-', unlike '%s'"):format(name)
    end
    return ("%s/%s.json"):format(directory, name)
end

--- What has to be the same for numbers to be compared, besides the machine: the count, and what the bench says of itself.
local function settings_of(bench)
    local settings = { count = bench.count or "adaptive" }
    for name, value in pairs(bench.settings or {}) do settings[name] = value end
    return settings
end

--- What of a result a comparison needs.
local function kept(bench)
    local cells = {}
    for case_id, row in pairs(bench.results) do
        cells[case_id] = {}
        for env_id, result in pairs(row) do
            cells[case_id][env_id] = {
                dimension = result.dimension, values = json.array(table.move(result.values, 1, #result.values, 1, {})),
                median = result.median, exact = compare.is_exact(result) or nil,
            }
        end
    end
    return { title = bench.title, better = bench.better, settings = settings_of(bench), cells = cells }
end

--- Saves results; a baseline of that name is replaced, as a whole.
-- @tparam string directory which must exist
-- @tparam string name
-- @tparam {table,...} benches what bench returned, each with a title of its own; settings (strings, numbers and booleans by name) say what
--   else the numbers depend on
-- @tparam table facts what machine.facts returned
-- @return true; or nil and a message
function baseline.save(directory, name, benches, facts)
    local path, message = baseline.path(directory, name)
    if not path then return nil, message end
    local document = { format = baseline_check.FORMAT, machine = facts, benches = json.array {} }
    for i, bench in ipairs(benches) do document.benches[i] = kept(bench) end
    return files.write { { path = path, text = json.encode(document, "  ") .. "\n" } }
end

--- Loads what save kept.
-- @return {machine, benches}; or nil and a message
function baseline.load(directory, name)
    local path, message = baseline.path(directory, name)
    if not path then return nil, message end
    local file <close>, why = io.open(path)
    if not file then return nil, ("there is no baseline '%s': %s"):format(name, why) end
    local text, unread = file:read "a"
    if not text then return nil, ("'%s' could not be read: %s"):format(path, unread) end
    local document, finding = json.decode(text)
    finding = finding or baseline_check.of(document)
    if finding then return nil, ("'%s' is no baseline, or damaged: %s"):format(path, finding) end
    return document
end

--- How two lists of settings differ: "count: 3 there and 10 here"; nil where they do not.
local function settings_differ(before, now)
    local names, parts = {}, {}
    for _, settings in ipairs { before, now } do
        for name in pairs(settings) do
            if before[name] ~= now[name] then names[name] = true end
        end
    end
    for name in pairs(names) do
        parts[#parts + 1] = ("%s: %s there and %s here"):format(name, tostring(before[name]), tostring(now[name]))
    end
    table.sort(parts)
    return #parts > 0 and table.concat(parts, ", ") or nil
end

--- Says why nothing may be compared, if so: another machine, or other settings.
local function refusal(document, benches, old_benches, facts, any_machine)
    local same, difference = machine.same(document.machine, facts)
    if not same and not any_machine then
        return ("the baseline is from another machine (%s); say --any-machine to compare all the same"):format(difference)
    end
    for _, bench in ipairs(benches) do
        local old = old_benches[bench.title or ""]
        difference = old and settings_differ(old.settings, settings_of(bench))
        if difference then
            local of = bench.title and (" of '%s'"):format(bench.title) or ""
            return ("the baseline%s was made with other settings (%s)"):format(of, difference)
        end
    end
end

local function count_cells(benches)
    local count = 0
    for _, bench in ipairs(benches) do
        for _, row in pairs(bench.cells) do
            for _ in pairs(row) do count = count + 1 end
        end
    end
    return count
end

--- Compares results with a baseline, cell by cell.
-- @tparam table document what load returned
-- @tparam {table,...} benches
-- @tparam table facts of this machine
-- @tparam[opt=false] boolean any_machine compare though the machines differ
-- @treturn[1] {table,...} {title, case, env, comparison}
-- @treturn[1] table numbers of cells that are not among them: only_there (in the baseline), only_here, and incomparable (in both, but all
--   runs failed, or gave 0, or another dimension)
-- @treturn[2] nil
-- @treturn[2] string why nothing can be compared
function baseline.compare(document, benches, facts, any_machine)
    local old_benches, found, others, shared = {}, {}, { only_there = 0, only_here = 0, incomparable = 0 }, 0
    for _, old in ipairs(document.benches) do old_benches[old.title or ""] = old end
    local why_not = refusal(document, benches, old_benches, facts, any_machine)
    if why_not then return nil, why_not end
    local function look(bench, old, case, env)
        local before = old and old.cells[case.id] and old.cells[case.id][env.id]
        if not before then
            others.only_here = others.only_here + 1
            return
        end
        local comparison = compare.results(before, bench.results[case.id][env.id], bench.better)
        shared = shared + 1
        if not comparison then others.incomparable = others.incomparable + 1
        else found[#found + 1] = { title = bench.title, case = case.id, env = env.id, comparison = comparison }
        end
    end
    for _, bench in ipairs(benches) do
        for _, case in ipairs(bench.cases) do
            for _, env in ipairs(bench.envs) do look(bench, old_benches[bench.title or ""], case, env) end
        end
    end
    others.only_there = count_cells(document.benches) - shared
    if shared == 0 then return nil, "the baseline has none of these cases and columns" end
    if #found == 0 then return nil, "none of the cells can be compared with the baseline's: all runs failed, or gave 0, or another dimension" end
    return found, others
end

--- How many of what compare returned have too few runs to tell: no gate can say anything of them.
-- @tparam {table,...} found
-- @treturn integer
function baseline.untold(found)
    local count = 0
    for _, one in ipairs(found) do
        if not one.comparison.enough then count = count + 1 end
    end
    return count
end

--- Which of what compare returned is worse than before by more than a limit.
-- @tparam {table,...} found
-- @tparam number limit 0.05 for 5 %
-- @treturn {table,...} those whose whole interval lies beyond the limit, on the worse side
function baseline.slower(found, limit)
    local slower = {}
    for _, one in ipairs(found) do
        local comparison = one.comparison
        local interval = comparison.interval or { low = comparison.ratio, high = comparison.ratio }
        local beyond = interval.low > 1 + limit or interval.high < 1 / (1 + limit)
        if comparison.better == "worse" and beyond then slower[#slower + 1] = one end
    end
    return slower
end

return baseline
