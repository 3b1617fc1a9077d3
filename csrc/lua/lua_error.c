/* SPDX-License-Identifier: MIT
 *
 * Errors and argument checks that all types of the binding share.
 * Failures of the engine are values (nil, message, code); a call that no correct program makes raises.
 * Nothing here is called while the engine holds a lock.
 */
#include "lua/lua_error.h"

#include <stdint.h>
#include <string.h>

int lua_error_push(lua_State *L, const struct error *error) {
    lua_pushnil(L);
    lua_pushstring(L, error->text);
    lua_pushstring(L, error_name(error->code));
    return 3;
}

int lua_error_or_true(lua_State *L, const struct error *error) {
    if (error->code < 0) return lua_error_push(L, error);
    lua_pushboolean(L, 1);
    return 1;
}

uint64_t lua_check_unsigned(lua_State *L, int index, const char *name) {
    const lua_Integer value = luaL_checkinteger(L, index);
    if (value < 0) luaL_argerror(L, index, lua_pushfstring(L, "%s must be 0 or more, not %I", name, value));
    return (uint64_t) value;
}

const char *lua_check_path(lua_State *L, int index) {
    size_t length;
    const char *path = luaL_checklstring(L, index, &length);
    luaL_argcheck(L, strlen(path) == length, index, "a path has no zero byte");
    return path;
}
