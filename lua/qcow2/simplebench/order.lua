-- SPDX-License-Identifier: MIT

--- Who runs next: the orders in which the columns of a case take turns.
--
-- A round is one run of each column that still runs. What drifts (a disk that fills, a neighbour that wakes) falls on all
-- columns of a round alike. In "interleaved" order every round is the same; in "random" order each is shuffled, so that
-- being first, or after a certain other one, falls on all alike too.
-- @module qcow2.simplebench.order

local random = require "qcow2.simplebench.random"

local order = { names = { "interleaved", "random" } }

--- Makes the rounds of one list of columns.
-- @string name "interleaved" or "random"
-- @int seed what the random order is drawn from
-- @treturn function called with a list; gives a new list, the order of the next round
function order.rounds(name, seed)
    local generator = random.new(seed)
    return function(list)
        local round = table.move(list, 1, #list, 1, {})
        return name == "random" and generator:shuffle(round) or round
    end
end

return order
