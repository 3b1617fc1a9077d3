-- SPDX-License-Identifier: MIT

--- A report as one HTML page: style and plots are in it, and it needs no other file and no script.
-- @module qcow2.simplebench.report_html

local dimensions = require "qcow2.simplebench.dimensions"
local numbers = require "qcow2.simplebench.numbers"
local svg = require "qcow2.simplebench.svg"

local report_html = {}

local escape = svg.escape

-- Colours are Okabe and Ito's, darker or lighter where they would be too weak against the page.
local STYLE = [[
:root { color-scheme: light dark;
  --page: #fbfbfa; --card: #fff; --ink: #1c1e21; --soft: #5b6169; --rule: #dcdfe3; --grid: #e6e8eb;
  --good: #00694a; --bad: #b03a00;
  --c1: #0072b2; --c2: #d55e00; --c3: #00875f; --c4: #b8578f; --c5: #8a6d00; --c6: #2b8cc4; --c7: #555b63; }
@media (prefers-color-scheme: dark) { :root {
  --page: #15171a; --card: #1c1f23; --ink: #e8eaed; --soft: #a3aab3; --rule: #34393f; --grid: #2c3136;
  --good: #4fd0a3; --bad: #ff9a5c;
  --c1: #56b4e9; --c2: #f08a3c; --c3: #2fc292; --c4: #e39ac4; --c5: #e0cf4a; --c6: #9ad2f6; --c7: #b5bcc5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; -webkit-text-size-adjust: 100%; }
.page { max-width: 1120px; margin: 0 auto; padding: 40px 32px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 20px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 22px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 16px; margin: 32px 0 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); gap: 12px 24px; margin: 0; padding: 16px 0;
  border-top: 1px solid var(--rule); border-bottom: 1px solid var(--rule); font-size: 14px; }
.facts dt { color: var(--soft); font-size: 12.5px; line-height: 1.4; }
.facts dd { margin: 0; line-height: 1.4; overflow-wrap: anywhere; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 16px 0 0; padding: 0; font-size: 15px; }
a { color: var(--c1); }
section { margin-top: 48px; }
.question { margin: 6px 0 0; font-size: 17px; max-width: 70ch; overflow-wrap: anywhere; }
.caption { margin: 4px 0 0; color: var(--soft); font-size: 14px; max-width: 90ch; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin-top: 16px; border: 1px solid var(--rule); border-radius: 8px; background: var(--card); }
.scroll:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; line-height: 1.35; font-variant-numeric: tabular-nums; }
th, td { padding: 9px 14px; text-align: right; vertical-align: baseline; white-space: nowrap; border-top: 1px solid var(--rule); }
thead th, thead td { border-top: 0; color: var(--soft); font-weight: 600; font-size: 13px; }
th:first-child, td:first-child { text-align: left; }
tbody th { font-weight: 500; position: sticky; left: 0; background: var(--card); }
tr.summary > * { border-top: 2px solid var(--rule); }
.sd, .interval, .same, .part { color: var(--soft); }
.interval, .part { display: block; font-size: 12.5px; }
.ratio { font-weight: 600; }
.better { color: var(--good); }
.worse, .failed, .part { color: var(--bad); }
.failed { font-weight: 600; }
.notes { margin: 12px 0 0; padding-left: 18px; color: var(--soft); font-size: 14px; max-width: 100ch; overflow-wrap: anywhere; }
.notes li { margin-top: 4px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); gap: 20px; margin-top: 12px; }
figure { margin: 0; padding: 14px 18px 10px; border: 1px solid var(--rule); border-radius: 8px; background: var(--card); min-width: 0; }
figcaption { font-weight: 600; font-size: 14.5px; margin-bottom: 8px; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; overflow: visible; }
svg text { fill: var(--ink); }
svg .tick, svg .label { fill: var(--soft); font-size: 11.5px; }
svg .number, svg .tick { font-variant-numeric: tabular-nums; }
svg .group { font-weight: 600; }
svg .failed { fill: var(--bad); }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); } .c4 { --c: var(--c4); }
.c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
.bar { fill: var(--c); }
.stem { stroke: var(--c); stroke-width: 2; opacity: 0.35; }
.line { stroke: var(--c); stroke-width: 2; fill: none; stroke-linejoin: round; }
.halo { stroke: var(--card); stroke-width: 4; stroke-linecap: square; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
.outlier { fill: none; stroke: var(--ink); stroke-width: 1.5; }
@media (max-width: 600px) {
  .page { padding: 24px 16px 48px; }
  h1 { font-size: 25px; }
  .facts { grid-template-columns: max-content 1fr; gap: 3px 14px; align-items: baseline; }
  .facts div { display: contents; }
  th, td { padding: 8px 10px; }
  tbody th { max-width: 34vw; white-space: normal; }
  figure { padding: 12px 12px 8px; }
  svg, svg .tick, svg .label { font-size: 14px; }
}
@media print { .scroll, figure { break-inside: avoid; } }
]]

