-- SPDX-License-Identifier: MIT
-- What does one write of 4 KiB move? In the middle of a cluster of 64 KiB that is new, lies in a backing file, is shared with a snapshot,
-- or is compressed; with each way of filling the rest of the cluster, and with subclusters. Counted, not timed: bytes that the engine read,
-- wrote and had zeroed in its own file and below, for the write itself (tables at hand) and for the flush after it.

local qcow2 = require "qcow2"

local CLUSTER, AT, MiB = 65536, 5 * 65536 + 20480, 1 << 20
local MODES = {
    { id = "`cow=write`", open = { cow = "write" } },
    { id = "`cow=zero`", open = { cow = "zero" } },
    { id = "`cow=skip`", open = { cow = "skip" } },
    { id = "`cow=skip`, subclusters", open = { cow = "skip" }, create = { extended_l2 = true } },
}
local SITUATIONS = {
    { id = "a new cluster", prepare = function() end },
    { id = "over a backing file", backing = true, prepare = function() end },
    {
        id = "shared with a snapshot",
        prepare = function(image)
            assert(image:write(0, ("s"):rep(10 * CLUSTER)))
            assert(image:snapshot_create "before")
        end,
    },
    { id = "a compressed cluster", prepare = function(image) assert(image:write_compressed(0, ("c"):rep(10 * CLUSTER))) end },
}

local function create(folder, situation, mode)
    local path, options = folder .. "/moved.qcow2", { size = 64 * MiB }
    for name, value in pairs(mode.create or {}) do options[name] = value end
    if situation.backing then
        local below <close> = assert(qcow2.create(folder .. "/below.qcow2", { size = 64 * MiB }))
        assert(below:write(0, ("b"):rep(10 * CLUSTER)))
        options.backing_file, options.backing_format = "below.qcow2", "qcow2"
    end
    local image <close> = assert(qcow2.create(path, options))
    situation.prepare(image)
    return path
end

local function difference(before, after)
    local found = {}
    for name, value in pairs(after) do found[name] = value - before[name] end
    return found
end

local function kib(bytes) return bytes == 0 and "–" or bytes % 1024 == 0 and ("%d"):format(bytes // 1024) or ("%.1f"):format(bytes / 1024) end

--- KiB copied around the guest's own, read from the image's own file, written and zeroed there; and what the flush wrote.
local function measure(folder, situation, mode)
    local path = create(folder, situation, mode)
    local image <close> = assert(qcow2.open(path, mode.open))
    assert(image:write(9 * CLUSTER, ("t"):rep(CLUSTER))) -- the tables come into memory, and become ours alone
    assert(image:flush())
    local before, guest = image:stats().file, image:stats()
    assert(image:write(AT, ("x"):rep(4096)))
    local written, after = difference(before, image:stats().file), image:stats()
    assert(image:flush())
    local flushed = difference(before, image:stats().file)
    return {
        kib(after.cow_read_bytes - guest.cow_read_bytes), kib(written.read_bytes), ("%d × %s"):format(written.writes, kib(written.written_bytes)),
        kib(written.zeroed_bytes), ("%d × %s"):format(flushed.writes - written.writes, kib(flushed.written_bytes - written.written_bytes)),
    }
end

local pipe <close> = assert(io.popen 'mktemp -d "${TMPDIR:-/tmp}/qcow2-moved.XXXXXX"')
local folder = assert(pipe:read "l", "mktemp made no folder")
print "| 4 KiB into | rest of the cluster | copied, KiB | read here, KiB | writes × KiB | zeroed, KiB | flush: writes × KiB |"
print "| --- | --- | --: | --: | --: | --: | --: |"
for _, situation in ipairs(SITUATIONS) do
    for _, mode in ipairs(MODES) do
        print(("| %s | %s | %s |"):format(situation.id, mode.id, table.concat(measure(folder, situation, mode), " | ")))
    end
end
os.execute("rm -rf '" .. folder .. "'")
