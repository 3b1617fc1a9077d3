-- SPDX-License-Identifier: MIT

--- A report as Markdown with pipe tables, as forges show them.
-- @module qcow2.simplebench.report_markdown

local report_markdown = {}

local PLAIN = { same = true, ratio = true } -- kinds of cells that hold nothing but numbers

--- What would be read as markup gets a backslash. Underscores within words are none, and stay readable.
local function escape(text)
    text = text:gsub("[\\|*`<>%[%]~]", "\\%0"):gsub("&([%w#]+;)", "\\&%1")
    return (text:gsub("()_()", function(at, after)
        local within = text:sub(1, at - 1):find "[%w_]$" and text:find("^[%w_]", after)
        return within and "_" or "\\_"
    end))
end

--- Text that begins a line must not become a heading, a list or a quotation.
local function escape_line(text) return (escape(text):gsub("^([#+%-=])", "\\%1"):gsub("^(%d+)([.)])", "%1\\%2")) end

local function table_row(cells) return "| " .. table.concat(cells, " | ") .. " |\n" end

local function write_table(rows)
    local lines = {}
    for i, row in ipairs(rows) do
        local cells, rule = {}, {}
        for j, cell in ipairs(row) do
            cells[j] = PLAIN[cell.kind] and cell.text or escape(cell.text)
            rule[j] = j == 1 and ":--" or "--:"
        end
        lines[#lines + 1] = table_row(cells)
        if i == 1 then lines[#lines + 1] = table_row(rule) end
    end
    return table.concat(lines)
end

local function write_section(section)
    local parts = {}
    local function add(text) parts[#parts + 1] = text end
    if section.title then add("## " .. escape_line(section.title) .. "\n") end
    if section.question then add(escape_line(section.question) .. "\n") end
    if section.caption then add(escape_line(section.caption) .. "\n") end
    if #section.rows > 0 then add(write_table(section.rows)) end
    local notes = {}
    for i, note in ipairs(section.notes) do notes[i] = "- " .. escape_line(note) .. "\n" end
    if #notes > 0 then add(table.concat(notes)) end
    return table.concat(parts, "\n")
end

--- Shows a document.
-- @tparam table document see qcow2.simplebench.report
-- @treturn string
function report_markdown.render(document)
    local parts = {}
    if document.title then parts[#parts + 1] = "# " .. escape_line(document.title) .. "\n" end
    if #document.facts > 0 then
        local facts = {}
        for i, fact in ipairs(document.facts) do facts[i] = ("- %s: %s\n"):format(escape_line(fact.name), escape(fact.value)) end
        parts[#parts + 1] = table.concat(facts)
    end
    for _, section in ipairs(document.sections) do parts[#parts + 1] = write_section(section) end
    return table.concat(parts, "\n")
end

return report_markdown
