/* SPDX-License-Identifier: MIT
 *
 * Storage objects. An image shares the file of the storage it is opened in, so either may be closed first.
 * Faults and crashes are for specs and for people who test what is above a disk.
 * Born closed: the userdata exists before the file, and `file` is NULL until there is one and after close.
 */
#include "lua/lua_storage.h"

#include <lauxlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "lua/lua_buffer.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "storage/file_fault.h"
#include "storage/file_memory.h"
#include "storage/file_null.h"
#include "storage/file_posix.h"

#define TYPE_NAME LUA_STORAGE_TYPE
#define COPY_LENGTH (UINT64_C(1) << 20)

struct lua_storage {
    struct file *file;
};

static struct lua_storage *check_storage(lua_State *L) {
    struct lua_storage *storage = luaL_checkudata(L, 1, TYPE_NAME);
    if (storage->file == NULL) luaL_error(L, "attempt to use a closed storage");
    return storage;
}

struct file *lua_storage_test(lua_State *L, int index) {
    const struct lua_storage *storage = luaL_testudata(L, index, TYPE_NAME);
    if (storage == NULL) return NULL;
    if (storage->file == NULL) luaL_error(L, "attempt to use a closed storage");
    return storage->file;
}

static struct lua_storage *new_storage(lua_State *L) {
    struct lua_storage *storage = lua_newuserdatauv(L, sizeof *storage, 0);
    storage->file = NULL;
    luaL_setmetatable(L, TYPE_NAME);
    return storage;
}

struct file **lua_storage_push(lua_State *L) {
    return &new_storage(L)->file;
}

static int made(lua_State *L, int result, struct error *error) {
    if (result == 0) return 1;
    error_set(error, result, "no memory for a storage");
    return lua_error_push(L, error);
}

/* ---- making one ---- */

int lua_storage_memory(lua_State *L) {
    const char *name = luaL_optstring(L, 1, "memory");
    struct error error = {.code = 0};
    struct lua_storage *storage = new_storage(L);
    return made(L, file_memory_new(name, &storage->file), &error);
}

int lua_storage_null(lua_State *L) {
    const uint64_t length = lua_check_unsigned(L, 1, "length");
    const char *name = luaL_optstring(L, 2, "null");
    struct error error = {.code = 0};
    struct lua_storage *storage = new_storage(L);
    return made(L, file_null_new(name, length, &storage->file), &error);
}

static bool option(lua_State *L, const char *name) { return lua_istable(L, 2) && lua_field_boolean(L, 2, name, false); }

/* core.file(path, {write=, create=, direct=}): a plain file, for benchmarks without an image and to put faults over. */
int lua_storage_file(lua_State *L) {
    const char *path = lua_check_path(L, 1);
    struct error error = {.code = 0};
    const unsigned flags = (option(L, "write") ? FILE_POSIX_WRITE : 0) | (option(L, "create") ? FILE_POSIX_CREATE : 0) |
                           (option(L, "direct") ? FILE_POSIX_DIRECT : 0);
    struct lua_storage *storage = new_storage(L);
    return made(L, file_posix_open(path, flags, &storage->file, &error), &error);
}

int lua_storage_fault(lua_State *L) {
    const bool crashes = option(L, "crashes");
    struct error error = {.code = 0};
    struct lua_storage *storage = new_storage(L);
    struct file *below = check_storage(L)->file;
    return made(L, file_fault_new(below, crashes, &storage->file), &error);
}

/* ---- using one ---- */

static int storage_close(lua_State *L) {
    struct lua_storage *storage = luaL_checkudata(L, 1, TYPE_NAME);
    struct file *file = storage->file;
    storage->file = NULL;
    file_release(file);
    lua_pushboolean(L, 1);
    return 1;
}

static int storage_tostring(lua_State *L) {
    const struct lua_storage *storage = luaL_checkudata(L, 1, TYPE_NAME);
    if (storage->file == NULL) lua_pushstring(L, TYPE_NAME " (closed)");
    else lua_pushfstring(L, "%s (%s '%s')", TYPE_NAME, storage->file->ops->kind, storage->file->name);
    return 1;
}

