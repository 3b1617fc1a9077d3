-- SPDX-License-Identifier: MIT

--- Machines, baselines, the gate, and the options that benchmark scripts share.

local baseline = require "qcow2.simplebench.baseline"
local cli = require "qcow2.simplebench.cli"
local machine = require "qcow2.simplebench.machine"
local simplebench = require "qcow2.simplebench"

local HERE = { host = "here", cpu = "Good CPU", cpus = 8, memory = "16.0 GiB", kernel = "6.1", lua = "Lua 5.4", date = "today" }

local function changed(facts, changes)
    local copy = {}
    for name, value in pairs(facts) do copy[name] = value end
    for name, value in pairs(changes) do copy[name] = value end
    return copy
end

--- A result with values that spread by some thousandths around those given: rows of {case, value of env1, value of env2 …}, false for
-- runs that fail.
local function result_of(rows, dimension, opts)
    local envs, cases, given, calls = {}, {}, {}, {}
    for i = 2, #rows[1] do envs[i - 1] = { id = "env" .. i - 1, index = i } end
    for i, row in ipairs(rows) do cases[i], given[row[1]] = { id = row[1] }, row end
    local result = simplebench.bench(function(env, case)
        local key, value = env.id .. case.id, given[case.id][env.index]
        calls[key] = (calls[key] or 0) + 1
        if not value then return nil, "broken" end
        return { [dimension] = value * (1 + calls[key] * 0.001) }
    end, envs, cases, { count = 8, initial_run = false })
    for name, value in pairs(opts or {}) do result[name] = value end
    return result
end

--- Calls body with a new folder, which goes afterwards.
local function with_folder(body)
    local pipe <close> = assert(io.popen "mktemp -d")
    local dir = pipe:read "l"
    local done, message = pcall(body, dir)
    os.execute("rm -rf -- '" .. dir .. "'")
    if not done then error(message, 0) end
end

--- What baseline.compare says of results that were kept and read back.
local function compared(before, now, facts, any_machine)
    local found, message
    with_folder(function(dir)
        assert(baseline.save(dir, "b", { before }, HERE))
        found, message = baseline.compare(assert(baseline.load(dir, "b")), { now }, facts or HERE, any_machine)
    end)
    return found, message
end

describe("simplebench.machine", function()
    it("reads what there is", function()
        local facts = machine.facts(".", { engine = "1" })
        assert.same({ "Lua 5.4", "1" }, { facts.lua, facts.engine })
        assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", facts.date)
        for _, name in ipairs { "host", "kernel", "memory", "filesystem" } do assert.is_string(facts[name]) end
        assert.is_true(facts.cpus >= 1)
        assert.matches("^proc", machine.facts("/proc/self").filesystem)
        assert.is_nil(machine.facts("/no such 'folder'").filesystem)
    end)

    it("tells another machine from another day", function()
        assert.is_true((machine.same(HERE, changed(HERE, { date = "tomorrow", commit = "c0ffee" }))))
        assert.same({ false, "cpus: 8 and 4" }, { machine.same(HERE, changed(HERE, { cpus = 4 })) })
        assert.same({ false, "governor: nil and powersave" }, { machine.same(HERE, changed(HERE, { governor = "powersave" })) })
    end)
end)

