-- SPDX-License-Identifier: MIT

--- Plots as inline SVG: bars with intervals, latency distributions, courses over time.
--
-- A plot is drawn in units of WIDTH across and scales with the page. Colours and sizes of text are the page's (classes c1 to c7, bar,
-- line, …); places are reckoned for text of TEXT units, the largest the page may set. Lines differ in dashes too, and bars have labels,
-- so that no colour need be told from another.
-- @module qcow2.simplebench.svg

local svg = { COLOURS = 7 }

local WIDTH, TEXT, CHARACTER = 440, 14, 7.8 -- of the plot, of a line of text, of a character in a wide font
local ROW, GAP = 22, 12 -- of a bar, between groups of them
local PLOT_HEIGHT = 190
local LOG_FROM = 30 -- values that span more are shown on a logarithmic scale
local SMALLEST, LARGEST = 1e-300, 1e300
local POINTS_MAX = 300
local NINES_MAX = 5
local DASHES = { "", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2" }
local SECONDS = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "µs" }, { 1e-9, "ns" } }
local PERCENTILES = { { 0, "0 %" }, { 0.5, "50 %" }, { 0.9, "90 %" }, { 0.99, "99 %" }, { 0.999, "99.9 %" }, { 0.9999, "99.99 %" },
    { 0.99999, "99.999 %" } }

-- ---- text ----

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

--- Text for HTML and SVG, within elements and attributes. What is no UTF-8 becomes question marks, control characters spaces.
-- @tparam string text
-- @treturn string
function svg.escape(text)
    text = text:gsub("%c+", " ")
    if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
    return (text:gsub("[&<>\"']", ENTITIES))
end

local function length(text) return utf8.len(text) or #text end

local function cut(text, width)
    local most = math.max(math.floor(width / CHARACTER), 2)
    if length(text) <= most or not utf8.len(text) then return text end
    return text:sub(1, utf8.offset(text, most) - 1) .. "…"
end

--- A coordinate: one decimal, and no negative zero.
local function at(value)
    local text = ("%.1f"):format(value)
    return text == "-0.0" and "0.0" or text
end

local function text_at(x, y, text, class, anchor)
    local end_at = anchor and (' text-anchor="%s"'):format(anchor) or ""
    return ('<text x="%s" y="%s" class="%s"%s>%s</text>'):format(at(x), at(y), class, end_at, svg.escape(text))
end

local function line_at(x1, y1, x2, y2, class)
    return ('<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>'):format(at(x1), at(y1), at(x2), at(y2), class)
end

local function colour(index) return ("c%d"):format((index - 1) % svg.COLOURS + 1) end

local function finish(plot, height, parts)
    local title = svg.escape(plot.title)
    local label = plot.description and svg.escape(plot.title .. ". " .. plot.description) or title
    return ('<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>\n%s\n</svg>\n'):format(
        WIDTH, math.ceil(height), label, title, table.concat(parts, "\n"))
end

-- ---- scales ----

local function log10(value) return math.log(value, 10) end

--- What can be drawn: nil for what is no finite number, 0 for what is next to it, and LARGEST for what would overflow the scale.
local function drawable(value)
    if math.type(value) == nil or value ~= value or math.abs(value) == math.huge then return nil end
    return math.abs(value) < SMALLEST and 0 or math.min(value, LARGEST)
end

--- 1, 2, 2.5 or 5 times a power of ten, so that about `count` steps cover the span.
local function nice_step(span, count)
    local power = 10.0 ^ math.floor(log10(span / count))
    for _, times in ipairs { 1, 2, 2.5, 5 } do
        if times * power * count >= span * 0.999 then return times * power end
    end
    return 10 * power
end

--- A number on an axis: 0.25, 40, 120 k, 3 M; 1e-12 and 1e+20 where that would be long.
local function short(value, step)
    if value ~= 0 and (step < 1e-6 or value >= 1e12) then return ("%.3g"):format(value) end
    local divisor, suffix = 1, ""
    if step >= 1e6 or value >= 1e7 then divisor, suffix = 1e6, " M" elseif value >= 1e4 then divisor, suffix = 1e3, " k" end
    if value == 0 then return "0" end
    local text = ("%.9f"):format(value / divisor):gsub("0+$", ""):gsub("%.$", "")
    return text .. suffix
end

local function short_seconds(value)
    for _, unit in ipairs(SECONDS) do
        if value >= unit[1] * 0.999 or unit[1] == 1e-9 then return ("%.4g %s"):format(value / unit[1], unit[2]) end
    end
end

