-- SPDX-License-Identifier: MIT

--- An entry of an L1 table, in its parts.
-- @module qcow2.table_entry

local table_entry = {}

local OFFSET_MASK = 0x00fffffffffffe00 -- the specification's bits 9 to 55
local COPIED = 1 << 63

--- The host offset that an entry names, in bytes, or nil where it names none; and whether COPIED is set.
function table_entry.parts(entry)
    local offset = entry & OFFSET_MASK
    return offset ~= 0 and offset or nil, entry & COPIED ~= 0
end

return table_entry
