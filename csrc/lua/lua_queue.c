/* SPDX-License-Identifier: MIT
 *
 * A queue and its ring, in the thread of the state. The image is the first user value and counts the queue as a user; the second is a
 * table in which each request under way keeps the string or buffer that it moves bytes to or from, by its number, so that
 * nothing is collected under it. Closing waits for everything, as collecting does.
 */
#include "lua/lua_queue.h"

#include <lauxlib.h>

#include "jobs/queue.h"
#include "lua/lua_buffer.h"
#include "lua/lua_error.h"
#include "lua/lua_image.h"
#include "storage/file_model.h"

#define TYPE_NAME "qcow2.CoreQueue"
#define IMAGE_VALUE 1
#define BYTES_VALUE 2

struct lua_queue {
    struct queue queue;
    struct ring *ring; /* NULL: closed */
};

static struct lua_queue *check_queue(lua_State *L) {
    struct lua_queue *self = luaL_checkudata(L, 1, TYPE_NAME);
    if (self->ring == NULL) luaL_error(L, "attempt to use a closed queue");
    return self;
}

/* ---- life ---- */

int lua_queue_new(lua_State *L) {
    lua_image_check(L, 1);
    const uint64_t depth = lua_check_unsigned(L, 2, "depth");
    const int aio = lua_isnoneornil(L, 3) ? -1 : luaL_checkoption(L, 3, NULL, ring_kind_names);
    luaL_argcheck(L, depth >= 1 && depth <= QUEUE_DEPTH_MAX, 2, "depth is 1 to 1024");
    struct error error = {.code = 0};
    struct lua_queue *self = lua_newuserdatauv(L, sizeof *self, 2);
    *self = (struct lua_queue){.ring = NULL};
    luaL_setmetatable(L, TYPE_NAME);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, IMAGE_VALUE);
    lua_newtable(L);
    lua_setiuservalue(L, -2, BYTES_VALUE);
    struct image *image = lua_image_check(L, 1); /* after what may run Lua code (see lua_image) */
    struct ring *ring = NULL;
    const enum ring_kind kind = aio < 0 ? image->aio : (enum ring_kind) aio;
    if (ring_open_on(image->file, kind, (unsigned) depth * MOVES_MAX, &ring, &error) < 0) return lua_error_push(L, &error);
    if (queue_init(&self->queue, image, ring, (unsigned) depth) < 0) {
        ring_close(ring);
        error_set(&error, -ENOMEM, "no memory for a queue of depth %u", (unsigned) depth);
        return lua_error_push(L, &error);
    }
    self->ring = ring;
    lua_image_use(L, 1, 1);
    return 1;
}

/* The queue at 1 forgets what its request `number` moved. */
static void let_go(lua_State *L, lua_Integer number) {
    lua_getiuservalue(L, 1, BYTES_VALUE);
    lua_rawgeti(L, -1, number);
    if (lua_type(L, -1) == LUA_TUSERDATA) lua_buffer_use(lua_buffer_check(L, -1), -1);
    lua_pop(L, 1);
    lua_pushboolean(L, 0); /* keeps the table's shape: no memory is asked for */
    lua_rawseti(L, -2, number);
    lua_pop(L, 1);
}

/* queue:close(): waits for what is under way; its results are lost. */
static int queue_close(lua_State *L) {
    struct lua_queue *self = luaL_checkudata(L, 1, TYPE_NAME);
    struct ring *ring = self->ring;
    struct queue_slot *slot;
    if (ring == NULL) return 0;
    do {
        queue_poll(&self->queue, true);
        while ((slot = queue_take_done(&self->queue)) != NULL) {
            let_go(L, slot - self->queue.slots + 1);
            queue_slot_give(slot);
        }
    } while (self->queue.busy > 0);
    self->ring = NULL;
    queue_destroy(&self->queue);
    ring_close(ring);
    lua_getiuservalue(L, 1, IMAGE_VALUE);
    lua_image_use(L, -1, -1);
    return 0;
}

