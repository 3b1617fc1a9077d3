-- SPDX-License-Identifier: MIT

--- What a report says of one benchmark: caption, cells and notes, decided here, once; text, Markdown and HTML only draw them.
--
-- A section has title, question, caption, rows of cells (text, kind) and notes, and for a bench cells (case, env, result, runs) and bench
-- itself. Means have three significant digits, deviations as many decimals as their mean. Ratios are those of the medians to the first
-- environment's, with their interval: `~` where the columns do not differ, `?` after one that too few runs stand behind.
-- @module qcow2.simplebench.section

local dimensions = require "qcow2.simplebench.dimensions"
local numbers = require "qcow2.simplebench.numbers"

local section = {}

local OUTLIER_RULE = "further than 3.5 scaled median absolute deviations from the median" -- see statistics.outliers

-- ---- words ----

--- Text on one line, in UTF-8, without control characters.
-- @param text
-- @treturn string
function section.clean(text)
    text = tostring(text):gsub("%c+", " ")
    if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
    return text
end

local function plural(count, one, many) return ("%d %s"):format(count, count == 1 and one or many or one .. "s") end

local function unit_of(bench, dimension) return bench.unit or dimensions.of(dimension).unit end

--- A value, and its deviation where it is given, as the dimension shows them.
local function value_text(dimension, value, deviation)
    local scale = dimensions.of(dimension).scale
    return numbers.show(value / scale, deviation and deviation / scale)
end

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

--- How many runs were made, which may be fewer than asked for: simulations and slow cells end early.
local function runs_text(cells)
    local least, most = math.huge, 0
    for _, cell in ipairs(cells) do
        local count = #cell.result.values + (cell.result.n_failed or 0)
        least, most = math.min(least, count), math.max(most, count)
    end
    if most <= 1 then return "one run" end
    return "mean ± standard deviation of " .. (least == most and ("%d runs"):format(most) or ("%d to %d runs"):format(least, most))
end

local function caption_of(bench, cells, dimension)
    local parts = {}
    if dimension then
        local shown = dimensions.of(dimension)
        parts[1] = ("%s (%s is better)"):format(bench.unit or shown.name, bench.better or shown.better)
    end
    parts[#parts + 1] = runs_text(cells)
    local text = table.concat(parts, ", ")
    if #bench.envs > 1 and bench.comparisons then
        text = ("%s; ratio to %s with its interval (~ no difference shown, ? too few runs)"):format(text, bench.envs[1].id)
    end
    return bench.seed and ("%s; seed %d"):format(text, bench.seed) or text
end

local function value_cell(bench, result, with_unit)
    if not result.average then return { text = "FAILED", kind = "failed" } end
    local text = value_text(result.dimension, result.average, result.stdev)
    if with_unit then text = text .. " " .. unit_of(bench, result.dimension) end
    local failed = result.n_failed and result.n_failed > 0 and ("(%d failed)"):format(result.n_failed)
    return { text = failed and text .. " " .. failed or text, kind = "value", main = text, failed = failed or nil }
end

local function ratio_cell(comparison, tilde)
    if not comparison or not comparison.ratio then return { text = "", kind = "none" } end
    if comparison.enough == false then
        local text = "× " .. numbers.show(comparison.ratio) .. " ?"
        return { text = text, kind = "ratio", main = text }
    end
    if tilde and not comparison.differs then return { text = "~", kind = "same" } end
    local main, interval = "× " .. numbers.show(comparison.ratio), comparison.interval
    if interval and not comparison.exact then
        interval = ("[%s, %s]"):format(numbers.like(interval.low, comparison.ratio), numbers.like(interval.high, comparison.ratio))
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
        row[#row + 1] = ratio_cell(mean and { ratio = mean.ratio, interval = mean.interval, enough = mean.interval ~= nil }, false)
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
                local value, unit = value_text(cell.result.dimension, run.value), unit_of(bench, cell.result.dimension)
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

local function cleaned(made)
    for _, name in ipairs { "title", "question", "caption" } do made[name] = made[name] and section.clean(made[name]) end
    for i, note in ipairs(made.notes) do made.notes[i] = section.clean(note) end
    for _, row in ipairs(made.rows) do
        for _, cell in ipairs(row) do cell.text = section.clean(cell.text) end
    end
    return made
end

--- What `bench` returned as a section.
-- @tparam table bench
-- @treturn table
function section.of_bench(bench)
    local cells, notes = cells_of(bench), {}
    local dimension = common_dimension(cells)
    notes[1] = outlier_note(bench, cells)
    trouble_notes(cells, notes)
    for _, note in ipairs(bench.notes or {}) do notes[#notes + 1] = note end
    return cleaned {
        title = bench.title, question = bench.question, caption = caption_of(bench, cells, dimension), rows = rows_of(bench, dimension),
        notes = notes, cells = cells, bench = bench, dimension = dimension, id = bench.title or "",
        unit = dimension and (bench.unit or dimensions.of(dimension).name),
    }
end

--- A table of any texts as a section.
-- @tparam table given title, caption, rows (lists of texts, the first with the headings), notes
-- @treturn table
function section.of_table(given)
    local rows, notes = {}, {}
    for i, row in ipairs(given.rows) do
        rows[i] = {}
        for j, text in ipairs(row) do rows[i][j] = { text = tostring(text), kind = i == 1 and "head" or j == 1 and "case" or "value" } end
    end
    for i, note in ipairs(given.notes or {}) do notes[i] = note end
    return cleaned { title = given.title, caption = given.caption, rows = rows, notes = notes }
end

return section
