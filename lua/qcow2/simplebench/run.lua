-- SPDX-License-Identifier: MIT

--- Runs a function again and again, and keeps what it says.
--
-- A cell is one case in one environment. It is made, run some times, and closed; `bench` only decides in which order the
-- cells' runs happen. A run that fails is kept, counted and left out of the statistics; nothing but an
-- interrupt ends a benchmark early.
-- @module qcow2.simplebench.run

local statistics = require "qcow2.simplebench.statistics"

local run = {}

local DIMENSIONS = { "seconds", "iops" }

local DEFAULTS = { count = 5, initial_run = true, slow_limit = 100, drop_caches = false, progress = false, between = false, clock = os.time }

local TYPES = {
    count = { number = true }, initial_run = { boolean = true }, slow_limit = { number = true },
    drop_caches = { boolean = true, ["function"] = true }, progress = { ["function"] = true, boolean = true },
    between = { ["function"] = true, boolean = true }, clock = { ["function"] = true },
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
    opts.count = math.tointeger(opts.count)
    if not opts.count or opts.count < 1 then error("simplebench: option 'count' is a whole number from 1 on", level) end
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
    if (returned.seconds == nil) == (returned.iops == nil) then return failed "a run gives either seconds or iops" end
    local value = returned.seconds or returned.iops
    if math.type(value) == nil or value ~= value or value < 0 or value == math.huge then
        return failed(("%s are %s"):format(returned.seconds and "seconds" or "iops", tostring(value)))
    end
    return returned
end

local function dimension_of(result) return result.seconds and "seconds" or result.iops and "iops" end

local function run_once(cell)
    if cell.opts.drop_caches then cell.opts.drop_caches() end
    local start = cell.opts.clock()
    local done, returned, message = pcall(cell.func, cell.env, cell.case)
    if not done and tostring(returned):find "interrupted!$" then error(returned, 0) end
    local result = done and judge(returned, message) or failed(returned)
    local elapsed = math.max(cell.opts.clock() - start, result.seconds or 0)
    cell.dimension = cell.dimension or dimension_of(result)
    if not result.error and cell.dimension ~= dimension_of(result) then
        result = failed(("gave %s, where the runs before gave %s"):format(dimension_of(result), cell.dimension))
    end
    return result, elapsed > cell.opts.slow_limit
end

-- ---- one cell ----

local function cell_new(func, env, case, opts)
    return { func = func, env = env, case = case, opts = opts, runs = {}, done = 0, to_do = opts.count + (opts.initial_run and 1 or 0) }
end

local function cell_finished(cell) return cell.slow or cell.done >= cell.to_do end

--- One more run. The initial one is kept apart, unless it was so slow that it stays the only one.
local function cell_run(cell)
    local initial = cell.opts.initial_run and cell.done == 0
    if cell.done > 0 and cell.opts.between then cell.opts.between(cell.env, cell.case) end
    local result
    result, cell.slow = run_once(cell)
    cell.done = cell.done + 1
    if initial and not cell.slow then cell.initial = result else cell.runs[#cell.runs + 1] = result end
    if cell.opts.progress then
        cell.opts.progress {
            env = cell.env, case = cell.case, run = #cell.runs, of = cell.opts.count, initial = initial, result = result, slow = cell.slow,
        }
    end
end

local function cell_result(cell)
    local values, first_error = {}, nil
    for _, one in ipairs(cell.runs) do
        if one.error == nil then values[#values + 1] = one[cell.dimension] else first_error = first_error or one.error end
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
    }
    for _, dimension in ipairs(DIMENSIONS) do result[dimension] = result.dimension == dimension and values or nil end
    return result
end

--- The order of the runs: case by case, and within a case one run of each environment after the other, so that what drifts
-- (a disk that fills, a neighbour that wakes) falls on all columns alike.
local function run_interleaved(cells_of_case)
    for _, cells in ipairs(cells_of_case) do
        local left = #cells
        while left > 0 do
            left = 0
            for _, cell in ipairs(cells) do
                if not cell_finished(cell) then
                    cell_run(cell)
                    left = left + 1
                end
            end
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
-- `func(env, case)` returns a table with either `seconds` or `iops`, or with `error`; what else is in it is kept. nil and a
-- message, and an error raised, are failed runs too.
-- @tparam function func
-- @tparam table env
-- @tparam table case
-- @tparam[opt] table opts count (5), initial_run (true; a run before the others that does not count), slow_limit (100 s; a slower
--   run is the last), drop_caches (false; true for the kernel's, or a function), progress (called after each run with a table),
--   between (called before each run but the first), clock (os.time; gives seconds)
-- @treturn table runs, initial, dimension ("seconds" or "iops"; nil when all failed), seconds or iops (list of those that did
--   not fail), average, stdev, median, min, max, n_failed, error (the first), slow
function run.bench_one(func, env, case, opts)
    local cell = cell_new(func, env, case, check_options(opts, 3))
    run_interleaved { { cell } }
    return cell_result(cell)
end

--- Runs every case in every environment, the environments of a case in turn.
-- @tparam function func see bench_one
-- @tparam {table,...} envs each with a string `id`, all different
-- @tparam {table,...} cases each with a string `id`, all different
-- @tparam[opt] table opts see bench_one
-- @treturn table envs, cases, count, and results: results[case.id][env.id] is what bench_one returns
function run.bench(func, envs, cases, opts)
    local cells, results = {}, {}
    opts = check_options(opts, 3)
    check_ids(envs, "environments")
    check_ids(cases, "cases")
    for i, case in ipairs(cases) do
        cells[i] = {}
        for j, env in ipairs(envs) do cells[i][j] = cell_new(func, env, case, opts) end
    end
    run_interleaved(cells)
    for i, case in ipairs(cases) do
        results[case.id] = {}
        for j, env in ipairs(envs) do results[case.id][env.id] = cell_result(cells[i][j]) end
    end
    return { envs = envs, cases = cases, count = opts.count, results = results }
end

return run
