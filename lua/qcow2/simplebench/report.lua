-- SPDX-License-Identifier: MIT

--- A report: results and tables on one machine, as text, CSV, Markdown, HTML and JSON.
--
--     local report = require("qcow2.simplebench.report").new { title = "Writes", machine = machine.facts() }
--     report:add(simplebench.bench(func, envs, cases))
--     io.write(report:text())
--     assert(report:save { json = "writes.json", html = "writes.html" })
--
-- What is said is decided here, once: `document` makes captions, cells and notes, and the formats only draw them. The same input
-- gives the same bytes.
-- @module qcow2.simplebench.report

local json = require "qcow2.simplebench.json"
local report_csv = require "qcow2.simplebench.report_csv"
local report_html = require "qcow2.simplebench.report_html"
local report_markdown = require "qcow2.simplebench.report_markdown"
local text_table = require "qcow2.simplebench.table"

local report = {}
local methods = {}
local metatable = { __index = methods, __name = "simplebench.Report" }

local UNITS = { seconds = "s", iops = "IOPS" }
local NAMES = { seconds = "seconds", iops = "IOPS" }
local OUTLIER_RULE = "further than 3.5 scaled median absolute deviations from the median" -- see statistics.outliers
local FACTS = { "host", "cpu", "cpus", "memory", "kernel", "governor", "filesystem", "lua", "commit", "date" } -- come last but for others
local FORMATS = { "json", "csv", "markdown", "html" }
local EMPTY_LISTS = { values = true, outliers = true, runs = true, notes = true, rows = true, seconds = true, iops = true, sections = true }

-- ---- words ----

--- Text on one line, in UTF-8, without control characters.
local function clean(text)
    text = tostring(text):gsub("%c+", " ")
    if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
    return text
end

--- A number with as many decimals as three significant digits of another want.
local function like(value, model) return (text_table.number(model, value):match "± (.*)$") end

local function plural(count, one, many) return ("%d %s"):format(count, count == 1 and one or many or one .. "s") end

local function unit_of(bench, dimension) return bench.unit or UNITS[dimension] or dimension end

local function letter(i) return i <= 26 and string.char(64 + i) or ("%d"):format(i) end

-- ---- a bench as a section of the document ----

