/* SPDX-License-Identifier: MIT
 *
 * Fields of Lua tables as C values, and the other way round. Getting takes the table's stack index; an absent field is `otherwise`, a
 * value of another type raises. Setting is for the table on top of the stack.
 */
#ifndef QCOW2_LUA_LUA_FIELD_H
#define QCOW2_LUA_LUA_FIELD_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t lua_field_integer(lua_State *L, int index, const char *name, uint64_t otherwise);
bool lua_field_boolean(lua_State *L, int index, const char *name, bool otherwise);

/* The table keeps the string alive. NULL when it is absent. */
const char *lua_field_string(lua_State *L, int index, const char *name);

/* The place of the field's value among the choices, which NULL ends. */
int lua_field_choice(lua_State *L, int index, const char *name, const char *otherwise, const char *const choices[]);

void lua_set_integer(lua_State *L, const char *name, uint64_t value);
void lua_set_number(lua_State *L, const char *name, double value);
void lua_set_boolean(lua_State *L, const char *name, bool value);

#endif
