-- SPDX-License-Identifier: MIT

local nearest = require "qcow2.nearest"
local options = require "qcow2.options"
local size = require "qcow2.size"

local function has_qemu_img()
    return os.execute("qemu-img --version >/dev/null 2>&1") == true
end

--- Runs a command line; returns whether it succeeded and what it printed.
local function run(command)
    local pipe = assert(io.popen(command .. " 2>&1"))
    local output = pipe:read "a"
    return pipe:close() == true, output
end

local function shell_quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- A name for a file that does not exist; removed after the body.
local function with_file(body)
    local path = os.tmpname()
    os.remove(path)
    local ok, message = pcall(body, path)
    os.remove(path)
    assert(ok, message)
end

local SPELLINGS = {
    "0", "1", "512", "64K", "64k", "1.5G", "0x10000", "0X10", "0x1b", "0x1e", "0x10b", "010", "10b", "10B", "1T", "1t", "1P", "1p", "1g",
    "1m", "1.0", ".0", "0.0", "1.", "5.k", ".5k", "+5", "+1.5k", "+0x10", " 5", "\t5", "0.1k", "0.001k", "0.0015k", "0.0005k", "0.0004k",
    "1.5e", "1.e", "1E", "7E", "7.9999E", "1.25k", "1.0000000001g", "0.9999999999999999999999k", "1.00000000000000000001k", "0.3M", "0.7G",
    "0.123456789T", "0.49999999999999994k", "1.0b", "9223372036854775807", "0x7fffffffffffffff", "9007199254740993", "0000000000000000000001k",
    -- refused
    "", " ", "K", ".", ".k", "0x", "0xG", "0x10K", "0x1.8", "0x1g", "0x1p", "00x1", "10KiB", "10KB", "10ki", "1e3", "1E3", "1e1k", "1.5", "1.3",
    ".5", "0.5", "1.5b", "5 ", "5 K", "+ 5", "++1", "-1", "-0", "- 5", "inf", "nan", "1_000", "1,5", "1..5", "1k5", "1b1", "0b1", "8E",
    "9223372036854775808", "0x8000000000000000", "0xffffffffffffffffff", "99999999999999999999", "7.99999999999999999999E", "1x",
}

describe("size.parse", function()
    it("reads numbers", function()
        assert.equal(0, size.parse(0))
        assert.equal(65536, size.parse(65536))
        assert.equal("integer", math.type(size.parse(65536.0)))
        assert.equal(math.maxinteger, size.parse(math.maxinteger))
    end)

    it("reads text", function()
        assert.equal(1610612736, size.parse("1.5G"))
        assert.equal(65536, size.parse("64K"))
        assert.equal(65536, size.parse("0x10000"))
        assert.equal(10, size.parse("010"))
        assert.equal(7 << 60, size.parse("7E"))
        assert.equal(math.maxinteger, size.parse("9223372036854775807"))
    end)

    it("names the option, the value and what is allowed", function()
        local function message(value) return select(2, size.parse(value, "cluster_size")) end
        assert.equal("cluster_size is -1; sizes are 0 or more", message(-1))
        assert.equal("cluster_size is '-1k'; sizes are 0 or more", message("-1k"))
        assert.equal("cluster_size is 1.5; a size is a whole number of bytes", message(1.5))
        assert.equal("cluster_size is '1.5'; a size is a whole number of bytes", message("1.5"))
        assert.equal("cluster_size is '8E'; at most 9223372036854775807 bytes are allowed", message("8E"))
        assert.equal("cluster_size is 1e+300; at most 9223372036854775807 bytes are allowed", message(1e300))
        assert.equal("cluster_size is inf; at most 9223372036854775807 bytes are allowed", message(math.huge))
        for _, text in ipairs { "", "K", "10KiB", "5 ", "1e3", "0x1.8", "inf", "a\nb" } do
            assert.equal(("cluster_size is '%s'; a size is a number of bytes with or without one of the suffixes k, M, G, T, P and E, "
                .. "such as 65536, 64K or 1.5G"):format(text:gsub("\n", "?")), message(text))
        end
        assert.is_nil(size.parse(0 / 0))
    end)

    it("raises for other types", function()
        assert.has_error(function() size.parse({}, "size") end, "size must be a number or a string, not a table")
        assert.has_error(function() size.parse(nil) end, "size must be a number or a string, not a nil")
    end)

    it("accepts and refuses what qemu-img does", function()
        if not has_qemu_img() then return pending "qemu-img is not installed" end
        with_file(function(path)
            for _, text in ipairs(SPELLINGS) do
                local _, output = run(("qemu-img create -f raw -- %s %s"):format(path, shell_quoted(text)))
                local theirs = math.tointeger(tonumber(output:match "^Formatting.- size=(%d+)"))
                assert.equal(theirs, (size.parse(text)), ("'%s': qemu-img says %s"):format(text, output))
            end
        end)
    end)
end)

