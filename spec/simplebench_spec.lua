-- SPDX-License-Identifier: MIT

local json = require "qcow2.simplebench.json"
local numbers = require "qcow2.simplebench.numbers"
local simplebench = require "qcow2.simplebench"
local statistics = require "qcow2.simplebench.statistics"
local text_table = require "qcow2.simplebench.table"

--- A function to measure that goes through a list of results, and counts its calls.
local function script(results)
    local calls = { count = 0 }
    return function(env, case)
        calls.count, calls.env, calls.case = calls.count + 1, env, case
        local result = results[calls.count]
        if type(result) == "function" then return result() end
        return result
    end, calls
end

local function seconds(...)
    local list = {}
    for i, value in ipairs { ... } do list[i] = { seconds = value } end
    return list
end

describe("simplebench.statistics", function()
    local function near(expected, given, digits)
        assert.is_true(math.abs(given - expected) <= math.abs(expected) * 10 ^ -digits, ("%.17g is not %.17g"):format(given, expected))
    end

    --- The NumAcc data of the NIST Statistical Reference Datasets: one middle value, then pairs around it.
    local function around(middle, low, high, pairs_count)
        local values = { middle }
        for _ = 1, pairs_count do
            values[#values + 1] = low
            values[#values + 1] = high
        end
        return values
    end

    it("agrees with NIST NumAcc1 to NumAcc4", function()
        for _, row in ipairs {
            { around(10000002, 10000001, 10000003, 1), 10000002, 1, 15 },
            { around(1.2, 1.1, 1.3, 500), 1.2, 0.1, 14 },
            { around(1000000.2, 1000000.1, 1000000.3, 500), 1000000.2, 0.1, 8 },
            { around(10000000.2, 10000000.1, 10000000.3, 500), 10000000.2, 0.1, 7 },
        } do
            near(row[2], statistics.mean(row[1]), 15)
            near(row[3], statistics.stdev(row[1]), row[4])
        end
    end)

    it("agrees with NIST Michelson", function() -- thousandths of the last three digits of 299 … km/s
        local last, values = [[
            850 740 900 1070 930 850 950 980 980 880 1000 980 930 650 760 810 1000 1000 960 960
            960 940 960 940 880 800 850 880 900 840 830 790 810 880 880 830 800 790 760 800
            880 880 880 860 720 720 620 860 970 950 880 910 850 870 840 840 850 840 840 840
            890 810 810 820 800 770 760 740 750 760 910 920 890 860 880 720 840 850 850 780
            890 840 780 810 760 810 790 810 820 850 870 870 810 740 810 940 950 800 810 870]], {}
        for thousandths in last:gmatch "%d+" do values[#values + 1] = 299 + thousandths / 1000 end
        assert.equal(100, #values)
        near(299.852400000000, statistics.mean(values), 15)
        near(0.0790105478190518, statistics.stdev(values), 13)
    end)

    it("agrees with closed forms", function()
        for _, n in ipairs { 2, 3, 10, 1001 } do -- 1 … n
            local values = {}
            for i = 1, n do values[i] = (i * 7919) % n == 0 and n or i end
            near((n + 1) / 2, statistics.mean(values), 15)
            near(math.sqrt(n * (n + 1) / 12), statistics.stdev(values), 14)
            near((n + 1) / 2, statistics.median(values), 15)
            assert.equal(1, statistics.min(values))
            assert.equal(n, statistics.max(values))
        end
    end)

    it("loses nothing between large values that cancel", function()
        assert.equal(0.5, statistics.mean { 1e16, 1, -1e16, 1 })
        assert.equal(0, statistics.stdev { 0.1, 0.1, 0.1 })
    end)

    it("finds the middle of any order and leaves the list alone", function()
        local values = { 5, 1, 4, 2 }
        assert.equal(3, statistics.median(values))
        assert.equal(2, statistics.median { 9, 1, 2 })
        assert.same({ 5, 1, 4, 2 }, values)
    end)

    it("knows what too few values do not say", function()
        for _, name in ipairs { "mean", "stdev", "median", "min", "max" } do assert.is_nil(statistics[name] {}) end
        assert.is_nil(statistics.stdev { 1 })
        assert.equal(7, statistics.median { 7 })
    end)
end)

describe("simplebench.bench_one", function()
    it("runs once before, then count times", function()
        local func, calls = script(seconds(9, 1, 2, 3))
        local env, case = {}, {}
        local result = simplebench.bench_one(func, env, case, { count = 3 })
        assert.equal(4, calls.count)
        assert.equal(env, calls.env)
        assert.equal(case, calls.case)
        assert.same({ 1, 2, 3 }, result.seconds)
        assert.same({ seconds = 9 }, result.initial)
        assert.same({ 2, 1, 2, 1, 3 }, { result.average, result.stdev, result.median, result.min, result.max })
        assert.same({ "seconds", 0, 3 }, { result.dimension, result.n_failed, #result.runs })
        assert.is_nil(result.error)
        assert.is_nil(result.iops)
        assert.is_nil(result.slow)
    end)

    it("runs until the median is known, and no less than ten times", function()
        local func, calls = script(setmetatable({}, { __index = function(_, i) return { seconds = 1 + (i % 2) * 1e-4 } end }))
        assert.equal(10, #simplebench.bench_one(func, {}, {}, { initial_run = false }).runs)
        assert.equal(10, calls.count)
        func = script(setmetatable({}, { __index = function(_, i) return { seconds = 1 + (i % 2) } end }))
        assert.equal(300, #simplebench.bench_one(func, {}, {}).runs)
        func = script(setmetatable({}, { __index = function() return { seconds = 1, exact = true } end }))
        assert.equal(2, #simplebench.bench_one(func, {}, {}, { initial_run = false }).runs)
    end)

    it("counts failures of every kind and averages the others", function()
        local func = script {
            { seconds = 1 },
            { error = "no luck" },
            function() error("raised", 0) end,
            function() return nil, "a message" end,
            function() return 7 end,
            { seconds = 0 / 0 },
            { seconds = -1 },
            { seconds = "1" },
            { seconds = 1, iops = 1 },
            { iops = 5 },
            { seconds = 3 },
        }
        local result = simplebench.bench_one(func, {}, {}, { count = 11, initial_run = false })
        assert.equal(9, result.n_failed)
        assert.equal("no luck", result.error)
        assert.same({ 1, 3 }, result.seconds)
        assert.equal(2, result.average)
        local messages = {}
        for i, one in ipairs(result.runs) do messages[i] = one.error or "" end
        assert.same({
            "", "no luck", "raised", "a message", "the function returned a number, not a table", messages[6],
            "seconds is -1, which is no number from 0 on", 'seconds is "1", which is no number from 0 on',
            "a run gives one of seconds, iops, rate", "gave iops, where the runs before gave seconds", "",
        }, messages)
        assert.matches("^seconds is %-?nan, which", messages[6])
    end)

    it("takes nothing but the failure from a run that failed", function()
        for _, wrong in ipairs { "much", {}, -1, 0 / 0, 500, false } do
            local func = script { { error = "odd", seconds = wrong, iops = 1 }, { iops = 5 }, { iops = 7 } }
            local result = simplebench.bench_one(func, {}, {}, { count = 3, initial_run = false })
            assert.same({ "iops", { 5, 7 }, 1, "odd" }, { result.dimension, result.iops, result.n_failed, result.error })
            assert.is_nil(result.slow)
        end
        local result = simplebench.bench_one(script { { error = false, seconds = 1 }, { iops = 5 } }, {}, {}, { count = 2, initial_run = false })
        assert.same({ "iops", 1, false }, { result.dimension, result.n_failed, result.error })
    end)

    it("takes rates, of which more are better", function()
        local result = simplebench.bench(function(env) return { rate = env.rate } end, { { id = "a", rate = 2e6 }, { id = "b", rate = 5e6 } },
            { { id = "x" } }, { count = 8 })
        assert.same({ "rate", 2e6 }, { result.results.x.a.dimension, result.results.x.a.rate[1] })
        assert.same({ "better", 2.5 }, { result.comparisons.x.b.better, result.comparisons.x.b.ratio })
        assert.matches("^MB/s %(higher is better%)", simplebench.text(result))
        assert.matches("x +2.00 ± 0.00 +5.00 ± 0.00", simplebench.text(result))
    end)

    it("has no numbers when all failed", function()
        local result = simplebench.bench_one(function() return { error = "never" } end, {}, {}, { count = 2 })
        assert.same({ 2, "never" }, { result.n_failed, result.error })
        for _, name in ipairs { "dimension", "average", "stdev", "seconds", "iops" } do assert.is_nil(result[name]) end
    end)

    it("stops after a slow run, which counts even as the first", function()
        local func, calls = script(seconds(101))
        local result = simplebench.bench_one(func, {}, {})
        assert.equal(1, calls.count)
        assert.same({ 101 }, result.seconds)
        assert.is_true(result.slow)
        assert.is_nil(result.initial)
        assert.is_nil(result.stdev)

        func, calls = script(seconds(1, 2, 11, 3))
        result = simplebench.bench_one(func, {}, {}, { slow_limit = 10 })
        assert.equal(3, calls.count)
        assert.same({ 2, 11 }, result.seconds)
    end)

    it("takes preparation into account for the slow limit", function()
        local now = 0
        local function func() now = now + 200 return { iops = 5 } end
        local result = simplebench.bench_one(func, {}, {}, { clock = function() return now end })
        assert.same({ 5 }, result.iops)
        assert.is_true(result.slow)
    end)

    it("calls back in order", function()
        local log, env, case = {}, {}, {}
        simplebench.bench_one(function() log[#log + 1] = "run" return { seconds = 1 } end, env, case, {
            count = 2,
            drop_caches = function() log[#log + 1] = "drop" end,
            between = function(...) log[#log + 1] = "between" assert.same({ env, case }, { ... }) end,
            progress = function(at)
                log[#log + 1] = ("%d of %d%s"):format(at.run, at.of, at.initial and " (initial)" or "")
                assert.equal(env, at.env)
                assert.equal(1, at.result.seconds)
            end,
        })
        assert.same({
            "drop", "run", "0 of 2 (initial)", "between", "drop", "run", "1 of 2", "between", "drop", "run", "2 of 2",
        }, log)
    end)

    it("lets an interrupt through", function()
        assert.has_error(function()
            simplebench.bench_one(function() error("interrupted!", 0) end, {}, {})
        end, "interrupted!")
    end)

    it("raises for misuse", function()
        local function func() return { seconds = 1 } end
        for message, opts in pairs {
            ["simplebench: unknown option 'counts'"] = { counts = 1 },
            ["simplebench: option 'count' is a string"] = { count = "3" },
            ["simplebench: option 'count' is a whole number from 1 on"] = { count = 0 },
            ["simplebench: option 'between' is a function, or false"] = { between = true },
        } do
            local done, raised = pcall(simplebench.bench_one, func, {}, {}, opts)
            assert.is_false(done)
            assert.equal(message, (raised:gsub("^.-:%d+: ", "")))
        end
    end)
end)

describe("simplebench.bench", function()
    local envs, cases = { { id = "slow", factor = 2 }, { id = "fast", factor = 1 } }, { { id = "one", n = 1 }, { id = "two", n = 2 } }
    local function product(env, case) return { seconds = env.factor * case.n } end

    it("fills every cell", function()
        local result = simplebench.bench(product, envs, cases, { count = 2 })
        assert.equal(envs, result.envs)
        assert.equal(cases, result.cases)
        assert.equal(4, result.results.two.slow.average)
        assert.equal(1, result.results.one.fast.average)
        assert.equal(0, result.results.one.fast.stdev)
    end)

    it("becomes JSON whatever the numbers are", function()
        local result = simplebench.bench_one(function() return { seconds = 1, latency = { { 0, math.huge, 0 / 0 } } } end, {}, {}, { count = 1 })
        local back = assert(simplebench.decode_json(simplebench.json(result, {})))
        assert.same({ 0, json.null, json.null }, back.latency[1])
    end)

    it("raises for lists that make no table", function()
        for message, lists in pairs {
            ["simplebench: no environments"] = { {}, cases },
            ["simplebench: no cases"] = { envs, {} },
            ["simplebench: one of the cases has no id"] = { envs, { {} } },
            ["simplebench: two environments are called 'a'"] = { { { id = "a" }, { id = "a" } }, cases },
        } do
            local done, raised = pcall(simplebench.bench, product, lists[1], lists[2])
            assert.is_false(done)
            assert.equal(message, (raised:gsub("^.-:%d+: ", "")))
        end
    end)

    it("becomes the same JSON each time", function()
        local result = simplebench.bench(function(env, case)
            return { seconds = env.factor * case.n / 8, callback = print }
        end, envs, cases, { count = 2 })
        local text = simplebench.json(result, { kernel = "k" })
        assert.equal(text, simplebench.json(result, { kernel = "k" }))
        local back = assert(simplebench.decode_json(text))
        assert.equal("k", back.machine.kernel)
        assert.same({ 0.25, 0.25 }, back.results.one.slow.seconds)
        assert.same({ { seconds = 0.25 }, { seconds = 0.25 } }, back.results.one.slow.runs)
        assert.equal("fast", back.envs[2].id)
        assert.equal("Lua 5.4", simplebench.machine().lua)
        assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", simplebench.machine().date)
    end)
end)

describe("simplebench.table", function()
    it("writes numbers with three digits and the deviation to match", function()
        for expected, given in pairs {
            ["1.23 ± 0.05"] = { 1.2345, 0.0456 },
            ["0.00123 ± 0.00005"] = { 0.0012345, 0.000049 },
            ["43260 ± 120"] = { 43260.4, 119.6 },
            ["22.0 ± 4.2"] = { 21.97, 4.19 },
            ["10.0 ± 0.0"] = { 9.996, 0.001 },
            ["0.00 ± 0.00"] = { 0, 0 },
            ["7.40"] = { 7.4 },
        } do assert.equal(expected, text_table.number(given[1], given[2])) end
    end)

    it("writes any number", function()
        for expected, given in pairs {
            ["inf"] = { math.huge }, ["-inf ± nan"] = { -math.huge, 0 / 0 }, ["nan ± 1.00"] = { 0 / 0, 1 }, ["1.00e-320"] = { 1e-320 },
            ["1.80e+308"] = { 1.7976931348623157e308 }, ["2.00e+15"] = { 2e15 }, ["999999999999999"] = { 999999999999999 },
            ["1.23e-08 ± 4.00e-10"] = { 1.23e-8, 4e-10 }, ["0.000000123"] = { 1.23e-7 }, ["1.00 ± 1.00e+300"] = { 1, 1e300 },
        } do assert.equal(expected, text_table.number(given[1], given[2])) end
        assert.same({ "1.023", "2.00e+20", "0.00100", "inf", "nan" },
            { numbers.ratio(1.0229), numbers.ratio(2e20), numbers.ratio(0.001), numbers.ratio(math.huge), numbers.ratio(0 / 0) })
    end)

    it("aligns by characters, not bytes", function()
        assert.equal("Größe  b ± c\n-----  -----\nx          1\n", text_table.layout { { "Größe", "b ± c" }, { "x", "1" } })
        assert.equal("\xff  y\n-  -\na  b\n", text_table.layout { { "\xff", "y" }, { "a", "b" } })
    end)

    it("shows means, failures, differences and the first error of a cell", function()
        local plan = {
            ["a x"] = seconds(0.1, 0.1), ["b x"] = seconds(8, 8.32),
            ["a y"] = seconds(1, 1), ["b y"] = { { error = "first" }, { error = "second" } },
            ["a z"] = seconds(1, 3), ["b z"] = { { seconds = 2.1 }, { error = "once" } },
        }
        local result = simplebench.bench(function(env, case)
            return table.remove(plan[env.id .. " " .. case.id], 1)
        end, { { id = "a" }, { id = "b" } }, { { id = "x" }, { id = "y" }, { id = "z" } }, { count = 2, initial_run = false })
        assert.equal([[
seconds (lower is better), mean ± standard deviation of 2 runs; ratio to a with its interval (~ no difference shown, ? too few runs); seed 1

                          A a              B b     B : A
--------------  -------------  ---------------  --------
x               0.100 ± 0.000      8.16 ± 0.23  × 81.6 ?
y                 1.00 ± 0.00           FAILED
z                 2.00 ± 1.41  2.10 (1 failed)  × 1.40 ?
geometric mean                                  × 10.7 ?

y, b: all 2 runs failed: first
z, b: 1 of 2 runs failed: once
]], simplebench.text(result))
    end)

    it("names the units when there are two", function()
        local result = simplebench.bench(function(_, case) return { [case.id] = 5 } end, { { id = "only" } },
            { { id = "seconds" }, { id = "iops" } }, { count = 1 })
        assert.equal([[
one run; seed 1

              only
-------  ---------
seconds     5.00 s
iops     5.00 IOPS
]], simplebench.text(result))
    end)
end)

describe("simplebench.json", function()
    it("writes sorted keys, short floats and escapes", function()
        assert.equal('{"a":[1,2.5,0.1],"b":{},"c":[],"d":"\\"\\\\\\n\\u0001é","e":null,"f":1.0}', json.encode {
            f = 1.0, e = json.null, d = '"\\\n\1é', c = json.array {}, b = {}, a = { 1, 2.5, 0.1 },
        })
        assert.equal('{\n  "a": [\n    1\n  ],\n  "b": {}\n}', json.encode({ a = { 1 }, b = {} }, "  "))
        assert.equal('"?"', json.encode "\xff")
    end)

    it("refuses what JSON cannot hold", function()
        local circle = {}
        circle[1] = circle
        for _, value in ipairs { print, 0 / 0, math.huge, { [{}] = 1 }, { [2] = 1 }, circle } do
            assert.has_error(function() json.encode(value) end)
        end
    end)

    it("reads back what it wrote", function()
        local state = 12345 -- a small generator, so that a failure repeats
        local function random(n) state = (state * 1103515245 + 12345) % 2147483648 return state // 65536 % n end
        local function value(depth)
            local kind = random(depth > 4 and 5 or 7)
            if kind == 0 then return random(2) == 0 end
            if kind == 1 then return random(30000) - 15000 end
            if kind == 2 then return (random(30000) - 15000) / 7 * 10.0 ^ (random(600) - 300) end
            if kind == 3 then return math.mininteger + random(5) end
            if kind == 4 then return utf8.char(random(127) + 1, random(30000) + 1, 0x10000 + random(30000)) end
            local list = kind == 5 and json.array {} or {}
            for i = 1, random(4) do list[kind == 5 and i or "k" .. random(100)] = value(depth + 1) end
            return list
        end
        for _ = 1, 500 do
            local given = value(0)
            local text = json.encode(given, random(2) == 0 and "  " or nil)
            local back, message = json.decode(text)
            assert.is_nil(message)
            assert.same(given, back)
            assert.equal(text, json.encode(back, text:find "\n" and "  " or nil))
        end
    end)

    it("reads what others write", function()
        assert.same({ a = { 1, -2.5e3, true, false }, b = "\u{1f600}/\u{e9}" },
            json.decode ' { "a" : [ 1 , -2.5E3 , true, false ] , "b" : "\\ud83d\\ude00\\/\\u00e9" } ')
        assert.equal(json.null, json.decode "null")
        assert.equal("float", math.type(json.decode "1e2"))
        assert.equal("integer", math.type(json.decode "-0"))
    end)

    it("says where a text is wrong", function()
        for text, message in pairs {
            [""] = "JSON, byte 1: a value is missing",
            ["[1,]"] = "JSON, byte 4: a value is missing",
            ["[1 2]"] = "JSON, byte 4: ',' or ']' is missing",
            ['{"a" 1}'] = "JSON, byte 6: ':' is missing",
            ["{a:1}"] = "JSON, byte 2: a key is missing",
            ['{"a":1'] = "JSON, byte 7: ',' or '}' is missing",
            ['"abc'] = "JSON, byte 1: a string does not end",
            ['"\\x"'] = "JSON, byte 2: an unknown escape",
            ['"\\ud800"'] = "JSON, byte 2: half a surrogate pair",
            ['"\n"'] = "JSON, byte 2: a control character in a string",
            ["01"] = "JSON, byte 1: no number",
            ["1."] = "JSON, byte 1: no number",
            ["-"] = "JSON, byte 1: no number",
            ["1 1"] = "JSON, byte 3: something after the value",
            ["nul"] = "JSON, byte 1: a value is missing",
            [("["):rep(300)] = "JSON, byte 202: too deep",
        } do
            local value, why = json.decode(text)
            assert.is_nil(value)
            assert.equal(message, why)
        end
    end)
end)
