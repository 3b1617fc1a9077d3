/* SPDX-License-Identifier: MIT
 *
 * Buffers: bytes with a fixed length, aligned, all zero at first. Positions count from 0, as offsets in an image do.
 * The userdata is made first and the memory after it, so a failure in between leaks nothing.
 * Used by lua_image for reads and writes without copies.
 */
#include "lua/lua_buffer.h"

#include <lauxlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "lua/lua_error.h"

#define TYPE_NAME "qcow2.Buffer"
#define LENGTH_MAX (UINT64_C(1) << 40)

struct lua_buffer *lua_buffer_check(lua_State *L, int index) {
    return luaL_checkudata(L, index, TYPE_NAME);
}

const uint8_t *lua_buffer_bytes(lua_State *L, int index, uint64_t *length) {
    const struct lua_buffer *buffer = luaL_testudata(L, index, TYPE_NAME);
    if (buffer != NULL) {
        *length = buffer->length;
        return buffer->bytes;
    }
    if (lua_type(L, index) != LUA_TSTRING) luaL_typeerror(L, index, "string or " TYPE_NAME);
    size_t size;
    const char *text = lua_tolstring(L, index, &size);
    *length = size;
    return (const uint8_t *) text;
}

uint8_t *lua_buffer_part(lua_State *L, int index, uint64_t *length) {
    const struct lua_buffer *buffer = lua_buffer_check(L, index);
    const uint64_t start = lua_isnoneornil(L, index + 1) ? 0 : lua_check_unsigned(L, index + 1, "position");
    luaL_argcheck(L, start <= buffer->length, index + 1, "the position passes the end of the buffer");
    *length = lua_isnoneornil(L, index + 2) ? buffer->length - start : lua_check_unsigned(L, index + 2, "length");
    luaL_argcheck(L, *length <= buffer->length - start, index + 2, "the length passes the end of the buffer");
    return buffer->bytes + start;
}

int lua_buffer_new(lua_State *L) {
    uint64_t length;
    const uint8_t *bytes = NULL;
    if (lua_type(L, 1) == LUA_TSTRING) bytes = lua_buffer_bytes(L, 1, &length);
    else length = lua_check_unsigned(L, 1, "length");
    luaL_argcheck(L, length <= LENGTH_MAX, 1, "a buffer is at most 1 TiB long");
    struct lua_buffer *buffer = lua_newuserdatauv(L, sizeof *buffer, 0);
    *buffer = (struct lua_buffer){.bytes = NULL};
    luaL_setmetatable(L, TYPE_NAME);
    buffer->bytes = memory_aligned(max_u64(length, 1));
    if (buffer->bytes == NULL) {
        const struct error error = {.code = -ENOMEM, .text = "no memory for a buffer"};
        return lua_error_push(L, &error);
    }
    buffer->length = length;
    if (bytes != NULL) memcpy(buffer->bytes, bytes, length);
    else memset(buffer->bytes, 0, length);
    return 1;
}

/* When a whole state is closed, a buffer may be collected before the queue that moves bytes to or from it. */
static void free_if_unused(struct lua_buffer *buffer) {
    if (!buffer->collected || buffer->users > 0) return;
    memory_free(buffer->bytes);
    buffer->bytes = NULL;
    buffer->length = 0;
}

void lua_buffer_use(struct lua_buffer *buffer, int by) {
    buffer->users += (unsigned) by;
    free_if_unused(buffer);
}

static int buffer_gc(lua_State *L) {
    struct lua_buffer *buffer = lua_buffer_check(L, 1);
    buffer->collected = true;
    free_if_unused(buffer);
    return 0;
}

static int buffer_len(lua_State *L) {
    lua_pushinteger(L, (lua_Integer) lua_buffer_check(L, 1)->length);
    return 1;
}

/* Raises unless [offset, offset + length) lies inside. */
static void check_part(lua_State *L, const struct lua_buffer *buffer, uint64_t offset, uint64_t length) {
    if (!within_u64(offset, length, buffer->length)) {
        luaL_error(L, "%I bytes at offset %I pass the end of the buffer (%I bytes)", (lua_Integer) length, (lua_Integer) offset,
                   (lua_Integer) buffer->length);
    }
}

/* buffer:get(offset, length): the bytes as a string; without arguments all of them. */
static int buffer_get(lua_State *L) {
    const struct lua_buffer *buffer = lua_buffer_check(L, 1);
    const uint64_t offset = lua_isnoneornil(L, 2) ? 0 : lua_check_unsigned(L, 2, "offset");
    const uint64_t left = buffer->length - min_u64(offset, buffer->length);
    const uint64_t length = lua_isnoneornil(L, 3) ? left : lua_check_unsigned(L, 3, "length");
    check_part(L, buffer, offset, length);
    lua_pushlstring(L, (const char *) buffer->bytes + offset, length);
    return 1;
}

/* buffer:set(offset, string | buffer): copies bytes in. Returns the buffer. */
static int buffer_set(lua_State *L) {
    struct lua_buffer *buffer = lua_buffer_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset");
    uint64_t length;
    const uint8_t *bytes = lua_buffer_bytes(L, 3, &length);
    check_part(L, buffer, offset, length);
    memmove(buffer->bytes + offset, bytes, length);
    lua_settop(L, 1);
    return 1;
}

/* buffer:fill(byte): sets all bytes. Returns the buffer. */
static int buffer_fill(lua_State *L) {
    struct lua_buffer *buffer = lua_buffer_check(L, 1);
    const uint64_t byte = lua_check_unsigned(L, 2, "byte");
    luaL_argcheck(L, byte <= 255, 2, "a byte is 0 to 255");
    memset(buffer->bytes, (int) byte, buffer->length);
    lua_settop(L, 1);
    return 1;
}

static int buffer_tostring(lua_State *L) {
    lua_pushfstring(L, "%s (%I bytes)", TYPE_NAME, (lua_Integer) lua_buffer_check(L, 1)->length);
    return 1;
}

void lua_buffer_register(lua_State *L) {
    static const luaL_Reg methods[] = {{"get", buffer_get}, {"set", buffer_set}, {"fill", buffer_fill}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", buffer_gc}, {"__len", buffer_len}, {"__tostring", buffer_tostring}, {NULL, NULL}};
    luaL_newmetatable(L, TYPE_NAME);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
