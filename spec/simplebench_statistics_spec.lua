-- SPDX-License-Identifier: MIT
-- Tests, intervals, outliers, orders, baselines: against published values, closed forms, and simulated measurements.

local baseline = require "qcow2.simplebench.baseline"
local bootstrap = require "qcow2.simplebench.bootstrap"
local compare = require "qcow2.simplebench.compare"
local distributions = require "qcow2.simplebench.distributions"
local machine = require "qcow2.simplebench.machine"
local mann_whitney = require "qcow2.simplebench.mann_whitney"
local order = require "qcow2.simplebench.order"
local random = require "qcow2.simplebench.random"
local simplebench = require "qcow2.simplebench"
local statistics = require "qcow2.simplebench.statistics"

local function near(expected, given, within)
    assert.is_true(math.abs(given - expected) <= within, ("%.12g is not %.12g"):format(given, expected))
end

describe("distributions", function()
    it("have the tabulated quantiles", function() -- of every textbook's tables
        near(1.959964, distributions.normal_above(0.025), 1e-6)
        near(2.575829, distributions.normal_above(0.005), 1e-6)
        near(0.158655, distributions.normal_tail(1), 1e-6)
        near(2.866516e-7, distributions.normal_tail(5), 1e-12)
        near(12.7062, distributions.t_above(0.025, 1), 1e-4)
        near(2.77645, distributions.t_above(0.025, 4), 1e-5)
        near(2.22814, distributions.t_above(0.025, 10), 1e-5)
        near(2.75000, distributions.t_above(0.005, 30), 1e-5)
    end)
end)

describe("the Mann-Whitney test", function()
    it("agrees with the example of SciPy's manual", function() -- ages at diagnosis: U = 17 and 3, p = 1/9
        local found = mann_whitney.test({ 20, 11, 17, 12 }, { 19, 22, 16, 29, 24 })
        assert.equal(17, found.u)
        near(1 / 9, found.p, 1e-12)
        assert.is_true(found.exact)
    end)

    it("has the critical values of the published table", function() -- two-sided, 5 % and 1 % (Mann and Whitney 1947, and textbooks)
        for _, row in ipairs {
            { 5, 5, 0.05, 2 }, { 8, 8, 0.05, 13 }, { 10, 10, 0.05, 23 }, { 20, 20, 0.05, 127 }, { 7, 12, 0.05, 18 },
            { 5, 5, 0.01, 0 }, { 10, 10, 0.01, 16 }, { 20, 20, 0.01, 105 }, { 3, 3, 0.05, -1 },
        } do
            assert.equal(row[4], mann_whitney.critical(row[1], row[2], row[3]), ("%d and %d at %g"):format(row[1], row[2], row[3]))
        end
    end)

    it("corrects for ties and steps where there are many values", function()
        local a, b = {}, {}
        for i = 1, 40 do a[i], b[i] = i % 5, (i % 5) + (i % 2) end
        local found = mann_whitney.test(a, b)
        assert.is_false(found.exact)
        assert.is_true(found.p > 0.01 and found.p < 0.2, found.p) -- by hand: z = 1.9
        assert.equal(1, mann_whitney.test({ 1, 1, 1 }, { 1, 1, 1 }).p)
    end)
end)

describe("intervals", function()
    it("of the mean cover it about as often as they say", function()
        local generator, covered = random.new(7), 0
        for i = 1, 300 do
            local values = {}
            for j = 1, 12 do values[j] = 10 + generator:normal() end
            local interval = bootstrap.mean(values, { seed = i, resamples = 400 })
            if interval.low <= 10 and interval.high >= 10 then covered = covered + 1 end
        end
        assert.is_true(covered >= 275 and covered <= 297, covered) -- 95 % of 300 is 285
    end)

    it("of the median are the binomial's ranks", function() -- as tabulated for sign tests
        for _, row in ipairs { { 5, nil }, { 6, 1, 6 }, { 9, 2, 8 }, { 20, 6, 15 }, { 50, 18, 33 } } do
            local low, high = statistics.median_ranks(row[1])
            assert.equal(row[2], low)
            assert.equal(row[3], high)
        end
    end)
end)

describe("outliers", function()
    it("are those of Iglewicz and Hoaglin's example", function()
        assert.same({ 9, 10 }, statistics.outliers { 2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3 })
        assert.same({}, statistics.outliers { 1, 2, 3, 100 })
    end)
end)

