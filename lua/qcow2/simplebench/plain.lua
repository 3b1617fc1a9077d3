-- SPDX-License-Identifier: MIT

--- Results as JSON can hold them.
-- @module qcow2.simplebench.plain

local dimensions = require "qcow2.simplebench.dimensions"
local json = require "qcow2.simplebench.json"

local ARRAY = getmetatable(json.array {})
local EMPTY_LISTS = { values = true, outliers = true, runs = true, notes = true, rows = true, sections = true }
for _, name in ipairs(dimensions.NAMES) do EMPTY_LISTS[name] = true end

local function is_list(value, name)
    for key in pairs(value) do
        if math.type(key) ~= "integer" or key < 1 or key > #value then return false end
    end
    return #value > 0 or getmetatable(value) == ARRAY or EMPTY_LISTS[name] == true
end

local function copy_of(value, name, above)
    if type(value) == "number" and (value ~= value or math.abs(value) == math.huge) then return json.null end
    if type(value) ~= "table" or value == json.null then return value end
    if above[value] then return nil end
    above[value] = true
    local list = is_list(value, name)
    local copy = list and json.array {} or {}
    local function add(key, item)
        local kind = type(item)
        if kind == "function" or kind == "userdata" or kind == "thread" then return end
        item = copy_of(item, key, above)
        if list then copy[#copy + 1] = item else copy[tostring(key)] = item end
    end
    if list then
        for key, item in ipairs(value) do add(key, item) end
    else
        for key, item in pairs(value) do add(key, item) end
    end
    above[value] = nil
    return copy
end

--- A copy with only what JSON can hold: functions, userdata and circles are left out; NaN and infinities are null.
-- @param value
-- @return the copy
return function(value) return copy_of(value, nil, {}) end
