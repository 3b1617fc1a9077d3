-- SPDX-License-Identifier: MIT

--- Arguments of the methods that are written in Lua: what is no correct call raises, at the line that made it.
-- @module qcow2.arguments

local core = require "qcow2.core"
local known_options = require "qcow2.known_options"
local size = require "qcow2.size"

local arguments = {}

--- Raises unless `self` is an open image.
-- @tparam string name of the method
function arguments.image(self, name)
    if getmetatable(self) ~= core.image_metatable then
        error(("%s: an image expected, got %s (is it called with ':'?)"):format(name, type(self)), 3)
    end
    if not core.image_methods.is_open(self) then error(("%s: attempt to use a closed image"):format(name), 3) end
end

--- A number of bytes: a whole number from 0 on, or a size like "64K".
-- @tparam string name of the method
-- @tparam string what the argument's
function arguments.bytes(value, name, what)
    if type(value) == "string" then
        local bytes, message = size.parse(value, what)
        if not bytes then error(("%s: %s"):format(name, message), 3) end
        return bytes
    end
    local number = math.type(value) and math.tointeger(value)
    if number and number >= 0 then return number end
    error(("%s: %s must be bytes (a whole number from 0 on, or a size like '64K'), not %s"):format(name, what,
        math.type(value) and value or type(value)), 3)
end

--- A whole number from 0 on.
function arguments.index(value, name, what)
    if math.type(value) == "integer" and value >= 0 then return value end
    error(("%s: %s must be a whole number from 0 on, not %s"):format(name, what, math.type(value) and value or type(value)), 3)
end

--- A method's table of options in plain form; nil is a table without any.
-- @tparam {table,...} known as for known_options.read
function arguments.options(known, given, name)
    local flat, message = known_options.read(known, given)
    if not flat then error(("%s: %s"):format(name, message), 3) end
    return flat
end

--- Where an image lies: a path or a storage.
function arguments.target(value, name)
    if type(value) == "string" and value ~= "" and not value:find("\0", 1, true) then return value end
    if type(value) == "userdata" then return value end
    error(("%s: a path or a storage expected, got %s"):format(name, value == "" and "''" or type(value)), 3)
end

return arguments