-- ---- the table ----

local MARKS = { better = "▲ better", worse = "▼ worse" }

local function value_content(cell)
    local number, deviation = (cell.main or cell.text):match "^(.-)( ± .*)$"
    local text = number and ('%s<span class="sd">%s</span>'):format(escape(number), escape(deviation)) or escape(cell.main or cell.text)
    return cell.failed and ('%s<span class="part">%s</span>'):format(text, escape(cell.failed)) or text
end

local function ratio_content(cell)
    local text = ('<span class="ratio">%s</span>'):format(escape(cell.main))
    if MARKS[cell.better] then text = ('%s <span class="%s">%s</span>'):format(text, cell.better, MARKS[cell.better]) end
    return cell.interval and ('%s<span class="interval">%s</span>'):format(text, escape(cell.interval)) or text
end

local CONTENTS = { -- by the kind of a cell; others show their text
    value = value_content,
    ratio = ratio_content,
    same = function() return '<span class="same" title="no difference shown">~</span>' end,
    failed = function(cell) return ('<span class="failed">%s</span>'):format(escape(cell.text)) end,
}

local function table_cell(cell, row_number, column)
    local content = (CONTENTS[cell.kind] or function(any) return escape(any.text) end)(cell)
    if row_number == 1 then
        if cell.text == "" then return "<td></td>" end
        return ('<th scope="col">%s</th>'):format(content)
    end
    return (column == 1 and '<th scope="row">%s</th>' or "<td>%s</td>"):format(content)
end

local function write_row(row, number)
    local cells = {}
    for i, cell in ipairs(row) do cells[i] = table_cell(cell, number, i) end
    local class = row[1].kind == "summary" and ' class="summary"' or ""
    return ("<tr%s>%s</tr>\n"):format(class, table.concat(cells))
end

local function write_table(section)
    local body = {}
    for i = 2, #section.rows do body[#body + 1] = write_row(section.rows[i], i) end
    local label = escape((section.title or "Table") .. ", table")
    return ('<div class="scroll" tabindex="0" role="region" aria-label="%s"><table>\n<thead>\n%s</thead>\n'):format(
        label, write_row(section.rows[1], 1)) .. ("<tbody>\n%s</tbody>\n</table></div>\n"):format(table.concat(body))
end

-- ---- the plots ----

local function plots(heading, explanation, figures)
    explanation = explanation and ('<p class="caption">%s</p>\n'):format(escape(explanation)) or ""
    return ('<h3>%s</h3>\n%s<div class="plots">\n%s</div>\n'):format(escape(heading), explanation, table.concat(figures))
end

local function figure(title, drawing)
    title = title and ("<figcaption>%s</figcaption>\n"):format(escape(title)) or ""
    return ("<figure>\n%s%s</figure>\n"):format(title, drawing)
end

