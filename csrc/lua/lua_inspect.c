/* SPDX-License-Identifier: MIT
 *
 * Header, tables, counts and statistics of an open image as Lua tables. Keys are the specification's words. Nothing here holds the
 * lock while it pushes to Lua, which may longjmp. Text and layout are made in Lua.
 */
#include "lua/lua_inspect.h"

#include <lauxlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "lua/lua_image.h"
#include "lua/lua_storage.h"

static void set_string(lua_State *L, const char *name, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

/* ---- header ---- */

static void push_extensions(lua_State *L, const struct header *header) {
    lua_createtable(L, (int) header->extension_count, 0);
    for (size_t i = 0; i < header->extension_count; i++) {
        const struct header_extension *extension = &header->extensions[i];
        lua_createtable(L, 0, 2);
        lua_set_integer(L, "type", extension->type);
        lua_pushlstring(L, (const char *) extension->data, extension->length);
        lua_setfield(L, -2, "data");
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
}

static void push_header(lua_State *L, const struct header *header) {
    lua_createtable(L, 0, 20);
    lua_set_integer(L, "version", header->version);
    lua_set_integer(L, "cluster_bits", header->cluster_bits);
    lua_set_integer(L, "size", header->size);
    lua_set_integer(L, "crypt_method", header->crypt_method);
    lua_set_integer(L, "l1_size", header->l1_size);
    lua_set_integer(L, "l1_table_offset", header->l1_table_offset);
    lua_set_integer(L, "refcount_table_offset", header->refcount_table_offset);
    lua_set_integer(L, "refcount_table_clusters", header->refcount_table_clusters);
    lua_set_integer(L, "nb_snapshots", header->nb_snapshots);
    lua_set_integer(L, "snapshots_offset", header->snapshots_offset);
    lua_set_integer(L, "incompatible_features", header->incompatible_features);
    lua_set_integer(L, "compatible_features", header->compatible_features);
    lua_set_integer(L, "autoclear_features", header->autoclear_features);
    lua_set_integer(L, "refcount_order", header->refcount_order);
    lua_set_integer(L, "header_length", header->header_length);
    lua_set_integer(L, "compression_type", header->compression_type);
    if (header->backing_file != NULL) set_string(L, "backing_file", header->backing_file);
    push_extensions(L, header);
    lua_setfield(L, -2, "extensions");
}

/* Finalizers, which might close the image, do not run until resume_collecting. */
static bool stop_collecting(lua_State *L) {
    const bool was_running = lua_gc(L, LUA_GCISRUNNING) != 0;
    lua_gc(L, LUA_GCSTOP);
    return was_running;
}

static void resume_collecting(lua_State *L, bool was_running) {
    if (was_running) lua_gc(L, LUA_GCRESTART);
}

/* The image that many levels below the one at 1: 0, or none, is itself. */
static struct image *check_level(lua_State *L, int index) {
    struct image *image = lua_image_check(L, 1);
    uint64_t level = lua_isnoneornil(L, index) ? 0 : lua_check_unsigned(L, index, "level");
    for (; level > 0 && image->backing != NULL; level--) image = image->backing;
    luaL_argcheck(L, level == 0, index, "the backing chain is not that long");
    return image;
}

/* image:read_header([level]): the header's fields by the specification's names; nil for raw. Fields that change are as they are now. */
static int image_header(lua_State *L) {
    struct image *image = check_level(L, 2);
    if (image->format == IMAGE_RAW) return 0;
    const bool was_running = stop_collecting(L);
    push_header(L, &image->header);
    lua_set_integer(L, "size", image->size);
    lua_set_integer(L, "l1_size", image->map.l1_entries);
    lua_set_integer(L, "l1_table_offset", image->map.l1_offset);
    lua_set_integer(L, "refcount_table_offset", image->refcount.table_offset);
    lua_set_integer(L, "refcount_table_clusters", refcount_table_clusters(&image->refcount));
    resume_collecting(L, was_running);
    return 1;
}

/* ---- tables ---- */

/* image:l1_entries(): the active L1 table, raw entries; nil for raw images. */
static int image_l1(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    if (image->format == IMAGE_RAW) return 0;
    const uint64_t count = image->map.l1_entries;
    luaL_checkstack(L, 4, NULL);
    const bool was_running = stop_collecting(L);
    lua_createtable(L, (int) min_u64(count, INT32_MAX), 0);
    for (uint64_t i = 0; i < count; i++) {
        lua_pushinteger(L, (lua_Integer) image->map.l1[i]);
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
    resume_collecting(L, was_running);
    return 1;
}

/* image:l1_entry(index [, level]): one raw entry, or nil where the table has none. */
static int image_l1_entry(lua_State *L) {
    struct image *image = check_level(L, 3);
    const uint64_t index = lua_check_unsigned(L, 2, "index");
    if (image->format == IMAGE_RAW || index >= image->map.l1_entries) return 0;
    lua_pushinteger(L, (lua_Integer) image->map.l1[index]);
    return 1;
}

static void push_run(lua_State *L, const struct run *run) {
    lua_createtable(L, 0, 6);
    set_string(L, "type", cluster_type_name(run->type));
    lua_set_integer(L, "guest_offset", run->guest_offset);
    lua_set_integer(L, "length", run->length);
    lua_set_boolean(L, "copied", run->copied);
    if (run->type == CLUSTER_NORMAL || run->type == CLUSTER_ZERO_ALLOC || run->type == CLUSTER_COMPRESSED)
        lua_set_integer(L, "host_offset", run->host_offset);
    if (run->type == CLUSTER_COMPRESSED) lua_set_integer(L, "compressed_length", run->compressed_length);
}

/* image:lookup(offset, length [, level]): the first run there, in that image alone: type, guest_offset, length, host_offset, copied. */
static int image_lookup(lua_State *L) {
    struct image *image = check_level(L, 4);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    struct request request;
    luaL_argcheck(L, length > 0, 3, "length must be more than 0");
    request_start(&request, image, REQUEST_LOOKUP, offset, length, NULL);
    if (request_run(&request) < 0) return lua_error_push(L, &request.error);
    push_run(L, &request.run);
    return 1;
}

/* image:refcount(cluster [, level]): the refcount of a host cluster, and whether a refcount block covers it. */
static int image_refcount(lua_State *L) {
    struct image *image = check_level(L, 3);
    const uint64_t cluster = lua_check_unsigned(L, 2, "cluster");
    struct request request;
    if (image->format == IMAGE_RAW) {
        const struct error error = {.code = -ENOTSUP, .text = "a raw image has no refcounts"};
        return lua_error_push(L, &error);
    }
    request_start(&request, image, REQUEST_REFCOUNT, cluster, 0, NULL);
    if (request_run(&request) < 0) return lua_error_push(L, &request.error);
    lua_pushinteger(L, (lua_Integer) request.value);
    lua_pushboolean(L, request.covered);
    return 2;
}

/* ---- facts ---- */

/* image:facts([level]): what is not in the header: format, path, sizes, modes. */
static int image_facts(lua_State *L) {
    struct image *image = check_level(L, 2);
    struct error error = {.code = 0};
    uint64_t length = 0;
    if (file_length(image->file, &length, &error) < 0) return lua_error_push(L, &error);
    const bool was_running = stop_collecting(L);
    lua_createtable(L, 0, 8);
    set_string(L, "format", image->format == IMAGE_RAW ? "raw" : "qcow2");
    set_string(L, "filename", image->file->name);
    set_string(L, "kind", image->file->ops->kind);
    lua_set_integer(L, "file_length", length);
    lua_set_integer(L, "size", image->size);
    lua_set_boolean(L, "read_only", image->read_only);
    lua_set_boolean(L, "corrupt", image->corrupt);
    lua_set_boolean(L, "has_backing", image->backing != NULL);
    resume_collecting(L, was_running);
    return 1;
}

static void push_cache(lua_State *L, const struct cache *cache) {
    lua_createtable(L, 0, 7);
    lua_set_integer(L, "hits", cache->hits);
    lua_set_integer(L, "misses", cache->misses);
    lua_set_integer(L, "evictions", cache->evictions);
    lua_set_integer(L, "entry_size", cache->slot_size);
    lua_set_integer(L, "entries", cache->slot_count);
    lua_set_integer(L, "dirty", cache->dirty_count);
}

static void push_guest_stats(lua_State *L, const struct image_stats *stats) {
    lua_set_integer(L, "reads", stats->reads);
    lua_set_integer(L, "read_bytes", stats->read_bytes);
    lua_set_integer(L, "writes", stats->writes);
    lua_set_integer(L, "written_bytes", stats->written_bytes);
    lua_set_integer(L, "compressed_writes", stats->compressed_writes);
    lua_set_integer(L, "compressed_bytes", stats->compressed_bytes);
    lua_set_integer(L, "zero_writes", stats->zero_writes);
    lua_set_integer(L, "zero_write_bytes", stats->zero_write_bytes);
    lua_set_integer(L, "discards", stats->discards);
    lua_set_integer(L, "discarded_bytes", stats->discarded_bytes);
    lua_set_integer(L, "flushes", stats->flushes);
    lua_set_integer(L, "cow_read_bytes", stats->cow_read_bytes);
    lua_set_integer(L, "cow_written_bytes", stats->cow_written_bytes);
    lua_set_integer(L, "clusters_allocated", stats->clusters_allocated);
    lua_set_integer(L, "tables_allocated", stats->tables_allocated);
}

/* image:stats(): guest requests, copy-on-write bytes, caches (l2_cache, refcount_cache) and what went to the file (file). */
static int image_stats_method(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    pthread_mutex_lock(&image->lock);
    const struct image_stats stats = image->stats;
    const struct file_stats file = file_stats_of(image->file);
    const struct cache l2 = image->map.l2, blocks = image->refcount.blocks;
    const uint64_t rounds = image->flush.rounds, waiting = image->alloc.released_clusters;
    const bool is_raw = image->format == IMAGE_RAW;
    pthread_mutex_unlock(&image->lock);
    lua_createtable(L, 0, 20);
    push_guest_stats(L, &stats);
    lua_storage_push_stats(L, &file);
    lua_setfield(L, -2, "file");
    if (is_raw) return 1;
    push_cache(L, &l2);
    lua_setfield(L, -2, "l2_cache");
    push_cache(L, &blocks);
    lua_setfield(L, -2, "refcount_cache");
    lua_set_integer(L, "flush_rounds", rounds);
    lua_set_integer(L, "clusters_waiting", waiting);
    return 1;
}

void lua_inspect_methods(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"read_header", image_header}, {"l1_entries", image_l1}, {"l1_entry", image_l1_entry},  {"lookup", image_lookup},
        {"refcount", image_refcount},  {"facts", image_facts},   {"stats", image_stats_method}, {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
}
