-- SPDX-License-Identifier: MIT
-- check and repair: the numbers of qemu-img's report on sound images and on damaged ones, and images that are sound again after a repair.
--
-- Damage is done to a fixed image of qemu-img's (64 KiB clusters): header, refcount table, refcount block, L1 table, L2 table and
-- data in host clusters 0, 1, 2, 3, 4 and from 5 on.

local Random = require "spec.support.random"
local json = require "qcow2.simplebench.json"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local CLUSTER = 65536
local TABLE, BLOCK, L1, L2, DATA = 1 * CLUSTER, 2 * CLUSTER, 3 * CLUSTER, 4 * CLUSTER, 5 * CLUSTER
local COPIED = 1 << 63
local NUMBERS = {
    "image-end-offset", "total-clusters", "allocated-clusters", "fragmented-clusters", "compressed-clusters", "check-errors", "corruptions",
    "leaks",
}

local SEED = Random.seed_of_run()
local DIRTY, CORRUPT = 1, 2 -- incompatible features

local folder, remove

local function u64(value) return (">I8"):pack(value) end
local function u16(value) return (">I2"):pack(value) end

local function numbers_of(report)
    local numbers = {}
    for _, name in ipairs(NUMBERS) do numbers[name] = report[name] or 0 end
    return numbers
end

--- qemu-img's numbers and its exit code.
local function theirs(path, repair)
    local words = { "check", "-f", "qcow2", "--output=json", path }
    if repair then table.move({ "-r", repair }, 1, 2, 6, words) end
    local code, text = oracle.run(oracle.img, table.unpack(words))
    local document = json.decode(text:match "{\n.*}" or "")
    return document and numbers_of(document), code, text
end

local function ours(path, options)
    local report = assert(qcow2.check(path, options))
    return numbers_of(report), report
end

