-- SPDX-License-Identifier: MIT

--- The way of one guest byte through every table, in words and as data.
--
-- Each step is {what, index, table_offset, entry_offset, value, text}. Offsets are bytes in the image file. The
-- steps follow the specification's order: header, L1 table, L2 table, host cluster, refcount; then the backing file's, and so
-- on down the chain until a level has the byte.
-- @module qcow2.explain

local table_entry = require "qcow2.table_entry"

local EXTENDED_L2 = 1 << 4 -- of incompatible_features

local way_metatable = {}
local step_metatable = { __tostring = function(step) return step.text end }

function way_metatable.__tostring(way)
    local lines = { ("guest offset %d (%#x) of '%s'"):format(way.guest_offset, way.guest_offset, way.filename) }
    for _, step in ipairs(way) do lines[#lines + 1] = "  " .. step.text end
    return table.concat(lines, "\n")
end

local function add(way, step)
    way[#way + 1] = setmetatable(step, step_metatable)
    return step
end

local function describe_host(way, image, level, run, header)
    local cluster = run.host_offset >> header.cluster_bits
    local count, covered = image:refcount(cluster, level)
    if count == nil then
        add(way, { what = "refcount", text = ("refcount of host cluster %d: %s"):format(cluster, covered) })
        return
    end
    add(way, {
        what = "refcount", index = cluster, value = count,
        text = ("host cluster %d (offset %#x): refcount %d%s"):format(
            cluster, cluster << header.cluster_bits, count, covered and "" or ", not covered by a refcount block"),
    })
end

local TEXT = {
    unallocated = "unallocated: %s",
    zero = "reads as zeroes, no host cluster",
    normal = "host offset %#x%s",
    ["preallocated zero"] = "reads as zeroes, host offset %#x kept%s",
    compressed = "compressed, at most %d bytes at host offset %#x",
}

local function describe_run(run, has_backing)
    local flags = run.copied and ", COPIED" or ""
    if run.type == "unallocated" then
        return TEXT.unallocated:format(has_backing and "the backing file shows through" or "reads as zeroes")
    end
    if run.type == "compressed" then return TEXT.compressed:format(run.compressed_length, run.host_offset) end
    if run.host_offset then return TEXT[run.type]:format(run.host_offset, flags) end
    return TEXT[run.type]
end

--- One level of the chain. Returns the run that the offset lies in; or nil, message, code.
local function walk_tables(way, image, level, header, offset, has_backing)
    local bits = header.cluster_bits
    local entry_bits = header.incompatible_features & EXTENDED_L2 ~= 0 and 4 or 3 -- bytes of an L2 entry, as a power of two
    local l1_index, l2_index = offset >> (2 * bits - entry_bits), (offset >> bits) & ((1 << (bits - entry_bits)) - 1)
    local entry = image:l1_entry(l1_index, level) or 0
    local l2_offset, copied = table_entry.parts(entry)
    add(way, {
        what = "L1 entry", index = l1_index, table_offset = header.l1_table_offset,
        entry_offset = header.l1_table_offset + 8 * l1_index, value = entry,
        text = ("L1 table at %#x, entry %d at %#x: %s"):format(header.l1_table_offset, l1_index, header.l1_table_offset + 8 * l1_index,
            l2_offset and ("L2 table at %#x%s"):format(l2_offset, copied and ", COPIED" or "") or "no L2 table"),
    })
    local run, message, code = image:lookup(offset, 1, level)
    if not run then return nil, message, code end
    local entry_offset = l2_offset and l2_offset + (l2_index << entry_bits)
    local where = entry_offset and ("L2 entry %d at %#x"):format(l2_index, entry_offset) or "no L2 entry"
    add(way, {
        what = "L2 entry", index = l2_index, table_offset = l2_offset or 0, entry_offset = entry_offset,
        value = run, text = where .. ": " .. describe_run(run, has_backing),
    })
    if run.host_offset then describe_host(way, image, level, run, header) end
    return run
end

local function walk_raw(way, facts, offset)
    add(way, { what = "raw", text = ("raw image: offset %#x of the file"):format(offset) })
    return { type = "normal", host_offset = offset, filename = facts.filename }
end

--- Goes down the chain until a level has the byte. Returns the way; or nil, message, code.
local function walk_chain(way, image, facts, offset)
    local level = 0
    while true do
        local header = image:read_header(level)
        local run, message, code
        if header then
            add(way, {
                what = "header",
                text = ("header: version %d, clusters of %d bytes, L1 table of %d %s"):format(
                    header.version, 1 << header.cluster_bits, header.l1_size, header.l1_size == 1 and "entry" or "entries"),
            })
            run, message, code = walk_tables(way, image, level, header, offset, facts.has_backing)
        else
            run = walk_raw(way, facts, offset)
        end
        if not run then return nil, message, code end
        if run.type ~= "unallocated" or not facts.has_backing then return way end
        level = level + 1
        facts = image:facts(level)
        add(way, {
            what = "backing file", level = level, filename = facts.filename,
            text = ("backing file '%s' (%s)"):format(facts.filename, facts.format),
        })
        if offset >= facts.size then
            add(way, { what = "end", text = ("ends before that (%d bytes): reads as zeroes"):format(facts.size) })
            return way
        end
    end
end

--- Explains where one guest byte lies.
-- @param image an open image
-- @tparam integer offset guest bytes
-- @return the steps, a list that prints as text; or nil, message, code
local function explain(image, offset)
    local facts = assert(image:facts())
    if offset < 0 or offset >= facts.size then
        return nil, ("offset %d lies outside the image (%d bytes)"):format(offset, facts.size), "EINVAL"
    end
    local way = setmetatable({ guest_offset = offset, filename = facts.filename }, way_metatable)
    return walk_chain(way, image, facts, offset)
end

return explain
