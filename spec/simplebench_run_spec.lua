-- SPDX-License-Identifier: MIT

--- Order, warm-up and adaptive count; and, simulated, how often two columns are called different.

local random = require "qcow2.simplebench.random"
local simplebench = require "qcow2.simplebench"
local statistics = require "qcow2.simplebench.statistics"

local ENVS, CASES = { { id = "a" }, { id = "b" }, { id = "c" } }, { { id = "x" }, { id = "y" } }

local function recorded(opts)
    local log = {}
    local result = simplebench.bench(function(env, case)
        log[#log + 1] = case.id .. env.id
        return { seconds = 1 }
    end, ENVS, CASES, opts)
    return table.concat(log, " "), result
end

describe("the order of runs", function()
    it("is case by case, column after column", function()
        assert.equal("xa xb xc xa xb xc ya yb yc ya yb yc", recorded { count = 2, initial_run = false })
    end)

    it("is shuffled in each round, the same for the same seed", function()
        local first, result = recorded { count = 4, initial_run = false, order = "random", seed = 5 }
        assert.equal(first, (recorded { count = 4, initial_run = false, order = "random", seed = 5 }))
        assert.not_equal(first, (recorded { count = 4, initial_run = false, order = "random", seed = 6 }))
        assert.same({ 5, 4 }, { result.seed, result.count })
        local rounds, orders = {}, 0
        for round in (first .. " "):gmatch "%w+ %w+ %w+ " do
            local letters = {}
            for case, env in round:gmatch "(%w)(%w)" do
                letters[#letters + 1] = env
                assert.equal(#rounds < 4 and "x" or "y", case)
            end
            rounds[#rounds + 1] = table.concat(letters)
            if rounds[#rounds] ~= "abc" then orders = orders + 1 end
            table.sort(letters)
            assert.equal("abc", table.concat(letters))
        end
        assert.equal(8, #rounds)
        assert.is_true(orders > 2)
    end)

    it("leaves out who is slow", function()
        local log = {}
        simplebench.bench(function(env)
            log[#log + 1] = env.id
            return { seconds = env.id == "b" and 200 or 1 }
        end, ENVS, { CASES[1] }, { count = 2, initial_run = false })
        assert.equal("a b c a c", table.concat(log, " "))
    end)
end)

describe("the warm-up", function()
    it("may be several runs, of which the first is kept", function()
        local calls = 0
        local function func()
            calls = calls + 1
            return { seconds = calls }
        end
        local result = simplebench.bench_one(func, {}, {}, { count = 2, warmup = 3 })
        assert.same({ { 4, 5 }, 1, 5 }, { result.seconds, result.initial.seconds, calls })
        calls = 0
        result = simplebench.bench_one(func, {}, {}, { count = 2, warmup = 0 })
        assert.same({ 1, 2 }, result.seconds)
        assert.is_nil(result.initial)
    end)
end)

describe("the adaptive count", function()
    local function noisy(deviation)
        local generator = random.new(8)
        return function(env) return { seconds = 0.1 * math.exp((env.deviation or deviation) * generator:normal()) } end
    end

    it("stops soon where all is quiet, and at the limit where it is not", function()
        assert.equal(10, #simplebench.bench_one(noisy(0.0001), {}, {}).runs)
        assert.equal(60, #simplebench.bench_one(noisy(0.5), {}, {}, { max_count = 60 }).runs)
        assert.equal(30, #simplebench.bench_one(noisy(0.5), {}, {}, { max_count = 30 }).runs)
        assert.equal(40, #simplebench.bench_one(noisy(0.5), {}, {}, { min_count = 40, max_count = 30 }).runs)
        local some = #simplebench.bench_one(noisy(0.02), {}, {}).runs
        assert.is_true(some > 10 and some < 100, tostring(some))
        assert.is_true(#simplebench.bench_one(noisy(0.02), {}, {}, { precision = 0.05 }).runs <= 12)
    end)

    it("reaches the precision asked for", function()
        local result = simplebench.bench_one(noisy(0.02), {}, {})
        local low, high = statistics.median_interval(result.values)
        assert.is_true(high - low <= 0.02 * result.median)
        assert.is_true(result.interval.low < result.average and result.average < result.interval.high)
    end)

    it("gives all columns of a case as many runs", function()
        local result = simplebench.bench(noisy(0), { { id = "quiet", deviation = 0 }, { id = "loud", deviation = 0.02 } }, { { id = "x" } })
        local row = result.results.x
        assert.equal(#row.loud.runs, #row.quiet.runs)
        assert.is_true(#row.loud.runs > 10)
        assert.is_nil(result.count)
    end)

    it("ends with the time, but not before its least count", function()
        local now, generator = 0, random.new(2)
        local function func()
            local seconds = 5 * math.exp(0.3 * generator:normal())
            now = now + seconds
            return { seconds = seconds }
        end
        local opts = { clock = function() return now end, time_limit = 100 }
        local count = #simplebench.bench_one(func, {}, {}, opts).runs
        assert.is_true(count > 12 and count < 30, tostring(count))
        opts.time_limit = 1
        assert.equal(10, #simplebench.bench_one(func, {}, {}, opts).runs)
    end)

    it("stops at once where a simulation repeats itself", function()
        local calls = 0
        local function func()
            calls = calls + 1
            return { seconds = 1, exact = true }
        end
        assert.equal(2, #simplebench.bench_one(func, {}, {}, { initial_run = false }).runs)
        assert.equal(10, #simplebench.bench_one(function() return { seconds = 1 } end, {}, {}).runs)
        assert.equal(2, calls)
    end)

    it("does not insist on runs that only fail", function()
        local result = simplebench.bench_one(function() return { error = "never" } end, {}, {})
        assert.same({ 10, 10 }, { #result.runs, result.n_failed })
    end)

    it("shows outliers and leaves them in", function()
        local calls = 0
        local result = simplebench.bench_one(function()
            calls = calls + 1
            return { seconds = calls == 4 and 9 or 1 + calls / 1000 }
        end, {}, {}, { count = 9, initial_run = false })
        assert.same({ 4 }, result.outliers)
        assert.equal(9, result.max)
        assert.is_true(result.average > 1.8)
    end)

    it("raises for options that make no sense", function()
        for message, opts in pairs {
            ["simplebench: option 'order' is 'interleaved' or 'random'"] = { order = "any" },
            ["simplebench: option 'warmup' is a whole number from 0 on"] = { warmup = -1 },
            ["simplebench: option 'precision' is a string"] = { precision = "1%" },
        } do
            local done, raised = pcall(simplebench.bench, function() end, ENVS, CASES, opts)
            assert.is_false(done)
            assert.equal(message, (raised:gsub("^.-:%d+: ", "")))
            raised = select(2, pcall(function() simplebench.bench(function() end, ENVS, CASES, opts) end))
            assert.matches("simplebench_run_spec.lua:%d+: ", raised) -- the caller's line
        end
    end)
end)

describe("two columns, with the default settings", function()
    --- Benchmarks two columns on a simulated machine: lognormal times with a deviation, some much longer ones, a slow drift to and fro,
    -- and noise that lasts longer than one run. Gives the share of tries in which the second was called different, and the mean runs.
    local function share_called(tries, slowdown, noise)
        local called, runs = 0, 0
        for seed = 1, tries do
            local generator, now, level = random.new(seed * 7919), 0, 0
            local phase = generator:float() * 2 * math.pi
            local function func(env)
                level = noise.lasting * level + generator:normal() * math.sqrt(1 - noise.lasting ^ 2)
                local seconds = 0.02 * env.factor * math.exp(noise.deviation * level) * (1 + noise.drift * math.sin(phase + now / 1.7))
                if generator:float() < noise.spikes then seconds = seconds * (1.2 + 3 * generator:float()) end
                now = now + seconds
                return { seconds = seconds }
            end
            local result = simplebench.bench(func, { { id = "a", factor = 1 }, { id = "b", factor = 1 + slowdown } }, { { id = "x" } }, {
                clock = function() return now end, seed = seed,
            })
            local one = result.comparisons.x.b
            if one.differs and (slowdown == 0 or one.ratio > 1) then called = called + 1 end
            runs = runs + #result.results.x.a.runs
        end
        return called / tries, runs / tries
    end

    for _, noise in ipairs {
        { name = "a quiet machine", deviation = 0.005, spikes = 0.02, drift = 0.002, lasting = 0 },
        { name = "a shared machine", deviation = 0.02, spikes = 0.05, drift = 0.01, lasting = 0.3 },
    } do
        it("are called different in at most 5 % of 200 tries when they are the same, on " .. noise.name, function()
            local share = share_called(200, 0, noise)
            assert.is_true(share <= 0.05, ("%.3f"):format(share))
        end)

        it("are called different in at least 90 % of 100 tries when one is 3 % slower, on " .. noise.name, function()
            local share = share_called(100, 0.03, noise)
            assert.is_true(share >= 0.9, ("%.3f"):format(share))
        end)
    end
end)
