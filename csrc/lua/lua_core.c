/* SPDX-License-Identifier: MIT
 *
 * qcow2.core: the table of contents of the binding. Each line names a function and its file is the name's first word.
 *
 *   lua_image    create, open, and the methods of an image      lua_inspect  the methods that only look
 *   lua_buffer   aligned bytes                                  lua_storage  memory, null, file, fault
 *   lua_options  option tables as structs                       lua_field    fields of tables
 *   lua_bench    benchmark runs                                 lua_queue    many requests at once
 *   lua_model    simulated disks                                lua_error    nil, message, code
 *   lua_check    check and repair
 *
 * The module `qcow2` is the face; scripts do not require this one.
 */
#include <lauxlib.h>
#include <lua.h>
#include <time.h>

#include "base/memory.h"
#include "lua/lua_bench.h"
#include "lua/lua_buffer.h"
#include "lua/lua_check.h"
#include "lua/lua_error.h"
#include "lua/lua_image.h"
#include "lua/lua_inspect.h"
#include "lua/lua_model.h"
#include "lua/lua_queue.h"
#include "lua/lua_snapshot.h"
#include "lua/lua_storage.h"

/* core.clock(): seconds on a clock that only goes forward. */
static int core_clock(lua_State *L) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lua_pushnumber(L, (lua_Number) now.tv_sec + (lua_Number) now.tv_nsec / 1e9);
    return 1;
}

/* core.memory_fail_at(n): for specs: the nth allocation from now fails, once; 0 turns it off. */
static int core_memory_fail_at(lua_State *L) {
    memory_fail_at(lua_check_unsigned(L, 1, "n"));
    return 0;
}

/* core.memory_stats(): allocations asked for, and blocks held. */
static int core_memory_stats(lua_State *L) {
    lua_pushinteger(L, (lua_Integer) memory_asked());
    lua_pushinteger(L, (lua_Integer) memory_held());
    return 2;
}

int luaopen_qcow2_core(lua_State *L);

__attribute__((visibility("default"))) int luaopen_qcow2_core(lua_State *L) {
    static const luaL_Reg functions[] = {{"create", lua_image_create},
                                         {"open", lua_image_open},
                                         {"check", lua_check_target},
                                         {"buffer", lua_buffer_new},
                                         {"memory", lua_storage_memory},
                                         {"null", lua_storage_null},
                                         {"file", lua_storage_file},
                                         {"fault", lua_storage_fault},
                                         {"bench", lua_bench_new},
                                         {"queue", lua_queue_new},
                                         {"model", lua_model_new},
                                         {"model_parameters", lua_model_parameters},
                                         {"model_clock", lua_model_clock},
                                         {"model_wait", lua_model_wait},
                                         {"clock", core_clock},
                                         {"memory_fail_at", core_memory_fail_at},
                                         {"memory_stats", core_memory_stats},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_buffer_register(L);
    lua_storage_register(L);
    lua_bench_register(L);
    lua_queue_register(L);
    lua_image_register(L);
    lua_inspect_methods(L);
    lua_check_methods(L);
    lua_snapshot_methods(L);
    lua_setfield(L, -2, "image_methods");
    luaL_getmetatable(L, LUA_IMAGE_TYPE);
    lua_setfield(L, -2, "image_metatable");
    return 1;
}
