-- SPDX-License-Identifier: MIT

--- Random verbs done to an image and to the model of it. Small places near cluster edges are met more often than chance would.
local verbs = {}

--- A range of at most `longest` bytes in the disk; often at or across a multiple of `unit`.
local function range(random, size, unit, longest)
    local length = random:between(1, math.min(longest, size))
    if random:one_in(3) then length = math.min(random:between(1, 3) * unit, size) end
    local offset = random:between(0, size - length)
    if random:one_in(2) then offset = offset // unit * unit end
    if random:one_in(4) then offset = math.max(0, offset - random:between(1, math.min(unit, 600))) end
    return offset, math.min(length, size - offset)
end

local function write(random, image, model, options)
    local offset, length = range(random, model.size, options.unit, options.longest)
    local bytes = random:one_in(12) and ("\0"):rep(length) or random:bytes(length)
    assert(image:write(offset, bytes))
    model:write(offset, bytes)
end

local function write_zeroes(random, image, model, options)
    local offset, length = range(random, model.size, options.unit, options.longest * 2)
    assert(image:write_zeroes(offset, length, { unmap = random:one_in(2) }))
    model:zero(offset, length)
end

local function read(random, image, model, options)
    local offset, length = range(random, model.size, options.unit, options.longest)
    local bytes = assert(image:read(offset, length))
    assert(bytes == model:read(offset, length), ("read of %d bytes at %d differs from the model"):format(length, offset))
end

--- Whole clusters read as zeroes after a discard, with extended L2 whole subclusters; parts of them stay as they are.
local function discard(random, image, model, options)
    local offset, length = range(random, model.size, options.unit, options.longest * 2)
    assert(image:discard(offset, length))
    if not options.discard_zeroes then return end
    local unit = options.discard_unit or options.unit
    local first = (offset + unit - 1) // unit * unit
    local last = offset + length == model.size and model.size or (offset + length) // unit * unit
    if last > first then model:zero(first, last - first) end
end

--- Whole clusters, to the disk's end at most; most of them shrink.
local function write_compressed(random, image, model, options)
    local unit = options.unit
    local first = random:between(0, (model.size - 1) // unit)
    local length = math.min(random:between(1, math.max(1, options.longest // unit)) * unit, model.size - first * unit)
    local part = random:bytes(random:between(1, 300))
    local bytes = random:one_in(4) and random:bytes(length) or part:rep(length // #part + 1):sub(1, length)
    assert(image:write_compressed(first * unit, bytes))
    model:write(first * unit, bytes)
end

local function flush(_, image) assert(image:flush()) end

local WEIGHTED = { write, write, write, write, read, read, write_zeroes, flush }

--- Does one random verb. options: unit (cluster size in bytes), discard_unit (what a discard clears as a whole; unit), longest (bytes),
-- discard_zeroes (whether discards are done), compresses (whether compressed clusters are written).
function verbs.step(random, image, model, options)
    if options.discard_zeroes and random:one_in(10) then return discard(random, image, model, options) end
    if options.compresses and random:one_in(5) then return write_compressed(random, image, model, options) end
    return random:choice(WEIGHTED)(random, image, model, options)
end

return verbs
