/* SPDX-License-Identifier: MIT
 *
 * One function for each of the two structs. Names are options.lua's.
 * A value that only a caller who bypasses options.lua can give raises.
 */
#include "lua/lua_options.h"

#include <lauxlib.h>

#include "lua/lua_field.h"

static void read_cache_mode(lua_State *L, int index, struct image_options *options) {
    static const char *const modes[] = {"writeback", "none", "directsync", "writethrough", "unsafe", NULL};
    const int mode = lua_field_choice(L, index, "cache", "writeback", modes);
    options->direct = mode == 1 || mode == 2;
    options->write_through = mode == 2 || mode == 3;
    options->no_sync = mode == 4;
}

struct image_options lua_options_open(lua_State *L, int index) {
    static const char *const formats[] = {"probe", "raw", "qcow2", NULL};
    static const char *const cows[] = {"write", "zero", "skip", NULL};
    static const char *const detects[] = {"off", "on", "unmap", NULL};
    static const char *const discards[] = {"unmap", "ignore", NULL};
    struct image_options options = image_options_default();
    luaL_checktype(L, index, LUA_TTABLE);
    options.format = (enum image_open_format) lua_field_choice(L, index, "format", "probe", formats);
    options.read_only = lua_field_boolean(L, index, "read_only", false);
    options.open_backing = lua_field_boolean(L, index, "backing", true);
    options.open_data_file = lua_field_boolean(L, index, "open_data_file", true);
    options.data_file = lua_field_string(L, index, "data_file");
    options.force_share = lua_field_boolean(L, index, "force_share", false);
    options.aio = (enum ring_kind) lua_field_choice(L, index, "aio", "auto", ring_kind_names);
    options.snapshot = lua_field_string(L, index, "snapshot");
    options.repair = lua_field_boolean(L, index, "repair", false);
    options.cow = (enum image_cow) lua_field_choice(L, index, "cow", "skip", cows);
    const int detect = lua_field_choice(L, index, "detect_zeroes", "off", detects);
    options.detect_zeroes = detect > 0;
    options.detected_unmap = detect == 2;
    options.discard_ignored = lua_field_choice(L, index, "discard", "unmap", discards) == 1;
    options.overlap_check = (unsigned) lua_field_integer(L, index, "overlap_check", options.overlap_check) & OVERLAP_ALL;
    options.l2_cache_size = lua_field_integer(L, index, "l2_cache_size", 0);
    options.l2_cache_entry_size = lua_field_integer(L, index, "l2_cache_entry_size", 0);
    options.refcount_cache_size = lua_field_integer(L, index, "refcount_cache_size", 0);
    options.cache_clean_interval = lua_field_integer(L, index, "cache_clean_interval", options.cache_clean_interval);
    read_cache_mode(L, index, &options);
    return options;
}

static uint32_t log2_of(uint64_t value) {
    uint32_t bits = 0;
    while (value > 1) {
        value >>= 1;
        bits++;
    }
    return bits;
}

struct create_options lua_options_create(lua_State *L, int index) {
    static const char *const formats[] = {"raw", "qcow2", NULL};
    static const char *const compats[] = {"0.10", "1.1", NULL};
    static const char *const codecs[] = {"zlib", "zstd", NULL};
    static const char *const preallocations[] = {"off", "metadata", "falloc", "full", NULL};
    luaL_checktype(L, index, LUA_TTABLE);
    struct create_options options = {
        .format = (enum image_format) lua_field_choice(L, index, "format", "qcow2", formats),
        .size = lua_field_integer(L, index, "size", 0),
        .version = lua_field_choice(L, index, "compat", "1.1", compats) == 0 ? 2 : 3,
        .cluster_bits = log2_of(lua_field_integer(L, index, "cluster_size", UINT64_C(1) << FORMAT_CLUSTER_BITS_DEFAULT)),
        .refcount_order = log2_of(lua_field_integer(L, index, "refcount_bits", UINT64_C(1) << FORMAT_REFCOUNT_ORDER_DEFAULT)),
        .preallocation = (enum preallocation) lua_field_choice(L, index, "preallocation", "off", preallocations),
        .compression_type = (uint8_t) lua_field_choice(L, index, "compression_type", "zlib", codecs),
        .extent_size_hint = lua_field_integer(L, index, "extent_size_hint", 0),
        .lazy_refcounts = lua_field_boolean(L, index, "lazy_refcounts", false),
        .extended_l2 = lua_field_boolean(L, index, "extended_l2", false),
        .data_file = lua_field_string(L, index, "data_file"),
        .data_file_raw = lua_field_boolean(L, index, "data_file_raw", false),
        .backing_file = lua_field_string(L, index, "backing_file"),
        .backing_format = lua_field_string(L, index, "backing_format"),
    };
    lua_getfield(L, index, "size");
    options.size_from_backing = lua_isnil(L, -1);
    lua_pop(L, 1);
    const bool sane = options.cluster_bits >= FORMAT_CLUSTER_BITS_MIN && options.cluster_bits <= FORMAT_CLUSTER_BITS_MAX &&
                      options.refcount_order <= FORMAT_REFCOUNT_ORDER_MAX;
    if (!sane) luaL_error(L, "cluster_size or refcount_bits is out of range");
    return options;
}
