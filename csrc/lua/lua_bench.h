/* SPDX-License-Identifier: MIT
 *
 * qcow2.Bench: a benchmark run on open images. lua/qcow2/bench.lua is its face, and knows the options.
 */
#ifndef QCOW2_LUA_LUA_BENCH_H
#define QCOW2_LUA_LUA_BENCH_H

#include <lua.h>

/* core.bench(jobs, options): a run that has not been started; or nil, message, code. */
int lua_bench_new(lua_State *L);

/* Registers the type. */
void lua_bench_register(lua_State *L);

#endif
