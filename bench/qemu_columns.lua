-- SPDX-License-Identifier: MIT
-- Columns for qemu-img programs, for scenarios that can have them do the same work: a list such as "qemu-img,/opt/qemu/bin/qemu-img".

local support = require "support"

local qemu_columns = {}

qemu_columns.HELP = [[
  --qemu-img LIST      columns for these programs (default: the installed one, when there is one; "" for none)
]]

--- A column for each program: {id, program}. The script ends when one that was asked for is no qemu-img.
-- @tparam ?string list programs, between commas; nil for the installed one, if any
function qemu_columns.of(list)
    local columns, seen = {}, {}
    for program in (list or "qemu-img"):gmatch "[^,]+" do
        local found, message = support.qemu_img(program)
        if not found and list then support.stop(message) end
        local id = found and "qemu-img " .. found.version
        if id and seen[id] then id = ("%s (%s)"):format(id, program) end
        if id and seen[id] then support.stop(("--qemu-img names '%s' twice"):format(program)) end
        if id then seen[id], columns[#columns + 1] = true, { id = id, program = program } end
    end
    return columns
end

return qemu_columns
