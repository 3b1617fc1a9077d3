/* SPDX-License-Identifier: MIT
 *
 * Parameters go in and come out by the names that device_parameters has for them, in its units.
 */
#include "lua/lua_model.h"

#include <lauxlib.h>

#include "lua/lua_error.h"
#include "lua/lua_storage.h"
#include "storage/file_model.h"

static struct file *check_file(lua_State *L, int index) {
    struct file *file = lua_storage_test(L, index);
    if (file == NULL) luaL_typeerror(L, index, LUA_STORAGE_TYPE);
    return file;
}

/* Sets what the table at the index names. */
static int read_parameters(lua_State *L, int index, struct device_parameters *parameters, struct error *error) {
    if (lua_isnoneornil(L, index)) return 0;
    luaL_checktype(L, index, LUA_TTABLE);
    for (unsigned i = 0; i < device_parameter_count(parameters->kind); i++) {
        const char *name = device_parameter_at(parameters, i).name;
        lua_getfield(L, index, name);
        const bool given = !lua_isnil(L, -1);
        const lua_Integer value = given ? luaL_checkinteger(L, -1) : 0;
        lua_pop(L, 1);
        if (given && device_parameter_set(parameters, name, (uint64_t) value, error) < 0) return error->code;
    }
    return device_check(parameters, error);
}

int lua_model_new(lua_State *L) {
    check_file(L, 1);
    const char *name = luaL_checkstring(L, 2);
    struct error error = {.code = 0};
    enum device_kind kind;
    if (device_kind_find(name, &kind, &error) < 0) return lua_error_push(L, &error);
    struct device_parameters parameters = device_defaults(kind);
    if (read_parameters(L, 3, &parameters, &error) < 0) return lua_error_push(L, &error);
    struct file **file = lua_storage_push(L);
    struct file *below = check_file(L, 1); /* after what may run Lua code (see lua_image) */
    if (file_model_open(&parameters, below, file, &error) < 0) return lua_error_push(L, &error);
    return 1;
}

static int push_parameters(lua_State *L, const struct device_parameters *parameters) {
    const unsigned count = device_parameter_count(parameters->kind);
    lua_pushstring(L, device_kind_name(parameters->kind));
    lua_createtable(L, (int) count, 0);
    for (unsigned i = 0; i < count; i++) {
        const struct device_parameter parameter = device_parameter_at(parameters, i);
        lua_createtable(L, 0, 3);
        lua_pushstring(L, parameter.name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, parameter.unit);
        lua_setfield(L, -2, "unit");
        lua_pushinteger(L, (lua_Integer) parameter.value);
        lua_setfield(L, -2, "value");
        lua_rawseti(L, -2, (lua_Integer) i + 1);
    }
    return 2;
}

int lua_model_parameters(lua_State *L) {
    struct error error = {.code = 0};
    enum device_kind kind;
    if (lua_type(L, 1) == LUA_TSTRING) {
        if (device_kind_find(lua_tostring(L, 1), &kind, &error) < 0) return lua_error_push(L, &error);
        const struct device_parameters defaults = device_defaults(kind);
        return push_parameters(L, &defaults);
    }
    const struct file *file = check_file(L, 1);
    return file_is_model(file) ? push_parameters(L, file_model_parameters(file)) : 0;
}

int lua_model_clock(lua_State *L) {
    struct file *file = check_file(L, 1);
    luaL_argcheck(L, file_is_model(file), 1, "a storage made by model() expected");
    lua_pushinteger(L, (lua_Integer) file_model_clock(file));
    return 1;
}

int lua_model_wait(lua_State *L) {
    struct file *file = check_file(L, 1);
    const uint64_t until = lua_check_unsigned(L, 2, "nanoseconds");
    struct ring *ring = NULL;
    struct error error = {.code = 0};
    luaL_argcheck(L, file_is_model(file), 1, "a storage made by model() expected");
    if (ring_virtual_open(file, 1, &ring, &error) == 0) ring_reap(ring, until);
    ring_close(ring);
    return lua_error_or_true(L, &error);
}
