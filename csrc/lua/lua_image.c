/* SPDX-License-Identifier: MIT
 *
 * The synchronous face of an image: each method checks its arguments, runs one request on the C stack and turns the result
 * into values. Nothing that may longjmp runs between a request's start and its end. close, __gc and __close are one function.
 */
#include "lua/lua_image.h"

#include <lauxlib.h>

#include "base/bytes.h"
#include "format/codec.h"
#include "image/chain.h"
#include "image/create.h"
#include "image/resize.h"
#include "lua/lua_buffer.h"
#include "lua/lua_error.h"
#include "lua/lua_field.h"
#include "lua/lua_options.h"
#include "lua/lua_storage.h"

static struct lua_image *check_userdata(lua_State *L, int index) { return luaL_checkudata(L, index, LUA_IMAGE_TYPE); }

struct image *lua_image_check(lua_State *L, int index) {
    const struct lua_image *self = check_userdata(L, index);
    if (self->image == NULL) luaL_error(L, "attempt to use a closed image");
    return self->image;
}

void lua_image_use(lua_State *L, int index, int by) {
    struct lua_image *self = check_userdata(L, index);
    self->users += (unsigned) by;
}

/* Raises what would pull the image away from under its users. */
static void check_unused(lua_State *L, const struct lua_image *self, const char *what) {
    if (self->users > 0) luaL_error(L, "attempt to %s an image with %d open queues or benchmark runs", what, (int) self->users);
}

void lua_image_check_unused(lua_State *L, int index, const char *what) { check_unused(L, check_userdata(L, index), what); }

/* ---- life ---- */

/* Whatever may run Lua code (a metamethod, a finalizer when memory is asked for) may close an image or a storage. So each function here
 * reads its options and asks for its memory first, and only then takes the image or file that it works on. */

int lua_image_create(lua_State *L) {
    const struct create_options options = lua_options_create(L, 2);
    struct error error = {.code = 0};
    struct file *file = lua_storage_test(L, 1);
    if (file != NULL) image_create(file, &options, &error);
    else image_create_path(lua_check_path(L, 1), &options, &error);
    return lua_error_or_true(L, &error);
}

int lua_image_open(lua_State *L) {
    const struct image_options options = lua_options_open(L, 2);
    struct error error = {.code = 0};
    struct lua_image *self = lua_newuserdatauv(L, sizeof *self, 0);
    *self = (struct lua_image){.image = NULL};
    luaL_setmetatable(L, LUA_IMAGE_TYPE);
    struct file *file = lua_storage_test(L, 1);
    const char *path = file == NULL ? lua_check_path(L, 1) : NULL;
    if (file != NULL) image_open(file, &options, &self->image, &error);
    else image_open_path(path, &options, &self->image, &error);
    return error.code < 0 ? lua_error_push(L, &error) : 1;
}

static int image_close_method(lua_State *L) {
    struct lua_image *self = check_userdata(L, 1);
    struct image *image = self->image;
    struct error error = {.code = 0};
    check_unused(L, self, "close");
    self->image = NULL;
    image_close(image, &error);
    return lua_error_or_true(L, &error);
}

/* ---- bytes ---- */

static int run(lua_State *L, struct request *request) {
    request_run(request);
    return lua_error_or_true(L, &request->error);
}

/* image:read(offset, length): a string. */
static int image_read(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    struct request request;
    luaL_Buffer buffer;
    const bool inside = within_u64(offset, length, image->size);
    uint8_t *bytes = (uint8_t *) luaL_buffinitsize(L, &buffer, inside ? length : 0);
    image = lua_image_check(L, 1);
    request_start(&request, image, REQUEST_READ, offset, length, bytes);
    if (request_run(&request) < 0) return lua_error_push(L, &request.error);
    luaL_pushresultsize(&buffer, length);
    return 1;
}

/* image:read_into(offset, buffer [, position [, length]]). */
static int image_read_into(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset");
    uint64_t length;
    uint8_t *bytes = lua_buffer_part(L, 3, &length);
    struct request request;
    request_start(&request, image, REQUEST_READ, offset, length, bytes);
    return run(L, &request);
}

