-- SPDX-License-Identifier: MIT
rockspec_format = "3.0"
package = "qcow2"
version = "scm-1"
source = { url = "git+file://." } -- a checkout: `luarocks --lua-version=5.4 make`
description = {
    summary = "A qcow2 image engine",
    detailed = "Creates, opens, reads and writes qcow2 and raw disk images, and measures what that costs.",
    license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua >= 5.4, < 5.5" }
external_dependencies = { ZLIB = { header = "zlib.h" } }
build = {
    type = "make",
    build_variables = {
        CC = "$(CC)",
        CFLAGS = "$(CFLAGS)",
        LUA_INCDIR = "$(LUA_INCDIR)",
        ZLIB_INCDIR = "$(ZLIB_INCDIR)",
        ZLIB_LIBDIR = "$(ZLIB_LIBDIR)",
    },
    install_variables = {
        CC = "$(CC)",
        CFLAGS = "$(CFLAGS)",
        LUA_INCDIR = "$(LUA_INCDIR)",
        ZLIB_INCDIR = "$(ZLIB_INCDIR)",
        ZLIB_LIBDIR = "$(ZLIB_LIBDIR)",
        INST_PREFIX = "$(PREFIX)",
        INST_LIBDIR = "$(LIBDIR)",
        INST_LUADIR = "$(LUADIR)",
        INST_BINDIR = "$(BINDIR)",
    },
}
test = { type = "command", command = "make test" }
