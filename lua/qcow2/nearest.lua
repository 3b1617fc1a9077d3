-- SPDX-License-Identifier: MIT

--- "Did you mean …?": the known name that somebody most probably wanted to type.
-- @module qcow2.nearest

-- What it costs to get from one name to another. Leaving letters out is the likelier mistake: "fmt" means "format", not "file".
local INSERT, REPLACE, SWAP = 2, 3, 2 -- or delete; one letter by another; two neighbours
local LIMIT = 0.75 -- of the longer name's length: one letter in four may be another one

local function distance(a, b)
    local before, row = {}, {} -- the rows of i − 2 and i − 1
    for j = 0, #b do row[j] = j * INSERT end
    for i = 1, #a do
        local next_row = { [0] = i * INSERT }
        for j = 1, #b do
            local same = a:byte(i) == b:byte(j)
            local cost = math.min(row[j] + INSERT, next_row[j - 1] + INSERT, row[j - 1] + (same and 0 or REPLACE))
            local swapped = i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j)
            next_row[j] = swapped and math.min(cost, before[j - 2] + SWAP) or cost
        end
        before, row = row, next_row
    end
    return row[#b]
end

--- Finds the known name nearest to an unknown one.
-- @string name the unknown name; case, - and _ do not count
-- @tparam {string,...} known the known names; of equally near ones the first wins
-- @treturn ?string nil when nothing is near
local function nearest(name, known)
    local wanted = name:lower():gsub("-", "_")
    local best, best_distance
    for _, candidate in ipairs(known) do
        local plain = candidate:lower():gsub("-", "_")
        local limit = math.max(#wanted, #plain) * LIMIT
        if math.abs(#wanted - #plain) * INSERT <= limit then -- else it cannot be near, however long the name is
            local d = distance(wanted, plain)
            if d <= limit and (not best or d < best_distance) then best, best_distance = candidate, d end
        end
    end
    return best
end

return nearest