--- Lines of qemu-img's that name a fault.
local function sentences(path)
    local _, text = oracle.run(oracle.img, "check", "-f", "qcow2", path)
    local lines = {}
    for line in text:gmatch "[^\n]+" do
        if line:find "^ERROR" or line:find "^Leaked" or line:find "^Can't get" then lines[#lines + 1] = line end
    end
    table.sort(lines)
    return lines
end

local function sorted_findings(report)
    local lines = {}
    for _, finding in ipairs(report.findings) do lines[#lines + 1] = finding.sentence end
    table.sort(lines)
    return lines
end

--- The fixed image, with some data, a preallocated zero cluster and a free tail.
local function make(path)
    oracle.create(path, 64 << 20, {})
    assert(oracle.qemu_io(path, {
        "write -q -P 1 0 128k", "write -q -P 2 1M 64k", "write -q -P 3 2M 64k", "write -q -z 2M 64k", "write -q -P 4 3M 64k",
    }) == 0)
end

-- ---- sound images ----

describe("a check of a sound image", function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    local SHAPES = {
        { name = "as it is made", options = {} },
        { name = "version 2", options = { compat = "0.10" } },
        { name = "with small clusters and wide refcounts", options = { cluster_size = 512, refcount_bits = 64 } },
        { name = "with narrow refcounts", options = { refcount_bits = 1 } },
        { name = "with extended L2 entries", options = { extended_l2 = "on" } },
        { name = "with metadata preallocated", options = { preallocation = "metadata" } },
        { name = "with an external data file", options = { data_file = "data" } },
    }
    for _, shape in ipairs(SHAPES) do
        it(shape.name .. " gives qemu-img's numbers", function()
            if oracle.missing then return pending(oracle.missing) end
            local path = folder .. "/disk.qcow2"
            local options = {}
            for name, value in pairs(shape.options) do options[name] = value end
            if options.data_file then options.data_file = folder .. "/data" end
            oracle.create(path, 8 << 20, options)
            assert.equal(0, (oracle.qemu_io(path, {
                "write -P 1 12345 70000", "write -P 2 5M 1M", "write -z 1M 64k", "write -z -u 5M 200k", "discard 5500k 128k", "write 0 512",
            })))
            local expected, code = theirs(path)
            assert.equal(0, code)
            assert.same(expected, (ours(path)))
            local image <close> = assert(qcow2.open(path))
            assert.same(expected, numbers_of(assert(image:check())))
        end)
    end

    it("with compressed clusters, snapshots and bitmaps gives qemu-img's numbers", function()
        if oracle.missing then return pending(oracle.missing) end
        local source, path = folder .. "/source.raw", folder .. "/disk.qcow2"
        oracle.must("sh", "-c", "seq 1 400000 > " .. source)
        oracle.must(oracle.img, "convert", "-q", "-c", "-f", "raw", "-O", "qcow2", source, path)
        for number = 1, 3 do
            oracle.must(oracle.img, "snapshot", "-c", "s" .. number, path)
            assert.equal(0, (oracle.qemu_io(path, { ("write -P %d %dk 100k"):format(number, 200 * number) })))
        end
        oracle.must(oracle.img, "snapshot", "-a", "s1", path)
        oracle.must(oracle.img, "snapshot", "-d", "s2", path)
        for number = 1, 3 do oracle.must(oracle.img, "bitmap", "--add", path, "b" .. number) end
        local expected, code = theirs(path)
        assert.equal(0, code)
        assert.same(expected, (ours(path)))
    end)

    it("is refused for raw images and for what is no image", function()
        local path = folder .. "/disk.raw"
        local image = assert(qcow2.create(path, { size = "1M", format = "raw" }))
        local report, message, code = image:check()
        assert.same({ nil, "ENOTSUP" }, { report, code })
        assert.matches("raw image has nothing to check", message)
        image:close()
        report, message = qcow2.check(path)
        assert.is_nil(report)
        assert.matches(path, message, 1, true)
        assert.has_error(function() qcow2.check(path, { repare = "all" }) end)
        report, message, code = qcow2.check(path, { repair = "some" })
        assert.same({ nil, "EINVAL" }, { report, code })
        assert.matches("repair is 'some'", message)
    end)
end)

-- ---- damaged images ----

--- Each is done to the file by `plant(path)`. `keeps`: guest bytes are as they were after repair "all", and so says qemu-img.
local DAMAGE = {
    { name = "a leaked cluster", keeps = true, plant = function(path)
        oracle.patch(path, BLOCK + 2 * 20, u16(1))
        oracle.must("truncate", "-s", "2M", path)
    end },
    { name = "a refcount that is too high", keeps = true, plant = function(path) oracle.patch(path, BLOCK + 2 * 5, u16(3)) end },
    { name = "a refcount that is lost", keeps = true, plant = function(path) oracle.patch(path, BLOCK + 2 * 6, u16(0)) end },
    { name = "lost refcounts of the tables", keeps = true, plant = function(path) oracle.patch(path, BLOCK, u16(0):rep(5)) end },
    { name = "all refcounts lost", keeps = true, plant = function(path) oracle.patch(path, BLOCK, ("\0"):rep(CLUSTER)) end },
    { name = "COPIED missing in L2", keeps = true, plant = function(path) oracle.patch(path, L2, u64(DATA)) end },
    { name = "COPIED missing in L1", keeps = true, plant = function(path) oracle.patch(path, L1, u64(L2)) end },
    { name = "one cluster mapped twice", keeps = false, plant = function(path) oracle.patch(path, L2 + 8, u64(DATA | COPIED)) end },
    { name = "reserved bits in L2", keeps = false, plant = function(path) oracle.patch(path, L2, u64(DATA | COPIED | 1 << 3)) end },
    { name = "an unaligned data cluster", keeps = false, plant = function(path) oracle.patch(path, L2, u64(DATA + 512 | COPIED)) end },
    { name = "a data cluster past the end", keeps = false, plant = function(path) oracle.patch(path, L2, u64(1 << 40 | COPIED)) end },
    { name = "an unaligned zero cluster", keeps = true,
        plant = function(path) oracle.patch(path, L2 + 8 * 32, u64(8 * CLUSTER + 512 | COPIED | 1)) end },
    { name = "an unaligned L2 table", keeps = false, plant = function(path) oracle.patch(path, L1, u64(L2 + 512 | COPIED)) end },
    { name = "an L2 table past the end", keeps = false, plant = function(path) oracle.patch(path, L1, u64(1 << 40 | COPIED)) end },
    { name = "reserved bits in L1", keeps = false, plant = function(path) oracle.patch(path, L1, u64(L2 | COPIED | 1)) end },
    { name = "the refcount block lost", keeps = true, plant = function(path) oracle.patch(path, TABLE, u64(0)) end },
    { name = "an unaligned refcount block", keeps = true, plant = function(path) oracle.patch(path, TABLE, u64(BLOCK + 512)) end },
    { name = "a refcount block past the end", keeps = true, plant = function(path) oracle.patch(path, TABLE, u64(1 << 40)) end },
    { name = "a refcount block over data", keeps = true, plant = function(path) oracle.patch(path, TABLE, u64(DATA)) end },
    { name = "a refcount block over the header", keeps = true, plant = function(path) oracle.patch(path, TABLE + 8, u64(BLOCK)) end },
    { name = "reserved bits in the refcount table", keeps = true, plant = function(path) oracle.patch(path, TABLE, u64(BLOCK | 1)) end },
    { name = "a compressed cluster with COPIED", keeps = false,
        plant = function(path) oracle.patch(path, L2, u64(DATA | COPIED | 1 << 62)) end },
}

local function guest_bytes(path)
    local image <close> = assert(qcow2.open(path, { read_only = true }))
    return assert(image:read(0, 4 << 20))
end

describe("a check of an image with", function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    for _, damage in ipairs(DAMAGE) do
        it(damage.name .. " says what qemu-img says", function()
            if oracle.missing then return pending(oracle.missing) end
            local path = folder .. "/disk.qcow2"
            make(path)
            damage.plant(path)
            local bytes = oracle.bytes(path)
            local expected = theirs(path)
            local numbers, report = ours(path)
            assert.same(expected, numbers)
            assert.same(sentences(path), sorted_findings(report))
            assert.equal(bytes, oracle.bytes(path)) -- looking changes nothing
        end)

        it(damage.name .. " is repaired", function()
            if oracle.missing then return pending(oracle.missing) end
            local path, by_them = folder .. "/disk.qcow2", folder .. "/theirs.qcow2"
            make(path)
            local before = guest_bytes(path)
            damage.plant(path)
            oracle.copy(path, by_them)
            local numbers = ours(path, { repair = "all" })
            local again, code, text = theirs(path)
            assert.same(again, numbers)
            theirs(by_them, "all")
            local reachable, their_code = theirs(by_them)
            if their_code == 0 then assert.equal(0, code, text) end
            assert.is_true(numbers.corruptions <= reachable.corruptions, "they repaired more")
            if not damage.keeps then return end
            assert.equal(0, code, text)
            assert.equal(before, guest_bytes(path))
            assert.equal(0, (oracle.compare(path, path, "qcow2", "qcow2")))
            local image <close> = assert(qcow2.open(path))
            assert(image:write(10 << 20, ("n"):rep(1 << 20)))
            assert(image:close())
            assert.equal(0, select(2, theirs(path)))
        end)
    end
end)

-- ---- marks ----

local function mark(path, bits) oracle.patch(path, 72, u64(bits)) end

local function marks(path) return (">I8"):unpack(oracle.bytes(path, 72, 8)) end

describe("an image", function()
    local path

    before_each(function()
        folder, remove = oracle.temp_dir()
        path = folder .. "/disk.qcow2"
        local image <close> = assert(qcow2.create(path, { size = "16M" }))
        assert(image:write(0, ("a"):rep(3 * CLUSTER)))
        image:close()
    end)
    after_each(function() remove() end)

    it("marked dirty is repaired when it opens for writing, and only then", function()
        oracle.patch(path, BLOCK + 2 * 6, u16(0)) -- as lazy refcounts leave it
        mark(path, DIRTY)
        local reader = assert(qcow2.open(path, { read_only = true }))
        assert.equal(("a"):rep(3 * CLUSTER), reader:read(0, 3 * CLUSTER))
        reader:close()
        assert.equal(DIRTY, marks(path))
        local image <close> = assert(qcow2.open(path))
        assert.equal(0, marks(path))
        assert.equal(1, image:refcount(6))
        assert(image:write(8 << 20, ("b"):rep(CLUSTER)))
        assert.equal(("a"):rep(3 * CLUSTER), image:read(0, 3 * CLUSTER))
        assert.same({ 0, 0 }, { image:check().corruptions, image:check().leaks })
    end)

    it("marked dirty that cannot be repaired does not open for writing", function()
        mark(path, DIRTY)
        oracle.patch(path, L2, u64(DATA | COPIED | 1 << 3))
        local image, message, code = qcow2.open(path)
        assert.same({ nil, "ECORRUPT" }, { image, code })
        assert.matches("marked dirty.*left 1 corruptions", message)
        assert.equal(DIRTY, marks(path))
    end)

    it("marked corrupt opens for writing after a repair", function()
        mark(path, CORRUPT)
        assert.is_nil((qcow2.open(path)))
        assert.equal(CORRUPT, marks(path))
        assert.equal(0, qcow2.check(path).corruptions) -- a look alone changes nothing
        assert.equal(CORRUPT, marks(path))
        assert(qcow2.open(path, { repair = true })):close()
        assert.equal(0, marks(path))
        mark(path, CORRUPT)
        assert(qcow2.check(path, { repair = "all" }))
        assert.equal(0, marks(path))
    end)

    it("that is open is checked with what is in memory, and repaired below itself", function()
        local image <close> = assert(qcow2.open(path))
        assert(image:write(10 << 20, ("c"):rep(CLUSTER)))
        assert.equal(4, image:check()["allocated-clusters"])
        assert(image:flush())
        oracle.patch(path, BLOCK + 2 * 5, u16(0))
        local report = assert(image:check { repair = "all" })
        assert.same({ 0, 0 }, { report.corruptions, report.leaks })
        assert.is_true(report["corruptions-fixed"] > 0)
        assert.equal(1, image:refcount(5))
        assert(image:write(12 << 20, ("d"):rep(CLUSTER)))
        assert.equal(("c"):rep(CLUSTER), image:read(10 << 20, CLUSTER))
        assert.equal(("a"):rep(CLUSTER), image:read(0, CLUSTER))
        image:close()
        assert.same({ 0, 0 }, { qcow2.check(path).corruptions, qcow2.check(path).leaks })
        local reader <close> = assert(qcow2.open(path, { read_only = true }))
        local none, message, code = reader:check { repair = "all" }
        assert.same({ nil, "EROFS" }, { none, code })
        assert.matches("reading only", message)
    end)

    it("is repaired of leaks alone where that is asked for", function()
        oracle.patch(path, BLOCK + 2 * 5, u16(2))
        local report = assert(qcow2.check(path, { repair = "leaks" }))
        assert.same({ 0, 0, 1 }, { report.corruptions, report.leaks, report["leaks-fixed"] })
        oracle.patch(path, BLOCK + 2 * 5, u16(0))
        report = assert(qcow2.check(path, { repair = "leaks" }))
        assert.is_true(report.corruptions > 0 and report["rebuild-needed"])
        assert.equal(0, assert(qcow2.check(path, { repair = "all" })).corruptions)
    end)

    it("with more faults than are listed has them all counted", function()
        oracle.patch(path, BLOCK, ("\0"):rep(CLUSTER))
        local report = assert(qcow2.check(path, { max_findings = 2 }))
        assert.equal(2, #report.findings)
        assert.equal(report.corruptions + report["check-errors"] - 2, report.findings.unlisted)
    end)

    it("that takes more memory than it may is refused with a sentence", function()
        local wide <close> = assert(qcow2.create(qcow2.memory(), { size = "4G", cluster_size = 512, preallocation = "metadata" }))
        local report, message, code = wide:check { memory_limit = "64K" }
        assert.same({ nil, "ENOMEM" }, { report, code })
        assert.matches("more than the 65536 bytes of memory it may", message)
        assert.equal(0, assert(wide:check()).corruptions)
        assert(wide:write(0, "still works"))
    end)
end)

-- ---- faults and crashes ----

--- A memory storage with the fixed damage of a kind, made by ours alone.
local function damaged(plant)
    local path = folder .. "/damaged.qcow2"
    local image = assert(qcow2.create(path, { size = "16M" }))
    assert(image:write(0, ("a"):rep(5 * CLUSTER)))
    assert(image:write(7 << 20, ("b"):rep(CLUSTER)))
    assert(image:close())
    plant(path)
    return assert(qcow2.file(path, { write = true }))
end

local function is_whole(storage)
    local image <close> = assert(qcow2.open(storage, { read_only = true }))
    return image:read(0, 5 * CLUSTER) == ("a"):rep(5 * CLUSTER) and image:read(7 << 20, CLUSTER) == ("b"):rep(CLUSTER)
end

describe(("a repair (QCOW2_SEED=%d)"):format(SEED), function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    local KINDS = {
        ["lost refcounts"] = function(path) oracle.patch(path, BLOCK, u16(0):rep(9)) end,
        ["a lost refcount block"] = function(path) oracle.patch(path, TABLE, u64(0)) end,
        ["a lost refcount table"] = function(path) oracle.patch(path, 48, u64(1 << 50)) end,
        ["leaks and flags"] = function(path)
            oracle.patch(path, BLOCK + 2 * 5, u16(9))
            oracle.patch(path, L2 + 8, u64(DATA + CLUSTER))
        end,
    }
    for name, plant in pairs(KINDS) do
        it("of " .. name .. " that any operation of fails can be done again", function()
            for nth = 1, 1000 do
                local file = damaged(plant)
                local disk = assert(qcow2.fault(file))
                disk:fail { nth = nth, code = "EIO" }
                local report, _, code = qcow2.check(disk, { repair = "all" })
                assert.is_true(report ~= nil or code == "EIO")
                local _, failed = disk:fault_counts()
                disk:fail(nil)
                report = assert(qcow2.check(disk, { repair = "all" }))
                assert.same({ 0, 0 }, { report.corruptions, report["check-errors"] })
                assert.is_true(is_whole(file))
                disk:close()
                file:close()
                if failed == 0 then return assert.is_true(nth > 5) end
            end
            error "it never ends"
        end)

        it("of " .. name .. " that the power fails in loses no guest byte", function()
            local random = Random.new(SEED)
            for nth = 1, 40 do
                local file = damaged(plant)
                local disk = assert(qcow2.fault(file, { crashes = true }))
                disk:fail { nth = nth, times = 0, code = "EIO" }
                qcow2.check(disk, { repair = "all" })
                for _, keep in ipairs { 0, 50, 100 } do
                    local left = assert(disk:crash(random:bits(), keep))
                    local report = assert(qcow2.check(left, { repair = "all" }))
                    assert.same({ 0, 0, 0 }, { report.corruptions, report["check-errors"], report.leaks })
                    assert.is_true(is_whole(left))
                    left:close()
                end
                disk:close()
                file:close()
            end
        end)
    end

    it("of random damage ends where qemu-img finds nothing, or says what is left", function()
        if oracle.missing then return pending(oracle.missing) end
        local random, path, base = Random.new(SEED + 1), folder .. "/fuzz.qcow2", folder .. "/base.qcow2"
        make(base)
        oracle.must(oracle.img, "snapshot", "-c", "one", base)
        assert(oracle.qemu_io(base, { "write -q -P 9 64k 64k" }) == 0)
        oracle.must(oracle.img, "bitmap", "--add", base, "b")
        local length = #oracle.bytes(base)
        local sound = 0
        for _ = 1, 40 do
            oracle.copy(base, path)
            for _ = 1, random:between(1, 4) do
                local cluster = random:between(0, length // CLUSTER - 1)
                local offset = cluster * CLUSTER + (cluster == 0 and random:between(0, 127) or random:between(0, 300))
                oracle.patch(path, offset, random:bytes(random:between(1, 3)))
            end
            local report = qcow2.check(path)
            local expected, code, text = theirs(path)
            if report and expected then
                local clean = report.corruptions + report.leaks + report["check-errors"] == 0
                assert.equal(code == 0, clean, ("%s\n%s"):format(text, report))
                local repaired = assert(qcow2.check(path, { repair = "all" }))
                _, code, text = theirs(path)
                clean = repaired.corruptions + repaired.leaks + repaired["check-errors"] == 0
                assert.equal(code == 0, clean, ("after the repair: %s\n%s"):format(text, repaired))
                sound = sound + (clean and 1 or 0)
            end
        end
        assert.is_true(sound > 5)
    end)
end)
