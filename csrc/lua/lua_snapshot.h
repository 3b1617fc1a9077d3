/* SPDX-License-Identifier: MIT
 *
 * Snapshots of an open image, for Lua.
 */
#ifndef QCOW2_LUA_LUA_SNAPSHOT_H
#define QCOW2_LUA_LUA_SNAPSHOT_H

#include <lua.h>

/* Adds the methods snapshot_table, take_snapshot, apply_snapshot, delete_snapshot and exclusive_of_snapshot to the table on top. */
void lua_snapshot_methods(lua_State *L);

#endif
