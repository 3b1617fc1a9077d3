-- SPDX-License-Identifier: MIT

--- Results as a text table: a row for each case, a column for each environment.
--
-- Numbers have three significant digits, deviations as many decimals as their mean. Differences are those of the
-- medians from the first environment's, with their interval: in percent, or as a factor where percent would be hard to read; `~` where
-- the columns do not differ, `?` after one that too few runs stand behind.
-- @module qcow2.simplebench.table

local text_table = {}

local UNITS = { seconds = "s", iops = "IOPS" }
local NAMES = { seconds = "seconds", iops = "IOPS" }
local FACTOR_FROM = 2 -- from twice (or half) on, a factor says more than percent

-- ---- numbers ----

--- As many decimals as three significant digits want.
local function decimals_of(value)
    if value == 0 then return 2 end
    local exponent = tonumber(("%.2e"):format(value):match "e(.*)$")
    return math.min(math.max(2 - exponent, 0), 9)
end

local function three_digits(value) return ("%." .. decimals_of(value) .. "f"):format(value) end

--- A number with its deviation: "1.23 ± 0.04".
-- @tparam number average
-- @tparam[opt] number stdev
-- @treturn string
function text_table.number(average, stdev)
    if not stdev then return three_digits(average) end
    return ("%s ± %." .. decimals_of(average) .. "f"):format(three_digits(average), stdev)
end

--- How far a number is from another: "+12 %", "-5.3 %", "× 82" (so many times as much), "÷ 82".
-- @tparam number from
-- @tparam number to
-- @treturn string empty when there is nothing to compare with
function text_table.difference(from, to)
    if from <= 0 or to <= 0 then return "" end
    local factor = to / from
    if factor >= FACTOR_FROM then return "× " .. three_digits(factor) end
    if factor <= 1 / FACTOR_FROM then return "÷ " .. three_digits(1 / factor) end
    local percent = (factor - 1) * 100
    local text = (math.abs(percent) < 9.95 and "%+.1f" or "%+.0f"):format(percent)
    return (text == "-0.0" and "+0.0" or text) .. " %"
end

local function cell(result, with_unit)
    if not result.average then return "FAILED" end
    local text = text_table.number(result.average, result.stdev)
    if with_unit then text = text .. " " .. UNITS[result.dimension] end
    return result.n_failed > 0 and ("%s (%d failed)"):format(text, result.n_failed) or text
end

--- How a column differs from the first, by the ratio of medians; `~` where it does not.
local function difference(bench, case, env)
    local comparison = bench.comparisons and bench.comparisons[case.id] and bench.comparisons[case.id][env.id]
    if not comparison then return "" end
    local text = text_table.difference(1, comparison.ratio)
    if not comparison.enough then return text .. " ?" end
    if not comparison.differs then return "~" end
    local interval = comparison.interval
    if comparison.exact or not interval then return text end
    return ("%s (%s … %s)"):format(text, text_table.difference(1, interval.low), text_table.difference(1, interval.high))
end

--- The last row: geometric means over the cases.
local function summary_row(bench)
    local row, any = { "geometric mean" }, false
    for _ = 1, #bench.envs do row[#row + 1] = "" end
    for i = 2, #bench.envs do
        local mean = bench.summary and bench.summary[bench.envs[i].id]
        row[#row + 1] = mean and text_table.difference(1, mean.ratio) .. (mean.interval and "" or " ?") or ""
        any = any or mean ~= nil
    end
    return any and row or nil
end

-- ---- layout ----

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

--- The one dimension of all results; nil when there are several, or none.
local function common_dimension(bench)
    local found
    for _, row in pairs(bench.results) do
        for _, result in pairs(row) do
            if found and result.dimension and result.dimension ~= found then return nil end
            found = found or result.dimension
        end
    end
    return found
end

--- Columns have letters, so that the differences can name them: "B : A" says what B is, A being 100 %.
local function header(bench)
    local row, letter = { "" }, function(i) return #bench.envs <= 26 and string.char(64 + i) or ("%d"):format(i) end
    for i, env in ipairs(bench.envs) do row[#row + 1] = #bench.envs == 1 and env.id or letter(i) .. " " .. env.id end
    for i = 2, #bench.envs do row[#row + 1] = ("%s : %s"):format(letter(i), letter(1)) end
    return row
end

local function caption(bench, dimension)
    local what = dimension and NAMES[dimension] .. ", " or ""
    if bench.count == 1 then return what .. "one run\n" end
    local runs = bench.count and ("%d runs"):format(bench.count) or "all runs"
    return ("%smean ± standard deviation of %s\n"):format(what, runs)
end

local function errors(bench)
    local lines = {}
    for _, case in ipairs(bench.cases) do
        for _, env in ipairs(bench.envs) do
            local message = bench.results[case.id][env.id].error
            if message then lines[#lines + 1] = ("%s, %s: %s\n"):format(case.id, env.id, tostring(message)) end
        end
    end
    return table.concat(lines)
end

--- Shows what `bench` returned: caption, table, and the first error of each cell where runs failed.
-- @tparam table bench
-- @treturn string lines
function text_table.render(bench)
    local dimension = common_dimension(bench)
    local rows = { header(bench) }
    for _, case in ipairs(bench.cases) do
        local row = { case.id }
        for _, env in ipairs(bench.envs) do row[#row + 1] = cell(bench.results[case.id][env.id], not dimension) end
        for i = 2, #bench.envs do row[#row + 1] = difference(bench, case, bench.envs[i]) end
        rows[#rows + 1] = row
    end
    rows[#rows + 1] = summary_row(bench)
    return caption(bench, dimension) .. "\n" .. text_table.layout(rows) .. errors(bench)
end

return text_table
