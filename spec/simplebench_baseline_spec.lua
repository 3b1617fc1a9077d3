-- SPDX-License-Identifier: MIT

--- Machines, baselines, the gate, and the options that benchmark scripts share.

local baseline = require "qcow2.simplebench.baseline"
local cli = require "qcow2.simplebench.cli"
local machine = require "qcow2.simplebench.machine"
local oracle = require "spec.support.oracle"
local shell = require "qcow2.simplebench.shell"
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
            value, message = baseline.save(dir .. "/missing", "x", {}, HERE)
            assert.is_nil(value)
            assert.matches("/missing/x.json.new: No such file", message, 1, true)
            os.execute("mkdir '" .. dir .. "/x.json'")
            value, message = baseline.save(dir, "x", {}, HERE)
            assert.same({ nil, dir .. "/x.json: Is a directory" }, { value, message })
            value, message = baseline.load(dir, "x")
            assert.same({ nil, ("'%s/x.json' could not be read: Is a directory"):format(dir) }, { value, message })
        end)
    end)

    --- What load says of a file with this text.
    local function loaded(text)
        local value, message
        with_folder(function(dir)
            local file = assert(io.open(dir .. "/x.json", "w"))
            file:write(text)
            file:close()
            value, message = baseline.load(dir, "x")
            message = message and message:gsub("^'.*/x%.json' is no baseline, or damaged: ", "")
        end)
        return value, message
    end

    local WHOLE = [[{"format": 2, "machine": {"host": "here"}, "benches": [{"title": "T", "settings": {"count": 2},
        "cells": {"x": {"a": {"dimension": "seconds", "values": [1, 2], "median": 1.5}, "b": {"values": []}}}}]}]]

    it("is looked at in full when it is read", function()
        assert.same({ 1, 2 }, assert(loaded(WHOLE)).benches[1].cells.x.a.values)
        for message, change in pairs {
            ["its format is 1, where this program has 2"] = { '"format": 2', '"format": 1' },
            ["its format is nil, where this program has 2"] = { '"format": 2, ', "" },
            ["machine is missing"] = { '"machine": {"host": "here"},', "" },
            ["machine is null"] = { '{"host": "here"}', "null" },
            ["machine is a list"] = { '{"host": "here"}', "[1]" },
            ["machine.host is a table"] = { '"here"', "{}" },
            ["benches is no list"] = { '%[({"title".*)]}', "%1}" },
            ["benches is a number"] = { '"benches": .*', '"benches": 7}' },
            ["benches[1].title is a number"] = { '"T"', "7" },
            ["benches[1].better is neither 'lower' nor 'higher'"] = { '"T"', '"T", "better": "none"' },
            ["benches[1].settings is missing"] = { '"settings": {"count": 2},', "" },
            ["benches[1].settings.count is a table"] = { '"count": 2', '"count": [2]' },
            ["benches[1].cells is a string"] = { '"cells": {.*', '"cells": "x"}]}' },
            ["benches[1].cells.x is a list"] = { '"x": {.*', '"x": [1]}}]}' },
            ["benches[1].cells.x.a is null"] = { '"x": {.*', '"x": {"a": null}}}]}' },
            ["benches[1].cells.x.a.dimension is missing"] = { '"dimension": "seconds", ', "" },
            ["benches[1].cells.x.a.dimension is 'miles', which is not known"] = { "seconds", "miles" },
            ["benches[1].cells.x.a.values is missing"] = { '"values": .1, 2., ', "" },
            ["benches[1].cells.x.a.values is no list"] = { ".1, 2.", '{"1": 1}' },
            ["benches[1].cells.x.a.values[2] is a string"] = { "1, 2", '1, "2"' },
            ["benches[1].cells.x.a.values[2] is null"] = { "1, 2", "1, null" },
            ["benches[1].cells.x.a.values[1] is inf"] = { "1, 2", "1e999, 2" },
            ["benches[1].cells.x.a.values[2] is -2"] = { "1, 2", "1, -2" },
            ["benches[1].cells.x.a.median is a string"] = { "1%.5", '"1.5"' },
            ["benches[1].cells.x.a.exact is a number"] = { '"median"', '"exact": 1, "median"' },
        } do
            local text, count = WHOLE:gsub(change[1], (change[2]), 1)
            assert.equal(1, count, change[1])
            assert.same({ nil, message }, { loaded(text) })
        end
        for _, text in ipairs { "{", "[1]", "7", "null", "", WHOLE:sub(1, -2) } do
            local value, message = loaded(text)
            assert.is_nil(value)
            assert.is_string(message)
        end
    end)

    it("refuses numbers made with other settings, and names them", function()
        local function made(settings, count)
            local bench = result_of({ { "x", 1 } }, "seconds", { title = "T", settings = settings })
            bench.count = count
            return bench
        end
        assert.equal(1, #assert(compared(made({ quick = true }, 8), made({ quick = true }, 8))))
        local found, message = compared(made({ quick = true, size = 5 }, 8), made({ quick = false, size = 5 }), HERE, true)
        assert.is_nil(found)
        assert.equal("the baseline of 'T' was made with other settings (count: 8 there and adaptive here, quick: true there and false here)", message)
        assert.is_nil((compared(made({ size = 5 }), made {})))
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
        local found, others = compared(before, result_of({ { "x", 1.1, 2 }, { "new", 3, 3 } }, "seconds"))
        assert.equal(2, #found)
        assert.same({ only_there = 2, only_here = 2, incomparable = 0 }, others)
        local one, two = found[1], found[2]
        assert.same({ "x", "env1", true, "worse" }, { one.case, one.env, one.comparison.differs, one.comparison.better })
        assert.same({ "x", "env2", false }, { two.case, two.env, two.comparison.differs })
        local none, message = compared(before, result_of({ { "other", 1 } }, "seconds"))
        assert.is_nil(none)
        assert.equal("the baseline has none of these cases and columns", message)
        assert.is_nil((compared(before, result_of({ { "x", 1 } }, "seconds", { title = "another" }))))
        found, others = compared(before, result_of({ { "x", 1, false } }, "seconds"))
        assert.same({ 1, { only_there = 2, only_here = 0, incomparable = 1 } }, { #found, others })
        none, message = compared(before, result_of({ { "x", 1 } }, "iops"))
        assert.is_nil(none)
        assert.matches("^none of the cells can be compared", message)
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

    --- The module path, for programs that run in other folders.
    local function absolute_path()
        local pipe <close> = assert(io.popen "pwd")
        local here = pipe:read("l"):gsub("%%", "%%%%")
        return (package.path:gsub("%f[^;\0]%./", here .. "/"))
    end

    --- What a Lua program prints, and how it ends; nil where there is no interpreter.
    local function program(code, environment)
        if not os.execute "command -v lua5.4 >/dev/null 2>&1" then return nil end
        local command = ("%s LUA_PATH_5_4=%s lua5.4 -e %s 2>&1"):format(environment or "", shell.quote(absolute_path()), shell.quote(code))
        local pipe = assert(io.popen(command))
        local text = pipe:read "a"
        local _, _, status = pipe:close()
        return text, status
    end

    local PARSE = [[
        local cli = require "qcow2.simplebench.cli"
        local spec = { usage = "usage\n", values = { "--size" }, nearest = require "qcow2.nearest" }
        local options = cli.parse({ %s }, spec)
    ]]

    local function ended(words, more, environment) return program(PARSE:format(words) .. (more or ""), environment) end

    it("ends with 2 for what is wrong, and with 0 for help", function()
        if not program "" then return pending "there is no lua5.4" end
        for words, expected in pairs {
            ['"--cuont", "3"'] = "did you mean --count",
            ['"--sise=1"'] = "did you mean --size",
            ['"--count"'] = "--count needs a value",
            ['"--json="'] = "--json needs a value",
            ['"--json", ""'] = "--json needs a value",
            ['"--json/tmp/x"'] = "unknown option '--json/tmp/x'",
            ['"--json", "--csv", "f"'] = "--json needs a value, and '--csv' looks like an option; if it is meant, say --json=--csv",
            ['"--quick=no"'] = "--quick takes no value, and has 'no'",
            ['"--quick="'] = "--quick takes no value, and has ''",
            ['"--json", "f", "--csv", "f"'] = "--json and --csv would write the same file, 'f'",
            ['"--html", "./a//f", "--json", "a/./f"'] = "--json and --html would write the same file, 'a/f'",
            ['"--json", "f", "--csv", "f.new"'] = "--json and --csv would write the same file, 'f.new'",
            ['"--json", ".baselines/x.json", "--save", "x"'] = "--json and --save would write the same file",
            ['"--save", "a/b"'] = "a baseline's name has letters",
            ['"--count", "0"'] = "--count is '0'; it is a whole number from 1 on",
            ['"--fail-if-slower", "5%"'] = "--fail-if-slower needs a --baseline",
            ['"--baseline=b", "--fail-if-slower", "much"'] = "--fail-if-slower is 'much'; it is a percentage",
        } do
            local text, status = ended(words)
            assert.matches(expected, text, 1, true)
            assert.equal(2, status)
        end
        local text, status = ended '"--help"'
        assert.matches("^usage\n.*%-%-fail%-if%-slower", text)
        assert.equal(0, status)
        assert.same({ "--csv 0", 0 }, { ended('"--json=--csv", "--seed=0"', "io.write(options.json, ' ', options.seed)") })
        assert.same({ "|", 0 }, { ended('"--size="', "io.write(options.size, '|')") })
    end)

    it("makes and removes its folder, whatever TMPDIR is called", function()
        if not program "" then return pending "there is no lua5.4" end
        for _, name in ipairs { "it's", "a b", "-rf", 'a"b', "$HOME", "a\nb" } do
            with_folder(function(dir)
                local own = shell.quote(dir .. "/" .. name)
                assert(os.execute(("mkdir -p -- %s %s && touch %s/kept"):format(own, shell.quote(dir .. "/a"), shell.quote(dir .. "/a"))))
                local tmpdir = name:find "^-" and name or dir .. "/" .. name
                local text, status = ended("", [[
                    do
                        local place <close> = cli.workplace(options, "spec")
                        assert(io.open(place.path .. "/f", "w")):close()
                        io.write(place.path)
                    end
                ]], ("cd %s && TMPDIR=%s"):format(shell.quote(dir), shell.quote(tmpdir)))
                assert.equal(0, status, text)
                assert.matches((name:find "^-" and "./" .. name or tmpdir) .. "/spec.", text, 1, true)
                local pipe <close> = io.popen(("cd %s && ls -A -- %s; ls a"):format(shell.quote(dir), shell.quote(name)))
                assert.equal("kept\n", pipe:read "a")
            end)
        end
    end)

    --- A benchmark of one column, from words to the exit status.
    local FINISH = [[
        local report = require "qcow2.simplebench.report"
        local bench = require("qcow2.simplebench").bench(function() return { seconds = 1 } end, { { id = "a" } }, %s, options.run)
        os.exit(cli.finish(options, report.new { machine = { host = "here" } }:add(bench), { bench }), true)
    ]]

    it("keeps and compares baselines in a folder of any name", function()
        if not program "" then return pending "there is no lua5.4" end
        with_folder(function(dir)
            local words = ('"--count", "8", "--baselines", %q, '):format(dir .. "/it's 'one'")
            local text, status = ended(words .. '"--save", "b"', FINISH:format '{ { id = "x" }, { id = "old" } }')
            assert.equal(0, status, text)
            text, status = ended(words .. '"--baseline", "b"', FINISH:format '{ { id = "x" }, { id = "new" }, { id = "newer" } }')
            assert.equal(0, status, text)
            assert.matches("in the baseline, but not in this run: 1 cell\n", text, 1, true)
            assert.matches("in this run, but not in the baseline: 2 cells\n", text, 1, true)
            text, status = ended(words .. '"--baseline", "b", "--quick"', FINISH:format '{ { id = "x" } }')
            assert.equal(2, status, text)
            assert.matches("the baseline was made with other settings (quick: false there and true here)", text, 1, true)
        end)
    end)

    it("ends with 2, and names the file, where one cannot be read or written", function()
        if not program "" then return pending "there is no lua5.4" end
        with_folder(function(dir)
            assert(os.execute(("mkdir %s/taken && mkdir %s/s.json && echo '{}' >%s/b.json && touch %s/file"):format(dir, dir, dir, dir)))
            for words, expected in pairs {
                ['"--baseline", "b"'] = dir .. "/b.json' is no baseline, or damaged: its format is nil",
                ['"--csv", "' .. dir .. '/taken"'] = dir .. "/taken: Is a directory",
                ['"--csv", "' .. dir .. '/none/f"'] = dir .. "/none/f.new: No such file",
                ['"--save", "s"'] = dir .. "/s.json: Is a directory",
                ['"--save", "s", "--baselines", "' .. dir .. '/file"'] = dir .. "/file' could not be made",
            } do
                local text, status = ended(('"--count", "1", "--baselines", %q, '):format(dir) .. words, FINISH:format '{ { id = "x" } }')
                assert.matches(expected, text, 1, true)
                assert.equal(2, status)
            end
        end)
    end)
end)

describe("bench/all.lua", function()
    local function run(words)
        local pipe = assert(io.popen(("%s bench/all.lua %s 2>&1"):format(oracle.lua, words)))
        local text = pipe:read "a"
        local _, _, status = pipe:close()
        return status, text
    end

    it("has options of its own and says which scenarios it runs", function()
        local status, text = run "--help"
        assert.equal(0, status, text)
        assert.matches("^usage: all.lua %[OPTION…%]\n", text)
        assert.matches("\n  tiobench +Is latency fair", text)
        assert.matches("\n  --only LIST ", text, 1, true)
        for words, expected in pairs {
            ["--only tiobnch"] = "there is no scenario 'tiobnch' (did you mean tiobench?)",
            ["--only ,"] = "--only is empty",
            ["tiobench"] = "'tiobench' is no option (did you mean --only tiobench?)",
            ["--qemu-img x"] = "unknown option '--qemu-img'",
            ["--onyl x"] = "did you mean --only",
            ["--disk hdd,hdd"] = "--disk names hdd twice",
            ["--disk ,"] = "--disk is empty",
        } do
            status, text = run(words)
            assert.equal(2, status, text)
            assert.matches(expected, text, 1, true)
        end
    end)
end)
