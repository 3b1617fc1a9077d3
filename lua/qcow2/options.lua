-- SPDX-License-Identifier: MIT

--- The options of create and open, as data.
--
-- One table for each of the two functions says what is known of every option: its kind, default, range and choices. Reading
-- walks the table in order, so the first sentence is always the same one for the same mistake. Options that depend on
-- each other are looked at afterwards, in plain values.
--
-- A wrong value is a failure: nil, message, "EINVAL". A name that does not exist and a Lua type that makes no sense
-- are misuse and raise, at the line that called the function that was given the options.
-- @module qcow2.options

local known_options = require "qcow2.known_options"
local nearest = require "qcow2.nearest"
local size = require "qcow2.size"

local options = {}

--- The choices of `aio`: how I/O is done.
options.AIO = { "auto", "io_uring", "threads", "sync" }

local L1_BYTES_MAX = 32 << 20
local BACKING_NAME_MAX = 1023

local SECTIONS = { -- in the order of their bits in the mask
    "main-header", "active-l1", "active-l2", "refcount-table", "refcount-block",
    "snapshot-table", "inactive-l1", "inactive-l2", "bitmap-directory",
}
local SECTION_BIT = {}
for index, name in ipairs(SECTIONS) do SECTION_BIT[name] = 1 << index - 1 end

local function mask_of(...)
    local mask = 0
    for _, name in ipairs { ... } do mask = mask | SECTION_BIT[name] end
    return mask
end

local CONSTANT = mask_of("main-header", "active-l1", "refcount-table", "snapshot-table", "bitmap-directory")
local CACHED = CONSTANT | mask_of("active-l2", "refcount-block", "inactive-l1")
local TEMPLATES = { none = 0, constant = CONSTANT, cached = CACHED, all = mask_of(table.unpack(SECTIONS)) }

local CREATE = {
    { name = "format", kind = "choice", choices = { "qcow2", "raw" }, default = "qcow2" },
    { name = "size", kind = "size" },
    { name = "cluster_size", kind = "size", only = "qcow2", min = 512, max = 2 << 20, power_of_two = true, default = 64 << 10 },
    { name = "refcount_bits", kind = "integer", only = "qcow2", min = 1, max = 64, power_of_two = true, default = 16 },
    {
        name = "compat", kind = "choice", only = "qcow2", choices = { "0.10", "1.1" }, default = "1.1",
        aliases = { v2 = "0.10", v3 = "1.1", [2] = "0.10", [3] = "1.1" },
    },
    { name = "preallocation", kind = "choice", choices = { "off", "metadata", "falloc", "full" }, default = "off" },
    { name = "extent_size_hint", kind = "size", max = 0xffffffff },
    { name = "lazy_refcounts", kind = "boolean", only = "qcow2", default = false },
    { name = "extended_l2", kind = "boolean", only = "qcow2", default = false },
    { name = "compression_type", kind = "choice", only = "qcow2", choices = { "zlib", "zstd" }, default = "zlib" },
    { name = "backing_file", kind = "string", only = "qcow2", max = BACKING_NAME_MAX },
    { name = "data_file", kind = "string", only = "qcow2", max = BACKING_NAME_MAX },
    { name = "data_file_raw", kind = "boolean", only = "qcow2", default = false },
    { name = "backing_format", kind = "choice", only = "qcow2", choices = { "qcow2", "raw" } },
}

-- The sections of overlap_check: a kind of its own.

local function read_template(option, value)
    if TEMPLATES[value] then return TEMPLATES[value] end
    return nil, ("%s is %s; 'none', 'constant', 'cached' and 'all' are allowed"):format(option.name, known_options.quoted(value))
end

