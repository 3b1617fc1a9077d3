/* SPDX-License-Identifier: MIT
 *
 * qcow2.Storage: what an image can lie in besides a path: memory, nothing, a file opened once, storage with faults
 * put in, and (lua_model) a simulated disk.
 */
#ifndef QCOW2_LUA_LUA_STORAGE_H
#define QCOW2_LUA_LUA_STORAGE_H

#include <lua.h>

#include "storage/file.h"

/* The file behind the storage at the index, or NULL when it is no storage; raises when it is closed. Not shared. */
struct file *lua_storage_test(lua_State *L, int index);

/* core.memory([name]), core.null(length [, name]), core.file(path, options), core.fault(storage [, crashes]). */
int lua_storage_memory(lua_State *L);
int lua_storage_null(lua_State *L);
int lua_storage_file(lua_State *L);
int lua_storage_fault(lua_State *L);

/* Pushes a table of operations and bytes by kind. */
void lua_storage_push_stats(lua_State *L, const struct file_stats *stats);

/* Pushes a storage without a file, and returns where the file goes. */
struct file **lua_storage_push(lua_State *L);

/* The storage's methods, from other files too, are registered under this name. */
#define LUA_STORAGE_TYPE "qcow2.Storage"

/* Registers the type. */
void lua_storage_register(lua_State *L);

#endif
