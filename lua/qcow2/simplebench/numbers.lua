-- SPDX-License-Identifier: MIT

--- Numbers as they are shown: three significant digits, with an exponent where they would be long; infinity and NaN as words.
-- @module qcow2.simplebench.numbers

local numbers = {}

local SMALL, LARGE = 1e-7, 1e15 -- numbers below or from here on have an exponent
local EXPONENT = "%.2e"

--- The format that shows three significant digits of a number.
local function format_of(model)
    local size = math.abs(model)
    if size == 0 or size ~= size or size == math.huge then return "%.2f" end
    if size < SMALL or size >= LARGE then return EXPONENT end
    local exponent = tonumber(("%.2e"):format(size):match "e(.*)$")
    return ("%%.%df"):format(math.max(2 - exponent, 0))
end

--- A number with as many decimals as three significant digits of another want.
-- @tparam number value
-- @tparam number model
-- @treturn string
function numbers.like(value, model)
    if value ~= value then return "nan" end
    if math.abs(value) == math.huge then return value > 0 and "inf" or "-inf" end
    return (math.abs(value) >= LARGE and EXPONENT or format_of(model)):format(value)
end

--- A number, with its deviation where it is given: "1.23 ± 0.04".
-- @tparam number value
-- @tparam[opt] number deviation
-- @treturn string
function numbers.show(value, deviation)
    local text = numbers.like(value, value)
    return deviation and ("%s ± %s"):format(text, numbers.like(deviation, value)) or text
end

--- A ratio with three decimals, where they say anything.
-- @tparam number value
-- @treturn string
function numbers.ratio(value)
    if value >= 0.01 and value < 1e6 then return ("%.3f"):format(value) end
    return numbers.show(value)
end

return numbers
