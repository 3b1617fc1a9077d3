/* SPDX-License-Identifier: MIT
 *
 * qcow2.Buffer: a run of bytes that is aligned for O_DIRECT and can be read into and written from without copying.
 */
#ifndef QCOW2_LUA_LUA_BUFFER_H
#define QCOW2_LUA_LUA_BUFFER_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct lua_buffer {
    uint8_t *bytes; /* NULL until made, and after __gc */
    uint64_t length;
    unsigned users; /* requests under way that move bytes to or from it */
    bool collected; /* by the garbage collector: the bytes go with the last user */
};

/* The buffer at the index; raises when it is none. */
struct lua_buffer *lua_buffer_check(lua_State *L, int index);

/* The bytes of a string or buffer argument; raises when it is neither. They may only be read. */
const uint8_t *lua_buffer_bytes(lua_State *L, int index, uint64_t *length);

/* The part of the buffer at `index` that the two arguments after it (position, length) name; without them, all of it. */
uint8_t *lua_buffer_part(lua_State *L, int index, uint64_t *length);

/* The buffer gets one more user, or one less. */
void lua_buffer_use(struct lua_buffer *buffer, int by);

/* core.buffer(length | string): a new buffer. */
int lua_buffer_new(lua_State *L);

/* Registers the type. */
void lua_buffer_register(lua_State *L);

#endif
