-- SPDX-License-Identifier: MIT
-- All scenarios that need no other program into one report: what `make bench` runs.

package.path = arg[0]:gsub("[^/]*$", "") .. "?.lua;" .. package.path
local support = require "support"

local scenarios = {}
for i, name in ipairs { "write_req", "l2_cache", "prealloc", "overlap", "tiobench" } do scenarios[i] = require(name) end
support.start_all(scenarios, "qcow2 for Lua: the scenarios", arg)
