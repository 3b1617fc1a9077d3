/* SPDX-License-Identifier: MIT
 *
 * One method a verb; the list as a Lua table. The table of snapshots is freed even when pushing raises: it lives in a userdata whose
 * finalizer clears it. snapshots.lua has the public forms.
 */
#include "lua/lua_snapshot.h"

#include <lauxlib.h>

#include "image/snapshot.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "lua/lua_image.h"

#define TABLE_TYPE "qcow2.SnapshotTable"

static int table_gc(lua_State *L) {
    snapshot_table_clear(lua_touserdata(L, 1));
    return 0;
}

static struct snapshot_table *new_table(lua_State *L) {
    struct snapshot_table *table = lua_newuserdatauv(L, sizeof *table, 0);
    *table = (struct snapshot_table){.items = NULL};
    if (luaL_newmetatable(L, TABLE_TYPE) != 0) {
        lua_pushcfunction(L, table_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return table;
}

static void push_snapshot(lua_State *L, const struct snapshot *snapshot) {
    lua_createtable(L, 0, 9);
    lua_pushstring(L, snapshot->id);
    lua_setfield(L, -2, "id");
    lua_pushstring(L, snapshot->name);
    lua_setfield(L, -2, "name");
    lua_set_integer(L, "vm_state_size", snapshot->vm_state_size);
    lua_set_integer(L, "disk_size", snapshot->disk_size);
    lua_set_integer(L, "date_sec", snapshot->seconds);
    lua_set_integer(L, "date_nsec", snapshot->nanoseconds);
    lua_set_integer(L, "vm_clock_nsec", snapshot->guest_clock);
    if (snapshot->icount != UINT64_MAX) lua_set_integer(L, "icount", snapshot->icount);
}

/* image:snapshot_table(): a list of tables. */
static int image_snapshot_table(lua_State *L) {
    struct snapshot_table *table = new_table(L);
    struct image *image = lua_image_check(L, 1);
    struct error error = {.code = 0};
    if (snapshot_list(image, table, &error) < 0) return lua_error_push(L, &error);
    lua_createtable(L, (int) table->count, 0);
    for (uint32_t i = 0; i < table->count; i++) {
        push_snapshot(L, &table->items[i]);
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
    return 1;
}

static int run(lua_State *L, int (*verb)(struct image *image, const char *name, struct error *error), const char *what) {
    struct image *image = lua_image_check(L, 1);
    const char *name = luaL_checkstring(L, 2);
    struct error error = {.code = 0};
    lua_image_check_unused(L, 1, what);
    verb(image, name, &error);
    return lua_error_or_true(L, &error);
}

static int image_take_snapshot(lua_State *L) { return run(L, snapshot_create, "snapshot_create"); }
static int image_apply_snapshot(lua_State *L) { return run(L, snapshot_apply, "snapshot_apply"); }
static int image_delete_snapshot(lua_State *L) { return run(L, snapshot_delete, "snapshot_delete"); }

/* image:exclusive_of_snapshot(id or name): bytes. */
static int image_snapshot_exclusive(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const char *name = luaL_checkstring(L, 2);
    struct error error = {.code = 0};
    uint64_t bytes = 0;
    lua_image_check_unused(L, 1, "snapshot_exclusive");
    if (snapshot_exclusive(image, name, &bytes, &error) < 0) return lua_error_push(L, &error);
    lua_pushinteger(L, (lua_Integer) bytes);
    return 1;
}

void lua_snapshot_methods(lua_State *L) {
    static const luaL_Reg methods[] = {{"snapshot_table", image_snapshot_table},
                                       {"take_snapshot", image_take_snapshot},
                                       {"apply_snapshot", image_apply_snapshot},
                                       {"delete_snapshot", image_delete_snapshot},
                                       {"exclusive_of_snapshot", image_snapshot_exclusive},
                                       {NULL, NULL}};
    luaL_setfuncs(L, methods, 0);
}