--- From 0 to beyond `most`, with ticks.
local function linear_scale(most, from, to, count)
    if most <= 0 then most = 1 end
    local step, ticks = nice_step(most, count), {}
    local steps = math.ceil(most / step - 1e-9)
    local scale = { place = function(value) return from + (to - from) * value / (steps * step) end, ticks = ticks }
    for i = 0, steps do ticks[#ticks + 1] = { value = i * step, text = short(i * step, step) } end
    return scale
end

--- Ticks at 1, 2 and 5 of each decade where there are few decades, at the powers of ten otherwise.
local function log_scale(low, high, from, to, format)
    local first, last, ticks = math.floor(log10(low) + 1e-9), math.ceil(log10(high) - 1e-9), {}
    local decades = log10(high) - log10(low) -- the quotient may be too large for a number
    local times = decades <= 1.2 and { 1, 2, 5 } or decades <= 2 and { 1, 3 } or { 1 }
    local every = math.max(math.ceil(decades / 6), 1)
    for exponent = first, last, every do
        for _, factor in ipairs(times) do
            local value = factor * 10.0 ^ exponent
            if value >= low * 0.999 and value <= high * 1.001 then ticks[#ticks + 1] = { value = value, text = format(value, value) } end
        end
    end
    local span = math.max(decades, 1e-9)
    return { place = function(value) return from + (to - from) * (log10(value) - log10(low)) / span end, ticks = ticks, log = true }
end

--- Ticks with lines through the plot, which is in one or more spans, each { top, bottom }.
local function x_axis(parts, scale, spans, label)
    local bottom = spans[#spans][2]
    for i, tick in ipairs(scale.ticks) do
        local x = scale.place(tick.value)
        for _, span in ipairs(spans) do parts[#parts + 1] = line_at(x, span[1], x, span[2], "grid") end
        local anchor = i == #scale.ticks and x + length(tick.text) * CHARACTER / 2 > WIDTH and "end" or "middle"
        parts[#parts + 1] = text_at(anchor == "end" and WIDTH or x, bottom + TEXT + 2, tick.text, "tick", anchor)
    end
    parts[#parts + 1] = text_at(WIDTH, bottom + 2 * TEXT + 6, label, "label", "end")
end

-- ---- bars ----

--- Only what is known of a row: its value, the ends of its interval, its outliers.
local function numbers_of(rows)
    local low, high = math.huge, 0
    for _, row in ipairs(rows) do
        local numbers = { row.value, row.low, row.high }
        for _, outlier in ipairs(row.outliers) do numbers[#numbers + 1] = outlier end
        for _, value in pairs(numbers) do
            if value > 0 then low = math.min(low, value) end
            high = math.max(high, value)
        end
    end
    return low, high
end

local function bar_scale(rows, left, right)
    local low, high = numbers_of(rows)
    if low < math.huge and high / low > LOG_FROM then
        return log_scale(10.0 ^ math.floor(log10(low * 0.9)), high * 1.15, left, right, short)
    end
    return linear_scale(high, left, right, 5)
end

local function draw_whisker(parts, x1, x2, y, classes)
    for _, class in ipairs(classes) do
        parts[#parts + 1] = line_at(x1, y, x2, y, class)
        parts[#parts + 1] = line_at(x1, y - 4, x1, y + 4, class)
        parts[#parts + 1] = line_at(x2, y - 4, x2, y + 4, class)
    end
end

local function circle_at(x, y, radius, class)
    return ('<circle cx="%s" cy="%s" r="%s" class="%s"/>'):format(at(x), at(y), at(radius), class)
end

--- On a linear scale a bar from 0; on a logarithmic one, where the length of a bar says nothing, a point.
local function draw_bar(parts, row, scale, left, y)
    local middle, own = y + ROW / 2, colour(row.colour)
    local place = function(value) return value > 0 and scale.place(value) or left end
    local function add(text) parts[#parts + 1] = text end
    if not row.value then return add(text_at(left + 4, middle + 4, "failed", "failed")) end
    local x = place(row.value)
    if scale.log then
        add(line_at(left, middle, x, middle, "stem " .. own))
    else
        add(('<rect x="%s" y="%s" width="%s" height="%s" class="bar %s"/>'):format(
            at(left), at(y + 4), at(math.max(x - left, 1)), at(ROW - 8), own))
    end
    if row.low and row.high then
        draw_whisker(parts, place(row.low), place(row.high), middle, scale.log and { "whisker" } or { "halo", "whisker" })
    end
    if scale.log then add(circle_at(x, middle, 4, "bar " .. own)) end
    for _, outlier in ipairs(row.outliers) do add(circle_at(place(outlier), middle, 4.5, "outlier")) end
end

--- A row with only those of its numbers that can be drawn.
local function drawable_row(row)
    local outliers = {}
    for _, value in ipairs(row.outliers or {}) do outliers[#outliers + 1] = drawable(value) end
    return {
        label = row.label, text = row.text, colour = row.colour, outliers = outliers, value = drawable(row.value), low = drawable(row.low),
        high = drawable(row.high),
    }
end

local function drawable_groups(groups)
    local list = {}
    for i, group in ipairs(groups) do
        list[i] = { label = group.label, rows = {} }
        for j, row in ipairs(group.rows) do list[i].rows[j] = drawable_row(row) end
    end
    return list
end

--- Horizontal bars in groups, with whiskers for intervals and rings for outliers.
-- @tparam table plot title; description; label (of the axis); groups: lists of { label, rows }, rows of { label, text, colour (a number),
--   value, low, high, outliers } (without a value it failed)
-- @treturn string an svg element
function svg.bars(plot)
    local label_width, text_width, all, outliers = 0, 0, {}, false
    local groups = drawable_groups(plot.groups)
    for _, group in ipairs(groups) do
        for _, row in ipairs(group.rows) do
            label_width, text_width = math.max(label_width, length(row.label)), math.max(text_width, length(row.text or ""))
            outliers = outliers or #row.outliers > 0
            all[#all + 1] = row
        end
    end
    local left = math.min(label_width * CHARACTER + 10, 175)
    local right, y, spans, bars, parts = WIDTH - text_width * CHARACTER - 12, 0, {}, {}, {}
    local scale = bar_scale(all, left, right)
    for i, group in ipairs(groups) do
        y = y + (i > 1 and GAP or 0) + TEXT + 2
        bars[#bars + 1] = text_at(0, y, cut(group.label, 0.9 * WIDTH), "group")
        y = y + 4
        spans[i] = { y, y + #group.rows * ROW }
        for _, row in ipairs(group.rows) do
            bars[#bars + 1] = text_at(left - 8, y + ROW / 2 + 4, cut(row.label, left - 8), "name", "end")
            draw_bar(bars, row, scale, left, y)
            if row.text then bars[#bars + 1] = text_at(WIDTH, y + ROW / 2 + 4, row.text, "number", "end") end
            y = y + ROW
        end
    end
    x_axis(parts, scale, spans, plot.label .. (outliers and "; ring: outlier" or "") .. (scale.log and "; log scale" or ""))
    table.move(bars, 1, #bars, #parts + 1, parts)
    for _, span in ipairs(spans) do parts[#parts + 1] = line_at(left, span[1], left, span[2], "axis") end
    return finish(plot, y + 2 * TEXT + 14, parts)
end

-- ---- lines ----

local function dash(index)
    local pattern = DASHES[(index - 1 + (index - 1) // svg.COLOURS) % #DASHES + 1]
    return pattern == "" and "" or (' stroke-dasharray="%s"'):format(pattern)
end

--- Names of the lines, each with a piece of its line; returns the height.
local function legend(parts, lines)
    local x, y = 0, TEXT
    for _, line in ipairs(lines) do
        local name = cut(line.label, WIDTH - 40)
        local width = 32 + length(name) * CHARACTER + 10
        if x > 0 and x + width - 10 > WIDTH then x, y = 0, y + TEXT + 4 end
        parts[#parts + 1] = ('<path d="M%s %sh26" class="line %s"%s/>'):format(at(x), at(y - 4), colour(line.colour), dash(line.colour))
        parts[#parts + 1] = text_at(x + 32, y, name, "name")
        x = x + width
    end
    return y + 12
end

local function y_axis(parts, scale, left, right)
    for _, tick in ipairs(scale.ticks) do
        local y = scale.place(tick.value)
        parts[#parts + 1] = line_at(left, y, right, y, "grid")
        parts[#parts + 1] = text_at(left - 6, y + 4, tick.text, "tick", "end")
    end
end

local function tick_width(ticks)
    local most = 0
    for _, tick in ipairs(ticks) do most = math.max(most, length(tick.text)) end
    return most * CHARACTER + 10
end

local function path_of(points, x, y)
    local parts = {}
    for i, point in ipairs(points) do
        parts[i] = ("%s%s %s"):format(i == 1 and "M" or "L", at(x.place(point[1])), at(y.place(point[2])))
    end
    return table.concat(parts)
end

local function draw_lines(parts, lines, x, y)
    for _, line in ipairs(lines) do
        parts[#parts + 1] = ('<path d="%s" class="line %s"%s/>'):format(path_of(line.points, x, y), colour(line.colour), dash(line.colour))
    end
end

--- The distribution as points (seconds, nines): 0 nines is the fastest, 1 is 90 %, 2 is 99 %. The last point would be at infinity; it is
-- where half a request would be slower.
local function distribution(buckets)
    local total, below, points = 0, 0, {}
    for _, bucket in ipairs(buckets) do total = total + (bucket.count or bucket[3]) end
    if total == 0 then return nil, 0 end
    local top = math.min(math.max(log10(2 * total), 0.5), NINES_MAX)
    for _, bucket in ipairs(buckets) do
        local from, to, count = bucket.from or bucket[1], bucket.to or bucket[2], bucket.count or bucket[3]
        if count > 0 and to > 0 then
            local before = below > 0 and -log10(1 - below / total) or 0
            if to == math.huge then to = from end
            from = from > 0 and from or to / 2
            if #points == 0 or points[#points][1] < from then points[#points + 1] = { from, math.min(before, top) } end
            below = below + count
            local nines = below < total and -log10(1 - below / total) or top
            points[#points + 1] = { to, math.min(nines, top) }
            if nines >= top then break end
        end
    end
    return points, top
end

--- Latency distributions: the share of requests (in nines, so that the tail can be seen) over latency (logarithmic).
-- @tparam table plot title; description; lines: lists of { label, colour (a number), buckets }, buckets of { from, to, count } in ascending
--   seconds
-- @treturn ?string an svg element; nil when there is nothing to show
function svg.latency(plot)
    local lines, low, high, most, parts = {}, math.huge, 0, 1, {}
    for _, line in ipairs(plot.lines) do
        local points, top = distribution(line.buckets)
        if points and #points > 1 then
            lines[#lines + 1] = { label = line.label, colour = line.colour, points = points }
            low, high, most = math.min(low, points[1][1]), math.max(high, points[#points][1]), math.max(most, top)
        end
    end
    if #lines == 0 then return nil end
    local ticks = {}
    for _, one in ipairs(PERCENTILES) do
        local nines = -log10(1 - one[1])
        local room = nines > 0 or most < 3 -- 0 % and 50 % would touch
        if nines <= most + 0.01 and room then ticks[#ticks + 1] = { value = nines, text = one[2] } end
    end
    local top = legend(parts, lines)
    local left, right, bottom = tick_width(ticks), WIDTH - 10, top + PLOT_HEIGHT
    local y = { ticks = ticks, place = function(value) return bottom - (bottom - top) * value / most end }
    local x = log_scale(low, math.max(high, low * 1.01), left, right, short_seconds)
    y_axis(parts, y, left, right)
    x_axis(parts, x, { { top, bottom } }, "latency, log scale")
    parts[#parts + 1] = line_at(left, bottom, right, bottom, "axis")
    draw_lines(parts, lines, x, y)
    return finish(plot, bottom + 2 * TEXT + 12, parts)
end

--- Points (seconds, value) in the middle of their intervals; of many, means of neighbours.
local function course_points(interval, values)
    local of, points = math.max(math.ceil(#values / POINTS_MAX), 1), {}
    for first = 1, #values, of do
        local last, sum = math.min(first + of - 1, #values), 0
        for i = first, last do sum = sum + (drawable(values[i]) or 0) / (last - first + 1) end
        points[#points + 1] = { (first - 1 + last) / 2 * interval, sum }
    end
    return points, of
end

--- Courses over time.
-- @tparam table plot title; description; unit; lines: lists of { label, colour (a number), interval (seconds), values }
-- @treturn ?string an svg element; nil when there is nothing to show
function svg.course(plot)
    local lines, long, high, joined, parts = {}, 0, 0, 1, {}
    for _, line in ipairs(plot.lines) do
        local points, of = course_points(line.interval, line.values)
        if #points > 1 then
            lines[#lines + 1] = { label = line.label, colour = line.colour, points = points }
            long, joined = math.max(long, #line.values * line.interval), math.max(joined, of)
            for _, point in ipairs(points) do high = math.max(high, point[2]) end
        end
    end
    if #lines == 0 then return nil end
    local top = legend(parts, lines)
    local bottom = top + PLOT_HEIGHT
    local y = linear_scale(high, bottom, top, 5)
    local left, right = tick_width(y.ticks), WIDTH - 10
    local steps = linear_scale(long, left, right, 5).ticks
    local x = { ticks = {}, place = function(value) return left + (right - left) * value / long end }
    for _, tick in ipairs(steps) do
        if tick.value <= long * 1.001 then x.ticks[#x.ticks + 1] = { value = tick.value, text = tick.text .. " s" } end
    end
    y_axis(parts, y, left, right)
    local means = joined > 1 and ("; means of %d intervals"):format(joined) or ""
    x_axis(parts, x, { { top, bottom } }, ("%s over time%s"):format(plot.unit, means))
    parts[#parts + 1] = line_at(left, bottom, right, bottom, "axis")
    draw_lines(parts, lines, x, y)
    return finish(plot, bottom + 2 * TEXT + 12, parts)
end

return svg
