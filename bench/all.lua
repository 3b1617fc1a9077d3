-- SPDX-License-Identifier: MIT
-- All scenarios into one report: what `make bench` runs.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local support = require "support"

local scenarios = {}
for i, name in ipairs { "write_req", "l2_cache", "prealloc", "overlap", "tiobench" } do
    local scenario = require(name)
    scenarios[i] = scenario
end
support.start(scenarios, "qcow2 for Lua: the scenarios", arg)
