-- SPDX-License-Identifier: MIT

--- Statistics of simplebench against published values.

local bootstrap = require "qcow2.simplebench.bootstrap"
local compare = require "qcow2.simplebench.compare"
local distributions = require "qcow2.simplebench.distributions"
local mann_whitney = require "qcow2.simplebench.mann_whitney"
local random = require "qcow2.simplebench.random"
local statistics = require "qcow2.simplebench.statistics"

local function near(expected, given, digits)
    assert.is_true(math.abs(given - expected) <= math.abs(expected) * 10 ^ -digits, ("%.17g is not %.17g"):format(given, expected))
end

local function from_to(first, last)
    local list = {}
    for i = first, last do list[#list + 1] = i end
    return list
end

describe("simplebench.random", function()
    it("gives the same for the same seed, and something else for another", function()
        local function draw(seed)
            local generator, list = random.new(seed), {}
            for i = 1, 20 do list[i] = generator:upto(1000) end
            return list
        end
        assert.same(draw(1), draw(1))
        assert.not_same(draw(1), draw(2))
        assert.not_same(draw(0), draw(-1))
    end)

    it("is even over its range", function()
        local generator, counts, sum, squares = random.new(3), { 0, 0, 0, 0, 0, 0, 0 }, 0, 0
        for _ = 1, 7000 do
            local n = generator:upto(7)
            counts[n] = counts[n] + 1
        end
        local chi = 0
        for _, count in ipairs(counts) do chi = chi + (count - 1000) ^ 2 / 1000 end
        assert.is_true(chi < 22.46, tostring(chi)) -- 6 degrees of freedom, 0.1 %
        for _ = 1, 10000 do
            local z = generator:normal()
            sum, squares = sum + z, squares + z * z
        end
        assert.is_true(math.abs(sum / 10000) < 0.033 and math.abs(squares / 10000 - 1) < 0.05)
    end)

    it("shuffles into every order", function()
        local generator, seen, count = random.new(4), {}, 0
        for _ = 1, 200 do
            local order = table.concat(generator:shuffle { 1, 2, 3 })
            if not seen[order] then seen[order], count = true, count + 1 end
        end
        assert.equal(6, count)
    end)
end)

describe("simplebench.distributions", function()
    it("agrees with tables of the normal distribution", function()
        for _, row in ipairs {
            { 0, 0.5 }, { 1, 0.15865525393145705 }, { -1, 0.84134474606854295 }, { 1.959963984540054, 0.025 }, { 3, 0.0013498980316300946 },
            { 5, 2.8665157187919391e-07 }, { 10, 7.6198530241605261e-24 },
        } do near(row[2], distributions.normal_tail(row[1]), 12) end
        near(0.0013498980316300946, distributions.normal_tail(3 - 1e-13), 11) -- where one series takes over from the other
        near(1.6448536269514722, distributions.normal_above(0.05), 12)
        near(2.3263478740408411, distributions.normal_above(0.01), 12)
    end)

    it("agrees with tables of Student's t", function()
        for df, value in pairs {
            [1] = 12.706204736174698, [2] = 4.302652729749464, [4] = 2.776445105197793, [9] = 2.262157162798205,
            [10] = 2.228138851964939, [30] = 2.042272456301238, [100] = 1.983971518523552,
        } do near(value, distributions.t_above(0.025, df), 11) end
        near(-2.776445105197793, distributions.t_above(0.975, 4), 11)
    end)
end)

describe("simplebench.statistics", function()
    it("has quantiles as R's type 7", function()
        local values = { 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 }
        for share, value in pairs { [0] = 1, [0.25] = 3.25, [0.5] = 5.5, [0.9] = 9.1, [1] = 10 } do
            near(value, statistics.quantile(values, share), 14)
        end
        assert.equal(7, statistics.quantile({ 7 }, 0.3))
        assert.is_nil(statistics.quantile({}, 0.5))
    end)

    it("has deviations and means as in textbooks", function()
        assert.equal(2, statistics.mad(from_to(1, 9)))
        assert.equal(1, statistics.mad { 1, 1, 2, 2, 4, 6, 9 })
        assert.is_nil(statistics.mad {})
        near(30, statistics.geometric_mean { 4, 36, 45, 50, 75 }, 14)
        assert.is_nil(statistics.geometric_mean {})
    end)

    it("finds the outliers that Iglewicz and Hoaglin find", function()
        assert.same({ 9, 10 }, statistics.outliers { 2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3 })
        assert.same({}, statistics.outliers { 1, 1.1, 0.9, 1.05, 0.95 })
        assert.same({}, statistics.outliers { 1, 1, 100, 1 }) -- too few to say
        assert.same({}, statistics.outliers { 1, 1, 1, 1, 1 })
        assert.same({ 20 }, statistics.outliers { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2 })
    end)

    it("bounds the median by the ranks of Conover's table", function()
        for n, rank in pairs { [6] = 1, [8] = 1, [9] = 2, [10] = 2, [12] = 3, [15] = 4, [20] = 6, [25] = 8, [50] = 18, [100] = 40 } do
            assert.same({ rank, n + 1 - rank }, { statistics.median_interval(from_to(1, n)) })
            assert.same({ rank, n + 1 - rank }, { statistics.median_ranks(n) })
        end
        assert.is_nil(statistics.median_interval(from_to(1, 5)))
        assert.is_nil(statistics.median_interval {})
    end)
end)

describe("simplebench.bootstrap", function()
    it("is the same for the same seed", function()
        local values = { 1, 2, 4, 8, 16 }
        assert.same(bootstrap.mean(values, { seed = 3 }), bootstrap.mean(values, { seed = 3 }))
        assert.not_same(bootstrap.mean(values, { seed = 3 }), bootstrap.mean(values, { seed = 4 }))
        assert.is_nil(bootstrap.mean { 1 })
        assert.same({ low = 2, high = 2 }, bootstrap.mean { 2, 2, 2 })
    end)

    local function coverage(count, draw, expected, interval)
        local generator, hits = random.new(11), 0
        for seed = 1, 400 do
            local a, b = {}, {}
            for i = 1, count do a[i], b[i] = draw(generator), draw(generator) end
            local found = interval(a, b, { seed = seed, resamples = 400 })
            if found.low <= expected and expected <= found.high then hits = hits + 1 end
        end
        return hits / 400
    end

    it("covers the mean as often as it says", function()
        local function gauss(generator) return 10 + generator:normal() end
        local function mean(a, _, opts) return bootstrap.mean(a, opts) end
        for _, count in ipairs { 5, 10, 30 } do
            local share = coverage(count, gauss, 10, mean)
            assert.is_true(share >= 0.92 and share <= 0.98, ("%d values: %.3f"):format(count, share))
        end
    end)

    it("covers the quotient of means", function()
        local share = coverage(12, function(generator) return math.exp(0.1 * generator:normal()) end, 1, bootstrap.ratio)
        assert.is_true(share >= 0.92 and share <= 0.99, tostring(share))
    end)
end)

describe("simplebench.mann_whitney", function()
    it("has the critical values of the tables", function()
        for _, row in ipairs {
            { 5, 5, 0.05, 2 }, { 8, 8, 0.05, 13 }, { 10, 10, 0.05, 23 }, { 20, 20, 0.05, 127 }, { 5, 10, 0.05, 8 }, { 4, 4, 0.05, 0 },
            { 5, 5, 0.01, 0 }, { 8, 8, 0.01, 7 }, { 10, 10, 0.01, 16 }, { 20, 20, 0.01, 105 }, { 4, 4, 0.01, -1 }, { 3, 3, 0.05, -1 },
        } do assert.equal(row[4], mann_whitney.critical(row[1], row[2], row[3])) end
    end)

    it("agrees with Hollander and Wolfe's permeabilities", function()
        local term = { 0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46 }
        local weeks = { 1.15, 0.88, 0.90, 0.74, 1.21 }
        local test = mann_whitney.test(weeks, term)
        assert.same({ 35, true }, { test.u, test.exact })
        near(0.2544122544122544, test.p, 12)
        near(test.p, mann_whitney.test(term, weeks).p, 14)
        assert.equal(15, mann_whitney.test(term, weeks).u)

        local a, b = {}, {} -- the shift of 0.305 published there, as a ratio
        for i, x in ipairs(weeks) do a[i] = math.exp(x) end
        for i, x in ipairs(term) do b[i] = math.exp(x) end
        near(0.305, math.log(compare.values(a, b).ratio), 3)
    end)

    it("agrees with others' exact and approximate numbers", function()
        local men, women = { 19, 22, 16, 29, 24 }, { 20, 11, 17, 12 }
        local test = mann_whitney.test(women, men)
        assert.equal(17, test.u)
        near(1 / 9, test.p, 12)
        -- Ties, by hand: three pairs of equal values, the variance is 25 / 12 · (11 − 3 · 6 / 90).
        test = mann_whitney.test({ 1, 2, 2, 3, 4 }, { 3, 5, 6, 7, 7 })
        assert.is_false(test.exact)
        assert.equal(23.5, test.u)
        near(2 * distributions.normal_tail((23.5 - 12.5 - 0.5) / math.sqrt(25 / 12 * (11 - 18 / 90))), test.p, 12)
    end)

    it("meets its approximation where it changes over", function()
        local a, b = from_to(1, 25), {}
        for i = 1, 25 do b[i] = i + 5.5 end
        local exact = mann_whitney.test(a, b)
        b[26] = 18.7
        local approximate = mann_whitney.test(a, b)
        assert.same({ true, false }, { exact.exact, approximate.exact })
        assert.is_true(math.abs(exact.p - approximate.p) < 0.004)
    end)

    it("calls nothing different when there is nothing, or all is the same", function()
        assert.equal(1, mann_whitney.test({}, { 1 }).p)
        assert.equal(1, mann_whitney.test({ 1, 1, 1 }, { 1, 1, 1 }).p)
    end)
end)

describe("simplebench.compare", function()
    it("finds ratio and interval, which leave 1 out when the test rejects", function()
        local generator = random.new(9)
        local different = 0
        for _ = 1, 300 do
            local a, b, n, m = {}, {}, 4 + generator:upto(26), 4 + generator:upto(26)
            for i = 1, n do a[i] = math.exp(0.05 * generator:normal()) end
            for i = 1, m do b[i] = math.exp(0.05 * generator:normal() + 0.03) end
            local one = compare.values(a, b)
            if one.enough then
                assert.is_true(one.low <= one.ratio and one.ratio <= one.high)
                assert.equal(one.p <= compare.ALPHA, one.low > 1 or one.high < 1)
                assert.equal(one.p <= compare.ALPHA, one.differs)
                different = different + (one.differs and 1 or 0)
            end
        end
        assert.is_true(different > 30 and different < 270)
    end)

    it("says when there is too little to tell", function()
        local one = compare.values({ 1, 1.1, 1.2, 1.3 }, { 2, 2.1, 2.2, 2.3 })
        assert.same({ false, false }, { one.enough, one.differs })
        near(2.15 / 1.15, one.ratio, 2)
        assert.is_nil(one.low)
        assert.is_nil(compare.values({ 0, 1, 2, 3, 4 }, { 5, 6, 7, 8, 9 }).ratio)
        assert.same({ p = 1, enough = false, differs = false }, compare.values({}, { 1 }))
    end)

    local function result(dimension, values, exact)
        local runs = {}
        for i, value in ipairs(values) do runs[i] = { [dimension] = value, exact = exact } end
        return { dimension = dimension, values = values, median = statistics.median(values), runs = runs }
    end

    it("knows which direction is better", function()
        local low, high = { 1, 1.01, 1.02, 1.03, 1.04, 1.05 }, { 2, 2.01, 2.02, 2.03, 2.04, 2.05 }
        assert.equal("worse", compare.results(result("seconds", low), result("seconds", high)).better)
        assert.equal("better", compare.results(result("iops", low), result("iops", high)).better)
        assert.equal("worse", compare.results(result("iops", low), result("iops", high), "lower").better)
        assert.is_nil(compare.results(result("iops", low), result("iops", low)).better)
        assert.is_nil(compare.results(result("iops", low), result("seconds", high)))
        assert.is_nil(compare.results(result("iops", low), result("iops", {})))
    end)

    it("needs no test between simulations", function()
        local one = compare.results(result("seconds", { 1, 1 }, true), result("seconds", { 1.2, 1.2 }, true))
        assert.same({ true, true, "worse", 1.2 }, { one.exact, one.differs, one.better, one.ratio })
        assert.is_false(compare.results(result("seconds", { 1, 1 }, true), result("seconds", { 1.005, 1.005 }, true)).differs)
        assert.is_false(compare.results(result("seconds", { 1, 1 }, true), result("seconds", { 1.2, 1.2 })).differs)
    end)

    it("takes for a simulation only what is one in every run", function()
        local function differs(change)
            local other = result("seconds", { 1.2, 1.2, 1.2 }, true)
            change(other)
            return compare.results(result("seconds", { 1, 1, 1 }, true), other).differs
        end
        assert.is_true(differs(function() end))
        assert.is_false(differs(function(other) other.runs[2].exact = nil end))
        assert.is_false(differs(function(other) other.values[3] = 1.3 end))
        assert.is_false(differs(function(other) other.runs[3] = { error = "broken", exact = true } end))
        assert.is_true(differs(function(other) other.runs, other.exact = nil, true end)) -- from a baseline
        assert.is_false(differs(function(other) other.runs, other.exact, other.values[1] = nil, true, 2 end))
    end)

    it("has a geometric mean over cases", function()
        local function cell(value)
            return { dimension = "seconds", values = { value, value }, median = value, runs = { { exact = true } } }
        end
        local bench = compare.columns {
            envs = { { id = "a" }, { id = "b" } }, cases = { { id = "x" }, { id = "y" } },
            results = { x = { a = cell(1), b = cell(2) }, y = { a = cell(1), b = cell(8) } },
        }
        near(2, bench.comparisons.x.b.ratio, 14)
        near(4, bench.summary.b.ratio, 14)
    end)
end)