describe("size.format", function()
    it("takes three digits, and the next unit from 1000 on", function()
        for bytes, text in pairs {
            [0] = "0 B", [1] = "1 B", [999] = "999 B", [1000] = "0.977 KiB", [65536] = "64 KiB", [200704] = "196 KiB", [1 << 30] = "1 GiB",
            [1610612736] = "1.5 GiB", [1047552] = "0.999 MiB", [128 << 30] = "128 GiB", [1 << 60] = "1 EiB", [math.maxinteger] = "8 EiB",
        } do assert.equal(text, size.format(bytes)) end
    end)

    it("prints what qemu-img does", function()
        if not has_qemu_img() then return pending "qemu-img is not installed" end
        local sizes = { 0, 512, 1024, 1536, 1023488, 1047552, 1048576, 1234567680, 1 << 40, 999 << 40, 1 << 50, 1 << 60, 2 << 60 }
        local seed = 1
        for shift = 9, 59 do
            seed = seed * 6364136223846793005 + 1442695040888963407
            sizes[#sizes + 1] = ((1 << shift) | (seed >> (64 - shift))) & ~511
        end
        with_file(function(path)
            for _, bytes in ipairs(sizes) do
                local made, message = run(("qemu-img create -q -f qcow2 -o cluster_size=2M %s %d"):format(path, bytes))
                assert.is_true(made, message)
                local _, output = run("qemu-img info " .. path)
                assert.equal(output:match "virtual size: (.-) %(", size.format(bytes), tostring(bytes))
            end
        end)
    end)
end)

describe("nearest", function()
    local names = { "size", "cluster_size", "refcount_bits", "backing_file", "backing_format", "read_only" }

    it("finds what was meant", function()
        for typed, meant in pairs {
            clustersize = "cluster_size", ["cluster-size"] = "cluster_size", clusterSize = "cluster_size", sise = "size", szie = "size",
            backing_fmt = "backing_format", readonly = "read_only", refcout_bits = "refcount_bits", backing_files = "backing_file",
        } do assert.equal(meant, nearest(typed, names), typed) end
    end)

    it("says nothing when nothing is near", function()
        for _, typed in ipairs { "", "x", "colour", "compression_type", ("size"):rep(1000) } do assert.is_nil(nearest(typed, names)) end
        assert.is_nil(nearest("size", {}))
    end)
end)

--- The message of a failure with EINVAL.
local function refused(func, given)
    local flat, message, code = func(given)
    assert.is_nil(flat)
    assert.equal("EINVAL", code)
    return message
end

--- The message of a raise, without the position; it must name this file.
local function raised(func, given)
    local function face(opts) -- stands for qcow2.create
        local flat = func(opts)
        return flat
    end
    local ok, message = pcall(function() face(given) end)
    assert.is_false(ok)
    local place, text = message:match "^(.-):%d+: (.*)$"
    assert.matches("options_spec%.lua$", place)
    return text
end

describe("options.create", function()
    it("fills every default", function()
        assert.same({
            format = "qcow2", size = 1 << 30, cluster_size = 65536, refcount_bits = 16, compat = "1.1", version = 3, preallocation = "off",
            lazy_refcounts = false, extended_l2 = false, compression_type = "zlib", data_file_raw = false,
        }, options.create { size = "1G" })
        assert.same({ format = "raw", size = 5, preallocation = "off" }, options.create { size = 5, format = "raw" })
    end)

    it("gives plain values", function()
        local flat = assert(options.create {
            size = 1e6, cluster_size = "4k", refcount_bits = "8", compat = 3, preallocation = "full", lazy_refcounts = "on",
        })
        assert.equal("integer", math.type(flat.size))
        assert.same({
            format = "qcow2", size = 1000000, cluster_size = 4096, refcount_bits = 8, compat = "1.1", version = 3, preallocation = "full",
            lazy_refcounts = true, extended_l2 = false, compression_type = "zlib", data_file_raw = false,
        }, flat)
        for spelling, version in pairs { ["0.10"] = 2, v2 = 2, [2] = 2, ["1.1"] = 3, v3 = 3, [3] = 3 } do
            assert.equal(version, options.create({ size = 0, compat = spelling }).version)
        end
        assert.is_nil(options.create({ backing_file = "base", backing_format = "raw" }).size)
    end)

    it("leaves the caller's table alone", function()
        local given = { size = "1G" }
        assert(options.create(given))
        assert.same({ size = "1G" }, given)
    end)

    it("refuses values with a sentence", function()
        for message, given in pairs {
            ["size is missing; only with a backing_file can it be left out"] = {},
            ["size is '1.5'; a size is a whole number of bytes"] = { size = "1.5" },
            ["cluster_size is 3000; powers of two from 512 to 2 MiB are allowed"] = { size = 1, cluster_size = 3000 },
            ["cluster_size is '4M'; powers of two from 512 to 2 MiB are allowed"] = { size = 1, cluster_size = "4M" },
            ["cluster_size is 0; powers of two from 512 to 2 MiB are allowed"] = { size = 1, cluster_size = 0 },
            ["refcount_bits is 3; powers of two from 1 to 64 are allowed"] = { size = 1, refcount_bits = 3 },
            ["refcount_bits is 1.5; powers of two from 1 to 64 are allowed"] = { size = 1, refcount_bits = 1.5 },
            ["refcount_bits is '16k'; powers of two from 1 to 64 are allowed"] = { size = 1, refcount_bits = "16k" },
            ["refcount_bits is 8; compat '0.10' has 16 only"] = { size = 1, refcount_bits = 8, compat = "v2" },
            ["lazy_refcounts is true; that needs compat '1.1'"] = { size = 1, lazy_refcounts = true, compat = 2 },
            ["extended_l2 is true; that needs compat '1.1'"] = { size = 1, extended_l2 = true, compat = 2 },
            ["extended_l2 is true; that needs a cluster_size of 16K or more, not 8192"] = { size = 1, extended_l2 = true, cluster_size = "8K" },
            ["data_file is d; that needs compat '1.1'"] = { size = 1, data_file = "d", compat = 2 },
            ["data_file_raw is true; that needs a data_file"] = { size = 1, data_file_raw = true },
            ["data_file_raw is true; that allows no backing_file"] = { size = 1, data_file = "d", data_file_raw = true, backing_file = "b" },
            ["lazy_refcounts is 'maybe'; true, false, 'on' and 'off' are allowed"] = { size = 1, lazy_refcounts = "maybe" },
            ["compat is 'v4'; '0.10' and '1.1' are allowed"] = { size = 1, compat = "v4" },
            ["compat is 4; '0.10' and '1.1' are allowed"] = { size = 1, compat = 4 },
            ["preallocation is 'all'; 'off', 'metadata', 'falloc' and 'full' are allowed"] = { size = 1, preallocation = "all" },
            ["preallocation is 'metadata'; a raw image has none"] = { size = 1, preallocation = "metadata", format = "raw" },
            ["preallocation is 'full'; with a backing_file only 'off' is allowed"] = { size = 1, preallocation = "full", backing_file = "b" },
            ["cluster_size is an option of format qcow2; the format is raw"] = { size = 1, cluster_size = 512, format = "raw" },
            ["backing_format is given without backing_file"] = { size = 1, backing_format = "raw" },
            ["backing_file has 1024 bytes; at most 1023 are allowed"] = { backing_file = ("b"):rep(1024) },
            ["backing_file is ''; a name has at least one byte"] = { backing_file = "" },
            ["backing_file is 'a?b'; a name has no zero byte"] = { backing_file = "a\0b" },
            ["size 1 EiB is more than the 128 GiB that cluster_size 512 can map (the L1 table is capped at 32 MiB)"] =
                { size = "1E", cluster_size = 512 },
            ["size 137438953473 bytes is more than the 128 GiB that cluster_size 512 can map (the L1 table is capped at 32 MiB)"] =
                { size = (128 << 30) + 1, cluster_size = 512 },
            ["size 3 EiB is more than the 2 PiB that cluster_size 64 KiB can map (the L1 table is capped at 32 MiB)"] = { size = "3E" },
        } do assert.equal(message, refused(options.create, given)) end
        assert(options.create { size = 128 << 30, cluster_size = 512 })
        assert(options.create { size = 2 << 60, cluster_size = "2M" })
    end)

    it("raises for misuse", function()
        for message, given in pairs {
            ["create: unknown option 'clustersize' (did you mean 'cluster_size'?)"] = { size = 1, clustersize = 512 },
            ["create: unknown option 'colour'"] = { size = 1, colour = "red", zzz = 1 },
            ["create: unknown option 'encryption'"] = { size = 1, encryption = true },
            ["create: options have names, not a number (1)"] = { "1G" },
            ["create: option 'size' must be a number or a string, not a table"] = { size = {} },
            ["create: option 'cluster_size' must be a number or a string, not a boolean"] = { size = 1, cluster_size = true },
            ["create: option 'lazy_refcounts' must be a boolean or a string, not a number"] = { size = 1, lazy_refcounts = 1 },
            ["create: option 'compat' must be a string or a number, not a boolean"] = { size = 1, compat = true },
            ["create: option 'backing_file' must be a string, not a number"] = { size = 1, backing_file = 7 },
            ["create: options must be a table, not a string"] = "1G",
            ["create: options must be a table, not a boolean"] = false,
        } do assert.equal(message, raised(options.create, given)) end
    end)

    it("accepts and refuses what qemu-img does", function()
        if not has_qemu_img() then return pending "qemu-img is not installed" end
        with_file(function(path)
            for _, o in ipairs {
                { cluster_size = "512" }, { cluster_size = "2M" }, { cluster_size = "256" }, { cluster_size = "4M" }, { cluster_size = "1.5k" },
                { cluster_size = "0" }, { refcount_bits = "1" }, { refcount_bits = "64" }, { refcount_bits = "128" }, { refcount_bits = "0" },
                { refcount_bits = "3" }, { refcount_bits = "16k" }, { refcount_bits = "1.0" }, { compat = "v2" }, { compat = "v3" },
                { compat = "0.10" }, { compat = "0.1" }, { compat = "v2", refcount_bits = "8" }, { compat = "v2", refcount_bits = "16" },
                { compat = "v2", lazy_refcounts = "on" }, { compat = "v2", lazy_refcounts = "off" }, { lazy_refcounts = "yes" },
                { lazy_refcounts = "1" }, { preallocation = "metadata" }, { preallocation = "none" }, { size = "128G", cluster_size = "512" },
                { size = "129G", cluster_size = "512" }, { size = "2E", cluster_size = "2M" }, { size = "3E", cluster_size = "2M" }, { size = "2P" },
                { size = "3P" }, { extended_l2 = "on" }, { extended_l2 = "on", cluster_size = "8k" }, { extended_l2 = "on", cluster_size = "16k" },
                { extended_l2 = "on", compat = "v2" }, { extended_l2 = "on", size = "2P" }, { extended_l2 = "on", size = "1P" },
            } do
                local words = {}
                for name, value in pairs(o) do
                    if name ~= "size" then words[#words + 1] = ("-o %s=%s"):format(name, value) end
                end
                o.size = o.size or "1M"
                local command = ("qemu-img create -q -f qcow2 %s %s %s"):format(table.concat(words, " "), path, o.size)
                local made, output = run(command)
                local ours, message = options.create(o)
                assert.equal(made, ours ~= nil, ("%s\n%s%s"):format(command, output, message or "we accept it"))
            end
        end)
    end)
end)

describe("options.open", function()
    it("fills every default", function()
        local flat = options.open()
        assert.same({
            read_only = false, cache = "writeback", cache_clean_interval = 600, overlap_check = flat.overlap_check, discard = "unmap",
            detect_zeroes = "off", aio = "auto", cow = "skip", backing = true, force_share = false, repair = false,
            open_data_file = true,
        }, flat)
        assert.is_nil(options.open({ format = "raw" }).cache_clean_interval)
    end)

    it("gives overlap_check as a mask", function()
        local function mask(value) return assert(options.open { overlap_check = value }).overlap_check end
        local constant = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 8
        local cached = constant | 1 << 2 | 1 << 4 | 1 << 6
        assert.equal(0, mask "none")
        assert.equal(constant, mask "constant")
        assert.equal(cached, mask "cached")
        assert.equal(511, mask "all")
        assert.equal(cached, options.open().overlap_check)
        assert.equal(cached, mask {})
        assert.equal(cached & ~2, mask { active_l1 = false })
        assert.equal(1 | 1 << 7, mask { template = "none", ["main-header"] = true, inactive_l2 = "on" })
        assert.equal(511 & ~256, mask { template = "all", ["bitmap-directory"] = "off" })
    end)

    it("takes other spellings", function()
        for spelling, plain in pairs { ignore = "ignore", off = "ignore", unmap = "unmap", on = "unmap", [true] = "unmap", [false] = "ignore" } do
            assert.equal(plain, options.open({ discard = spelling }).discard)
        end
        assert.equal("on", options.open({ detect_zeroes = true }).detect_zeroes)
        assert.equal(false, options.open({ backing = "off" }).backing)
        assert.equal(0, options.open({ cache_clean_interval = 0 }).cache_clean_interval)
        assert.equal(1 << 20, options.open({ l2_cache_size = "1M" }).l2_cache_size)
        assert.is_true(options.open({ force_share = true, read_only = "on" }).force_share)
    end)

    it("refuses values with a sentence", function()
        for message, given in pairs {
            ["format is 'vmdk'; 'qcow2' and 'raw' are allowed"] = { format = "vmdk" },
            ["cache is ''; 'writeback', 'none', 'directsync', 'writethrough' and 'unsafe' are allowed"] = { cache = "" },
            ["l2_cache_entry_size is '3k'; powers of two from 512 to 2 MiB are allowed"] = { l2_cache_entry_size = "3k" },
            ["cache_clean_interval is -1; whole numbers from 0 to 4294967295 are allowed"] = { cache_clean_interval = -1 },
            ["cache_clean_interval is 4294967296; whole numbers from 0 to 4294967295 are allowed"] = { cache_clean_interval = 1 << 32 },
            ["overlap_check is 'most'; 'none', 'constant', 'cached' and 'all' are allowed"] = { overlap_check = "most" },
            ["overlap_check is 'x'; 'none', 'constant', 'cached' and 'all' are allowed"] = { overlap_check = { template = "x" } },
            ["active-l1 of overlap_check is 'maybe'; true, false, 'on' and 'off' are allowed"] = { overlap_check = { active_l1 = "maybe" } },
            ["active-l1 of overlap_check is there twice, with - and with _"] = { overlap_check = { active_l1 = true, ["active-l1"] = false } },
            ["detect_zeroes is 'unmap'; that needs discard 'unmap'"] = { detect_zeroes = "unmap", discard = "off" },
            ["force_share is true; that needs read_only"] = { force_share = true },
            ["cow is an option of format qcow2; the format is raw"] = { cow = "zero", format = "raw" },
        } do assert.equal(message, refused(options.open, given)) end
    end)

    it("raises for misuse", function()
        for message, given in pairs {
            ["open: unknown option 'readonly' (did you mean 'read_only'?)"] = { readonly = true },
            ["open: unknown option 'size'"] = { size = 1 },
            ["open: option 'overlap_check' must be a string or a table, not a boolean"] = { overlap_check = true },
            ["open: option 'discard' must be a string or a boolean, not a number"] = { discard = 1 },
            ["open: unknown section 'active-l3' of overlap_check (did you mean 'active-l1'?)"] = { overlap_check = { ["active-l3"] = true } },
            ["open: sections of overlap_check have names, not a number"] = { overlap_check = { "main-header" } },
            ["open: active-l1 of overlap_check must be a boolean or a string, not a number"] = { overlap_check = { ["active-l1"] = 1 } },
        } do assert.equal(message, raised(options.open, given)) end
    end)
end)
