/* SPDX-License-Identifier: MIT
 *
 * The flat tables that options.lua makes, as structs. They are checked there; here a missing field is the default.
 */
#ifndef QCOW2_LUA_LUA_OPTIONS_H
#define QCOW2_LUA_LUA_OPTIONS_H

#include <lua.h>

#include "image/create.h"
#include "image/open.h"

/* Reads the table at the index. Strings in the result live as long as the table. */
struct image_options lua_options_open(lua_State *L, int index);
struct create_options lua_options_create(lua_State *L, int index);

#endif
