-- SPDX-License-Identifier: MIT

--- Benchmarks, simply: a function of environment and case, run some times, shown as a table.
--
--     local simplebench = require "qcow2.simplebench"
--     local result = simplebench.bench(function(env, case) return { seconds = … } end, envs, cases, { count = 5 })
--     io.write(simplebench.text(result))
--
-- It knows nothing of what it measures.
-- @module qcow2.simplebench

local baseline = require "qcow2.simplebench.baseline"
local compare = require "qcow2.simplebench.compare"
local json = require "qcow2.simplebench.json"
local machine = require "qcow2.simplebench.machine"
local plain = require "qcow2.simplebench.plain"
local run = require "qcow2.simplebench.run"
local statistics = require "qcow2.simplebench.statistics"
local text_table = require "qcow2.simplebench.table"

local simplebench = {
    bench = run.bench,
    bench_one = run.bench_one,
    baseline = baseline,
    compare = compare,
    statistics = statistics,
    table = text_table,
    text = text_table.render,
    encode_json = json.encode,
    decode_json = json.decode,
    machine = machine.facts,
}

--- Writes what `bench` returned as JSON, with every run and the machine's facts. The same keys are in the same order each time.
-- @tparam table result
-- @tparam[opt] table facts to write instead of those of this machine
-- @treturn string text that ends with a line end
function simplebench.json(result, facts)
    local document = plain(result)
    document.machine = facts or machine.facts()
    return json.encode(document, "  ") .. "\n"
end

return simplebench
