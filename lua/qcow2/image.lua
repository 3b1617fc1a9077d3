-- SPDX-License-Identifier: MIT

--- What an image can tell about itself: info, map, header, tables, and the way of one byte.
--
-- These methods only arrange what the core looks up. `img.header` is a table of the header's fields by the
-- specification's names; it prints as a list in the order of the bytes on disk.
-- @module qcow2.image

local core = require "qcow2.core"
local explain = require "qcow2.explain"
local size = require "qcow2.size"

local methods, metatable = core.image_methods, core.image_metatable

local HEADER_FIELDS = {
    "version", "backing_file", "cluster_bits", "size", "crypt_method", "l1_size", "l1_table_offset", "refcount_table_offset",
    "refcount_table_clusters", "nb_snapshots", "snapshots_offset", "incompatible_features", "compatible_features",
    "autoclear_features", "refcount_order", "header_length", "compression_type",
}

local OFFSET_MASK = 0x00fffffffffffe00
local COPIED = 1 << 63

local header_metatable = {}

function header_metatable.__tostring(header)
    local lines = {}
    for _, name in ipairs(HEADER_FIELDS) do
        local value = header[name]
        if value ~= nil then
            local hex = math.type(value) == "integer" and value > 9 and (" (%#x)"):format(value) or ""
            lines[#lines + 1] = ("%-24s %s%s"):format(name, value, hex)
        end
    end
    for _, extension in ipairs(header.extensions) do
        lines[#lines + 1] = ("extension %#010x      %d bytes"):format(extension.type, #extension.data)
    end
    return table.concat(lines, "\n")
end

--- A list whose items print one a line.
local list_metatable = {
    __tostring = function(list)
        local lines = {}
        for index, item in ipairs(list) do lines[index] = tostring(item) end
        return table.concat(lines, "\n")
    end,
}

local entry_metatable = {}

function entry_metatable.__tostring(entry)
    if not entry.offset then return ("%d: none"):format(entry.index) end
    return ("%d: offset %#x%s"):format(entry.index, entry.offset, entry.copied and " COPIED" or "")
end

function metatable.__index(image, key)
    if key == "header" then
        local header = methods.read_header(image)
        return header and setmetatable(header, header_metatable)
    end
    return methods[key]
end

function metatable.__tostring(image)
    if not methods.is_open(image) then return "qcow2.Image (closed)" end
    local facts = image:facts()
    local words = { facts.format, size.format(facts.size) }
    if facts.format == "qcow2" then words[#words + 1] = size.format(1 << image:read_header().cluster_bits) .. " clusters" end
    words[#words + 1] = facts.read_only and "read only" or "read and write"
    if facts.corrupt then words[#words + 1] = "corrupt" end
    return ("qcow2.Image '%s' (%s)"):format(facts.filename, table.concat(words, ", "))
end

--- The active L1 table: a list of {index, offset, copied, raw}; offset is nil where there is no L2 table.
-- @return the list; nil for a raw image
function methods.l1(image)
    local raw = image:l1_entries()
    if not raw then return nil end
    local list = {}
    for index, entry in ipairs(raw) do
        local offset = entry & OFFSET_MASK
        list[index] = setmetatable({
            index = index - 1, raw = entry, offset = offset ~= 0 and offset or nil, copied = entry & COPIED ~= 0,
        }, entry_metatable)
    end
    return setmetatable(list, list_metatable)
end

local run_metatable = {}

function run_metatable.__tostring(run)
    local where = run.host_offset and (" at host offset %#x"):format(run.host_offset) or ""
    local flags = run.copied and " COPIED" or ""
    return ("guest offset %#x, %d bytes: %s%s%s"):format(run.guest_offset, run.length, run.type, where, flags)
end

local function continues(last, run)
    if not last or last.type ~= run.type or last.copied ~= run.copied or run.type == "compressed" then return false end
    return run.host_offset == nil or run.host_offset == last.host_offset + last.length
end

local function runs_between(image, start, stop)
    local list = {}
    while start < stop do
        local run, message, code = image:lookup(start, stop - start)
        if not run then return nil, message, code end
        local last = list[#list]
        if continues(last, run) then last.length = last.length + run.length
        else list[#list + 1] = setmetatable(run, run_metatable) end
        start = start + run.length
    end
    return setmetatable(list, list_metatable)
end

--- What the L2 table at an index of the L1 table maps: runs of clusters of one type.
-- @tparam integer index from 0
-- @return a list of {guest_offset, length, type, host_offset, copied}, in bytes; or nil, message, code
function methods.l2(image, index)
    local header = image:read_header()
    if not header then return nil, "a raw image has no L2 tables", "ENOTSUP" end
    local span = 1 << (2 * header.cluster_bits - 3)
    if math.type(index) ~= "integer" or index < 0 or index >= header.l1_size then
        return nil, ("L2 table %s: the L1 table has entries 0 to %d"):format(index, header.l1_size - 1), "EINVAL"
    end
    return runs_between(image, index * span, math.min((index + 1) * span, image:size()))
end

--- The runs of the whole image, or of a part: what is where in this image alone.
-- @tparam[opt=0] integer offset bytes
-- @tparam[opt] integer length bytes; to the image's end
-- @return a list as l2 gives; or nil, message, code
function methods.clusters(image, offset, length)
    offset = offset or 0
    local stop = length and offset + length or image:size()
    if offset < 0 or stop > image:size() or stop < offset then
        return nil, ("%d bytes at offset %d pass the end of the image (%d bytes)"):format(stop - offset, offset, image:size()), "EINVAL"
    end
    return runs_between(image, offset, stop)
end

local function backing_format_of(header)
    for _, extension in ipairs(header.extensions) do
        if extension.type == 0xe2792aca then return extension.data end
    end
    return nil
end

local function format_specific(header, facts)
    if header.version < 3 then return { compat = "0.10", ["refcount-bits"] = 16, ["compression-type"] = "zlib" } end
    return {
        compat = "1.1",
        ["compression-type"] = header.compression_type == 1 and "zstd" or "zlib",
        ["lazy-refcounts"] = header.compatible_features & 1 ~= 0,
        ["refcount-bits"] = 1 << header.refcount_order,
        corrupt = facts.corrupt,
        ["extended-l2"] = header.incompatible_features & 16 ~= 0,
    }
end

local info_metatable = {}

function info_metatable.__tostring(info)
    local lines = {
        "image: " .. info.filename,
        "file format: " .. info.format,
        ("virtual size: %s (%d bytes)"):format(size.format(info["virtual-size"]), info["virtual-size"]),
    }
    if info["cluster-size"] then lines[#lines + 1] = "cluster_size: " .. info["cluster-size"] end
    if info["backing-filename"] then lines[#lines + 1] = "backing file: " .. info["backing-filename"] end
    local specific = info["format-specific"]
    if specific then
        local names = {}
        for name in pairs(specific.data) do names[#names + 1] = name end
        table.sort(names)
        lines[#lines + 1] = "Format specific information:"
        for _, name in ipairs(names) do
            lines[#lines + 1] = ("    %s: %s"):format(name:gsub("-", " "), tostring(specific.data[name]))
        end
    end
    return table.concat(lines, "\n")
end

--- What the image is. Keys are those of `qemu-img info --output=json`.
-- @treturn table filename, format, virtual-size (bytes), cluster-size (bytes), dirty-flag, backing-filename, backing-filename-format,
-- format-specific; it prints as text
function methods.info(image)
    local facts = assert(image:facts())
    local info = { filename = facts.filename, format = facts.format, ["virtual-size"] = facts.size, ["dirty-flag"] = false }
    local header = image:read_header()
    if header then
        info["cluster-size"] = 1 << header.cluster_bits
        info["dirty-flag"] = header.incompatible_features & 1 ~= 0
        info["backing-filename"] = header.backing_file
        info["backing-filename-format"] = backing_format_of(header)
        info["format-specific"] = { type = "qcow2", data = format_specific(header, facts) }
    end
    return setmetatable(info, info_metatable)
end

--- The way of one guest byte: header, L1 entry, L2 entry, host cluster, refcount.
-- @tparam integer offset guest bytes
-- @return a table of steps that prints as text; or nil, message, code
function methods.explain(image, offset) return explain(image, offset) end

return methods
