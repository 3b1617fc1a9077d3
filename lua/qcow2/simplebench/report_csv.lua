-- SPDX-License-Identifier: MIT

--- A report as CSV (RFC 4180): a line for each run, with the value as exact as it is.
-- @module qcow2.simplebench.report_csv

local report_csv = {}

local HEADER = { "section", "case", "env", "run", "dimension", "value", "outlier" }

local function quote(text)
    if not text:find '[",\r\n]' and not text:find "^%s" and not text:find "%s$" then return text end
    return '"' .. text:gsub('"', '""') .. '"'
end

--- The fewest digits that read back as the same number.
local function exact(value)
    if math.type(value) == "integer" then return ("%d"):format(value) end
    for digits = 15, 17 do
        local text = ("%." .. digits .. "g"):format(value)
        if tonumber(text) == value then return text end
    end
    return ("%g"):format(value)
end

local function line(fields)
    local quoted = {}
    for i, field in ipairs(fields) do quoted[i] = quote(field) end
    return table.concat(quoted, ",") .. "\r\n"
end

--- Shows the benchmarks of a document; tables that were added are not in it. Failed runs have neither dimension nor value.
-- @tparam table document see qcow2.simplebench.report
-- @treturn string lines that end as RFC 4180 says, with CR and LF
function report_csv.render(document)
    local lines = { line(HEADER) }
    for _, section in ipairs(document.sections) do
        for _, cell in ipairs(section.cells or {}) do
            for _, run in ipairs(cell.runs) do
                lines[#lines + 1] = line {
                    section.id, cell.case.id, cell.env.id, ("%d"):format(run.number), run.value and cell.result.dimension or "",
                    run.value and exact(run.value) or "", run.value and (run.outlier and "yes" or "no") or "",
                }
            end
        end
    end
    return table.concat(lines)
end

return report_csv
