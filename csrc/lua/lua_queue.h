/* SPDX-License-Identifier: MIT
 *
 * qcow2.core's queue: many requests on one image, started and taken back by number. lua/qcow2/queue.lua is its face.
 */
#ifndef QCOW2_LUA_LUA_QUEUE_H
#define QCOW2_LUA_LUA_QUEUE_H

#include <lua.h>

/* core.queue(image, depth [, aio]): a queue; or nil, message, code. */
int lua_queue_new(lua_State *L);

/* Registers the type. */
void lua_queue_register(lua_State *L);

#endif
