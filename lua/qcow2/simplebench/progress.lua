-- SPDX-License-Identifier: MIT

--- One live line that says what is being measured, on a terminal and nowhere else.
--
--     local live = progress.new()
--     local result = simplebench.bench(func, envs, cases, { progress = live.event })
--     live.finish()
-- @module qcow2.simplebench.progress

local progress = {}

local ERASE = "\r\27[2K" -- to the first column, and the whole line away
local DIM, RED, PLAIN = "\27[2m", "\27[31m", "\27[0m"
local WIDTH = 79 -- where COLUMNS says nothing; a line that wraps could not be erased

local function set(name) return (os.getenv(name) or "") ~= "" end

--- Whether a stream is a terminal. Lua cannot know, so the shell is asked; of other streams than these it knows nothing either.
local function is_terminal(stream)
    if stream == io.stderr then return os.execute "test -t 2" == true end
    if stream == io.stdout then return os.execute "test -t 1" == true end
    return false
end

local function wants_line()
    local term = os.getenv "TERM"
    return not set "CI" and term ~= nil and term ~= "" and term ~= "dumb"
end

--- At most so many characters, on one line.
local function cut(text, width)
    text = text:gsub("%c", " ")
    if not utf8.len(text) then text = text:gsub("[\x80-\xff]", "?") end
    if utf8.len(text) <= width then return text end
    return text:sub(1, utf8.offset(text, width) - 1) .. "…"
end

local function describe(event)
    local state = event.initial and "warming up" or ("run %d/%d"):format(event.run, event.of)
    local failed = event.result and event.result.error ~= nil
    local what = failed and (": failed: %s"):format(tostring(event.result.error)) or event.slow and ": slow" or ""
    return ("%s: %s, %s%s"):format(state, event.case.id, event.env.id, what), failed
end

--- Makes a live line.
-- @param[opt] stream io.stderr (the default) or io.stdout
-- @tparam[opt] boolean terminal whether the stream is a terminal, where that is known; otherwise `test -t` is run once
-- @treturn table event: for bench's option `progress`; finish: erases the line. Both do nothing where the stream is no terminal, where
--   CI is set, or where TERM is dumb or missing; with NO_COLOR set there are no colours.
function progress.new(stream, terminal)
    stream = stream or io.stderr
    if not wants_line() then terminal = false end
    if terminal == nil then terminal = is_terminal(stream) end
    if not terminal then return { event = function() end, finish = function() end } end

    local colours, width, shown = not set "NO_COLOR", math.tointeger(tonumber(os.getenv "COLUMNS")), false
    width = width and width > 1 and width - 1 or WIDTH
    return {
        event = function(event)
            local text, failed = describe(event)
            text = cut(text, width)
            stream:write(ERASE, colours and (failed and RED or DIM) .. text .. PLAIN or text)
            stream:flush()
            shown = true
        end,
        finish = function()
            if not shown then return end
            stream:write(ERASE)
            stream:flush()
            shown = false
        end,
    }
end

return progress
