-- SPDX-License-Identifier: MIT

local json = require "qcow2.simplebench.json"
local progress = require "qcow2.simplebench.progress"
local report = require "qcow2.simplebench.report"
local simplebench = require "qcow2.simplebench"
local svg = require "qcow2.simplebench.svg"

--- A cell with these values; nothing is computed here but the mean.
local function cell(values, fields)
    local sum = 0
    for _, value in ipairs(values) do sum = sum + value end
    local result = { values = values, outliers = {}, n_failed = 0 }
    if #values > 0 then
        result.dimension, result.average = "seconds", sum / #values
        result.interval = { low = result.average - 0.01, high = result.average + 0.01 }
    end
    for name, value in pairs(fields or {}) do result[name] = value end
    return result
end

--- Two cases in two environments: one difference, one none; an outlier, failed runs, a slow one.
local function sample()
    return {
        title = "write_req", question = "does a write copy what it need not?", seed = 1, count = 3,
        envs = { { id = "plain" }, { id = "chain" } }, cases = { { id = "front" }, { id = "whole" } },
        results = {
            front = {
                plain = cell({ 0.5, 0.51, 0.94 }, { stdev = 0.25, outliers = { 3 } }),
                chain = cell({ 1, 1.1, 1.2 }, { stdev = 0.1 }),
            },
            whole = {
                plain = cell({ 2, 2 }, {
                    stdev = 0.0, n_failed = 1, error = "no space", runs = { { seconds = 2 }, { error = "no space" }, { seconds = 2 } },
                }),
                chain = cell({ 2.1 }, { slow = true }),
            },
        },
        comparisons = {
            front = { chain = { ratio = 1.6923, interval = { low = 1.6, high = 1.75 }, p = 0.001, differs = true, better = "worse" } },
            whole = { chain = { ratio = 1.05, interval = { low = 0.98, high = 1.1 }, p = 0.4, differs = false } },
        },
        summary = { chain = { ratio = 1.333, interval = { low = 1.3, high = 1.4 } } },
        notes = { "on tmpfs" },
    }
end

local function with_plots()
    local bench = sample()
    for i, env in ipairs { "plain", "chain" } do
        local result = bench.results.front[env]
        result.latency = {
            { from = 0, to = 1e-4 * i, count = 900 }, { from = 1e-4 * i, to = 1e-3, count = 0 }, { from = 1e-3, to = 2e-3, count = 100 },
        }
        result.course = { interval = 0.5, values = { 100, 120, 110 }, unit = "IOPS" }
    end
    return bench
end

local NASTY = 'a|b "c" <d> & \'e\', \\f_g `h`\27[31m\255\nz'

local function nasty()
    local bench = with_plots()
    bench.title, bench.question, bench.notes = NASTY, NASTY, { NASTY }
    bench.cases[1].id, bench.envs[1].id = NASTY, NASTY
    local front, whole = bench.results.front, bench.results.whole
    front[NASTY], whole[NASTY], bench.results[NASTY] = front.plain, whole.plain, front
    bench.comparisons[NASTY] = bench.comparisons.front
    whole.plain.error = NASTY
    return bench
end

local function report_of(bench) return report.new { title = "Writes", machine = { kernel = "6.8", zlib = "1.3", cpu = "x" } }:add(bench) end

local function has(text, wanted) assert.is_truthy(text:find(wanted, 1, true), ("'%s' is not in:\n%s"):format(wanted, text)) end

local function lacks(text, unwanted) assert.is_nil(text:find(unwanted, 1, true), ("'%s' is there"):format(unwanted)) end

local function read(path)
    local file <close> = io.open(path, "rb")
    return file and file:read "a"
end

local TEXT = [[
Writes
======

cpu     x
kernel  6.8
zlib    1.3

write_req
---------
does a write copy what it need not?
seconds (lower is better), mean ± standard deviation of 1 to 3 runs; ratio to plain with its interval (~ no difference shown, ? too few runs); seed 1

                               A plain      B chain                B : A
--------------  ----------------------  -----------  -------------------
front                    0.650 ± 0.250  1.10 ± 0.10  × 1.69 [1.60, 1.75]
whole           2.00 ± 0.00 (1 failed)         2.10                    ~
geometric mean                                       × 1.33 [1.30, 1.40]

1 outlier (further than 3.5 scaled median absolute deviations from the median), kept in all numbers: front, plain: run 3 (0.940 s)
whole, plain: 1 of 3 runs failed: no space
whole, chain: the last run was slow, so no more were made
on tmpfs
]]

