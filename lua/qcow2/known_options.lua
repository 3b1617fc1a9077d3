-- SPDX-License-Identifier: MIT

--- Reading a table of options by a table that says what is known of each.
--
-- A known option has name, kind and default (none: it is absent from the result), and what its kind asks for: `min`, `max` and
-- `power_of_two` bound numbers; `choices` are the plain values and `aliases` other ways to say them; `only` is the format that has the
-- option. Reading walks the known ones in order, so the first sentence is always the same one for the same mistake.
-- @module qcow2.known_options

local nearest = require "qcow2.nearest"
local size = require "qcow2.size"

local known_options = {}

-- Values of one option. Each reader returns the plain value; or nil and a sentence; or nil, a sentence and true for misuse.

local BOOLEANS = { [true] = true, [false] = false, on = true, off = false, yes = true, no = false, ["true"] = true, ["false"] = false }

--- The value as a sentence shows it.
function known_options.quoted(value)
    return type(value) == "string" and "'" .. value:gsub("%c", "?") .. "'" or tostring(value)
end

local quoted = known_options.quoted

local function listed(names)
    local words = {}
    for index, name in ipairs(names) do words[index] = "'" .. name .. "'" end
    if #words == 1 then return words[1] end
    return table.concat(words, ", ", 1, #words - 1) .. " and " .. words[#words]
end

--- `shown` is the value as it was given, `show` writes a bound.
local function in_range(option, number, shown, show)
    local min, max = option.min or 0, option.max or math.maxinteger
    local wrong_power = option.power_of_two and (number <= 0 or number & number - 1 ~= 0)
    if number >= min and number <= max and not wrong_power then return number end
    local what = option.power_of_two and "powers of two" or "whole numbers"
    return nil, ("%s is %s; %s from %s to %s are allowed"):format(option.name, shown, what, show(min), show(max))
end

local function read_size(option, value)
    local bytes, message = size.parse(value, option.name)
    if not bytes then return nil, message end
    return in_range(option, bytes, quoted(value), function(bound) return bound < 1024 and tostring(bound) or size.format(bound) end)
end

local function read_integer(option, value)
    local number = (type(value) == "number" or value:find("^%d+$")) and tonumber(value)
    return in_range(option, number and math.tointeger(number) or -1, quoted(value), tostring)
end

local TIME_UNITS = { us = 1000, ms = 1000000, s = 1000000000, m = 60 * 1000000000, h = 3600 * 1000000000, [""] = 1000000000 }

--- A time: seconds, or a number with us, ms, s, m or h. The plain value is in nanoseconds.
local function read_seconds(option, value)
    local digits, unit = tostring(value):match "^([%d.]+e?[-+]?%d*)(%a*)$"
    local number, factor = tonumber(digits), TIME_UNITS[unit]
    local nanoseconds = number and factor and math.tointeger(math.floor(number * factor + 0.5))
    if nanoseconds and nanoseconds <= 1 << 62 and nanoseconds >= (option.min or 0) then return nanoseconds end
    return nil, ("%s is %s; seconds, or a number with 'us', 'ms', 's', 'm' or 'h', are allowed"):format(option.name, quoted(value))
end

--- A whole number of percent.
local function read_percent(option, value)
    local number = math.tointeger(tonumber((tostring(value):gsub(" ?%%$", ""))))
    if number and number >= 0 and number <= 100 then return number end
    return nil, ("%s is %s; percent from 0 to 100 are allowed"):format(option.name, quoted(value))
end

--- A boolean, or a word for one.
function known_options.read_boolean(option, value)
    local plain = BOOLEANS[value]
    if plain ~= nil then return plain end
    return nil, ("%s is %s; true, false, 'on' and 'off' are allowed"):format(option.name, quoted(value))
end

local function read_choice(option, value)
    local alias = option.aliases and option.aliases[value]
    if alias then return alias end
    for _, choice in ipairs(option.choices) do
        if value == choice then return choice end
    end
    return nil, ("%s is %s; %s are allowed"):format(option.name, quoted(value), listed(option.choices))
end

local function read_any(_, value) return value end

local function read_string(option, value)
    if value == "" then return nil, ("%s is ''; a name has at least one byte"):format(option.name) end
    if value:find("\0", 1, true) then return nil, ("%s is %s; a name has no zero byte"):format(option.name, quoted(value)) end
    if #value <= option.max then return value end
    return nil, ("%s has %d bytes; at most %d are allowed"):format(option.name, #value, option.max)
end

local KINDS = {
    size = { read = read_size, types = { "number", "string" } },
    integer = { read = read_integer, types = { "number", "string" } },
    boolean = { read = known_options.read_boolean, types = { "boolean", "string" } },
    choice = { read = read_choice, types = { "string" } },
    string = { read = read_string, types = { "string" } },
    any = { read = read_any, types = { "boolean", "number", "string", "table", "function", "userdata" } },
    seconds = { read = read_seconds, types = { "number", "string" } },
    percent = { read = read_percent, types = { "number", "string" } },
}

--- A kind is a name of one of these, or a table of its own.
local function kind_of(option) return KINDS[option.kind] or option.kind end

--- The Lua types that an option may have: those of its kind, and those of its aliases.
local function types_of(option)
    local list, seen = {}, {}
    local function add(name)
        if not seen[name] then list[#list + 1], seen[name] = name, true end
    end
    for _, name in ipairs(kind_of(option).types) do add(name) end
    for alias in pairs(option.aliases or {}) do add(type(alias)) end
    return list, seen
end

-- Whole tables of options.

local function names_of(known)
    local names = {}
    for index, option in ipairs(known) do names[index] = option.name end
    return names
end

--- The first misuse by name, in alphabetical order; nil when every name is known and every type makes sense.
local function misuse_of(known, given)
    local by_name, unknown = {}, {}
    for _, option in ipairs(known) do by_name[option.name] = option end
    for key in pairs(given) do
        if type(key) ~= "string" then return ("options have names, not a %s (%s)"):format(type(key), tostring(key)) end
        if not by_name[key] then unknown[#unknown + 1] = key end
    end
    table.sort(unknown)
    if unknown[1] then
        local near = nearest(unknown[1], names_of(known))
        return ("unknown option '%s'%s"):format(unknown[1], near and (" (did you mean '%s'?)"):format(near) or "")
    end
    for _, option in ipairs(known) do
        local value = given[option.name]
        local list, accepted = types_of(option)
        if value ~= nil and not accepted[type(value)] then
            return ("option '%s' must be a %s, not a %s"):format(option.name, table.concat(list, " or a "), type(value))
        end
    end
    return nil
end

--- Reads every option.
-- @tparam {table,...} known
-- @tparam ?table given
-- @treturn[1] table plain values by name
-- @treturn[2] nil
-- @treturn[2] string what is wrong
-- @treturn[2] boolean true where it is misuse: an unknown name or a wrong type
function known_options.read(known, given)
    if given == nil then given = {} end
    if type(given) ~= "table" then return nil, ("options must be a table, not a %s"):format(type(given)), true end
    local misuse = misuse_of(known, given)
    if misuse then return nil, misuse, true end
    local flat = {}
    for _, option in ipairs(known) do -- the format comes first
        local value = given[option.name]
        local applies = option.only == nil or flat.format == nil or flat.format == option.only
        if value ~= nil and not applies then
            return nil, ("%s is an option of format %s; the format is %s"):format(option.name, option.only, flat.format)
        end
        local plain, message, is_misuse = option.default, nil, nil
        if value ~= nil then plain, message, is_misuse = kind_of(option).read(option, value) end
        if message then return nil, message, is_misuse end
        if applies then flat[option.name] = plain end
    end
    return flat
end

return known_options
