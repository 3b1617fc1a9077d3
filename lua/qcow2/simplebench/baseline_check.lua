-- SPDX-License-Identifier: MIT

--- Whether what was read from a file is a baseline, all of it: nothing that compares one looks again.
-- @module qcow2.simplebench.baseline_check

local dimensions = require "qcow2.simplebench.dimensions"
local json = require "qcow2.simplebench.json"
local machine = require "qcow2.simplebench.machine"

local FORMAT = 2 -- 1 kept no settings

--- Ends the check.
local function wrong(where, what) error({ finding = ("%s %s"):format(where, what) }, 0) end

local function check_type(where, value, ...)
    for _, kind in ipairs { ... } do
        if type(value) == kind and value ~= json.null then return end
    end
    wrong(where, value == nil and "is missing" or value == json.null and "is null" or ("is a %s"):format(type(value)))
end

--- Calls look(where, key, value) for the members of an object.
local function each_member(where, object, look)
    check_type(where, object, "table")
    for key, value in pairs(object) do
        if type(key) ~= "string" then wrong(where, "is a list") end
        look(("%s.%s"):format(where, key), key, value)
    end
end

local function check_number(where, value)
    check_type(where, value, "number")
    if value ~= value or value < 0 or value == math.huge then wrong(where, ("is %s"):format(value)) end
end

local function check_numbers(where, list)
    check_type(where, list, "table")
    for key in pairs(list) do
        if math.type(key) ~= "integer" then wrong(where, "is no list") end
    end
    for i, value in ipairs(list) do check_number(("%s[%d]"):format(where, i), value) end
end

local function check_cell(where, _, cell)
    each_member(where, cell, function() end)
    check_numbers(where .. ".values", cell.values)
    if cell.exact ~= nil then check_type(where .. ".exact", cell.exact, "boolean") end
    if #cell.values == 0 then return end
    check_number(where .. ".median", cell.median)
    check_type(where .. ".dimension", cell.dimension, "string")
    if not dimensions.known(cell.dimension) then wrong(where .. ".dimension", ("is '%s', which is not known"):format(cell.dimension)) end
end

local function check_setting(where, _, value) check_type(where, value, "string", "number", "boolean") end

local function check_bench(where, bench)
    each_member(where, bench, function() end)
    if bench.title ~= nil then check_type(where .. ".title", bench.title, "string") end
    if bench.better ~= nil and bench.better ~= "lower" and bench.better ~= "higher" then
        wrong(where .. ".better", "is neither 'lower' nor 'higher'")
    end
    each_member(where .. ".settings", bench.settings, check_setting)
    each_member(where .. ".cells", bench.cells, function(row_at, _, row) each_member(row_at, row, check_cell) end)
end

local function check_benches(benches)
    local titles = {}
    check_type("benches", benches, "table")
    for key in pairs(benches) do
        if math.type(key) ~= "integer" then wrong("benches", "is no list") end
    end
    for i, bench in ipairs(benches) do
        local where = ("benches[%d]"):format(i)
        check_bench(where, bench)
        if titles[bench.title or ""] then wrong(where .. ".title", "is there twice") end
        titles[bench.title or ""] = true
    end
end

local function check(document)
    check_type("it", document, "table")
    if document.format ~= FORMAT then wrong("its format", ("is %s, where this program has %d"):format(tostring(document.format), FORMAT)) end
    each_member("machine", document.machine, function() end)
    for _, name in ipairs(machine.DECISIVE) do
        if document.machine[name] ~= nil then check_type("machine." .. name, document.machine[name], "string", "number") end
    end
    check_benches(document.benches)
end

--- FORMAT: the number that baselines of this form have; of(document): nil where all is well, or what is wrong.
return {
    FORMAT = FORMAT,
    of = function(document)
        local done, raised = pcall(check, document)
        if done then return nil end
        return type(raised) == "table" and raised.finding or error(raised, 0)
    end,
}
