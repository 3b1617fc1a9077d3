-- SPDX-License-Identifier: MIT
-- Runs busted in the interpreter that runs this file: the installed command may belong to another Lua.
require "busted.runner" { standalone = false }
