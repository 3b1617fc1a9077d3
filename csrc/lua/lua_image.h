/* SPDX-License-Identifier: MIT
 *
 * qcow2.Image: an open image, synchronous. Methods that only look are in lua_inspect.
 */
#ifndef QCOW2_LUA_LUA_IMAGE_H
#define QCOW2_LUA_LUA_IMAGE_H

#include <lua.h>

#include "guest/request.h"

#define LUA_IMAGE_TYPE "qcow2.Image"

struct lua_image {
    struct image *image; /* NULL before open and after close */
    unsigned users;      /* queues and benchmark runs that are not closed: the image stays open as long */
};

/* The open image at the index; raises when it is none or closed. */
struct image *lua_image_check(lua_State *L, int index);

/* The image at the index gets one more user, or one less. */
void lua_image_use(lua_State *L, int index, int by);

/* Raises when queues or benchmark runs are using the image at the index; `what` cannot be done then. */
void lua_image_check_unused(lua_State *L, int index, const char *what);

/* core.create(path | storage, options): true. core.open(path | storage, options): an image. */
int lua_image_create(lua_State *L);
int lua_image_open(lua_State *L);

/* Registers the type and leaves its table of methods on the stack, so that Lua modules can add theirs. */
void lua_image_register(lua_State *L);

#endif
