-- SPDX-License-Identifier: MIT

--- Runs a function again and again, and keeps what it says.
--
-- A cell is one case in one environment. It is made, run some times, and closed; `bench` only decides in which order the
-- cells' runs happen. A run that fails is kept, counted and left out of the statistics; nothing but an
-- interrupt ends a benchmark early.
-- @module qcow2.simplebench.run

local bootstrap = require "qcow2.simplebench.bootstrap"
local compare = require "qcow2.simplebench.compare"
local dimensions = require "qcow2.simplebench.dimensions"
local order = require "qcow2.simplebench.order"
local statistics = require "qcow2.simplebench.statistics"

local run = {}

local EXACT_RUNS = 2 -- equal values from a simulation need no more

local DEFAULTS = {
    count = false, min_count = 10, max_count = 300, precision = 0.01, time_limit = 120, initial_run = true, warmup = 1, order = "interleaved",
    seed = 1, slow_limit = 100, drop_caches = false, progress = false, between = false, clock = os.time,
}

local TYPES = {
    count = { number = true, boolean = true }, min_count = { number = true }, max_count = { number = true }, precision = { number = true },
    time_limit = { number = true }, initial_run = { boolean = true }, warmup = { number = true }, order = { string = true },
    seed = { number = true }, slow_limit = { number = true }, drop_caches = { boolean = true, ["function"] = true },
    progress = { ["function"] = true, boolean = true }, between = { ["function"] = true, boolean = true }, clock = { ["function"] = true },
}

local function drop_page_cache()
    os.execute "sync"
    local switch, message = io.open("/proc/sys/vm/drop_caches", "w")
    if not switch then error("drop_caches: " .. message, 0) end
    switch:write "3"
    if not switch:close() then error("drop_caches: the kernel refused", 0) end
end

local function check_options(given, level)
    local opts = {}
    for name, value in pairs(given or {}) do
        if not TYPES[name] then error(("simplebench: unknown option '%s'"):format(tostring(name)), level) end
        if not TYPES[name][type(value)] then error(("simplebench: option '%s' is a %s"):format(name, type(value)), level) end
    end
    for name, default in pairs(DEFAULTS) do
        if given and given[name] ~= nil then opts[name] = given[name] else opts[name] = default end
    end
    for name, least in pairs { count = 1, min_count = 1, max_count = 1, warmup = 0, seed = math.mininteger } do
        if opts[name] then
            opts[name] = math.tointeger(opts[name])
            if not opts[name] or opts[name] < least then
                error(("simplebench: option '%s' is a whole number from %d on"):format(name, least), level)
            end
        end
    end
    if opts.count == true then error("simplebench: option 'count' is a whole number, or false", level) end
    if opts.order ~= "interleaved" and opts.order ~= "random" then
        error("simplebench: option 'order' is 'interleaved' or 'random'", level)
    end
    if not opts.initial_run then opts.warmup = 0 end
    if opts.count then opts.min_count, opts.max_count = opts.count, opts.count end
    opts.max_count = math.max(opts.min_count, opts.max_count)
    if opts.drop_caches == true then opts.drop_caches = drop_page_cache end
    for _, name in ipairs { "progress", "between" } do
        if opts[name] == true then error(("simplebench: option '%s' is a function, or false"):format(name), level) end
    end
    return opts
end

-- ---- one run ----

local function failed(message) return { error = tostring(message) } end

--- Looks at what the function returned: a table with one finite number, or an error.
local function judge(returned, message)
    if returned == nil then return failed(message or "the function returned nothing") end
    if type(returned) ~= "table" then return failed(("the function returned a %s, not a table"):format(type(returned))) end
    if returned.error ~= nil then return returned end
    local given = dimensions.given(returned)
    if #given ~= 1 then return failed(("a run gives one of %s"):format(table.concat(dimensions.NAMES, ", "))) end
    local value = returned[given[1]]
    if math.type(value) == nil or value ~= value or value < 0 or value == math.huge then
        local text = type(value) == "string" and ("%q"):format(value) or tostring(value)
        return failed(("%s is %s, which is no number from 0 on"):format(given[1], text))
    end
    return returned
