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
#include "lua/lua_image.h"
#include "lua/lua_storage.h"

static void set_integer(lua_State *L, const char *name, uint64_t value) {
    lua_pushinteger(L, (lua_Integer) value);
    lua_setfield(L, -2, name);
}

static void set_string(lua_State *L, const char *name, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

static void set_boolean(lua_State *L, const char *name, bool value) {
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

/* ---- header ---- */

static void push_extensions(lua_State *L, const struct header *header) {
    lua_createtable(L, (int) header->extension_count, 0);
    for (size_t i = 0; i < header->extension_count; i++) {
        const struct header_extension *extension = &header->extensions[i];
        lua_createtable(L, 0, 2);
        set_integer(L, "type", extension->type);
        lua_pushlstring(L, (const char *) extension->data, extension->length);
        lua_setfield(L, -2, "data");
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
}

static void push_header(lua_State *L, const struct header *header) {
    lua_createtable(L, 0, 20);
    set_integer(L, "version", header->version);
    set_integer(L, "cluster_bits", header->cluster_bits);
    set_integer(L, "size", header->size);
    set_integer(L, "crypt_method", header->crypt_method);
    set_integer(L, "l1_size", header->l1_size);
    set_integer(L, "l1_table_offset", header->l1_table_offset);
    set_integer(L, "refcount_table_offset", header->refcount_table_offset);
    set_integer(L, "refcount_table_clusters", header->refcount_table_clusters);
    set_integer(L, "nb_snapshots", header->nb_snapshots);
    set_integer(L, "snapshots_offset", header->snapshots_offset);
    set_integer(L, "incompatible_features", header->incompatible_features);
    set_integer(L, "compatible_features", header->compatible_features);
    set_integer(L, "autoclear_features", header->autoclear_features);
    set_integer(L, "refcount_order", header->refcount_order);
    set_integer(L, "header_length", header->header_length);
    set_integer(L, "compression_type", header->compression_type);
    if (header->backing_file != NULL) set_string(L, "backing_file", header->backing_file);
    push_extensions(L, header);
    lua_setfield(L, -2, "extensions");
}

/* image:read_header(): the header's fields by the specification's names; nil for raw. Fields that change are as they are now. */
static int image_header(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    if (image->format == IMAGE_RAW) return 0;
    push_header(L, &image->header);
    set_integer(L, "size", image->size);
    set_integer(L, "l1_size", image->map.l1_entries);
    set_integer(L, "l1_table_offset", image->map.l1_offset);
    set_integer(L, "refcount_table_offset", image->refcount.table_offset);
    set_integer(L, "refcount_table_clusters", refcount_table_clusters(&image->refcount));
    return 1;
}

/* ---- tables ---- */

/* image:l1_entries(): the active L1 table, raw entries; nil for raw images. */
static int image_l1(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    if (image->format == IMAGE_RAW) return 0;
    const uint64_t count = image->map.l1_entries;
    luaL_checkstack(L, 4, NULL);
    lua_createtable(L, (int) min_u64(count, INT32_MAX), 0);
    for (uint64_t i = 0; i < count; i++) {
        lua_pushinteger(L, (lua_Integer) image->map.l1[i]);
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
    return 1;
}

static void push_run(lua_State *L, const struct run *run) {
    lua_createtable(L, 0, 6);
    set_string(L, "type", cluster_type_name(run->type));
    set_integer(L, "guest_offset", run->guest_offset);
    set_integer(L, "length", run->length);
    set_boolean(L, "copied", run->copied);
    if (run->type == CLUSTER_NORMAL || run->type == CLUSTER_ZERO_ALLOC || run->type == CLUSTER_COMPRESSED)
        set_integer(L, "host_offset", run->host_offset);
    if (run->type == CLUSTER_COMPRESSED) set_integer(L, "compressed_length", run->compressed_length);
}

/* image:lookup(offset, length): the first run there, in this image alone: type, guest_offset, length, host_offset, copied. */
static int image_lookup(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    struct request request;
    luaL_argcheck(L, length > 0, 3, "length must be more than 0");
    request_start(&request, image, REQUEST_LOOKUP, offset, length, NULL);
    if (request_run(&request) < 0) return lua_error_push(L, &request.error);
    push_run(L, &request.run);
    return 1;
}

/* image:refcount(cluster): the refcount of a host cluster, and whether a refcount block covers it. */
static int image_refcount(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t cluster = lua_check_unsigned(L, 2, "cluster");
    struct request request;
    luaL_argcheck(L, image->format == IMAGE_QCOW2, 1, "a raw image has no refcounts");
    request_start(&request, image, REQUEST_REFCOUNT, cluster, 0, NULL);
    if (request_run(&request) < 0) return lua_error_push(L, &request.error);
    lua_pushinteger(L, (lua_Integer) request.value);
    lua_pushboolean(L, request.covered);
    return 2;
}

/* ---- facts ---- */

/* image:facts(): what is not in the header: format, path, sizes, modes. */
static int image_facts(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    struct error error = {.code = 0};
    uint64_t length = 0;
    if (file_length(image->file, &length, &error) < 0) return lua_error_push(L, &error);
    lua_createtable(L, 0, 8);
    set_string(L, "format", image->format == IMAGE_RAW ? "raw" : "qcow2");
    set_string(L, "filename", image->file->name);
    set_string(L, "kind", image->file->ops->kind);
    set_integer(L, "file_length", length);
    set_integer(L, "size", image->size);
    set_boolean(L, "read_only", image->read_only);
    set_boolean(L, "corrupt", image->corrupt);
    set_boolean(L, "has_backing", image->backing != NULL);
    return 1;
}

static void push_cache(lua_State *L, const struct cache *cache) {
    lua_createtable(L, 0, 7);
    set_integer(L, "hits", cache->hits);
    set_integer(L, "misses", cache->misses);
    set_integer(L, "evictions", cache->evictions);
    set_integer(L, "entry_size", cache->slot_size);
    set_integer(L, "entries", cache->slot_count);
    set_integer(L, "dirty", cache->dirty_count);
}

static void push_guest_stats(lua_State *L, const struct image_stats *stats) {
    set_integer(L, "reads", stats->reads);
    set_integer(L, "read_bytes", stats->read_bytes);
    set_integer(L, "writes", stats->writes);
    set_integer(L, "written_bytes", stats->written_bytes);
    set_integer(L, "zero_writes", stats->zero_writes);
    set_integer(L, "zero_write_bytes", stats->zero_write_bytes);
    set_integer(L, "discards", stats->discards);
    set_integer(L, "discarded_bytes", stats->discarded_bytes);
    set_integer(L, "flushes", stats->flushes);
    set_integer(L, "cow_read_bytes", stats->cow_read_bytes);
    set_integer(L, "cow_written_bytes", stats->cow_written_bytes);
    set_integer(L, "clusters_allocated", stats->clusters_allocated);
    set_integer(L, "tables_allocated", stats->tables_allocated);
}

/* image:stats(): guest requests, copy-on-write bytes, caches (l2_cache, refcount_cache) and what went to the file (file). */
static int image_stats_method(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    pthread_mutex_lock(&image->lock);
    const struct image_stats stats = image->stats;
    pthread_mutex_unlock(&image->lock);
    lua_createtable(L, 0, 20);
    push_guest_stats(L, &stats);
    lua_storage_push_stats(L, image->file);
    lua_setfield(L, -2, "file");
    if (image->format == IMAGE_RAW) return 1;
    push_cache(L, &image->map.l2);
    lua_setfield(L, -2, "l2_cache");
    push_cache(L, &image->refcount.blocks);
    lua_setfield(L, -2, "refcount_cache");
    set_integer(L, "flush_rounds", image->flush.rounds);
    set_integer(L, "clusters_waiting", image->alloc.released_clusters);
    return 1;
}

void lua_inspect_methods(lua_State *L) {
    static const luaL_Reg methods[] = {{"read_header", image_header},
                                       {"l1_entries", image_l1},
                                       {"lookup", image_lookup},
                                       {"refcount", image_refcount},
                                       {"facts", image_facts},
                                       {"stats", image_stats_method},
                                       {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
}
