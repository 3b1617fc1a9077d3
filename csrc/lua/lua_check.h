/* SPDX-License-Identifier: MIT
 *
 * Checks and repairs from Lua: of a file, and of an open image.
 */
#ifndef QCOW2_LUA_LUA_CHECK_H
#define QCOW2_LUA_LUA_CHECK_H

#include <lua.h>

/* core.check(path | storage, {repair=, max_findings=, memory_limit=}): a table, see qcow2.check. */
int lua_check_target(lua_State *L);

/* Adds the method check_file(options), the same for an open image, to the table of methods on the stack. */
void lua_check_methods(lua_State *L);

#endif
