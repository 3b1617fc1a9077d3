/* SPDX-License-Identifier: MIT
 *
 * One way to give an error to Lua: nil, message, code. Misuse raises instead.
 */
#ifndef QCOW2_LUA_LUA_ERROR_H
#define QCOW2_LUA_LUA_ERROR_H

#include <lauxlib.h>
#include <lua.h>

#include "base/error.h"

/* Pushes nil, the sentence and the code's name ("ENOSPC", "ECORRUPT"). Returns 3. */
int lua_error_push(lua_State *L, const struct error *error);

/* Pushes true when error->code is 0, else as lua_error_push. Returns the number of values. */
int lua_error_or_true(lua_State *L, const struct error *error);

/* The integer argument, which must be 0 or more; raises otherwise, naming it. */
uint64_t lua_check_unsigned(lua_State *L, int index, const char *name);

/* The argument as a path: a string without a zero byte; raises otherwise. */
const char *lua_check_path(lua_State *L, int index);

#endif
