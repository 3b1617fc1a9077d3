/* SPDX-License-Identifier: MIT
 *
 * The methods of qcow2.Image that look inside and change nothing.
 */
#ifndef QCOW2_LUA_LUA_INSPECT_H
#define QCOW2_LUA_LUA_INSPECT_H

#include <lua.h>

/* Adds them to the table of methods on top of the stack. */
void lua_inspect_methods(lua_State *L);

#endif
