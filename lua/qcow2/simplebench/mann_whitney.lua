-- SPDX-License-Identifier: MIT

--- The test of Mann and Whitney: are the values of one list larger than those of another?
--
-- It asks only which of two values is larger, for each pair, so that one wild run counts no more than any other. Few values without
-- ties get the exact distribution; others the normal one, corrected for ties and for steps of a half.
-- @module qcow2.simplebench.mann_whitney

local distributions = require "qcow2.simplebench.distributions"

local mann_whitney = {}

local EXACT_UP_TO = 50 -- values in both lists; the counts are whole numbers below 2^63 up to there

local tables = {} -- by n and m

--- ways[u + 1] of the orders of n and m values have u pairs in which the first value is the larger. They are the coefficients of
-- the Gaussian binomial: a product of (1 − q^(m+i)) / (1 − q^i).
local function exact_ways(n, m)
    local key, ways = n * (EXACT_UP_TO + 1) + m, {}
    if tables[key] then return tables[key] end
    for u = 0, n * m do ways[u + 1] = u == 0 and 1 or 0 end
    for i = 1, n do
        for u = n * m, m + i, -1 do ways[u + 1] = ways[u + 1] - ways[u + 1 - m - i] end
        for u = i, n * m do ways[u + 1] = ways[u + 1] + ways[u + 1 - i] end
    end
    tables[key] = ways
    return ways
end

local function total(ways)
    local sum = 0
    for _, count in ipairs(ways) do sum = sum + count end
    return sum
end

local function exact_p(u, n, m)
    local ways, below = exact_ways(n, m), 0
    for i = 0, math.min(u, n * m - u) do below = below + ways[i + 1] end
    return math.min(2 * below / total(ways), 1)
end

--- u of b against a (pairs in which b is larger, a tie being half of one), and the sum of t³ − t over ties of t values.
local function count_pairs(a, b)
    local all, u, ties = {}, 0, 0
    for _, value in ipairs(a) do all[#all + 1] = { value, 1, 0 } end
    for _, value in ipairs(b) do all[#all + 1] = { value, 0, 1 } end
    table.sort(all, function(x, y) return x[1] < y[1] end)
    local at, below = 1, 0
    while at <= #all do
        local value, from_a, from_b = all[at][1], 0, 0
        while all[at] and all[at][1] == value do
            from_a, from_b, at = from_a + all[at][2], from_b + all[at][3], at + 1
        end
        local size = from_a + from_b
        u, below, ties = u + from_b * (below + from_a / 2), below + from_a, ties + size ^ 3 - size
    end
    return u, ties
end

local function deviation(n, m, ties)
    local all = n + m
    return math.sqrt(math.max(n * m / 12 * (all + 1 - ties / (all * (all - 1))), 0))
end

local function normal_p(u, n, m, ties)
    local sd, far = deviation(n, m, ties), math.max(math.abs(u - n * m / 2) - 0.5, 0)
    if sd == 0 then return 1 end
    return math.min(2 * distributions.normal_tail(far / sd), 1)
end

--- Tests whether two lists differ, two-sided.
-- @tparam {number,...} a
-- @tparam {number,...} b
-- @treturn table u (pairs in which the value of b is the larger, ties being half), p, exact; p is 1 when a list is empty
function mann_whitney.test(a, b)
    local n, m = #a, #b
    if n == 0 or m == 0 then return { u = 0, p = 1.0, exact = true } end
    local u, ties = count_pairs(a, b)
    if ties == 0 and n + m <= EXACT_UP_TO then return { u = u, p = exact_p(math.tointeger(u), n, m), exact = true } end
    return { u = u, p = normal_p(u, n, m, ties), exact = false }
end

--- The largest u that still rejects, for lists without ties: P(u or less) is at most alpha / 2.
-- @int n values of the one list
-- @int m values of the other
-- @tparam number alpha chance to reject two lists that do not differ
-- @treturn integer −1 when not even the most extreme order rejects
function mann_whitney.critical(n, m, alpha)
    if n + m > EXACT_UP_TO then
        return math.max(math.floor(n * m / 2 - 0.5 - distributions.normal_above(alpha / 2) * deviation(n, m, 0)), -1)
    end
    local ways, below, u = exact_ways(n, m), 0, -1
    local most = total(ways) * alpha / 2
    while below + ways[u + 2] <= most do u, below = u + 1, below + ways[u + 2] end
    return u
end

return mann_whitney
