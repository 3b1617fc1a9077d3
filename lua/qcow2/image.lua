-- SPDX-License-Identifier: MIT

--- What an image can tell about itself: info, map, header, tables, and the way of one byte.
--
-- These methods only arrange what the core looks up. `img.header` is a table of the header's fields by the
-- specification's names; it prints as a list in the order of the bytes on disk.
-- @module qcow2.image

local arguments = require "qcow2.arguments"
local bench = require "qcow2.bench"
local check = require "qcow2.check"
local core = require "qcow2.core"
local explain = require "qcow2.explain"
local queue = require "qcow2.queue"
local size = require "qcow2.size"
local snapshots = require "qcow2.snapshots"
local table_entry = require "qcow2.table_entry"

local methods, metatable = core.image_methods, core.image_metatable

local HEADER_FIELDS = {
    "version", "backing_file", "cluster_bits", "size", "crypt_method", "l1_size", "l1_table_offset", "refcount_table_offset",
    "refcount_table_clusters", "nb_snapshots", "snapshots_offset", "incompatible_features", "compatible_features",
    "autoclear_features", "refcount_order", "header_length", "compression_type",
}

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

--- A table of facts that prints as "name: value" lines in the order of the names, tables inside it indented.
local facts_metatable = {}

local function fact_lines(facts, indent, lines)
    local names = {}
    for name in pairs(facts) do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(names) do
        local value = facts[name]
        if type(value) == "table" then
            lines[#lines + 1] = indent .. name .. ":"
            fact_lines(value, indent .. "  ", lines)
        else
            lines[#lines + 1] = ("%s%s: %s"):format(indent, name, value)
        end
    end
    return lines
end

function facts_metatable.__tostring(facts) return table.concat(fact_lines(facts, "", {}), "\n") end

local extension_metatable = {
    __tostring = function(extension) return ("extension %#010x, %d bytes"):format(extension.type, #extension.data) end,
}

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

--- Entries without a table print as one line for all in a row.
local l1_metatable = {}

function l1_metatable.__tostring(list)
    local lines, from = {}, nil
    for i = 1, #list + 1 do
        local entry = list[i]
        if entry and not entry.offset then
            from = from or i - 1
        else
            if from and from < i - 2 then lines[#lines + 1] = ("%d to %d: none"):format(from, i - 2)
            elseif from then lines[#lines + 1] = ("%d: none"):format(from) end
            from = nil
            lines[#lines + 1] = entry and tostring(entry)
        end
    end
    return table.concat(lines, "\n")
end

function metatable.__index(image, key)
    if key == "header" then
        local header = methods.read_header(image)
        if not header then return nil end
        for _, extension in ipairs(header.extensions) do setmetatable(extension, extension_metatable) end
        setmetatable(header.extensions, list_metatable)
        return setmetatable(header, header_metatable)
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
-- @return the list; or nil, message, code (a raw image has none)
function methods.l1(image)
    arguments.image(image, "l1")
    local raw = image:l1_entries()
    if not raw then return nil, "a raw image has no L1 table", "ENOTSUP" end
    local list = {}
    for index, entry in ipairs(raw) do
        local offset, copied = table_entry.parts(entry)
        list[index] = setmetatable({ index = index - 1, raw = entry, offset = offset, copied = copied }, entry_metatable)
    end
    return setmetatable(list, l1_metatable)
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
    arguments.image(image, "l2")
    arguments.index(index, "l2", "the index")
    local header = image:read_header()
    if not header then return nil, "a raw image has no L2 tables", "ENOTSUP" end
    local span = 1 << (2 * header.cluster_bits - 3)
    if index >= header.l1_size then
        return nil, ("L2 table %s: the L1 table has entries 0 to %d"):format(index, header.l1_size - 1), "EINVAL"
    end
    return runs_between(image, index * span, math.min((index + 1) * span, image:size()))
end

--- The runs of the whole image, or of a part: what is where in this image alone.
-- @tparam[opt=0] integer offset bytes
-- @tparam[opt] integer length bytes; to the image's end
-- @return a list as l2 gives; or nil, message, code
function methods.clusters(image, offset, length)
    arguments.image(image, "clusters")
    offset = arguments.bytes(offset or 0, "clusters", "the offset")
    length = arguments.bytes(length or math.max(0, image:size() - offset), "clusters", "the length")
    if offset > image:size() or length > image:size() - offset then
        return nil, ("%d bytes at offset %d pass the end of the image (%d bytes)"):format(length, offset, image:size()), "EINVAL"
    end
    return runs_between(image, offset, offset + length)
end

local BACKING_FORMAT, DATA_FILE = 0xe2792aca, 0x44415441 -- types of header extensions

local function extension_of(header, type)
    for _, extension in ipairs(header.extensions) do
        if extension.type == type then return extension.data end
    end
    return nil
end

local function format_specific(header, facts)
    if header.version < 3 then return { compat = "0.10", ["refcount-bits"] = 16, ["compression-type"] = "zlib" } end
    local has_data_file = header.incompatible_features & 4 ~= 0
    return {
        compat = "1.1",
        ["data-file"] = has_data_file and extension_of(header, DATA_FILE) or nil,
        ["compression-type"] = header.compression_type == 1 and "zstd" or "zlib",
        ["lazy-refcounts"] = header.compatible_features & 1 ~= 0,
        ["refcount-bits"] = 1 << header.refcount_order,
        ["data-file-raw"] = has_data_file and header.autoclear_features & 2 ~= 0 or nil,
        corrupt = facts.corrupt,
        ["extended-l2"] = header.incompatible_features & 16 ~= 0,
    }
end

local SPECIFIC = { "compat", "compression-type", "lazy-refcounts", "refcount-bits", "data-file", "data-file-raw", "corrupt", "extended-l2" }

local info_metatable = {}

function info_metatable.__tostring(info)
    local lines = {
        "image: " .. info.filename,
        "file format: " .. info.format,
        ("virtual size: %s (%d bytes)"):format(size.format(info["virtual-size"]), info["virtual-size"]),
    }
    if info["cluster-size"] then lines[#lines + 1] = "cluster_size: " .. info["cluster-size"] end
    if info["backing-filename"] then lines[#lines + 1] = "backing file: " .. info["backing-filename"] end
    if info["backing-filename-format"] then lines[#lines + 1] = "backing file format: " .. info["backing-filename-format"] end
    local specific = info["format-specific"]
    if specific then
        lines[#lines + 1] = "Format specific information:"
        for _, name in ipairs(SPECIFIC) do
            local value = specific.data[name]
            if value ~= nil then lines[#lines + 1] = ("    %s: %s"):format(name:gsub("-", " "), value) end
        end
    end
    for _, snapshot in ipairs(info.snapshots or {}) do lines[#lines + 1] = ("snapshot %s: %s"):format(snapshot.id, snapshot.name) end
    return table.concat(lines, "\n")
end

--- What the image is. Keys are those of `qemu-img info --output=json`.
-- @treturn table filename, format, virtual-size (bytes), cluster-size (bytes), dirty-flag, backing-filename, backing-filename-format,
-- snapshots (where there are any), format-specific; it prints as text
function methods.info(image)
    arguments.image(image, "info")
    local facts = assert(image:facts())
    local info = { filename = facts.filename, format = facts.format, ["virtual-size"] = facts.size, ["dirty-flag"] = false }
    local header = image:read_header()
    if header then
        info["cluster-size"] = 1 << header.cluster_bits
        info["dirty-flag"] = header.incompatible_features & 1 ~= 0
        info["backing-filename"] = header.backing_file
        info["backing-filename-format"] = extension_of(header, BACKING_FORMAT)
        if header.nb_snapshots > 0 then info.snapshots = snapshots.as_info(image) end
        info["format-specific"] = { type = "qcow2", data = format_specific(header, facts) }
    end
    return setmetatable(info, info_metatable)
end

--- The way of one guest byte: header, L1 entry, L2 entry, host cluster, refcount.
-- @tparam integer offset guest bytes
-- @return a table of steps that prints as text; or nil, message, code
function methods.explain(image, offset)
    arguments.image(image, "explain")
    return explain(image, arguments.bytes(offset, "explain", "the offset"))
end

local RESIZE_OPTIONS = { { name = "shrink", kind = "boolean", default = false } }
local ZERO_OPTIONS = { { name = "unmap", kind = "boolean", default = false } }

local read_stats, resize = methods.stats, methods.resize

--- What was asked of the image, and what that took: requests and bytes by kind, copy-on-write bytes, the caches' hits, misses and evictions, and the
-- operations on its file by kind (`file`). Counted since it was opened.
-- @treturn table it prints as text
function methods.stats(image)
    arguments.image(image, "stats")
    return setmetatable(read_stats(image), facts_metatable)
end

--- Changes the virtual size. What is new reads as zeroes.
-- @param new_size bytes, or "20G"
-- @tparam[opt] table opts shrink: true where it may become smaller, and bytes be thrown away
-- @return true; or nil, message, code
function methods.resize(image, new_size, opts)
    arguments.image(image, "resize")
    local flat = arguments.options(RESIZE_OPTIONS, opts, "resize")
    return resize(image, arguments.bytes(new_size, "resize", "the size"), flat)
end

local COMPRESSED_OPTIONS = { { name = "level", kind = "integer", min = 1, max = 22 } }
local write_compressed = methods.write_compressed

--- Writes whole clusters compressed: at a cluster's start, to a cluster's end or the disk's. A cluster that does not shrink is written
-- as it is. Later writes to a compressed cluster write it anew, plain.
-- @param image the open image, without an external data file
-- @tparam integer offset in bytes
-- @param bytes a string or a buffer
-- @tparam[opt] table opts level: 1 to 9 (zlib) or 22 (zstd); the library's own without it
-- @return true; or nil, message, code
function methods.write_compressed(image, offset, bytes, opts)
    if opts ~= nil then opts = arguments.options(COMPRESSED_OPTIONS, opts, "write_compressed") end
    return write_compressed(image, offset, bytes, opts and opts.level)
end

local write_zeroes = methods.write_zeroes

--- Writes zeroes.
-- @tparam integer offset guest bytes
-- @tparam integer length bytes
-- @tparam[opt] table opts unmap: host clusters may be given up (false)
-- @return true; or nil, message, code
function methods.write_zeroes(image, offset, length, opts)
    if opts ~= nil then opts = arguments.options(ZERO_OPTIONS, opts, "write_zeroes") end
    return write_zeroes(image, offset, length, opts)
end

--- Opens a queue of requests on the image, for coroutines and callbacks: see qcow2.queue.
-- @tparam[opt] table opts depth (32), aio
-- @return the queue; or nil, message, code
function methods.queue(image, opts) return queue.on_image(image, opts) end

--- Runs a benchmark job on the image, or several like it: see qcow2.bench.
-- @tparam table job rw, bs, iodepth, numjobs, runtime and more
-- @return the result, which prints as text; or nil, message, code
function methods.bench(image, job) return bench.on_image(image, job) end

--- Checks the image, and repairs it if asked to; `qcow2.check` (the module) says how and what comes back.
-- @tparam[opt] table opts repair ("leaks", "all"), max_findings, memory_limit
-- @return a table of numbers and findings; or nil, message, code
function methods.check(image, opts) return check.image(image, opts) end

snapshots.add_to(methods)

return methods
