/* SPDX-License-Identifier: MIT
 *
 * Storages on simulated disks. lua/qcow2/model.lua is their face.
 */
#ifndef QCOW2_LUA_LUA_MODEL_H
#define QCOW2_LUA_LUA_MODEL_H

#include <lua.h>

/* core.model(storage, kind [, parameters]): a storage over another one, on a simulated disk of the kind; or nil, message, code. */
int lua_model_new(lua_State *L);

/* core.model_parameters(kind | storage): the kind's name, and a list of {name, unit, value}; nil for a storage that is no model. */
int lua_model_parameters(lua_State *L);

/* core.model_clock(storage): nanoseconds of virtual time. */
int lua_model_clock(lua_State *L);

/* core.model_wait(storage, nanoseconds): lets virtual time go on to then. true; or nil, message, code. */
int lua_model_wait(lua_State *L);

#endif