static int storage_length(lua_State *L) {
    struct file *file = check_storage(L)->file;
    struct error error = {.code = 0};
    uint64_t length = 0;
    if (file_length(file, &length, &error) < 0) return lua_error_push(L, &error);
    lua_pushinteger(L, (lua_Integer) length);
    return 1;
}

/* storage:read(offset, length): a string; what lies past the end reads as zeroes. */
static int storage_read(lua_State *L) {
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    struct error error = {.code = 0};
    luaL_Buffer buffer;
    char *bytes = luaL_buffinitsize(L, &buffer, length);
    struct file *file = check_storage(L)->file; /* after what may run Lua code (see lua_image) */
    if (file_read(file, offset, bytes, length, &error) < 0) return lua_error_push(L, &error);
    luaL_pushresultsize(&buffer, length);
    return 1;
}

/* storage:write(offset, string | buffer). */
static int storage_write(lua_State *L) {
    struct file *file = check_storage(L)->file;
    const uint64_t offset = lua_check_unsigned(L, 2, "offset");
    uint64_t length;
    const uint8_t *bytes = lua_buffer_bytes(L, 3, &length);
    struct error error = {.code = 0};
    file_write(file, offset, bytes, length, &error);
    return lua_error_or_true(L, &error);
}

static int storage_truncate(lua_State *L) {
    struct file *file = check_storage(L)->file;
    struct error error = {.code = 0};
    file_truncate(file, lua_check_unsigned(L, 2, "length"), &error);
    return lua_error_or_true(L, &error);
}

static int storage_sync(lua_State *L) {
    struct error error = {.code = 0};
    file_sync(check_storage(L)->file, &error);
    return lua_error_or_true(L, &error);
}

static int copy_all(struct file *from, struct file *to, uint8_t *bytes, struct error *error) {
    uint64_t length = 0;
    int result = file_length(from, &length, error);
    if (result == 0) result = file_truncate(to, 0, error);
    if (result == 0) result = file_truncate(to, length, error);
    for (uint64_t at = 0; result == 0 && at < length; at += COPY_LENGTH) {
        const uint64_t part = min_u64(COPY_LENGTH, length - at);
        result = file_read(from, at, bytes, part, error);
        if (result == 0 && memcmp(bytes, memory_zeroes(), part) != 0) result = file_write(to, at, bytes, part, error);
    }
    return result;
}

/* With the target for ourselves: what another image has open is not replaced. */
static void save_to(struct file *file, const char *path, uint8_t *bytes, struct error *error) {
    struct file *target = NULL;
    struct error ignored = {.code = 0};
    if (file_posix_open(path, FILE_POSIX_WRITE | FILE_POSIX_CREATE, &target, error) < 0) return;
    if (file_change_use(target, FILE_USE_NOTHING, FILE_USE_WRITE, error) == 0) {
        copy_all(file, target, bytes, error);
        file_change_use(target, FILE_USE_WRITE, FILE_USE_NOTHING, &ignored);
    }
    file_release(target);
}

/* storage:save(path): a copy in a file, so that other programs can look at it. */
static int storage_save(lua_State *L) {
    const char *path = lua_check_path(L, 2);
    struct file *file = check_storage(L)->file;
    struct error error = {.code = 0};
    uint8_t *bytes = memory_aligned(COPY_LENGTH);
    if (bytes == NULL) error_set(&error, -ENOMEM, "no memory to copy '%s'", file->name);
    else if (file_posix_is_at(file, path)) error_set(&error, -EINVAL, "save: '%s' is the file of this storage", path);
    else save_to(file, path, bytes, &error);
    memory_free(bytes);
    return lua_error_or_true(L, &error);
}

/* ---- faults ---- */

static struct file *check_fault(lua_State *L) {
    struct file *file = check_storage(L)->file;
    luaL_argcheck(L, strcmp(file->ops->kind, "fault") == 0, 1, "a storage made by fault() expected");
    return file;
}

