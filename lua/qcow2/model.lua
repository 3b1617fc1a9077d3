-- SPDX-License-Identifier: MIT

--- Simulated disks: a storage whose operations take virtual time.
--
--     local disk = assert(qcow2.model { kind = "hdd", rpm = 5400, seek_average = "12ms" })
--     local img <close> = assert(qcow2.create(disk, { size = "64G" }))
--     print(img:bench { rw = "randread", iodepth = 4, runtime = "10s" })  -- 10 s of the disk's time
--     print(disk, qcow2.model_clock(disk))
--
-- All jobs on one disk share its clock and run as one discrete-event simulation: the same calls give the same numbers, to the last
-- digit, on any machine.
-- @module qcow2.model

local core = require "qcow2.core"
local known_options = require "qcow2.known_options"
local size = require "qcow2.size"

local model = {}

local OPTION_KINDS = { B = "size", ["B/s"] = "size", ns = "seconds", rpm = "integer", [""] = "integer" }

--- The options of a kind: its parameters, and what lies below.
local function options_of(parameters)
    local known = { { name = "kind", kind = "string", max = 20 }, { name = "storage", kind = "any" } }
    for _, parameter in ipairs(parameters) do known[#known + 1] = { name = parameter.name, kind = OPTION_KINDS[parameter.unit] } end
    return known
end

local function text_of(parameter)
    if parameter.unit == "ns" then return ("%g ms"):format(parameter.value / 1e6) end
    if parameter.unit == "B/s" then return ("%g MB/s"):format(parameter.value / 1e6) end
    if parameter.unit == "B" then return size.format(parameter.value) end
    return ("%d"):format(parameter.value)
end

local metatable = {}

function metatable.__tostring(facts)
    local words = {}
    for _, name in ipairs(facts.names) do words[#words + 1] = ("%s %s"):format(name, facts.texts[name]) end
    return ("%s: %s"):format(facts.kind, table.concat(words, ", "))
end

--- What a simulated disk is made of.
-- @param disk a storage that model made, or the name of a kind for its defaults
-- @treturn table kind, and each parameter by name in bytes, bytes a second, seconds or plain numbers; it prints as a line for reports. nil
--   for another storage
function model.parameters(disk)
    local kind, list, code = core.model_parameters(disk)
    if not kind then return nil, list, code end
    local facts = { kind = kind, names = {}, texts = {} }
    for i, parameter in ipairs(list) do
        facts[parameter.name] = parameter.unit == "ns" and parameter.value / 1e9 or parameter.value
        facts.names[i], facts.texts[parameter.name] = parameter.name, text_of(parameter)
    end
    return setmetatable(facts, metatable)
end

--- Makes a simulated disk.
-- @tparam table opts kind ("hdd", "ssd" or "nvme"), storage (what holds the bytes; a new one in memory), and any of the kind's
--   parameters: capacity, write_cache and stripe in bytes; outer_rate, inner_rate, interface_rate and channel_rate in bytes a second;
--   command_time, seek_track, seek_average, seek_full, read_time, write_time, trim_time and flush_time in seconds (or "8ms"); rpm,
--   queue_depth, channels, dies, seed
-- @return the storage; or nil, message, code
function model.new(opts)
    if type(opts) ~= "table" then error("model: a table of options expected, got " .. type(opts), 3) end
    local kind, parameters, code = core.model_parameters(tostring(opts.kind or "hdd"))
    if not kind then return nil, parameters, code end
    local flat, message, misuse = known_options.read(options_of(parameters), opts)
    if misuse then error("model: " .. message, 3) end
    if not flat then return nil, message, "EINVAL" end
    local below = flat.storage or core.memory(kind)
    flat.kind, flat.storage = nil, nil
    return core.model(below, kind, flat)
end

return model