/* image:write(offset, string | buffer). */
static int image_write(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset");
    uint64_t length;
    const uint8_t *bytes = lua_buffer_bytes(L, 3, &length);
    struct request request;
    request_start(&request, image, REQUEST_WRITE, offset, length, (void *) (uintptr_t) bytes);
    return run(L, &request);
}

/* image:write_compressed(offset, string | buffer [, level]). */
static int image_write_compressed(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset");
    const int most = image->format == IMAGE_RAW ? 0 : codec_level_max((enum codec) image->header.compression_type);
    const lua_Integer level = luaL_optinteger(L, 4, CODEC_LEVEL_DEFAULT);
    uint64_t length;
    const uint8_t *bytes = lua_buffer_bytes(L, 3, &length);
    struct request request;
    request_start(&request, image, REQUEST_PACK, offset, length, (void *) (uintptr_t) bytes);
    request.level = (int) level;
    if (level < 0 || (most > 0 && level > most)) {
        error_set(&request.error, -EINVAL, "level is %lld; 1 to %d are allowed", (long long) level, most);
        return lua_error_push(L, &request.error);
    }
    return run(L, &request);
}

static bool option(lua_State *L, int index, const char *name) {
    if (lua_isnoneornil(L, index)) return false;
    luaL_checktype(L, index, LUA_TTABLE);
    return lua_field_boolean(L, index, name, false);
}

/* image:write_zeroes(offset, length [, {unmap = boolean}]). */
static int image_write_zeroes(lua_State *L) {
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    const bool unmap = option(L, 4, "unmap");
    struct image *image = lua_image_check(L, 1);
    struct request request;
    request_start(&request, image, REQUEST_ZERO, offset, length, NULL);
    request.may_unmap = unmap;
    return run(L, &request);
}

/* image:discard(offset, length). */
static int image_discard(lua_State *L) {
    struct image *image = lua_image_check(L, 1);
    const uint64_t offset = lua_check_unsigned(L, 2, "offset"), length = lua_check_unsigned(L, 3, "length");
    struct request request;
    request_start(&request, image, REQUEST_DISCARD, offset, length, NULL);
    return run(L, &request);
}

/* image:flush(). */
static int image_flush(lua_State *L) {
    struct request request;
    request_start(&request, lua_image_check(L, 1), REQUEST_FLUSH, 0, 0, NULL);
    return run(L, &request);
}

/* image:size(): bytes. */
static int image_size(lua_State *L) {
    lua_pushinteger(L, (lua_Integer) lua_image_check(L, 1)->size);
    return 1;
}

/* image:resize(size): bytes; what is new reads as zeroes. Smaller only with {shrink = true}. */
static int image_resize_method(lua_State *L) {
    const uint64_t size = lua_check_unsigned(L, 2, "size");
    const bool may_shrink = option(L, 3, "shrink");
    struct image *image = lua_image_check(L, 1);
    check_unused(L, check_userdata(L, 1), "resize");
    struct error error = {.code = 0};
    if (size < image->size && !may_shrink) {
        error_set(&error, -EINVAL, "resize from %llu to %llu bytes throws bytes away: say shrink = true", (unsigned long long) image->size,
                  (unsigned long long) size);
        return lua_error_push(L, &error);
    }
    image_resize(image, size, &error);
    return lua_error_or_true(L, &error);
}

static int image_is_open(lua_State *L) {
    lua_pushboolean(L, check_userdata(L, 1)->image != NULL);
    return 1;
}

void lua_image_register(lua_State *L) {
    static const luaL_Reg methods[] = {{"close", image_close_method},
                                       {"read", image_read},
                                       {"read_into", image_read_into},
                                       {"write", image_write},
                                       {"write_compressed", image_write_compressed},
                                       {"write_zeroes", image_write_zeroes},
                                       {"discard", image_discard},
                                       {"flush", image_flush},
                                       {"size", image_size},
                                       {"is_open", image_is_open},
                                       {"resize", image_resize_method},
                                       {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", image_close_method}, {"__close", image_close_method}, {NULL, NULL}};
    luaL_newmetatable(L, LUA_IMAGE_TYPE);
    luaL_setfuncs(L, meta, 0);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "methods");
    lua_remove(L, -2);
}