/* ---- requests ---- */

struct arguments {
    enum request_kind kind;
    uint64_t offset, length;
    uint8_t *bytes;
    bool unmap;
};

/* After verb and offset: for a read a buffer, position and length; for a write a string, or what a read has; else a length. */
static struct arguments read_arguments(lua_State *L) {
    static const char *const verbs[] = {"read", "write", "write_zeroes", "discard", "flush", NULL};
    static const enum request_kind kinds[] = {REQUEST_READ, REQUEST_WRITE, REQUEST_ZERO, REQUEST_DISCARD, REQUEST_FLUSH};
    struct arguments arguments = {.kind = kinds[luaL_checkoption(L, 2, NULL, verbs)]};
    if (arguments.kind == REQUEST_FLUSH) return arguments;
    arguments.offset = lua_check_unsigned(L, 3, "offset");
    if (arguments.kind == REQUEST_WRITE && lua_type(L, 4) == LUA_TSTRING) {
        arguments.bytes = (uint8_t *) (uintptr_t) lua_buffer_bytes(L, 4, &arguments.length);
    } else if (arguments.kind == REQUEST_READ || arguments.kind == REQUEST_WRITE) {
        arguments.bytes = lua_buffer_part(L, 4, &arguments.length);
    } else {
        arguments.length = lua_check_unsigned(L, 4, "length");
        arguments.unmap = lua_toboolean(L, 5) != 0;
    }
    return arguments;
}

/* queue:submit(verb, offset, …): the request's number; false when all slots are taken. */
static int queue_submit(lua_State *L) {
    struct lua_queue *self = check_queue(L);
    lua_settop(L, 6);
    const struct arguments arguments = read_arguments(L);
    if (self->queue.free == NULL) {
        lua_pushboolean(L, 0);
        return 1;
    }
    const lua_Integer number = self->queue.free - self->queue.slots + 1;
    lua_getiuservalue(L, 1, BYTES_VALUE);
    lua_pushvalue(L, 4);
    lua_rawseti(L, -2, number); /* may raise: nothing is taken yet */
    if (arguments.bytes != NULL && lua_type(L, 4) == LUA_TUSERDATA) lua_buffer_use(lua_buffer_check(L, 4), 1);
    struct queue_slot *slot = queue_slot_take(&self->queue);
    request_start(&slot->request, self->queue.image, arguments.kind, arguments.offset, arguments.length, arguments.bytes);
    slot->request.may_unmap = arguments.unmap;
    queue_start(slot);
    lua_pushinteger(L, number);
    return 1;
}

/* queue:reap(wait): the number of a request that is done, and true; or nil, message, code in place of true. Nothing when none is; with `wait`
 * that means that none is under way. */
static int queue_reap(lua_State *L) {
    struct lua_queue *self = check_queue(L);
    queue_poll(&self->queue, lua_toboolean(L, 2) != 0);
    struct queue_slot *slot = queue_take_done(&self->queue);
    if (slot == NULL) return 0;
    const lua_Integer number = slot - self->queue.slots + 1;
    const struct error error = slot->request.error;
    let_go(L, number);
    queue_slot_give(slot);
    lua_pushinteger(L, number);
    return 1 + lua_error_or_true(L, &error);
}

/* queue:under_way(): requests that are not done. */
static int queue_under_way(lua_State *L) {
    lua_pushinteger(L, (lua_Integer) check_queue(L)->queue.busy);
    return 1;
}

void lua_queue_register(lua_State *L) {
    static const luaL_Reg methods[] = {
        {"submit", queue_submit}, {"reap", queue_reap}, {"under_way", queue_under_way}, {"close", queue_close}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", queue_close}, {"__close", queue_close}, {NULL, NULL}};
    luaL_newmetatable(L, TYPE_NAME);
    luaL_setfuncs(L, meta, 0);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
