-- SPDX-License-Identifier: MIT

--- Check and repair: options in, a table of numbers and findings out.
--
-- Options: `repair`: "leaks" (refcounts that are too high are lowered, COPIED is set right) or "all" (also too low ones raised, their
-- tables made anew where they are no good); without it nothing is changed. `max_findings` bounds the lists (10000). `memory_limit` bounds the
-- memory for counting ("2G").
--
-- The table has the numbers that qemu-img's JSON has, by its names: image-end-offset, total-clusters, allocated-clusters,
-- fragmented-clusters, compressed-clusters, check-errors, corruptions, leaks, corruptions-fixed, leaks-fixed. After a repair they are those of
-- a second look, so what is left. `findings` is the list of what the first look found: {kind, weight ("leak", "corruption",
-- "check-error"), structure, host_offset, guest_offset, times, sentence, repaired}; `left` is that of the second look.
-- `findings.unlisted` counts what the bound left out. "rebuild-needed" says that "leaks" could not do anything where only "all" helps.
-- @module qcow2.check

local arguments = require "qcow2.arguments"
local core = require "qcow2.core"
local known_options = require "qcow2.known_options"

local check = {}

local OPTIONS = {
    { name = "repair", kind = "choice", choices = { "none", "leaks", "all" }, default = "none", aliases = { [false] = "none" } },
    { name = "max_findings", kind = "integer", min = 0, max = 0xffffffff },
    { name = "memory_limit", kind = "size" },
}

local finding_metatable = { __tostring = function(finding) return finding.sentence end }

local checkup_metatable = {}

function checkup_metatable.__tostring(checkup)
    local lines = {}
    for _, finding in ipairs(checkup.findings) do lines[#lines + 1] = finding.sentence .. (finding.repaired and " (repaired)" or "") end
    lines[#lines + 1] = ("%d corruptions, %d leaked clusters, %d check errors; fixed: %d corruptions, %d leaked clusters"):format(
        checkup.corruptions, checkup.leaks, checkup["check-errors"], checkup["corruptions-fixed"], checkup["leaks-fixed"])
    return table.concat(lines, "\n")
end

local function finished(checkup, message, code)
    if not checkup then return nil, message, code end
    for _, list in ipairs { checkup.findings, checkup.left } do
        for _, finding in ipairs(list) do setmetatable(finding, finding_metatable) end
    end
    return setmetatable(checkup, checkup_metatable)
end

local function read(given)
    local flat, message, misuse = known_options.read(OPTIONS, given)
    if misuse then error("check: " .. message, 4) end
    if not flat then return nil, message, "EINVAL" end
    return flat
end

--- Checks the image at a path or in a storage.
-- @param target path, or a storage
-- @tparam[opt] table opts see above
-- @return the table; or nil, message, code
function check.target(target, opts)
    arguments.target(target, "check")
    local flat, message, code = read(opts)
    if not flat then return nil, message, code end
    return finished(core.check(target, flat))
end

--- Checks an open image: what is in memory is written first.
-- @param image the open image; to be repaired it must be open for writing, without open queues
-- @tparam[opt] table opts see above
-- @return the table; or nil, message, code
function check.image(image, opts)
    arguments.image(image, "check")
    local flat, message, code = read(opts)
    if not flat then return nil, message, code end
    return finished(core.image_methods.check_file(image, flat))
end

return check
