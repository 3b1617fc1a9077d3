-- SPDX-License-Identifier: MIT

--- A report: results and tables on one machine, as text, CSV, Markdown, HTML and JSON.
--
--     local report = require("qcow2.simplebench.report").new { title = "Writes", machine = machine.facts() }
--     report:add(simplebench.bench(func, envs, cases))
--     io.write(report:text())
--     assert(report:save { json = "writes.json", html = "writes.html" })
--
-- What is said is decided once, in qcow2.simplebench.section, and the formats only draw it. The same input gives the same bytes.
-- @module qcow2.simplebench.report

local files = require "qcow2.simplebench.files"
local json = require "qcow2.simplebench.json"
local plain = require "qcow2.simplebench.plain"
local report_csv = require "qcow2.simplebench.report_csv"
local report_html = require "qcow2.simplebench.report_html"
local report_markdown = require "qcow2.simplebench.report_markdown"
local section = require "qcow2.simplebench.section"
local text_table = require "qcow2.simplebench.table"

local report = { FORMATS = { "json", "csv", "markdown", "html" } } -- those that go into files
local methods = {}
local metatable = { __index = methods, __name = "simplebench.Report" }

local FACTS = { "host", "cpu", "cpus", "memory", "kernel", "governor", "filesystem", "lua", "commit", "date" } -- come last but for others

-- ---- the document ----

local function fact_text(value)
    if type(value) ~= "table" then return tostring(value) end
    local parts = {}
    for name, item in pairs(value) do parts[#parts + 1] = ("%s %s"):format(name, tostring(item)) end
    table.sort(parts)
    return table.concat(parts, ", ")
end

--- The machine's facts: the well-known in their order, then the others by name.
local function facts_of(machine)
    local facts, known, others = {}, {}, {}
    for _, name in ipairs(FACTS) do known[name] = true end
    for name in pairs(machine or {}) do
        if not known[name] then others[#others + 1] = name end
    end
    table.sort(others)
    for _, names in ipairs { FACTS, others } do
        for _, name in ipairs(names) do
            if machine and machine[name] ~= nil then
                facts[#facts + 1] = { name = section.clean(name), value = section.clean(fact_text(machine[name])) }
            end
        end
    end
    return facts
end

--- What the formats draw: title, facts ({name, value} each) and sections, see qcow2.simplebench.section.
local function document(self)
    local sections = {}
    for i, item in ipairs(self.items) do
        sections[i] = item.kind == "bench" and section.of_bench(item.given) or section.of_table(item.given)
    end
    return { title = self.title and section.clean(self.title), facts = facts_of(self.machine), sections = sections }
end

-- ---- methods ----

--- Makes an empty report.
-- @tparam[opt] table opts title; machine (facts by name, see qcow2.simplebench.machine)
-- @treturn table
function report.new(opts)
    opts = opts or {}
    return setmetatable({ title = opts.title, machine = opts.machine, items = {} }, metatable)
end

--- Adds what `bench` returned. Its title, question, unit (another name for the dimension's), better ("lower" or "higher") and notes
-- may be set.
-- @tparam table bench
-- @treturn table the report
function methods:add(bench)
    self.items[#self.items + 1] = { kind = "bench", given = bench }
    return self
end

--- Adds a table of any texts.
-- @tparam table given title, caption, rows (lists of texts, the first with the headings), notes
-- @treturn table the report
function methods:add_table(given)
    self.items[#self.items + 1] = { kind = "table", given = given }
    return self
end

--- For a terminal.
-- @treturn string lines
function methods:text()
    local shown, parts, width = document(self), {}, 0
    if shown.title then parts[1] = text_table.underlined(shown.title, "=") end
    for _, fact in ipairs(shown.facts) do width = math.max(width, #fact.name) end
    local facts = {}
    for i, fact in ipairs(shown.facts) do facts[i] = fact.name .. (" "):rep(width - #fact.name + 2) .. fact.value .. "\n" end
    if #facts > 0 then parts[#parts + 1] = table.concat(facts) end
    for _, one in ipairs(shown.sections) do parts[#parts + 1] = text_table.section(one) end
    return table.concat(parts, "\n")
end

--- One line a run: section, case, env, run, dimension, value, outlier.
-- @treturn string
function methods:csv() return report_csv.render(document(self)) end

--- For forges.
-- @treturn string
function methods:markdown() return report_markdown.render(document(self)) end

--- One page with plots that needs no other file.
-- @treturn string
function methods:html() return report_html.render(document(self)) end

-- ---- JSON ----

--- All that is known, every run included. Functions and userdata are left out; the same keys are in the same order each time.
-- @treturn string
function methods:json()
    local sections = {}
    for i, item in ipairs(self.items) do
        sections[i] = plain(item.given)
        sections[i].kind = item.kind
    end
    local shown = { title = self.title, machine = plain(self.machine), sections = json.array(sections) }
    return json.encode(shown, "  ") .. "\n"
end

-- ---- files ----

--- Writes files, each completely or not at all, see qcow2.simplebench.files.
-- @tparam table paths json, csv, markdown, html; those that are missing are not written
-- @treturn[1] boolean true
-- @treturn[2] nil
-- @treturn[2] string what went wrong; no file was replaced, unless it was renaming that failed
function methods:save(paths)
    local wanted = {}
    for _, name in ipairs(report.FORMATS) do
        if paths[name] then wanted[#wanted + 1] = { path = paths[name], text = self[name](self) } end
    end
    return files.write(wanted)
end

return report
