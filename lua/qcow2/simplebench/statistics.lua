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

--- The value below which a share of all values lies, between neighbours in proportion (Hyndman and Fan's type 7).
-- @tparam {number,...} ordered at least one value, the least first
-- @tparam number share 0 to 1
-- @treturn number
function statistics.quantile_sorted(ordered, share)
    local place = 1 + (#ordered - 1) * math.min(math.max(share, 0), 1)
    local below = math.floor(place)
    local above = ordered[below + 1] or ordered[below]
    return ordered[below] + (above - ordered[below]) * (place - below)
end

--- The same for values in any order.
-- @treturn ?number nil when there are no values
function statistics.quantile(values, share)
    if #values == 0 then return nil end
    return statistics.quantile_sorted(sorted(values), share)
end

--- The median absolute deviation from the median, not scaled.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.mad(values)
    local median, deviations = statistics.median(values), {}
    for i, value in ipairs(values) do deviations[i] = math.abs(value - median) end
    return statistics.median(deviations)
end

local OUTLIER_FROM = 3.5
local TO_STDEV = 0.6745 -- the median absolute deviation of a normal distribution of deviation 1
local MEAN_TO_STDEV = 0.7979 -- the mean one

--- Which values lie far out: 0.6745 × |value − median| / MAD is more than 3.5 (Iglewicz and Hoaglin's rule). Where more than half of
-- the values are equal, the mean absolute deviation takes the place of the median one, with 0.7979 for 0.6745.
-- @tparam {number,...} values
-- @treturn {integer,...} their indices; none while there are fewer than five values
function statistics.outliers(values)
    local median, found = statistics.median(values), {}
    if #values < 5 then return found end
    local sigma = statistics.mad(values) / TO_STDEV
    if sigma == 0 then sigma = sum(values, function(x) return math.abs(x - median) end) / #values / MEAN_TO_STDEV end
    for i, value in ipairs(values) do
        if math.abs(value - median) > OUTLIER_FROM * sigma then found[#found + 1] = i end
    end
    return found
end

--- The geometric mean of numbers above 0.
-- @tparam {number,...} values
-- @treturn ?number nil when there are no values
function statistics.geometric_mean(values)
    if #values == 0 then return nil end
    local logarithms = {}
    for i, value in ipairs(values) do logarithms[i] = math.log(value) end
    return math.exp(statistics.mean(logarithms))
end

--- Ranks that bound the median: the interval from the `low`th to the `high`th smallest of n values covers it with at least the
-- confidence asked for, whatever the distribution (binomial).
-- @tparam integer n
-- @tparam[opt=0.95] number confidence
-- @treturn ?integer low; nil when n values are too few
-- @treturn ?integer high
function statistics.median_ranks(n, confidence)
    local tail, probability, low = (1 - (confidence or 0.95)) / 2, 0.5 ^ n, 0
    local below = probability -- that at most `low` values lie below the median
    while below <= tail do
        low = low + 1
        probability = probability * (n - low + 1) / low
        below = below + probability
    end
    if low == 0 then return nil end
    return low, n - low + 1
end

--- An interval that covers the median, by median_ranks.
-- @tparam {number,...} values
-- @tparam[opt=0.95] number confidence
-- @treturn ?number low; nil with too few values
-- @treturn ?number high
function statistics.median_interval(values, confidence)
    local low, high = statistics.median_ranks(#values, confidence)
    if not low then return nil end
    local ordered = sorted(values)
    return ordered[low], ordered[high]
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