describe("the order of runs", function()
    it("is the same each round, or drawn from the seed", function()
        assert.same({ "a", "b", "c" }, order.rounds("interleaved", 1) { "a", "b", "c" })
        local one, other, seen = order.rounds("random", 5), order.rounds("random", 5), {}
        for _ = 1, 200 do
            local round = one { "a", "b", "c" }
            assert.same(round, other { "a", "b", "c" })
            seen[table.concat(round)] = (seen[table.concat(round)] or 0) + 1
        end
        for _, name in ipairs { "abc", "acb", "bac", "bca", "cab", "cba" } do assert.is_true(seen[name] > 15, name) end
    end)

    it("interleaves the columns of a case and gives them equally many runs", function()
        local calls = {}
        simplebench.bench(function(env)
            calls[#calls + 1] = env.id
            return { seconds = 1 }
        end, { { id = "a" }, { id = "b" } }, { { id = "x" } }, { count = 2 })
        assert.equal("ababab", table.concat(calls))
    end)
end)

describe("a comparison", function()
    --- Times with spread and spikes, and with drift that all columns share, as a shared machine gives them.
    local function noisy(generator)
        local drift = 0
        return function(factor)
            drift = drift * 0.95 + generator:normal() * 0.003
            local spike = generator:float() < 0.05 and generator:float() * 0.5 or 0
            return { seconds = factor * math.exp(0.01 * generator:normal() + drift) * (1 + spike) }
        end
    end

    --- How often two columns are called different at the default settings, in `tries`.
    local function count_different(tries, factor)
        local different = 0
        for i = 1, tries do
            local measure = noisy(random.new(i))
            local bench = simplebench.bench(function(env) return measure(env.factor) end, {
                { id = "a", factor = 1 }, { id = "b", factor = factor },
            }, { { id = "x" } })
            if bench.comparisons.x.b.differs then different = different + 1 end
        end
        return different
    end

    it("calls at most 5 of 100 equal pairs different", function()
        local different = count_different(100, 1)
        assert.is_true(different <= 5, different)
    end)

    it("finds a slowdown of 3 % in at least 45 of 50 tries", function()
        local different = count_different(50, 1.03)
        assert.is_true(different >= 45, different)
    end)

    it("says which side is better, and that too few runs say nothing", function()
        local function cell(dimension, ...) return { dimension = dimension, values = { ... }, median = (...) } end
        local slower = compare.results(cell("seconds", 1, 1.01, 1.02, 1.03, 1.04, 1.05), cell("seconds", 2, 2.01, 2.02, 2.03, 2.04, 2.05))
        assert.equal("worse", slower.better)
        local faster = compare.results(cell("iops", 1, 1.01, 1.02, 1.03, 1.04, 1.05), cell("iops", 2, 2.01, 2.02, 2.03, 2.04, 2.05))
        assert.equal("better", faster.better)
        assert.is_true(faster.interval.low > 1.8 and faster.interval.high < 2.1)
        local few = compare.results(cell("iops", 1, 1.01), cell("iops", 2, 2.01))
        assert.is_false(few.enough)
        assert.is_false(few.differs)
        assert.is_nil(compare.results(cell("iops", 1), cell("seconds", 1)))
    end)
end)

describe("a baseline", function()
    local folder
    setup(function()
        local pipe <close> = io.popen "mktemp -d"
        folder = pipe:read "l"
    end)
    teardown(function() os.execute("rm -rf " .. folder) end)

    local function bench_of(factor)
        local i = 0
        local bench = simplebench.bench(function()
            i = i + 1
            return { seconds = factor * (1 + i % 5 * 1e-3) }
        end, { { id = "a" } }, { { id = "x" } })
        bench.title = "t"
        return bench
    end

    local facts = { host = "h", cpu = "c", kernel = "k" }

    it("is kept, compared with, and finds what got slower", function()
        assert(baseline.save(folder, "before", { bench_of(1) }, facts))
        local document = assert(baseline.load(folder, "before"))
        local found = assert(baseline.compare(document, { bench_of(1) }, facts))
        assert.is_false(found[1].comparison.differs)
        found = assert(baseline.compare(document, { bench_of(1.1) }, facts))
        near(1.1, found[1].comparison.ratio, 0.01)
        assert.equal(1, #baseline.slower(found, 0.05))
        assert.equal(0, #baseline.slower(found, 0.15))
        assert.equal(0, #baseline.slower(assert(baseline.compare(document, { bench_of(0.5) }, facts)), 0.05))
    end)

    it("is refused on another machine unless told to, and when it is none", function()
        assert(baseline.save(folder, "other", { bench_of(1) }, facts))
        local document = assert(baseline.load(folder, "other"))
        local none, message = baseline.compare(document, { bench_of(1) }, { host = "h", cpu = "d", kernel = "k" })
        assert.is_nil(none)
        assert.matches("another machine %(cpu: c and d%)", message)
        assert(baseline.compare(document, { bench_of(1) }, { host = "h2" }, true))
        assert.matches("no baseline 'missing'", select(2, baseline.load(folder, "missing")))
        assert.matches("a baseline's name", select(2, baseline.load(folder, "../x")))
        local file = assert(io.open(folder .. "/broken.json", "w"))
        file:write "{"
        file:close()
        assert.matches("is no baseline", select(2, baseline.load(folder, "broken")))
    end)

    it("knows this machine", function()
        local here = machine.facts(folder, { what = "1.0" })
        assert.equal("1.0", here.what)
        assert.equal(_VERSION, here.lua)
        assert.is_truthy(here.kernel)
        assert.is_true((machine.same(here, machine.facts(folder))))
    end)
end)
