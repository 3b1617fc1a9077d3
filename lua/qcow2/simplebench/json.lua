-- SPDX-License-Identifier: MIT

--- JSON, the same bytes for the same value.
--
-- Keys are sorted; integers stay integers; floats are written with the fewest digits that read back as the same float.
-- A table with a first element is an array, any other is an object; `json.array` makes an empty one an array.
-- @module qcow2.simplebench.json

local json = {}

local DEPTH_MAX = 200
local ARRAY = {} -- the metatable that marks arrays

--- Stands for null, which a Lua table cannot hold.
json.null = setmetatable({}, { __tostring = function() return "null" end })

--- Marks a table as an array, which only an empty one needs.
-- @tparam table list
-- @treturn table the same
function json.array(list) return setmetatable(list, ARRAY) end

-- ---- writing ----

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }

local function quote(text)
    if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
    return '"' .. text:gsub('[%c"\\]', function(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function number(value)
    if math.type(value) == "integer" then return ("%d"):format(value) end
    if value ~= value or value == math.huge or value == -math.huge then error(value .. " cannot be written as JSON", 0) end
    for digits = 15, 17 do
        local text = ("%." .. digits .. "g"):format(value)
        if tonumber(text) == value then return text:find("[.e]") and text or text .. ".0" end
    end
end

local write

local function write_all(parts, open, close, pad, depth)
    if #parts == 0 then return open .. close end
    if not pad then return open .. table.concat(parts, ",") .. close end
    local line = "\n" .. pad:rep(depth)
    return open .. line .. pad .. table.concat(parts, "," .. line .. pad) .. line .. close
end

local function write_array(list, pad, depth)
    local parts = {}
    for i, value in ipairs(list) do parts[i] = write(value, pad, depth + 1) end
    return write_all(parts, "[", "]", pad, depth)
end

local function write_object(object, pad, depth)
    local keys, parts = {}, {}
    for key in pairs(object) do
        if type(key) ~= "string" then error(("a %s cannot be a JSON key"):format(type(key)), 0) end
        keys[#keys + 1] = key
    end
    table.sort(keys)
    for i, key in ipairs(keys) do
        parts[i] = quote(key) .. (pad and ": " or ":") .. write(object[key], pad, depth + 1)
    end
    return write_all(parts, "{", "}", pad, depth)
end

function write(value, pad, depth)
    local kind = type(value)
    if depth > DEPTH_MAX then error("too deep for JSON, or in a circle", 0) end
    if value == json.null then return "null" end
    if kind == "string" then return quote(value) end
    if kind == "number" then return number(value) end
    if kind == "boolean" then return tostring(value) end
    if kind ~= "table" then error(("a %s cannot be written as JSON"):format(kind), 0) end
    if getmetatable(value) == ARRAY or value[1] ~= nil then return write_array(value, pad, depth) end
    return write_object(value, pad, depth)
end

--- Writes a value.
-- @param value strings, numbers, booleans, json.null, and tables of them
-- @string[opt] pad what one level is indented by; without it all is one line
-- @treturn string
-- @raise for what JSON cannot hold: functions, NaN, keys that are no strings, circles
function json.encode(value, pad)
    local done, text = pcall(write, value, pad, 0)
    if not done then error(text, 2) end
    return text
end

-- ---- reading: each function takes text and position, and gives value and the position after it ----

local read

local function fail(position, what) error({ message = ("JSON, byte %d: %s"):format(position, what) }, 0) end

local function skip(text, position) return text:find("[^ \t\r\n]", position) or #text + 1 end

local UNESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

local function read_unicode(text, position)
    local code = tonumber(text:match("^%x%x%x%x", position + 2) or fail(position, "\\u wants four hexadecimal digits"), 16)
    if code & 0xfc00 ~= 0xd800 then return utf8.char(code), position + 6 end
    local low = tonumber(text:match("^\\u([dD][c-fC-F]%x%x)", position + 6) or fail(position, "half a surrogate pair"), 16)
    return utf8.char(0x10000 + ((code & 0x3ff) << 10 | low & 0x3ff)), position + 12
end

local function read_string(text, position)
    local parts, start = {}, position
    position = position + 1
    while true do
        local stop = text:find('[%c"\\]', position) or fail(start, "a string does not end")
        parts[#parts + 1] = text:sub(position, stop - 1)
        local c = text:sub(stop, stop)
        if c == '"' then return table.concat(parts), stop + 1 end
        if c ~= "\\" then fail(stop, "a control character in a string") end
        local escape = text:sub(stop + 1, stop + 1)
        if escape == "u" then
            parts[#parts + 1], position = read_unicode(text, stop)
        else
            parts[#parts + 1], position = UNESCAPES[escape] or fail(stop, "an unknown escape"), stop + 2
        end
    end
end

local function read_number(text, position)
    local literal = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", position)
    local digits = literal and literal:match("^-?(%d+)")
    if not literal or (#digits > 1 and digits:sub(1, 1) == "0") or literal:find "%.%D" or literal:find "%.$" or not tonumber(literal) then
        fail(position, "no number")
    end
    return tonumber(literal), position + #literal
end

local function read_array(text, position, depth)
    local list = json.array {}
    position = skip(text, position + 1)
    if text:sub(position, position) == "]" then return list, position + 1 end
    while true do
        list[#list + 1], position = read(text, position, depth + 1)
        position = skip(text, position)
        local c = text:sub(position, position)
        if c == "]" then return list, position + 1 end
        if c ~= "," then fail(position, "',' or ']' is missing") end
        position = position + 1
    end
end

local function read_object(text, position, depth)
    local object = {}
    position = skip(text, position + 1)
    if text:sub(position, position) == "}" then return object, position + 1 end
    while true do
        position = skip(text, position)
        if text:sub(position, position) ~= '"' then fail(position, "a key is missing") end
        local key
        key, position = read_string(text, position)
        position = skip(text, position)
        if text:sub(position, position) ~= ":" then fail(position, "':' is missing") end
        object[key], position = read(text, position + 1, depth + 1)
        position = skip(text, position)
        local c = text:sub(position, position)
        if c == "}" then return object, position + 1 end
        if c ~= "," then fail(position, "',' or '}' is missing") end
        position = position + 1
    end
end

local WORDS = { ["true"] = true, ["false"] = false, null = json.null }

function read(text, position, depth)
    if depth > DEPTH_MAX then fail(position, "too deep") end
    position = skip(text, position)
    local c = text:sub(position, position)
    if c == '"' then return read_string(text, position) end
    if c == "[" then return read_array(text, position, depth) end
    if c == "{" then return read_object(text, position, depth) end
    if c:find("[%d-]") then return read_number(text, position) end
    local word = text:match("^%l+", position)
    if word == nil or WORDS[word] == nil then fail(position, "a value is missing") end
    return WORDS[word], position + #word
end

--- Reads a value. Null becomes json.null; of keys that are there twice the last counts.
-- @string text
-- @return[1] the value
-- @treturn[2] nil
-- @treturn[2] string what is wrong, and at which byte
function json.decode(text)
    local done, value, position = pcall(read, text, 1, 0)
    if done and skip(text, position) <= #text then
        done, value = false, { message = ("JSON, byte %d: something after the value"):format(skip(text, position)) }
    end
    if done then return value end
    if type(value) ~= "table" then error(value, 0) end
    return nil, value.message
end

return json
