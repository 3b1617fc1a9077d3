-- SPDX-License-Identifier: MIT
-- Runs busted in the interpreter that runs this file: the installed command may belong to another Lua.
if _VERSION ~= "Lua 5.4" then
    io.stderr:write(("the specs run under Lua 5.4; this is %s\n"):format(_VERSION))
    os.exit(1)
end
local found, runner = pcall(require, "busted.runner")
if not found then
    io.stderr:write "busted was not found for this Lua 5.4: try `make deps`\n"
    os.exit(1)
end
runner { standalone = false }
