-- SPDX-License-Identifier: MIT

--- What a list of numbers says.
--
-- Sums carry what each addition rounds away (Neumaier), and the deviation is taken from the mean in a second pass, so that
-- values that differ only in their last digits lose none of them.
-- @module qcow2.simplebench.statistics

local statistics = {}

local function sum(values, change)
    local total, lost = 0.0, 0.0
    for _, value in ipairs(values) do
        local x = change(value)
        local new = total + x
        lost = lost + (math.abs(total) >= math.abs(x) and (total - new) + x or (x - new) + total)
        total = new
    end
    return total + lost
end

local function sorted(values)
    local copy = table.move(values, 1, #values, 1, {})
    table.sort(copy)
    return copy
end

--- The arithmetic mean.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.mean(values)
    if #values == 0 then return nil end
    return sum(values, function(x) return x end) / #values
end

--- The sample standard deviation (divided by n − 1).
-- @tparam {number,...} values
-- @treturn ?number nil with fewer than two values
function statistics.stdev(values)
    if #values < 2 then return nil end
    local mean = statistics.mean(values)
    local squares = sum(values, function(x) return (x - mean) ^ 2 end)
    local rounding = sum(values, function(x) return x - mean end) -- 0, were the mean exact
    return math.sqrt(math.max(squares - rounding ^ 2 / #values, 0) / (#values - 1))
end

--- The middle value; the mean of the two middle ones of an even number.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.median(values)
    if #values == 0 then return nil end
    local ordered, half = sorted(values), #values // 2
    if #values % 2 == 1 then return ordered[half + 1] end
    return ordered[half] + (ordered[half + 1] - ordered[half]) / 2
end

--- The smallest value.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.min(values) return sorted(values)[1] end

--- The largest value.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.max(values) return sorted(values)[#values] end

return statistics
