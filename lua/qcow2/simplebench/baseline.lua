-- SPDX-License-Identifier: MIT

--- Results kept under a name, to compare with later.
-- @module qcow2.simplebench.baseline

local compare = require "qcow2.simplebench.compare"
local json = require "qcow2.simplebench.json"
local machine = require "qcow2.simplebench.machine"

local baseline = {}

local function path_of(directory, name)
    if not name:find "^[%w._-]+$" or name:find "^%.+$" then
        return nil, ("a baseline's name has letters, digits, '.', '_' and '-', unlike '%s'"):format(name)
    end
    return ("%s/%s.json"):format(directory, name)
end

--- What of a result a comparison needs.
local function kept(bench)
    local cells = {}
    for case_id, row in pairs(bench.results) do
        cells[case_id] = {}
        for env_id, result in pairs(row) do
            local exact = #result.runs > 0 and result.runs[1].exact == true or nil
            cells[case_id][env_id] = { dimension = result.dimension, values = result.values, median = result.median, exact = exact }
        end
    end
    return { title = bench.title, better = bench.better, cells = cells }
end

--- Saves results; a baseline of that name is replaced, as a whole.
-- @tparam string directory which must exist
-- @tparam string name
-- @tparam {table,...} benches what bench returned, each with a title of its own
-- @tparam table facts what machine.facts returned
-- @return true; or nil and a message
function baseline.save(directory, name, benches, facts)
    local path, message = path_of(directory, name)
    if not path then return nil, message end
    local document = { format = 1, machine = facts, benches = {} }
    for i, bench in ipairs(benches) do document.benches[i] = kept(bench) end
    local file
    file, message = io.open(path .. ".new", "w")
    if not file then return nil, message end
    local written = file:write(json.encode(document, "  "), "\n")
    local closed = file:close()
    if not (written and closed) then
        os.remove(path .. ".new")
        return nil, ("'%s' could not be written"):format(path)
    end
    return os.rename(path .. ".new", path)
end

--- Loads what save kept.
-- @return {machine, benches}; or nil and a message
function baseline.load(directory, name)
    local path, message = path_of(directory, name)
    if not path then return nil, message end
    local file <close>, why = io.open(path)
    if not file then return nil, ("there is no baseline '%s': %s"):format(name, why) end
    local good, document = pcall(json.decode, file:read "a")
    if not good or type(document) ~= "table" or document.format ~= 1 then
        return nil, ("'%s' is no baseline: %s"):format(path, good and "another format" or document)
    end
    return document
end

--- Compares results with a baseline, cell by cell.
-- @tparam table document what load returned
-- @tparam {table,...} benches
-- @tparam table facts of this machine
-- @tparam[opt=false] boolean any_machine compare though the machines differ
-- @return a list of {title, case, env, comparison}; or nil and a message
function baseline.compare(document, benches, facts, any_machine)
    local same, difference = machine.same(document.machine, facts)
    if not same and not any_machine then
        return nil, ("the baseline is from another machine (%s); say --any-machine to compare all the same"):format(difference)
    end
    local old_benches, found = {}, {}
    for _, old in ipairs(document.benches) do old_benches[old.title or ""] = old end
    for _, bench in ipairs(benches) do
        local old = old_benches[bench.title or ""]
        for _, case in ipairs(old and bench.cases or {}) do
            for _, env in ipairs(bench.envs) do
                local before = old.cells[case.id] and old.cells[case.id][env.id]
                local comparison = before and compare.results(before, bench.results[case.id][env.id], bench.better)
                if comparison then
                    found[#found + 1] = { title = bench.title, case = case.id, env = env.id, comparison = comparison }
                end
            end
        end
    end
    if #found == 0 then return nil, "the baseline has none of these cases and columns" end
    return found
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
