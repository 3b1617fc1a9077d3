-- SPDX-License-Identifier: MIT

--- What a run can give, and how it is shown: seconds, iops, rate.
-- @module qcow2.simplebench.dimensions

local dimensions = {}

--- The names, in order.
dimensions.NAMES = { "seconds", "iops", "rate" }

local KNOWN = { -- scale: numbers are shown as so many times less than they are kept
    seconds = { name = "seconds", unit = "s", better = "lower", scale = 1 },
    iops = { name = "IOPS", unit = "IOPS", better = "higher", scale = 1 },
    rate = { name = "MB/s", unit = "MB/s", better = "higher", scale = 1e6 }, -- kept in bytes per second
}

--- Whether a dimension is one of those that a run can give.
-- @param name
-- @treturn boolean
function dimensions.known(name) return KNOWN[name] ~= nil end

--- How a dimension is shown.
-- @tparam ?string name one that is not known is shown as it is
-- @treturn table name (in a caption), unit (after a number), better ("lower" or "higher"), scale
function dimensions.of(name) return KNOWN[name] or { name = name, unit = name, better = "higher", scale = 1 } end

--- The dimensions that a result has, in order.
-- @tparam table result
-- @treturn {string,...}
function dimensions.given(result)
    local given = {}
    for _, name in ipairs(dimensions.NAMES) do
        if result[name] ~= nil then given[#given + 1] = name end
    end
    return given
end

return dimensions