local MARKDOWN = [[
# Writes

- cpu: x
- kernel: 6.8
- zlib: 1.3

## write_req

does a write copy what it need not?

seconds (lower is better), mean ± standard deviation of 1 to 3 runs; ratio to plain with its interval (\~ no difference shown, ? too few runs); seed 1

|  | A plain | B chain | B : A |
| :-- | --: | --: | --: |
| front | 0.650 ± 0.250 | 1.10 ± 0.10 | × 1.69 [1.60, 1.75] |
| whole | 2.00 ± 0.00 (1 failed) | 2.10 | ~ |
| geometric mean |  |  | × 1.33 [1.30, 1.40] |

- 1 outlier (further than 3.5 scaled median absolute deviations from the median), kept in all numbers: front, plain: run 3 (0.940 s)
- whole, plain: 1 of 3 runs failed: no space
- whole, chain: the last run was slow, so no more were made
- on tmpfs
]]

local CSV = [[
section,case,env,run,dimension,value,outlier
write_req,front,plain,1,seconds,0.5,no
write_req,front,plain,2,seconds,0.51,no
write_req,front,plain,3,seconds,0.94,yes
write_req,front,chain,1,seconds,1,no
write_req,front,chain,2,seconds,1.1,no
write_req,front,chain,3,seconds,1.2,no
write_req,whole,plain,1,seconds,2,no
write_req,whole,plain,2,,,
write_req,whole,plain,3,seconds,2,no
write_req,whole,chain,1,seconds,2.1,no
]]

