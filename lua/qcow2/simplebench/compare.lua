-- SPDX-License-Identifier: MIT

--- Do two columns differ, and by how much?
--
-- The ratio is the median of all quotients of a value there by a value here; its interval goes from one quotient to another
-- and is the test of Mann and Whitney turned round: it leaves 1 out where, and only where, the test rejects (ties aside, where
-- both have to). So sentence and interval never contradict each other, and one wild run moves neither. Two columns that are the
-- same are called different with a chance of ALPHA.
-- @module qcow2.simplebench.compare

local dimensions = require "qcow2.simplebench.dimensions"
local mann_whitney = require "qcow2.simplebench.mann_whitney"
local statistics = require "qcow2.simplebench.statistics"

local compare = { ALPHA = 0.02 }

local function quotients(from, to)
    local list = {}
    for _, a in ipairs(from) do
        for _, b in ipairs(to) do list[#list + 1] = b / a end
    end
    table.sort(list)
    return list
end

--- Compares two lists of values.
-- @tparam {number,...} from
-- @tparam {number,...} to
-- @treturn table p; ratio, low, high (to by from; absent where a value is 0, low and high also with too few values); enough (whether
--   the values suffice for any answer); differs
function compare.values(from, to)
    local test, rank = mann_whitney.test(from, to), -1
    if #from > 0 and #to > 0 then rank = mann_whitney.critical(#from, #to, compare.ALPHA) end
    local result = { p = test.p, enough = rank >= 0, differs = false }
    if #from == 0 or #to == 0 or statistics.min(from) <= 0 or statistics.min(to) <= 0 then return result end
    local list = quotients(from, to)
    result.ratio = statistics.median(list)
    if result.enough then
        result.low, result.high = list[rank + 1], list[#list - rank]
        result.differs = test.p <= compare.ALPHA and (result.low > 1 or result.high < 1)
    end
    return result
end

local EXACT_FROM = 0.01 -- less than 1 % between two simulations hangs on where a disk happened to be

local function all_equal(values)
    for _, value in ipairs(values) do
        if value ~= values[1] then return false end
    end
    return true
end

--- Whether a simulation gave the values, which are the same in each run: a difference between two such lists needs no test.
-- @tparam table result values; and runs, or exact where a baseline kept what was said of them
-- @treturn boolean
function compare.is_exact(result)
    if not all_equal(result.values) then return false end
    if not result.runs then return result.exact == true end
    for _, one in ipairs(result.runs) do
        if not one.exact or one.error ~= nil then return false end
    end
    return #result.runs > 0
end

local function compare_lists(from, to)
    if compare.is_exact(from) and compare.is_exact(to) and from.median > 0 then
        local ratio = to.median / from.median
        local differs = math.abs(math.log(ratio)) > EXACT_FROM
        return { enough = true, ratio = ratio, low = ratio, high = ratio, p = differs and 0.0 or 1.0, differs = differs, exact = true }
    end
    return compare.values(from.values, to.values)
end

--- Compares two results of bench_one.
-- @tparam table from the first column's
-- @tparam table to the other one's
-- @tparam[opt] string better "lower" or "higher"; by the dimension otherwise
-- @treturn ?table ratio (to : from), interval, p, differs, better ("better" or "worse" than from; nil where they do not differ), enough
--   (false: too few values for any answer), exact (from a simulation: no test was needed); nil when one has no values, or another
--   dimension, or a value of 0
function compare.results(from, to, better)
    if #(from.values or {}) == 0 or #(to.values or {}) == 0 or from.dimension ~= to.dimension then return nil end
    local found = compare_lists(from, to)
    if not found.ratio then return nil end
    local comparison = { ratio = found.ratio, p = found.p, differs = found.differs, enough = found.enough, exact = found.exact }
    if found.low then comparison.interval = { low = found.low, high = found.high } end
    if found.differs then
        local wants_lower = (better or dimensions.of(from.dimension).better) ~= "higher"
        comparison.better = (found.ratio < 1) == wants_lower and "better" or "worse"
    end
    return comparison
end

--- The geometric mean of some comparisons. Its interval takes the logarithms of the single ones as independent and normal.
local function geometric_mean(comparisons)
    local ratios, squares = {}, 0
    for i, one in ipairs(comparisons) do
        ratios[i] = one.ratio
        local interval = one.interval or { low = 0, high = math.huge }
        squares = squares + (math.log(interval.high / interval.low) / 2) ^ 2
    end
    local mean, factor = statistics.geometric_mean(ratios), math.exp(math.sqrt(squares) / #ratios)
    return { ratio = mean, interval = factor < math.huge and { low = mean / factor, high = mean * factor } or nil }
end

--- Adds to what bench returned: comparisons[case.id][env.id] with the first environment, and summary[env.id], the geometric mean of the
-- ratios over the cases that can be compared, where there are several, with an interval.
-- @tparam table bench
-- @treturn table the same
function compare.columns(bench)
    local first = bench.envs[1].id
    bench.comparisons, bench.summary = {}, {}
    for _, case in ipairs(bench.cases) do
        local row = bench.results[case.id]
        bench.comparisons[case.id] = {}
        for i = 2, #bench.envs do
            local id = bench.envs[i].id
            bench.comparisons[case.id][id] = compare.results(row[first], row[id], bench.better)
        end
    end
    for i = 2, #bench.envs do
        local id, column = bench.envs[i].id, {}
        for _, case in ipairs(bench.cases) do column[#column + 1] = bench.comparisons[case.id][id] end
        if #column > 1 then bench.summary[id] = geometric_mean(column) end
    end
    return bench
end

return compare