describe("simplebench.baseline", function()
    it("is kept under a name, read back and replaced", function()
        with_folder(function(dir)
            local result = result_of({ { "x", 1, 2 } }, "seconds", { title = "T" })
            assert(baseline.save(dir, "v1.0", { result }, HERE))
            local back = assert(baseline.load(dir, "v1.0"))
            assert.same(HERE, back.machine)
            assert.same(result.results.x.env1.values, back.benches[1].cells.x.env1.values)
            assert(baseline.save(dir, "v1.0", { result_of({ { "x", 3, 2 } }, "seconds") }, HERE))
            assert.is_true(baseline.load(dir, "v1.0").benches[1].cells.x.env1.median > 3)
        end)
    end)

    it("says what is wrong with a name, a folder or a file", function()
        with_folder(function(dir)
            local value, message = baseline.load(dir, "none")
            assert.is_nil(value)
            assert.matches("^there is no baseline 'none': ", message)
            for _, name in ipairs { "../x", "", "a/b", "..", "." } do
                value, message = baseline.save(dir, name, {}, HERE)
                assert.is_nil(value)
                assert.equal(("a baseline's name has letters, digits, '.', '_' and '-', unlike '%s'"):format(name), message)
            end
            assert.is_nil((baseline.save(dir .. "/missing", "x", {}, HERE)))
            for _, text in ipairs { "{", "[1]", "7", '{"format":2}', "" } do
                local file = assert(io.open(dir .. "/x.json", "w"))
                file:write(text)
                file:close()
                value, message = baseline.load(dir, "x")
                assert.is_nil(value)
                assert.matches("/x%.json' is no baseline", message)
            end
        end)
    end)

    it("refuses numbers of another machine, unless told to", function()
        local result, there = result_of({ { "x", 1 } }, "seconds"), changed(HERE, { host = "there" })
        local found, message = compared(result, result, there)
        assert.is_nil(found)
        assert.equal("the baseline is from another machine (host: here and there); say --any-machine to compare all the same", message)
        assert.equal(1, #assert(compared(result, result, there, true)))
    end)

    it("compares cell by cell, those that are in both", function()
        local before = result_of({ { "x", 1, 2 }, { "gone", 1, 1 } }, "seconds")
        local found = assert(compared(before, result_of({ { "x", 1.1, 2 }, { "new", 3, 3 } }, "seconds")))
        assert.equal(2, #found)
        local one, two = found[1], found[2]
        assert.same({ "x", "env1", true, "worse" }, { one.case, one.env, one.comparison.differs, one.comparison.better })
        assert.same({ "x", "env2", false }, { two.case, two.env, two.comparison.differs })
        local none, message = compared(before, result_of({ { "other", 1 } }, "seconds"))
        assert.is_nil(none)
        assert.equal("the baseline has none of these cases and columns", message)
        assert.is_nil((compared(before, result_of({ { "x", 1 } }, "seconds", { title = "another" }))))
    end)

    it("has a gate that only what is slower than allowed does not pass", function()
        local before = result_of({ { "x", 1, 1 }, { "y", 1, 1 } }, "seconds")
        local found = assert(compared(before, result_of({ { "x", 1.04, 1.2 }, { "y", 0.5, 1 } }, "seconds")))
        local function slower(limit)
            local names = {}
            for i, one in ipairs(baseline.slower(found, limit)) do names[i] = one.case .. one.env end
            return table.concat(names, " ")
        end
        assert.same({ "", "xenv2", "xenv1 xenv2" }, { slower(0.25), slower(0.05), slower(0.01) })
    end)

    it("tells simulations apart after one run, and else says when there were too few", function()
        local function one_run(seconds, exact)
            return simplebench.bench(function() return { seconds = seconds, exact = exact } end, { { id = "a" } }, { { id = "x" } }, { count = 2 })
        end
        local found = assert(compared(one_run(1, true), one_run(2, true)))
        assert.same({ 1, 0 }, { #baseline.slower(found, 0.05), baseline.untold(found) })
        found = assert(compared(one_run(1), one_run(2)))
        assert.same({ 0, 1 }, { #baseline.slower(found, 0.05), baseline.untold(found) })
    end)

    it("knows that fewer IOPS are slower, and a better of its own", function()
        local found = assert(compared(result_of({ { "x", 100, 100 } }, "iops"), result_of({ { "x", 90, 120 } }, "iops")))
        assert.equal(1, #baseline.slower(found, 0.05))
        assert.equal("env1", baseline.slower(found, 0.05)[1].env)
        local opts = { better = "lower" }
        found = assert(compared(result_of({ { "x", 100, 100 } }, "iops", opts), result_of({ { "x", 90, 120 } }, "iops", opts)))
        assert.equal("env2", baseline.slower(found, 0.05)[1].env)
    end)
end)

describe("simplebench.cli", function()
    local SPEC = { usage = "usage\n", flags = { "--deep" }, values = { "--size" } }

    it("reads options, shared and a script's own, and what is none", function()
        local options, rest = cli.parse({
            "one", "--count", "3", "--seed=4", "--size", "1G", "--deep", "--baseline", "b", "--fail-if-slower", "5%",
            "--any-machine", "two",
        }, SPEC)
        assert.same({ "one", "two" }, rest)
        assert.same({ 3, 4, "1G", true, "b", 0.05, true },
            { options.count, options.seed, options.size, options.deep, options.baseline, options.fail_if_slower, options.any_machine })
        assert.same({ 3, 4 }, { options.run.count, options.run.seed })
        options, rest = cli.parse({ "--quick", "--order=random", "--", "--two" }, SPEC)
        assert.same({ true, "random", { "--two" } }, { options.quick, options.run.order, rest })
        assert.is_nil(options.run.count)
    end)

    --- What a program that reads these words says, and how it ends.
    local function ended(words)
        local spec = [[{ usage = "usage\n", values = { "--size" }, nearest = require "qcow2.nearest" }]]
        local code = ('require "qcow2.simplebench.cli".parse({ %s }, %s)'):format(words, spec)
        local command = ("LUA_PATH_5_4='%s' lua5.4 -e '%s' 2>&1"):format(package.path, code)
        local pipe = assert(io.popen(command))
        local text = pipe:read "a"
        local _, _, status = pipe:close()
        return text, status
    end

    it("ends with 2 for what is wrong, and with 0 for help", function()
        local interpreter = os.execute "command -v lua5.4 >/dev/null 2>&1"
        if not interpreter then return pending "there is no lua5.4" end
        for words, expected in pairs {
            ['"--cuont", "3"'] = "did you mean %-%-count",
            ['"--sise=1"'] = "did you mean %-%-size",
            ['"--count"'] = "%-%-count needs a value",
            ['"--count", "0"'] = "%-%-count is '0'; it is a whole number from 1 on",
            ['"--fail-if-slower", "5%"'] = "%-%-fail%-if%-slower needs a %-%-baseline",
            ['"--baseline=b", "--fail-if-slower", "much"'] = "%-%-fail%-if%-slower is 'much'; it is a percentage",
        } do
            local text, status = ended(words)
            assert.matches(expected, text)
            assert.equal(2, status)
        end
        local text, status = ended '"--help"'
        assert.matches("^usage\n.*%-%-fail%-if%-slower", text)
        assert.equal(0, status)
    end)
end)
