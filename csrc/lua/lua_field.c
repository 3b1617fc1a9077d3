/* SPDX-License-Identifier: MIT
 *
 * One reader and one writer for each kind of value. A value that only a caller who bypasses the Lua side can give raises.
 */
#include "lua/lua_field.h"

#include <lauxlib.h>
#include <string.h>

uint64_t lua_field_integer(lua_State *L, int index, const char *name, uint64_t otherwise) {
    lua_getfield(L, index, name);
    const uint64_t value = lua_isnil(L, -1) ? otherwise : (uint64_t) luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    return value;
}

bool lua_field_boolean(lua_State *L, int index, const char *name, bool otherwise) {
    lua_getfield(L, index, name);
    const bool value = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1) != 0;
    lua_pop(L, 1);
    return value;
}

const char *lua_field_string(lua_State *L, int index, const char *name) {
    lua_getfield(L, index, name);
    const char *value = lua_isnil(L, -1) ? NULL : luaL_checkstring(L, -1);
    lua_pop(L, 1); /* the table keeps it alive */
    return value;
}

int lua_field_choice(lua_State *L, int index, const char *name, const char *otherwise, const char *const choices[]) {
    lua_getfield(L, index, name);
    const char *value = lua_isnil(L, -1) ? otherwise : lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : luaL_typename(L, -1);
    lua_pop(L, 1);
    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(choices[i], value) == 0) return i;
    }
    return luaL_error(L, "option '%s' cannot be '%s'", name, value);
}

void lua_set_integer(lua_State *L, const char *name, uint64_t value) {
    lua_pushinteger(L, (lua_Integer) value);
    lua_setfield(L, -2, name);
}

void lua_set_number(lua_State *L, const char *name, double value) {
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

void lua_set_boolean(lua_State *L, const char *name, bool value) {
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}