static unsigned kinds_of(lua_State *L) {
    static const char *const names[] = {"read", "write", "zero", "discard", "allocate", "truncate", "sync", "any", NULL};
    const int kind = lua_field_choice(L, 2, "op", "any", names);
    return kind == 7 ? FILE_FAULT_ANY : 1u << kind;
}

static int code_of(lua_State *L) {
    static const char *const names[] = {"EIO", "ENOSPC", "ENOTSUP", "EACCES", NULL};
    static const int codes[] = {-EIO, -ENOSPC, -ENOTSUP, -EACCES};
    return codes[lua_field_choice(L, 2, "code", "EIO", names)];
}

/* storage:fail{op="write", nth=3, times=1, code="EIO", partial=false}; storage:fail() removes the fault. times=0: for ever. */
static int storage_fail(lua_State *L) {
    if (lua_isnoneornil(L, 2)) {
        file_fault_set(check_fault(L), NULL);
        return 0;
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    const struct file_fault_rule rule = {.kinds = kinds_of(L),
                                         .nth = lua_field_integer(L, 2, "nth", 1),
                                         .times = lua_field_integer(L, 2, "times", 1),
                                         .code = code_of(L),
                                         .partial = option(L, "partial")};
    file_fault_set(check_fault(L), &rule);
    return 0;
}

/* storage:fault_counts(): matching operations since fail(), and how many of them failed. */
static int storage_fault_counts(lua_State *L) {
    uint64_t seen = 0, failed = 0;
    file_fault_counts(check_fault(L), &seen, &failed);
    lua_pushinteger(L, (lua_Integer) seen);
    lua_pushinteger(L, (lua_Integer) failed);
    return 2;
}

/* storage:crash(seed, keep_percent): a new memory storage with what a crash now could leave. */
static int storage_crash(lua_State *L) {
    const uint64_t seed = (uint64_t) luaL_checkinteger(L, 2);
    const lua_Integer keep = luaL_optinteger(L, 3, 50);
    luaL_argcheck(L, keep >= 0 && keep <= 100, 3, "a percentage expected");
    struct error error = {.code = 0};
    struct lua_storage *left = new_storage(L);
    struct file *file = check_fault(L);
    int result = file_memory_new("crashed", &left->file);
    if (result == 0) result = file_fault_crash(file, left->file, seed, (unsigned) keep, &error);
    return made(L, result, &error);
}

void lua_storage_push_stats(lua_State *L, const struct file_stats *stats) {
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {{"reads", stats->reads},         {"read_bytes", stats->read_bytes},
                  {"writes", stats->writes},       {"written_bytes", stats->written_bytes},
                  {"zeroes", stats->zeroes},       {"zeroed_bytes", stats->zeroed_bytes},
                  {"discards", stats->discards},   {"discarded_bytes", stats->discarded_bytes},
                  {"allocates", stats->allocates}, {"truncates", stats->truncates},
                  {"syncs", stats->syncs}};
    lua_createtable(L, 0, sizeof fields / sizeof *fields);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushinteger(L, (lua_Integer) fields[i].value);
        lua_setfield(L, -2, fields[i].name);
    }
}

static int storage_stats(lua_State *L) {
    const struct file_stats stats = file_stats_of(check_storage(L)->file);
    lua_storage_push_stats(L, &stats);
    return 1;
}

void lua_storage_register(lua_State *L) {
    static const luaL_Reg methods[] = {{"close", storage_close}, {"length", storage_length},     {"read", storage_read},
                                       {"write", storage_write}, {"truncate", storage_truncate}, {"sync", storage_sync},
                                       {"save", storage_save},   {"fail", storage_fail},         {"fault_counts", storage_fault_counts},
                                       {"crash", storage_crash}, {"stats", storage_stats},       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", storage_close}, {"__close", storage_close}, {"__tostring", storage_tostring}, {NULL, NULL}};
    luaL_newmetatable(L, TYPE_NAME);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