describe("simplebench.report", function()
    it("is written as text", function() assert.equal(TEXT, report_of(sample()):text()) end)

    it("is written as Markdown", function() assert.equal(MARKDOWN, report_of(sample()):markdown()) end)

    it("is written as CSV", function() assert.equal((CSV:gsub("\n", "\r\n")), report_of(sample()):csv()) end)

    it("gives the same bytes for the same input", function()
        for _, name in ipairs { "text", "csv", "markdown", "html", "json" } do
            local one, other = report_of(with_plots()), report_of(with_plots())
            local first = one[name](one)
            assert.equal(first, other[name](other))
            assert.equal(first, one[name](one)) -- and showing it changes nothing
        end
    end)

    it("says where all runs failed", function()
        local bench = sample()
        bench.results.front.chain = cell({}, { n_failed = 3, error = "broken" })
        bench.comparisons.front.chain = nil
        for _, name in ipairs { "text", "markdown", "html" } do
            local one = report_of(bench)
            local text = one[name](one)
            has(text, "FAILED")
            has(text, "front, chain: all 3 runs failed: broken")
        end
        has(report_of(bench):html(), ">failed</text>")
    end)

    it("shows a benchmark in which nothing succeeded", function()
        local results = { c = { e = cell({}, { n_failed = 1, error = "broken" }) } }
        local one = report.new():add { envs = { { id = "e" } }, cases = { { id = "c" } }, results = results }
        for _, name in ipairs { "text", "markdown", "html" } do has(one[name](one), "the only run failed: broken") end
        assert.equal("section,case,env,run,dimension,value,outlier\r\n", one:csv())
    end)

    it("takes units, directions and adaptive counts", function()
        local bench = sample()
        bench.unit, bench.better, bench.count = "MB/s", "higher", nil
        local text = report_of(bench):text()
        has(text, "MB/s (higher is better), mean ± standard deviation of 1 to 3 runs")
        has(text, "run 3 (0.940 MB/s)")
    end)

    it("says how many runs there were, not how many were asked for", function()
        local simulated = simplebench.bench(function() return { seconds = 1, exact = true } end, { { id = "e" } }, { { id = "c" } }, { count = 3 })
        has(report_of(simulated):text(), "mean ± standard deviation of 2 runs")
    end)

    it("shows rates in MB/s, and keeps bytes per second", function()
        local rate = { dimension = "rate", values = { 1.5e6, 2.5e6 }, average = 2e6, stdev = 1e6, n_failed = 0, outliers = { 2 } }
        rate.interval = { low = 1.8e6, high = 2.2e6 }
        local one = report.new():add { envs = { { id = "e" } }, cases = { { id = "c" } }, results = { c = { e = rate } } }
        has(one:text(), "MB/s (higher is better), mean ± standard deviation of 2 runs")
        has(one:text(), "c  2.00 ± 1.00")
        has(one:text(), "c, e: run 2 (2.50 MB/s)")
        has(one:csv(), "c,e,1,rate,1500000,no")
        has(one:html(), "c, e: 2.00.")
        has(one:html(), ">2.5<")
    end)

    it("shows any number", function()
        for _, value in ipairs { math.huge, 0 / 0, 1e-320, 1e-12, 1e20, 1.7e308 } do
            local bench = sample()
            local result = bench.results.front.plain
            result.average, result.stdev, result.values = value, value, { value, 1, value }
            result.interval = { low = value, high = value }
            bench.comparisons.front.chain = { ratio = value, interval = { low = value, high = value }, p = 0, differs = true }
            result.course = { interval = 0.5, values = { value, 1, 2, value } }
            for _, name in ipairs { "text", "csv", "markdown", "html", "json" } do
                local one = report_of(bench)
                assert.is_string(one[name](one))
            end
            for plot in report_of(bench):html():gmatch "<svg.-</svg>" do
                for number in plot:gmatch '[ (][xycrdw]%w*="([^"]*)"' do
                    assert.is_nil(number:find "nan" or number:find "inf", number)
                    assert.is_true(#number < 200 or number:find "^M" ~= nil, number)
                end
            end
        end
    end)

    it("shows other tables", function()
        local rows = { { "case", "data" }, { "a|b", 12 } }
        local other = report.new():add_table { title = "Bytes", caption = "in the file", rows = rows, notes = { "exact" } }
        assert.equal("Bytes\n-----\nin the file\n\ncase  data\n----  ----\na|b     12\n\nexact\n", other:text())
        has(other:markdown(), "| a\\|b | 12 |\n\n- exact\n")
        has(other:html(), '<th scope="row">a|b</th><td>12</td>')
        assert.equal("table", json.decode(other:json()).sections[1].kind)
    end)
end)

describe("text in a report", function()
    it("cannot break lines or move the cursor", function()
        for _, name in ipairs { "text", "markdown", "html" } do
            local one = report_of(nasty())
            local text = one[name](one)
            lacks(text, "\27")
            lacks(text, "\255")
            assert.is_truthy(utf8.len(text))
        end
    end)

    it("is escaped in Markdown", function()
        local text = report_of(nasty()):markdown()
        has(text, "a\\|b \"c\" \\<d\\> & 'e', \\\\f_g \\`h\\` \\[31m? z")
        for line in text:gmatch "[^\n]+" do
            local _, bars = line:gsub("\\|", ""):gsub("|", "")
            assert.is_true(bars == 0 or bars == 5, line)
        end
    end)

    it("cannot begin a heading or a list in Markdown", function()
        local bench = sample()
        bench.question, bench.notes = "# no heading", { "1. no list", "_no_ *stress*" }
        local text = report_of(bench):markdown()
        has(text, "\n\\# no heading\n")
        has(text, "- 1\\. no list\n- \\_no\\_ \\*stress\\*\n")
    end)

    it("is escaped in HTML", function()
        local text = report_of(nasty()):html()
        has(text, "a|b &quot;c&quot; &lt;d&gt; &amp; &#39;e&#39;, \\f_g `h` [31m? z")
        lacks(text, "<d>")
    end)

    it("is quoted in CSV", function()
        has(report_of(nasty()):csv(), '"a|b ""c"" <d> & \'e\', \\f_g `h`\27[31m\255\nz",1,seconds,0.5,no\r\n')
    end)

    it("comes back from JSON", function()
        local bench = sample()
        bench.envs[1].open, bench.envs[1].self, bench.envs[1].file = print, bench, io.stderr
        bench.comparisons.front.chain.p = 0 / 0
        bench.notes[1] = 'a|"c"\\\n'
        local back = json.decode(report_of(bench):json())
        assert.equal('a|"c"\\\n', back.sections[1].notes[1])
        assert.same({ id = "plain" }, back.sections[1].envs[1])
        assert.equal(json.null, back.sections[1].comparisons.front.chain.p)
        assert.equal(3, #back.sections[1].results.whole.plain.runs)
        assert.equal("no space", back.sections[1].results.whole.plain.runs[2].error)
        assert.equal("6.8", back.machine.kernel)
    end)
end)

describe("the HTML of a report", function()
    local VOID = { meta = true, br = true }

    --- Fails unless each tag is closed in its turn.
    local function balanced(text)
        local open, count = {}, 0
        text = text:gsub("<style>.-</style>", ""):gsub("^<!DOCTYPE html>", "")
        for closing, name, rest in text:gmatch "<(/?)([%w]+)([^<>]*)>" do
            count = count + 1
            if closing == "/" then assert.equal(name, table.remove(open))
            elseif not VOID[name] and rest:sub(-1) ~= "/" then open[#open + 1] = name
            end
        end
        local _, brackets = text:gsub("<", "")
        assert.equal(count, brackets)
        assert.equal(0, #open)
    end

    it("is well formed", function()
        for _, bench in ipairs { sample(), with_plots(), nasty() } do balanced(report_of(bench):html()) end
    end)

    it("needs nothing but itself", function()
        local text = report_of(nasty()):html()
        for _, word in ipairs { "<script", "http", "src=", "url(", "@import", "<link", "onload" } do lacks(text, word) end
    end)

    it("names every plot for those who cannot see it", function()
        local text = report_of(with_plots()):html()
        local plots = 0
        for attributes, title in text:gmatch "<svg ([^>]*)><title>([^<]*)</title>" do
            plots = plots + 1
            has(attributes, 'role="img" aria-label="' .. title)
        end
        assert.equal(3, plots)
        has(text, "front, plain: 0.650; front, chain: 1.10")
    end)

    it("marks what is better, worse or not different", function()
        local text = report_of(sample()):html()
        has(text, '<span class="worse">▼ worse</span><span class="interval">[1.60, 1.75]</span>')
        has(text, '<span class="same" title="no difference shown">~</span>')
    end)

    it("shows outliers as rings", function()
        local _, rings = report_of(sample()):html():gsub('class="outlier"', "")
        assert.equal(1, rings)
    end)
end)

describe("simplebench.svg", function()
    local function bars(...)
        local rows = {}
        for i, value in ipairs { ... } do rows[i] = { label = "row", colour = i, value = value } end
        return svg.bars { title = "bars", label = "seconds", groups = { { label = "group", rows = rows } } }
    end

    it("shows bars from 0, and points on a logarithmic scale", function()
        has(bars(1, 29), "<rect")
        lacks(bars(1, 29), "log scale")
        has(bars(1, 31), "seconds; log scale")
        lacks(bars(1, 31), "<rect")
    end)

    it("takes zeros, single values and none", function()
        for _, text in ipairs { bars(0), bars(0, 5), bars(3), bars() } do
            lacks(text, "nan")
            lacks(text, "inf")
        end
        local none = { { from = 0, to = 1, count = 0 } }
        assert.is_nil(svg.latency { title = "none", lines = { { label = "a", colour = 1, buckets = none } } })
        assert.is_nil(svg.course { title = "none", unit = "IOPS", lines = { { label = "a", colour = 1, interval = 1, values = { 5 } } } })
    end)

    it("has ticks with few characters", function()
        for _, text in ipairs { bars(1e-12), bars(1e300, 5e299), bars(1e-300, 1e300) } do
            for tick in text:gmatch 'class="tick"[^>]*>([^<]*)<' do assert.is_true(#tick < 12, tick) end
        end
        has(bars(4e-12), ">4e-12<")
    end)

    it("shows a tail by nines", function()
        local buckets = { { from = 1e-4, to = 2e-4, count = 9990 }, { from = 1e-3, to = math.huge, count = 10 } }
        local text = svg.latency { title = "tail", lines = { { label = "a", colour = 9, buckets = buckets } } }
        has(text, ">99.9 %<")
        has(text, ">1 ms<")
        has(text, 'class="line c2" stroke-dasharray=')
        lacks(text, "inf")
    end)

    it("joins intervals of a long course, and says so", function()
        local values = {}
        for i = 1, 1000 do values[i] = i end
        local text = svg.course { title = "long", unit = "IOPS", lines = { { label = "a", colour = 1, interval = 1, values = values } } }
        has(text, "IOPS over time; means of 4 intervals")
    end)
end)

describe("saving a report", function()
    local folder

    before_each(function()
        local pipe <close> = assert(io.popen "mktemp -d")
        folder = pipe:read "l"
    end)

    after_each(function() os.execute(("rm -rf '%s'"):format(folder)) end)

    local function files()
        local pipe <close> = assert(io.popen(("ls '%s'"):format(folder)))
        return pipe:read "a"
    end

    it("writes what is asked for", function()
        local one = report_of(sample())
        local path = folder .. "/a."
        assert.is_true(one:save { json = path .. "json", csv = path .. "csv", markdown = path .. "md", html = path .. "html" })
        assert.equal("a.csv\na.html\na.json\na.md\n", files())
        assert.equal(one:json(), read(folder .. "/a.json"))
        assert.equal(one:csv(), read(folder .. "/a.csv"))
        assert.equal(one:markdown(), read(folder .. "/a.md"))
        assert.equal(one:html(), read(folder .. "/a.html"))
    end)

    it("leaves everything as it was when a file cannot be written", function()
        assert(io.open(folder .. "/a.json", "w")):write("old"):close()
        local saved, message = report_of(sample()):save { json = folder .. "/a.json", html = folder .. "/missing/a.html" }
        assert.is_nil(saved)
        has(message, "missing/a.html.new")
        assert.equal("a.json\n", files())
        assert.equal("old", read(folder .. "/a.json"))
    end)

    it("reports a full disk", function()
        if not io.open "/dev/full" then return pending "no /dev/full" end
        os.execute(("ln -s /dev/full '%s/a.csv.new'"):format(folder))
        local saved, message = report_of(sample()):save { csv = folder .. "/a.csv" }
        assert.is_nil(saved)
        has(message, "a.csv.new: No space left on device")
        assert.equal("", files())
    end)

    it("reports a place that is taken by a folder", function()
        os.execute(("mkdir '%s/a.csv'"):format(folder))
        local saved, message = report_of(sample()):save { csv = folder .. "/a.csv" }
        assert.is_nil(saved)
        assert.equal(folder .. "/a.csv: Is a directory", message)
        assert.equal("a.csv\n", files())
    end)
end)

describe("simplebench.progress", function()
    local environment, getenv

    before_each(function()
        environment = { TERM = "xterm" }
        getenv = stub(os, "getenv", function(name) return environment[name] end)
    end)

    after_each(function() getenv:revert() end)

    local function stream()
        local parts = {}
        return { write = function(_, ...) for _, text in ipairs { ... } do parts[#parts + 1] = text end end, flush = function() end },
            function() return table.concat(parts) end
    end

    local function shown(fields, terminal)
        local out, written = stream()
        local live = progress.new(out, terminal == nil or terminal)
        local event = { env = { id = "chain" }, case = { id = "front" }, run = 3, of = 10, initial = false, result = { seconds = 1 } }
        for name, value in pairs(fields) do event[name] = value end
        live.event(event)
        live.finish()
        live.finish()
        return written()
    end

    it("shows one line, and erases it", function()
        assert.equal("\r\27[2K\27[2mrun 3/10: front, chain\27[0m\r\27[2K", shown {})
        has(shown { initial = true }, "warming up")
        has(shown { slow = true }, ": slow")
        has(shown { result = { error = "bad\nluck" } }, "\27[31mrun 3/10: front, chain: failed: bad luck")
    end)

    it("does without colours where they are not wanted", function()
        environment.NO_COLOR = "1"
        assert.equal("\r\27[2Krun 3/10: front, chain\r\27[2K", shown {})
    end)

    it("shows nothing where nobody looks", function()
        assert.equal("", shown({}, false))
        for name, value in pairs { CI = "true", TERM = "dumb" } do
            local before = environment[name]
            environment[name] = value
            assert.equal("", shown {})
            environment[name] = before
        end
        environment.TERM = nil
        assert.equal("", shown {})
    end)

    it("keeps to the width of the terminal", function()
        environment.NO_COLOR, environment.COLUMNS = "1", "20"
        assert.equal("\r\27[2Krun 3/10: front, c…\r\27[2K", shown {})
    end)

    it("asks only once whether there is a terminal", function()
        local execute = stub(os, "execute", function() return true end)
        local live = progress.new(io.stderr)
        live.finish()
        execute:revert()
        assert.stub(execute).was.called(1)
        assert.stub(execute).was.called_with "test -t 2"
    end)
end)