--- What is wrong with the table's keys, or with its values' types; nil when nothing is.
local function misuse_of_sections(option, value)
    local unknown = {}
    for key, wanted in pairs(value) do
        if type(key) ~= "string" then return ("sections of %s have names, not a %s"):format(option.name, type(key)) end
        if type(wanted) ~= "boolean" and type(wanted) ~= "string" then
            return ("%s of %s must be a boolean or a string, not a %s"):format(key, option.name, type(wanted))
        end
        if key ~= "template" and not SECTION_BIT[key:gsub("_", "-")] then unknown[#unknown + 1] = key end
    end
    if not unknown[1] then return nil end
    table.sort(unknown)
    local near = nearest(unknown[1], SECTIONS)
    return ("unknown section '%s' of %s%s"):format(unknown[1], option.name, near and (" (did you mean '%s'?)"):format(near) or "")
end

local function read_section_table(option, value)
    local misuse = misuse_of_sections(option, value)
    if misuse then return nil, misuse, true end
    local mask, message = read_template(option, value.template == nil and "cached" or value.template)
    if not mask then return nil, message end
    for _, section in ipairs(SECTIONS) do
        local dashed, underscored = value[section], value[section:gsub("-", "_")]
        if dashed ~= nil and underscored ~= nil then
            return nil, ("%s of %s is there twice, with - and with _"):format(section, option.name)
        end
        local wanted = dashed
        if wanted == nil then wanted = underscored end
        if wanted ~= nil then
            local on, why = known_options.read_boolean({ name = section .. " of " .. option.name }, wanted)
            if on == nil then return nil, why end
            mask = on and mask | SECTION_BIT[section] or mask & ~SECTION_BIT[section]
        end
    end
    return mask
end

local SECTION_KIND = {
    types = { "string", "table" },
    read = function(option, value) return (type(value) == "table" and read_section_table or read_template)(option, value) end,
}

local OPEN = {
    { name = "format", kind = "choice", choices = { "qcow2", "raw" } },
    { name = "read_only", kind = "boolean", default = false },
    {
        name = "cache", kind = "choice", choices = { "writeback", "none", "directsync", "writethrough", "unsafe" },
        default = "writeback",
    },
    { name = "l2_cache_size", kind = "size", only = "qcow2" },
    { name = "l2_cache_entry_size", kind = "size", only = "qcow2", min = 512, max = 2 << 20, power_of_two = true },
    { name = "refcount_cache_size", kind = "size", only = "qcow2" },
    { name = "cache_clean_interval", kind = "integer", only = "qcow2", min = 0, max = 0xffffffff, default = 600 },
    { name = "overlap_check", kind = SECTION_KIND, only = "qcow2", default = CACHED },
    {
        name = "discard", kind = "choice", choices = { "ignore", "unmap" }, default = "unmap",
        aliases = { off = "ignore", on = "unmap", [false] = "ignore", [true] = "unmap" },
    },
    {
        name = "detect_zeroes", kind = "choice", choices = { "off", "on", "unmap" }, default = "off",
        aliases = { [false] = "off", [true] = "on" },
    },
    { name = "aio", kind = "choice", choices = options.AIO, default = "auto" },
    { name = "cow", kind = "choice", only = "qcow2", choices = { "write", "zero", "skip" }, default = "skip" },
    { name = "backing", kind = "boolean", default = true },
    { name = "data_file", kind = "string", only = "qcow2", max = BACKING_NAME_MAX },
    { name = "open_data_file", kind = "boolean", only = "qcow2", default = true },
    { name = "force_share", kind = "boolean", default = false },
    { name = "snapshot", kind = "string", only = "qcow2", max = 65535 },
    { name = "repair", kind = "boolean", only = "qcow2", default = false },
}

-- What options say about each other: the first sentence, or nil.

local function size_beyond_l1(flat)
    local cluster_size = flat.cluster_size
    local max = L1_BYTES_MAX // 8 * (cluster_size // (flat.extended_l2 and 16 or 8)) * cluster_size
    if not flat.size or flat.size <= max then return nil end
    local asked, most = size.format(flat.size), size.format(max)
    if asked == most then asked = flat.size .. " bytes" end
    return ("size %s is more than the %s that cluster_size %s can map (the L1 table is capped at 32 MiB)"):format(
        asked, most, cluster_size < 1024 and tostring(cluster_size) or size.format(cluster_size))
end

local function create_conflict(flat)
    if not flat.size and not flat.backing_file then return "size is missing; only with a backing_file can it be left out" end
    if flat.format == "raw" then
        return flat.preallocation == "metadata" and "preallocation is 'metadata'; a raw image has none" or nil
    end
    if flat.compat == "0.10" then
        for _, name in ipairs { "lazy_refcounts", "extended_l2", "data_file" } do
            if flat[name] then return ("%s is %s; that needs compat '1.1'"):format(name, flat[name]) end
        end
        if flat.compression_type ~= "zlib" then return "compression_type is zstd; that needs compat '1.1'" end
        if flat.refcount_bits ~= 16 then return ("refcount_bits is %d; compat '0.10' has 16 only"):format(flat.refcount_bits) end
    end
    if flat.extended_l2 and flat.cluster_size < 16384 then
        return ("extended_l2 is true; that needs a cluster_size of 16K or more, not %d"):format(flat.cluster_size)
    end
    if flat.data_file_raw and not flat.data_file then return "data_file_raw is true; that needs a data_file" end
    if flat.data_file_raw and flat.backing_file then return "data_file_raw is true; that allows no backing_file" end
    if flat.backing_format and not flat.backing_file then return "backing_format is given without backing_file" end
    if flat.backing_file and flat.preallocation ~= "off" then
        return ("preallocation is '%s'; with a backing_file only 'off' is allowed"):format(flat.preallocation)
    end
    return size_beyond_l1(flat)
end

local function open_conflict(flat)
    if flat.repair and flat.read_only then return "repair is true; a read_only image is not changed" end
    if flat.snapshot and not flat.read_only then return "snapshot is given; that needs read_only" end
    if flat.force_share and not flat.read_only then return "force_share is true; that needs read_only" end
    if flat.detect_zeroes == "unmap" and flat.discard ~= "unmap" then return "detect_zeroes is 'unmap'; that needs discard 'unmap'" end
    return nil
end

--- The options of create.
-- @tparam ?table given what the caller gave:
--   size (bytes; may be left out with a backing_file),
--   cluster_size (bytes, power of two, 512 to 2M; 64K),
--   refcount_bits (power of two, 1 to 64; 16),
--   compat ("0.10" or "1.1", also "v2", "v3", 2, 3; "1.1"),
--   preallocation ("off", "metadata", "falloc", "full"; "off"),
--   extent_size_hint (bytes, 0 for none),
--   lazy_refcounts, extended_l2 (boolean; false),
--   compression_type ("zlib", "zstd"; "zlib"),
--   data_file (name), data_file_raw (boolean; false),
--   backing_file (name), backing_format ("qcow2", "raw"),
--   format ("qcow2", "raw"; "qcow2")
-- @treturn[1] table every option that the format has, in plain form: sizes in bytes, booleans, compat "0.10" or "1.1", and
--   version 2 or 3 beside it
-- @treturn[2] nil
-- @treturn[2] string what is wrong with a value
-- @treturn[2] string "EINVAL"
-- @raise at the caller's caller, for unknown names and wrong types
function options.create(given)
    local flat, message, misuse = known_options.read(CREATE, given)
    if misuse then error("create: " .. message, 3) end
    message = message or create_conflict(flat)
    if message then return nil, message, "EINVAL" end
    if flat.compat then flat.version = flat.compat == "0.10" and 2 or 3 end
    return flat
end

--- The options of open.
-- @tparam ?table given what the caller gave:
--   read_only (boolean; false),
--   format ("qcow2", "raw"; absent: look),
--   cache ("writeback", "none", "directsync", "writethrough", "unsafe"; "writeback"),
--   l2_cache_size, refcount_cache_size (bytes; absent: automatic),
--   l2_cache_entry_size (bytes, power of two, 512 to the cluster size; absent: automatic),
--   cache_clean_interval (seconds, 0 = never; 600),
--   overlap_check ("none", "constant", "cached", "all", or a table of a template and sections by name; "cached"),
--   discard ("ignore" or "off", "unmap" or "on"; "unmap"),
--   detect_zeroes ("off", "on", "unmap"; "off"),
--   aio (how queues and benchmarks do I/O: "auto", "io_uring", "threads", "sync"; "auto"),
--   cow ("write", "zero", "skip"; "skip"),
--   backing (false: open without the backing file; true),
--   data_file (path; absent: as the image says), open_data_file (false: open without the external data file; true),
--   force_share (boolean, needs read_only; false),
--   snapshot (id or name, needs read_only; absent: the disk as it is),
--   repair (boolean, not with read_only; false)
-- @treturn[1] table every option in plain form; overlap_check as a mask, bit 0 main-header, 1 active-l1, 2 active-l2,
--   3 refcount-table, 4 refcount-block, 5 snapshot-table, 6 inactive-l1, 7 inactive-l2, 8 bitmap-directory
-- @treturn[2] nil
-- @treturn[2] string what is wrong with a value
-- @treturn[2] string "EINVAL"
-- @raise at the caller's caller, for unknown names and wrong types
function options.open(given)
    local flat, message, misuse = known_options.read(OPEN, given)
    if misuse then error("open: " .. message, 3) end
    message = message or open_conflict(flat)
    if message then return nil, message, "EINVAL" end
    return flat
end

return options