end

--- What a run that did not fail says of its cell: the dimension, which all have to share. What a failed one holds may be anything.
local function accept(cell, result)
    local dimension = dimensions.given(result)[1]
    cell.dimension = cell.dimension or dimension
    if cell.dimension == dimension then return result end
    return failed(("gave %s, where the runs before gave %s"):format(dimension, cell.dimension))
end

local function run_once(cell)
    if cell.opts.drop_caches then cell.opts.drop_caches() end
    local start = cell.opts.clock()
    local done, returned, message = pcall(cell.func, cell.env, cell.case)
    if not done and tostring(returned):find "interrupted!$" then error(returned, 0) end
    local result, elapsed = done and judge(returned, message) or failed(returned), cell.opts.clock() - start
    if result.error == nil then
        elapsed = math.max(elapsed, result.seconds or 0)
        result = accept(cell, result)
    end
    return result, elapsed > cell.opts.slow_limit
end

-- ---- one cell ----

local function cell_new(func, env, case, opts)
    return { func = func, env = env, case = case, opts = opts, runs = {}, done = 0 }
end

--- One more run. Those of the warm-up are kept apart, unless one was so slow that it stays the only one.
local function cell_run(cell)
    local initial = cell.done < cell.opts.warmup
    if cell.done > 0 and cell.opts.between then cell.opts.between(cell.env, cell.case) end
    local result
    result, cell.slow = run_once(cell)
    cell.done = cell.done + 1
    if initial and not cell.slow then cell.initial = cell.initial or result else cell.runs[#cell.runs + 1] = result end
    if cell.opts.progress then
        cell.opts.progress {
            env = cell.env, case = cell.case, run = #cell.runs, of = cell.opts.max_count, initial = initial, result = result, slow = cell.slow,
        }
    end
end

local function values_of(cell)
    local values = {}
    for _, one in ipairs(cell.runs) do
        if one.error == nil then values[#values + 1] = one[cell.dimension] end
    end
    return values
end

--- Whether the median is known as well as asked for. It looks at each cell alone and never at differences, so that stopping
-- here does not choose among chances.
local function cell_is_precise(cell)
    local values = values_of(cell)
    local low, high = statistics.median_interval(values)
    if not low or #values < cell.opts.min_count then return false end
    return (high - low) / 2 <= cell.opts.precision * statistics.median(values)
end

local function cell_is_exact(cell)
    return #cell.runs >= EXACT_RUNS and compare.is_exact { values = values_of(cell), runs = cell.runs }
end

local function cell_finished(cell)
    if cell.slow or #cell.runs >= cell.opts.max_count then return true end
    if cell_is_exact(cell) then return true end
    if not cell.opts.count and #cell.runs >= cell.opts.min_count and #values_of(cell) == 0 then return true end
    return not cell.opts.count and #cell.runs >= cell.opts.min_count and cell_is_precise(cell)
end

local function cell_result(cell)
    local values, first_error = values_of(cell), nil
    for _, one in ipairs(cell.runs) do
        if first_error == nil then first_error = one.error end
    end
    local result = {
        runs = cell.runs,
        initial = cell.initial,
        dimension = #values > 0 and cell.dimension or nil,
        n_failed = #cell.runs - #values,
        error = first_error,
        slow = cell.slow or nil,
        average = statistics.mean(values),
        stdev = statistics.stdev(values),
        median = statistics.median(values),
        min = statistics.min(values),
        max = statistics.max(values),
        values = values,
        interval = bootstrap.mean(values, { seed = cell.opts.seed }),
        outliers = statistics.outliers(values),
        latency = cell.runs[#cell.runs] and cell.runs[#cell.runs].latency,
        course = cell.runs[#cell.runs] and cell.runs[#cell.runs].course,
    }
    for _, dimension in ipairs(dimensions.NAMES) do result[dimension] = result.dimension == dimension and values or nil end
    return result
end

--- One run of each cell of a case, but for those that are too slow for more.
local function run_round(cells, in_order)
    local round = {}
    for _, cell in ipairs(cells) do
        if not cell.slow then round[#round + 1] = cell end
    end
    for _, cell in ipairs(in_order(round)) do cell_run(cell) end
end

local function all_finished(cells)
    for _, cell in ipairs(cells) do
        if not cell_finished(cell) then return false end
    end
    return true
end

local function most_runs(cells)
    local most = 0
    for _, cell in ipairs(cells) do most = math.max(most, #cell.runs) end
    return most
end

--- Case by case, and within a case in rounds. All columns of a case have the same number of runs, and the time limit is for the case
-- as a whole.
local function run_cells(cells_of_case, opts)
    local in_order = order.rounds(opts.order, opts.seed)
    for _, cells in ipairs(cells_of_case) do
        local started = opts.clock()
        while not all_finished(cells) do
            run_round(cells, in_order)
            local enough = most_runs(cells) >= opts.min_count
            if not opts.count and enough and opts.clock() - started > opts.time_limit then break end
        end
    end
end

local function check_ids(list, what)
    local seen = {}
    if type(list) ~= "table" or #list == 0 then error(("simplebench: no %s"):format(what), 3) end
    for _, one in ipairs(list) do
        if type(one) ~= "table" or type(one.id) ~= "string" then error(("simplebench: one of the %s has no id"):format(what), 3) end
        if seen[one.id] then error(("simplebench: two %s are called '%s'"):format(what, one.id), 3) end
        seen[one.id] = true
    end
end

--- Runs one case in one environment.
--
-- `func(env, case)` returns a table with one of `seconds`, `iops` and `rate` (bytes per second), or with `error`; what else is in it
-- is kept. nil and a message, and an error raised, are failed runs too.
-- @tparam function func
-- @tparam table env
-- @tparam table case
-- @tparam[opt] table opts
--
--   * count: how often; false (the default): as often as it takes, from min_count (10) to max_count (300) times, until half the 95 % interval
--     of the median is at most precision (0.01) of it, or time_limit (120 s) is over
--   * warmup: runs before the others that do not count (1; initial_run = false: none)
--   * order: "interleaved" (the default) or "random", drawn with seed (1), which the bootstrap uses too
--   * slow_limit: a run that takes longer is the last (100 s)
--   * drop_caches: before each run (false; true for the kernel's, or a function)
--   * progress: called after each run with a table; between: called before each run but the first; clock: gives seconds (os.time)
--
-- A run may also say `exact` (a simulation: equal values need not be measured again), `latency` ({from, to, count} in seconds) and `course`
-- ({interval, unit, values…}) for reports.
-- @treturn table runs, initial, dimension ("seconds", "iops" or "rate"; nil when all failed), values (of those that did not fail; also under
--   the dimension's name), average, stdev, median, min, max, interval (of the average, by bootstrap), outliers (indices of values), n_failed, error (the
--   first), slow, latency, course
function run.bench_one(func, env, case, opts)
    opts = check_options(opts, 3)
    local cell = cell_new(func, env, case, opts)
    run_cells({ { cell } }, opts)
    return cell_result(cell)
end

--- Runs every case in every environment, the environments of a case in turn.
-- @tparam function func see bench_one
-- @tparam {table,...} envs each with a string `id`, all different
-- @tparam {table,...} cases each with a string `id`, all different
-- @tparam[opt] table opts see bench_one
-- @treturn table envs, cases, count (nil where it was adaptive), seed; results[case.id][env.id] is what bench_one returns;
--   comparisons and summary as qcow2.simplebench.compare says
function run.bench(func, envs, cases, opts)
    local cells, results = {}, {}
    opts = check_options(opts, 3)
    check_ids(envs, "environments")
    check_ids(cases, "cases")
    for i, case in ipairs(cases) do
        cells[i] = {}
        for j, env in ipairs(envs) do cells[i][j] = cell_new(func, env, case, opts) end
    end
    run_cells(cells, opts)
    for i, case in ipairs(cases) do
        results[case.id] = {}
        for j, env in ipairs(envs) do results[case.id][env.id] = cell_result(cells[i][j]) end
    end
    return compare.columns { envs = envs, cases = cases, count = opts.count or nil, seed = opts.seed, results = results }
end

return run
