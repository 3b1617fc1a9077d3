-- SPDX-License-Identifier: MIT

--- Sections of a report as text: columns aligned by characters.
-- @module qcow2.simplebench.table

local numbers = require "qcow2.simplebench.numbers"
local section = require "qcow2.simplebench.section"

local text_table = { number = numbers.show }

local function width_of(text) return utf8.len(text) or #text end

local function pad(text, width, right)
    local space = (" "):rep(width - width_of(text))
    return right and space .. text or text .. space
end

--- Lays rows out in columns: the first aligned left, the others right; a line of dashes below the first row.
-- @tparam {{string,...},...} rows all of one length
-- @treturn string lines, each with its line end
function text_table.layout(rows)
    local widths, rule, lines = {}, {}, {}
    for _, row in ipairs(rows) do
        for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, width_of(text)) end
    end
    for i, width in ipairs(widths) do rule[i] = ("-"):rep(width) end
    for i, row in ipairs(rows) do
        local padded = {}
        for j, text in ipairs(row) do padded[j] = pad(text, widths[j], j > 1) end
        lines[#lines + 1] = table.concat(padded, "  "):gsub(" +$", "") .. "\n"
        if i == 1 then lines[#lines + 1] = table.concat(rule, "  ") .. "\n" end
    end
    return table.concat(lines)
end

--- A heading with a line below.
-- @tparam string text
-- @tparam string character that the line consists of
-- @treturn string two lines
function text_table.underlined(text, character) return text .. "\n" .. character:rep(utf8.len(text)) .. "\n" end

--- Shows a section: title, question, caption, table and notes, as far as they are there.
-- @tparam table shown see qcow2.simplebench.section
-- @treturn string lines
function text_table.section(shown)
    local parts, rows = {}, {}
    if shown.title then parts[1] = text_table.underlined(shown.title, "-") end
    if shown.question then parts[#parts + 1] = shown.question .. "\n" end
    if shown.caption then parts[#parts + 1] = shown.caption .. "\n" end
    for i, row in ipairs(shown.rows) do
        rows[i] = {}
        for j, cell in ipairs(row) do rows[i][j] = cell.text end
    end
    if #rows > 0 then parts[#parts + 1] = "\n" .. text_table.layout(rows) end
    if #shown.notes > 0 then parts[#parts + 1] = "\n" .. table.concat(shown.notes, "\n") .. "\n" end
    return table.concat(parts)
end

--- Shows what `bench` returned, as a report does.
-- @tparam table bench
-- @treturn string lines
function text_table.render(bench) return text_table.section(section.of_bench(bench)) end

return text_table
