-- SPDX-License-Identifier: MIT

--- Sizes in bytes, as people write and read them.
--
-- Both directions follow qemu-img: what it accepts is accepted, what it prints is printed. Integers stay integers
-- throughout; a float is only ever a fraction below one unit.
-- @module qcow2.size

local size = {}

local SHIFT = { [""] = 0, b = 0, k = 10, m = 20, g = 30, t = 40, p = 50, e = 60 }
local PREFIXES = { "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei" }

local UNREADABLE = "a size is a number of bytes with or without one of the suffixes k, M, G, T, P and E, such as 65536, 64K or 1.5G"
local TOO_LARGE = "at most 9223372036854775807 bytes are allowed"
local NEGATIVE = "sizes are 0 or more"
local NOT_WHOLE = "a size is a whole number of bytes"

local function from_number(value)
    if value < 0 then return nil, NEGATIVE end
    local bytes = math.tointeger(value)
    if bytes then return bytes end
    if value >= 2.0 ^ 63 then return nil, TOO_LARGE end
    return nil, value == value and NOT_WHOLE or UNREADABLE
end

local function from_hex(digits)
    digits = digits:gsub("^0+", "")
    local bytes = #digits <= 16 and tonumber("0x0" .. digits)
    if not bytes or bytes < 0 then return nil, TOO_LARGE end
    return bytes
end

--- whole.fraction × 2^shift, halves rounded up.
local function scale(whole, fraction, shift)
    if whole > math.maxinteger >> shift then return nil, TOO_LARGE end
    local exact = fraction * (1 << shift)
    local rest = math.floor(exact)
    if exact - rest >= 0.5 then rest = rest + 1 end
    local bytes = whole << shift
    if bytes > math.maxinteger - rest then return nil, TOO_LARGE end
    return bytes + rest
end

local function from_decimal(digits, decimals, unit)
    local whole = math.tointeger(tonumber("0" .. digits))
    local fraction = tonumber("0." .. decimals .. "0")
    local shift = SHIFT[unit:lower()]
    if not shift then return nil, UNREADABLE end
    if not whole then return nil, TOO_LARGE end
    if fraction == 1.0 then -- so many nines that the nearest float is 1
        if whole == math.maxinteger then return nil, TOO_LARGE end
        whole, fraction = whole + 1, 0.0
    end
    if shift == 0 and fraction ~= 0 then return nil, NOT_WHOLE end
    return scale(whole, fraction, shift)
end

local function from_string(text)
    local sign, rest = text:match("^%s*([+-]?)(.*)$")
    if sign == "-" then return nil, rest:find("^%.?%d") and NEGATIVE or UNREADABLE end
    local hex = rest:match("^0[xX](%x+)$")
    if hex then return from_hex(hex) end
    local digits, decimals, unit = rest:match("^(%d+)%.?(%d*)(%a?)$")
    if not digits then digits, decimals, unit = rest:match("^(%d*)%.(%d+)(%a?)$") end
    if not digits then return nil, UNREADABLE end
    return from_decimal(digits, decimals, unit)
end

--- Reads a size.
-- @tparam number|string value bytes (an integer, or a float without fraction), or text: decimal with or without fraction and suffix
--   (b, k, M, G, T, P, E; case does not matter; 1024 each), or hexadecimal ("0x10000") without suffix. A fraction of a unit is
--   rounded to whole bytes; a fraction of a byte is refused.
-- @string[opt="size"] name the option's name, for the message
-- @treturn[1] integer bytes, 0 to 2^63 − 1
-- @treturn[2] nil
-- @treturn[2] string what is wrong: option, value and what is allowed
-- @raise when value is neither a number nor a string
function size.parse(value, name)
    name = name or "size"
    local bytes, message
    if math.type(value) then bytes, message = from_number(value)
    elseif type(value) == "string" then bytes, message = from_string(value)
    else error(("%s must be a number or a string, not a %s"):format(name, type(value)), 2)
    end
    if bytes then return bytes end
    local shown = type(value) == "string" and "'" .. value:gsub("%c", "?") .. "'" or tostring(value)
    return nil, ("%s is %s; %s"):format(name, shown, message)
end

--- Writes a size with three significant digits: "64 KiB", "1.5 GiB". From 1000 of a unit on the next one is taken.
-- @tparam integer bytes 0 or more
-- @treturn string
function size.format(bytes)
    local scaled, unit = bytes / (1000 / 1024), 1
    while scaled >= 1024 and unit < #PREFIXES do scaled, unit = scaled / 1024, unit + 1 end
    return ("%.3g %sB"):format(bytes / (1 << 10 * (unit - 1)), PREFIXES[unit])
end

return size
