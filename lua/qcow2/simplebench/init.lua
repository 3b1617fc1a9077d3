-- SPDX-License-Identifier: MIT

--- Benchmarks, simply: a function of environment and case, run some times, shown as a table.
--
--     local simplebench = require "qcow2.simplebench"
--     local result = simplebench.bench(function(env, case) return { seconds = … } end, envs, cases, { count = 5 })
--     io.write(simplebench.text(result))
--
-- It knows nothing of what it measures.
-- @module qcow2.simplebench

local json = require "qcow2.simplebench.json"
local run = require "qcow2.simplebench.run"
local statistics = require "qcow2.simplebench.statistics"
local text_table = require "qcow2.simplebench.table"

local simplebench = {
    bench = run.bench,
    bench_one = run.bench_one,
    statistics = statistics,
    table = text_table,
    text = text_table.render,
    encode_json = json.encode,
    decode_json = json.decode,
}

local function first_line(path)
    local file <close> = io.open(path)
    return file and file:read "l" or nil
end

--- What the numbers depend on besides the code: kernel, Lua version, date (UTC).
-- @treturn table
function simplebench.machine()
    return { kernel = first_line "/proc/sys/kernel/osrelease", lua = _VERSION, date = os.date "!%Y-%m-%dT%H:%M:%SZ" }
end

--- A copy with only what JSON can hold; functions and userdata are left out.
local function plain(value)
    if type(value) ~= "table" then return value end
    local copy = {}
    for key, item in pairs(value) do
        local kind = type(item)
        if kind ~= "function" and kind ~= "userdata" and kind ~= "thread" then copy[key] = plain(item) end
    end
    return copy
end

--- Writes what `bench` returned as JSON, with every run and the machine's facts. The same keys are in the same order each time.
-- @tparam table result
-- @tparam[opt] table machine facts to write instead of machine()
-- @treturn string text that ends with a line end
function simplebench.json(result, machine)
    local document = plain(result)
    document.machine = machine or simplebench.machine()
    return json.encode(document, "  ") .. "\n"
end

return simplebench
