-- SPDX-License-Identifier: MIT

--- Files that are written completely or not at all.
-- @module qcow2.simplebench.files

local files = {}

local function write_file(path, text)
    local file, message = io.open(path, "wb")
    if not file then return nil, message end
    local written, write_message = file:write(text)
    local closed, close_message = file:close()
    if written and closed then return true end
    return nil, ("%s: %s"):format(path, write_message or close_message)
end

--- Writes files beside their places (path .. ".new") and renames them when all are there.
-- @tparam {table,...} wanted each with path and text
-- @treturn[1] boolean true
-- @treturn[2] nil
-- @treturn[2] string what went wrong, and with which file; no file was replaced, unless it was renaming that failed
function files.write(wanted)
    local new = {}
    local function give_up(message)
        for _, path in ipairs(new) do os.remove(path) end
        return nil, message
    end
    for i, file in ipairs(wanted) do
        new[i] = file.path .. ".new"
        local written, message = write_file(new[i], file.text)
        if not written then return give_up(message) end
    end
    for i, file in ipairs(wanted) do
        local renamed, message = os.rename(new[i], file.path)
        if not renamed then return give_up(("%s: %s"):format(file.path, (message:gsub("^.*: ", "")))) end
    end
    return true
end

return files