--- A cell's numbers, as its dimension shows them.
local function bar_of(cell, scale)
    local result, outliers = cell.result, {}
    for _, run in ipairs(cell.runs) do
        if run.outlier then outliers[#outliers + 1] = run.value / scale end
    end
    if not result.average then return { outliers = outliers } end
    local value, interval = result.average / scale, result.interval
    return {
        value = value, text = numbers.show(value), outliers = outliers, low = interval and interval.low / scale,
        high = interval and interval.high / scale,
    }
end

--- Calls look(case, cells of the case), in order; cells have their column's number.
local function each_case(section, look)
    local columns = #section.bench.envs
    for i, case in ipairs(section.bench.cases) do
        look(case, table.move(section.cells, (i - 1) * columns + 1, i * columns, 1, {}))
    end
end

--- The heading of a column, whose letter keeps long names apart where they are cut short.
local function column_name(section, i) return section.rows[1][i + 1].text end

local function bars_of(section)
    local groups, said, title = {}, {}, section.title and section.title .. ": means" or "Means"
    each_case(section, function(case, cells)
        local rows = {}
        for i, cell in ipairs(cells) do
            local row = bar_of(cell, dimensions.of(section.dimension).scale)
            row.label, row.colour, rows[i] = column_name(section, i), i, row
            said[#said + 1] = ("%s, %s: %s"):format(case.id, cell.env.id, row.text or "failed")
        end
        groups[#groups + 1] = { label = case.id, rows = rows }
    end)
    return svg.bars {
        title = title, description = table.concat(said, "; ") .. ".", groups = groups,
        label = section.unit .. ", mean and its interval",
    }
end

local LATENCY = "Upwards the share of requests that took no longer, stretched towards 100 % so that the slowest can be seen."

local LINES = { -- what draws one plot of a case, by the name of what it needs in a result
    latency = function(title, lines)
        return svg.latency { title = title, description = "One line for each environment.", lines = lines }
    end,
    course = function(title, lines)
        return svg.course { title = title, description = "One line for each environment.", lines = lines, unit = lines[1].unit or "rate" }
    end,
}

local function line_of(section, i, given)
    return {
        label = column_name(section, i), colour = i, buckets = given, interval = given.interval, values = given.values or given,
        unit = given.unit,
    }
end

local function small_plots(section, name, heading, explanation)
    local figures = {}
    each_case(section, function(case, cells)
        local lines = {}
        for i, cell in ipairs(cells) do
            local given = cell.result[name]
            if given and #(given.values or given) > 0 then lines[#lines + 1] = line_of(section, i, given) end
        end
        local drawing = #lines > 0 and LINES[name](("%s: %s"):format(heading, case.id), lines)
        if drawing then figures[#figures + 1] = figure(case.id, drawing) end
    end)
    return #figures > 0 and plots(heading, explanation, figures) or ""
end

local function write_plots(section)
    if not section.bench then return "" end
    local means = section.dimension and plots("Means", nil, { figure(nil, bars_of(section)) }) or ""
    return means .. small_plots(section, "latency", "Latency", LATENCY)
        .. small_plots(section, "course", "Course over time")
end

-- ---- the page ----

local function paragraph(text, class) return text and ('<p class="%s">%s</p>\n'):format(class, escape(text)) or "" end

local function write_notes(notes)
    if #notes == 0 then return "" end
    local items = {}
    for i, note in ipairs(notes) do items[i] = ("<li>%s</li>\n"):format(escape(note)) end
    return ('<ul class="notes">\n%s</ul>\n'):format(table.concat(items))
end

local function write_section(section, number)
    local parts = { ('<section id="s%d">\n'):format(number) }
    if section.title then parts[2] = ("<h2>%s</h2>\n"):format(escape(section.title)) end
    parts[#parts + 1] = paragraph(section.question, "question") .. paragraph(section.caption, "caption")
    if #section.rows > 0 then parts[#parts + 1] = write_table(section) end
    parts[#parts + 1] = write_notes(section.notes) .. write_plots(section) .. "</section>\n"
    return table.concat(parts)
end

local function write_facts(facts)
    if #facts == 0 then return "" end
    local items = {}
    for i, fact in ipairs(facts) do items[i] = ("<div><dt>%s</dt><dd>%s</dd></div>\n"):format(escape(fact.name), escape(fact.value)) end
    return ('<dl class="facts">\n%s</dl>\n'):format(table.concat(items))
end

local function write_contents(sections)
    local items = {}
    for i, section in ipairs(sections) do
        if section.title then items[#items + 1] = ('<li><a href="#s%d">%s</a></li>\n'):format(i, escape(section.title)) end
    end
    if #items < 3 then return "" end
    return ('<nav aria-label="Sections"><ul>\n%s</ul></nav>\n'):format(table.concat(items))
end

--- Shows a document.
-- @tparam table document see qcow2.simplebench.report
-- @treturn string
function report_html.render(document)
    local title, sections = escape(document.title or "Benchmark"), {}
    for i, section in ipairs(document.sections) do sections[i] = write_section(section, i) end
    return table.concat {
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n',
        "<title>", title, "</title>\n<style>\n", STYLE, '</style>\n</head>\n<body>\n<div class="page">\n<header>\n<h1>', title, "</h1>\n",
        write_facts(document.facts), write_contents(document.sections), "</header>\n<main>\n", table.concat(sections),
        "</main>\n</div>\n</body>\n</html>\n",
    }
end

return report_html
