/* SPDX-License-Identifier: MIT
 *
 * A checkup as a Lua table. The checkup ends, and its memory is given back, even when pushing raises: it lives in a userdata
 * whose finalizer ends it. Keys are those of qemu-img's JSON, and `findings` and `left` are lists. Texts are made in the image storey.
 */
#include "lua/lua_check.h"

#include <lauxlib.h>

#include "base/bytes.h"
#include "image/chain.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "lua/lua_image.h"
#include "lua/lua_storage.h"
#include "storage/file_posix.h"

#define CHECKUP_TYPE "qcow2.Checkup"

static int checkup_gc(lua_State *L) {
    checkup_end(lua_touserdata(L, 1));
    return 0;
}

static struct checkup *new_checkup(lua_State *L) {
    struct checkup *checkup = lua_newuserdatauv(L, sizeof *checkup, 0);
    *checkup = (struct checkup){.total_clusters = 0};
    if (luaL_newmetatable(L, CHECKUP_TYPE) != 0) {
        lua_pushcfunction(L, checkup_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return checkup;
}

static struct checkup_options read_options(lua_State *L, int index) {
    static const char *const repairs[] = {"none", "leaks", "all", NULL};
    struct checkup_options options = {.max_findings = CHECKUP_FINDINGS, .memory_limit = CHECKUP_MEMORY};
    if (lua_isnoneornil(L, index)) return options;
    luaL_checktype(L, index, LUA_TTABLE);
    options.repair = (enum checkup_repair) lua_field_choice(L, index, "repair", "none", repairs);
    options.max_findings = lua_field_integer(L, index, "max_findings", options.max_findings);
    options.memory_limit = lua_field_integer(L, index, "memory_limit", options.memory_limit);
    return options;
}

static void set_string(lua_State *L, const char *name, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

static void push_finding(lua_State *L, const struct finding *finding) {
    static const char *const weights[] = {"leak", "corruption", "check-error"};
    lua_createtable(L, 0, 8);
    set_string(L, "kind", finding_kind_name(finding->kind));
    set_string(L, "weight", weights[finding->weight]);
    set_string(L, "structure", finding->structure);
    set_string(L, "sentence", finding->text);
    lua_set_integer(L, "host_offset", finding->host_offset);
    if (finding->guest_offset != UINT64_MAX) lua_set_integer(L, "guest_offset", finding->guest_offset);
    lua_set_integer(L, "times", finding->times);
    lua_set_boolean(L, "repaired", finding->repaired);
}

static void push_findings(lua_State *L, const struct findings *findings) {
    lua_createtable(L, (int) min_u64(findings->count, INT32_MAX), 1);
    for (uint64_t i = 0; i < findings->count; i++) {
        push_finding(L, &findings->items[i]);
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
    lua_set_integer(L, "unlisted", findings->unlisted);
}

static int push_checkup(lua_State *L, const struct checkup *checkup) {
    lua_createtable(L, 0, 16);
    lua_set_integer(L, "image-end-offset", checkup->image_end_offset);
    lua_set_integer(L, "total-clusters", checkup->total_clusters);
    lua_set_integer(L, "allocated-clusters", checkup->allocated_clusters);
    lua_set_integer(L, "fragmented-clusters", checkup->fragmented_clusters);
    lua_set_integer(L, "compressed-clusters", checkup->compressed_clusters);
    lua_set_integer(L, "check-errors", checkup->check_errors);
    lua_set_integer(L, "corruptions", checkup->corruptions);
    lua_set_integer(L, "leaks", checkup->leaks);
    lua_set_integer(L, "corruptions-fixed", checkup->findings.corruptions_fixed);
    lua_set_integer(L, "leaks-fixed", checkup->findings.leaks_fixed);
    lua_set_boolean(L, "looked-twice", checkup->looked_twice);
    lua_set_boolean(L, "rebuild-needed", checkup->rebuild_needed);
    push_findings(L, &checkup->findings);
    lua_setfield(L, -2, "findings");
    push_findings(L, &checkup->left);
    lua_setfield(L, -2, "left");
    return 1;
}

/* With the file for itself as long as it takes. */
static void run(struct checkup *checkup, struct file *file, const struct checkup_options *options, struct error *error) {
    const enum file_use use = options->repair == CHECKUP_LOOK ? FILE_USE_READ : FILE_USE_WRITE;
    struct error ignored = {.code = 0};
    if (file_change_use(file, FILE_USE_NOTHING, use, error) == 0) {
        checkup_run(checkup, file, options, error);
        file_change_use(file, use, FILE_USE_NOTHING, &ignored);
    }
    if (error->code < 0) error_prefix(error, "'%s'", file->name);
}

int lua_check_target(lua_State *L) {
    const struct checkup_options options = read_options(L, 2);
    struct error error = {.code = 0};
    struct checkup *checkup = new_checkup(L);
    struct file *file = lua_storage_test(L, 1);
    if (file != NULL) {
        run(checkup, file, &options, &error);
    } else {
        const char *path = lua_check_path(L, 1);
        if (file_posix_open(path, options.repair == CHECKUP_LOOK ? 0 : FILE_POSIX_WRITE, &file, &error) == 0) {
            run(checkup, file, &options, &error);
            file_release(file);
        }
    }
    return error.code < 0 ? lua_error_push(L, &error) : push_checkup(L, checkup);
}

/* image:check_file(options): of the open image's own file. */
static int image_check_file(lua_State *L) {
    const struct checkup_options options = read_options(L, 2);
    struct error error = {.code = 0};
    struct checkup *checkup = new_checkup(L);
    struct image *image = lua_image_check(L, 1);
    if (options.repair != CHECKUP_LOOK) lua_image_check_unused(L, 1, "repair");
    if (image->format == IMAGE_RAW) error_set(&error, -ENOTSUP, "a raw image has nothing to check");
    else image_checkup(image, &options, checkup, &error);
    return error.code < 0 ? lua_error_push(L, &error) : push_checkup(L, checkup);
}

void lua_check_methods(lua_State *L) {
    static const luaL_Reg methods[] = {{"check_file", image_check_file}, {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
}