--- The runs of a cell as { number, value, outlier, error }. Numbers count failed runs too, where it is known which failed.
local function runs_of(result)
    local far, runs, index = {}, {}, 0
    for _, i in ipairs(result.outliers or {}) do far[i] = true end
    local function succeeded(number)
        index = index + 1
        runs[#runs + 1] = { number = number, value = result.values[index], outlier = far[index] or false }
    end
    for number, one in ipairs(result.runs or {}) do
        if one.error ~= nil then runs[#runs + 1] = { number = number, error = one.error } else succeeded(number) end
    end
    if not result.runs then
        for number in ipairs(result.values) do succeeded(number) end
    end
    return runs
end

local function cells_of(bench)
    local cells = {}
    for _, case in ipairs(bench.cases) do
        for _, env in ipairs(bench.envs) do
            local result = bench.results[case.id][env.id]
            cells[#cells + 1] = { case = case, env = env, result = result, runs = runs_of(result) }
        end
    end
    return cells
end

--- The one dimension of all cells; nil when there are several, or none.
local function common_dimension(cells)
    local found
    for _, cell in ipairs(cells) do
        local dimension = cell.result.dimension
        if found and dimension and dimension ~= found then return nil end
        found = found or dimension
    end
    return found
end

local function runs_text(bench, cells)
    local least, most = math.huge, 0
    for _, cell in ipairs(cells) do
        local count = #cell.result.values + (cell.result.n_failed or 0)
        least, most = math.min(least, count), math.max(most, count)
    end
    if bench.count == 1 or most <= 1 then return "one run" end
    local count = bench.count and ("%d runs"):format(bench.count) or least == most and ("%d runs"):format(most)
        or ("%d to %d runs"):format(least, most)
    return "mean ± standard deviation of " .. count
end

local function caption_of(bench, cells, dimension)
    local parts = {}
    if dimension then
        local better = bench.better or (dimension == "seconds" and "lower" or "higher")
        parts[1] = ("%s (%s is better)"):format(bench.unit or NAMES[dimension] or dimension, better)
    end
    parts[#parts + 1] = runs_text(bench, cells)
    local text = table.concat(parts, ", ")
    if #bench.envs > 1 and bench.comparisons then
        text = ("%s; ratio to %s with its interval (~ no difference shown, ? too few runs)"):format(text, bench.envs[1].id)
    end
    return bench.seed and ("%s; seed %d"):format(text, bench.seed) or text
end

local function value_cell(bench, result, with_unit)
    if not result.average then return { text = "FAILED", kind = "failed" } end
    local text = text_table.number(result.average, result.stdev)
    if with_unit then text = text .. " " .. unit_of(bench, result.dimension) end
    local failed = result.n_failed and result.n_failed > 0 and ("(%d failed)"):format(result.n_failed)
    return { text = failed and text .. " " .. failed or text, kind = "value", main = text, failed = failed or nil }
end

local function ratio_cell(comparison, tilde)
    if not comparison or not comparison.ratio then return { text = "", kind = "none" } end
    if comparison.enough == false then
        local text = "× " .. text_table.number(comparison.ratio) .. " ?"
        return { text = text, kind = "ratio", main = text }
    end
    if tilde and not comparison.differs then return { text = "~", kind = "same" } end
    local main, interval = "× " .. text_table.number(comparison.ratio), comparison.interval
    if interval and not comparison.exact then
        interval = ("[%s, %s]"):format(like(interval.low, comparison.ratio), like(interval.high, comparison.ratio))
    else
        interval = nil
    end
    return {
        text = interval and main .. " " .. interval or main, kind = "ratio", main = main, interval = interval, better = comparison.better,
    }
end

local function header_of(bench)
    local row = { { text = "", kind = "corner" } }
    for i, env in ipairs(bench.envs) do
        row[#row + 1] = { text = #bench.envs == 1 and env.id or letter(i) .. " " .. env.id, kind = "head" }
    end
    for i = 2, #bench.envs do row[#row + 1] = { text = ("%s : A"):format(letter(i)), kind = "head" } end
    return row
end

--- The last row: geometric means, where there are several cases.
local function summary_of(bench)
    local row, any = { { text = "geometric mean", kind = "summary" } }, false
    if #bench.cases < 2 then return nil end
    for _ = 1, #bench.envs do row[#row + 1] = { text = "", kind = "none" } end
    for i = 2, #bench.envs do
        local mean = bench.summary and bench.summary[bench.envs[i].id]
        row[#row + 1] = ratio_cell(mean, false)
        any = any or mean ~= nil
    end
    return any and row or nil
end

local function rows_of(bench, dimension)
    local rows = { header_of(bench) }
    for _, case in ipairs(bench.cases) do
        local row = { { text = case.id, kind = "case" } }
        for _, env in ipairs(bench.envs) do row[#row + 1] = value_cell(bench, bench.results[case.id][env.id], not dimension) end
        local comparisons = bench.comparisons and bench.comparisons[case.id] or {}
        for i = 2, #bench.envs do row[#row + 1] = ratio_cell(comparisons[bench.envs[i].id], true) end
        rows[#rows + 1] = row
    end
    rows[#rows + 1] = summary_of(bench)
    return rows
end

local function outlier_note(bench, cells)
    local places, count = {}, 0
    for _, cell in ipairs(cells) do
        local runs = {}
        for _, run in ipairs(cell.runs) do
            if run.outlier then
                local value, unit = text_table.number(run.value), unit_of(bench, cell.result.dimension)
                runs[#runs + 1] = ("run %d (%s %s)"):format(run.number, value, unit)
            end
        end
        count = count + #runs
        if #runs > 0 then places[#places + 1] = ("%s, %s: %s"):format(cell.case.id, cell.env.id, table.concat(runs, ", ")) end
    end
    if count == 0 then return nil end
    return ("%s (%s), kept in all numbers: %s"):format(plural(count, "outlier"), OUTLIER_RULE, table.concat(places, "; "))
end

local function trouble_notes(cells, notes)
    for _, cell in ipairs(cells) do
        local result, where = cell.result, ("%s, %s"):format(cell.case.id, cell.env.id)
        local failed = result.n_failed or 0
        if failed > 0 then
            local of = failed + #result.values
            local how_many = ("%d of %d runs"):format(failed, of)
            if failed == of then how_many = of == 1 and "the only run" or ("all %d runs"):format(of) end
            notes[#notes + 1] = ("%s: %s failed: %s"):format(where, how_many, tostring(result.error or "no reason given"))
        end
        if result.slow then notes[#notes + 1] = where .. ": the last run was slow, so no more were made" end
    end
end

local function bench_section(bench)
    local cells, notes = cells_of(bench), {}
    local dimension = common_dimension(cells)
    notes[1] = outlier_note(bench, cells)
    trouble_notes(cells, notes)
    for _, note in ipairs(bench.notes or {}) do notes[#notes + 1] = note end
    return {
        title = bench.title, question = bench.question, caption = caption_of(bench, cells, dimension), rows = rows_of(bench, dimension),
        notes = notes, cells = cells, bench = bench, dimension = dimension, id = bench.title or "",
        unit = dimension and unit_of(bench, dimension),
    }
end

local function table_section(given)
    local rows, notes = {}, {}
    for i, row in ipairs(given.rows) do
        rows[i] = {}
        for j, text in ipairs(row) do rows[i][j] = { text = tostring(text), kind = i == 1 and "head" or j == 1 and "case" or "value" } end
    end
    for i, note in ipairs(given.notes or {}) do notes[i] = note end
    return { title = given.title, caption = given.caption, rows = rows, notes = notes }
end

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
                facts[#facts + 1] = { name = clean(name), value = clean(fact_text(machine[name])) }
            end
        end
    end
    return facts
end

local function clean_section(section)
    for _, name in ipairs { "title", "question", "caption" } do section[name] = section[name] and clean(section[name]) end
    for i, note in ipairs(section.notes) do section.notes[i] = clean(note) end
    for _, row in ipairs(section.rows) do
        for _, cell in ipairs(row) do cell.text = clean(cell.text) end
    end
    return section
end

--- What the formats draw: title, facts ({name, value} each) and sections, each with title, question, caption, rows of cells (text, kind),
-- notes, and for a bench cells (case, env, result, runs) and bench itself.
local function document(self)
    local sections = {}
    for i, item in ipairs(self.items) do
        sections[i] = clean_section(item.kind == "bench" and bench_section(item.given) or table_section(item.given))
    end
    return { title = self.title and clean(self.title), facts = facts_of(self.machine), sections = sections }
end

-- ---- methods ----

--- Makes an empty report.
-- @tparam[opt] table opts title; machine (facts by name, see qcow2.simplebench.machine)
-- @treturn table
function report.new(opts)
    opts = opts or {}
    return setmetatable({ title = opts.title, machine = opts.machine, items = {} }, metatable)
end

--- Adds what `bench` returned. Its title, question, unit (instead of the dimension's), better ("lower" or "higher") and notes may be set.
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

local function underlined(text, character) return text .. "\n" .. character:rep(utf8.len(text)) .. "\n" end

local function text_section(section)
    local parts, rows = {}, {}
    if section.title then parts[1] = underlined(section.title, "-") end
    if section.question then parts[#parts + 1] = section.question .. "\n" end
    if section.caption then parts[#parts + 1] = section.caption .. "\n" end
    for i, row in ipairs(section.rows) do
        rows[i] = {}
        for j, cell in ipairs(row) do rows[i][j] = cell.text end
    end
    if #rows > 0 then parts[#parts + 1] = "\n" .. text_table.layout(rows) end
    if #section.notes > 0 then parts[#parts + 1] = "\n" .. table.concat(section.notes, "\n") .. "\n" end
    return table.concat(parts)
end

--- For a terminal.
-- @treturn string lines
function methods:text()
    local shown, parts, width = document(self), {}, 0
    if shown.title then parts[1] = underlined(shown.title, "=") end
    for _, fact in ipairs(shown.facts) do width = math.max(width, #fact.name) end
    local facts = {}
    for i, fact in ipairs(shown.facts) do facts[i] = fact.name .. (" "):rep(width - #fact.name + 2) .. fact.value .. "\n" end
    if #facts > 0 then parts[#parts + 1] = table.concat(facts) end
    for _, section in ipairs(shown.sections) do parts[#parts + 1] = text_section(section) end
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

local ARRAY = getmetatable(json.array {})

local function is_list(value, name)
    for key in pairs(value) do
        if math.type(key) ~= "integer" or key < 1 or key > #value then return false end
    end
    return #value > 0 or getmetatable(value) == ARRAY or EMPTY_LISTS[name] == true
end

--- A copy with only what JSON can hold: functions, userdata and circles are left out; NaN and infinities are null.
local function plain(value, name, above)
    if type(value) == "number" and (value ~= value or math.abs(value) == math.huge) then return json.null end
    if type(value) ~= "table" or value == json.null then return value end
    if above[value] then return nil end
    above[value] = true
    local list = is_list(value, name)
    local copy = list and json.array {} or {}
    local function add(key, item)
        local kind = type(item)
        if kind == "function" or kind == "userdata" or kind == "thread" then return end
        item = plain(item, key, above)
        if list then copy[#copy + 1] = item else copy[tostring(key)] = item end
    end
    if list then
        for key, item in ipairs(value) do add(key, item) end
    else
        for key, item in pairs(value) do add(key, item) end
    end
    above[value] = nil
    return copy
end

--- All that is known, every run included. Functions and userdata are left out; the same keys are in the same order each time.
-- @treturn string
function methods:json()
    local sections = {}
    for i, item in ipairs(self.items) do
        sections[i] = plain(item.given, nil, {})
        sections[i].kind = item.kind
    end
    local shown = { title = self.title, machine = plain(self.machine, nil, {}), sections = json.array(sections) }
    return json.encode(shown, "  ") .. "\n"
end

-- ---- files ----

local function write_file(path, text)
    local file, message = io.open(path, "wb")
    if not file then return nil, message end
    local written, write_message = file:write(text)
    local closed, close_message = file:close()
    if written and closed then return true end
    return nil, ("%s: %s"):format(path, write_message or close_message)
end

--- Writes files, each completely or not at all: they are written beside their place (path .. ".new") and renamed when all are there.
-- @tparam table paths json, csv, markdown, html; those that are missing are not written
-- @treturn[1] boolean true
-- @treturn[2] nil
-- @treturn[2] string what went wrong; no file was replaced, unless it was renaming that failed
function methods:save(paths)
    local wanted, new = {}, {}
    for _, name in ipairs(FORMATS) do
        if paths[name] then wanted[#wanted + 1] = { path = paths[name], text = self[name](self) } end
    end
    local function give_up(message)
        for _, path in ipairs(new) do os.remove(path) end
        return nil, message
    end
    for i, file in ipairs(wanted) do
        new[i] = file.path .. ".new"
        local written, message = write_file(new[i], file.text)
        if not written then return give_up(message) end
    end
    for i, file in ipairs(wanted) do
        local renamed, message = os.rename(new[i], file.path)
        if not renamed then return give_up(message) end
    end
    return true
end

return report
