-- SPDX-License-Identifier: MIT
-- Internal snapshots: ours read and checked by qemu-img, qemu-img's read and applied here, random courses against a model of the disk and
-- of every snapshot, and failures and crashes in the middle of each verb.

local Model = require "spec.support.model"
local Random = require "spec.support.random"
local json = require "qcow2.simplebench.json"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"
local verbs = require "spec.support.verbs"

local SEED = Random.seed_of_run()
local MiB = 1 << 20

local folder, remove

--- An open image, or a closed one by its path, which qemu-img checks too.
local function assert_sound(path)
    local report = assert(type(path) == "string" and qcow2.check(path) or path:check())
    assert.same({ 0, 0, 0 }, { report.corruptions, report.leaks, report["check-errors"] }, tostring(report))
    if oracle.missing or type(path) ~= "string" then return end
    local code, text = oracle.check(path)
    assert.equal(0, code, text)
end

--- What qemu-img lists.
local function theirs(path)
    local document = json.decode(oracle.must(oracle.img, "info", "--output=json", path))
    return document.snapshots or {}
end

describe("snapshots", function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    it("keep the disk as it was, and give it back", function()
        local path = folder .. "/disk.qcow2"
        local image <close> = assert(qcow2.create(path, { size = 64 * MiB }))
        assert(image:write(0, ("a"):rep(300000)))
        assert(image:write_compressed(MiB, ("z"):rep(65536)))
        assert(image:snapshot_create "one")
        assert(image:write(100, "changed"))
        assert(image:write(MiB, "Z"))
        assert(image:snapshot_create "two")
        assert(image:write(20 * MiB, ("b"):rep(70000)))
        assert(image:flush())
        assert_sound(image)
        for name, expected in pairs { one = { "aaaaaaa", "zz" }, two = { "changed", "Zz" } } do
            local shown <close> = assert(qcow2.open(path, { snapshot = name, read_only = true, force_share = true }))
            assert.same(expected, { shown:read(100, 7), shown:read(MiB, 2) })
            assert.equal("\0", shown:read(20 * MiB, 1))
        end
        assert(image:snapshot_apply "1")
        assert.equal("aaaaaaa", image:read(100, 7))
        assert.equal("\0", image:read(20 * MiB, 1))
        assert_sound(image)
        assert(image:snapshot_apply "two")
        assert.equal("changed", image:read(100, 7))
        assert(image:snapshot_delete "one")
        assert(image:snapshot_delete "two")
        assert.same({}, image:snapshots())
        assert.equal("changed", image:read(100, 7))
        assert(image:write(5, "on"))
        assert(image:flush())
        assert_sound(image)
        assert.equal("aaaaaona", image:read(0, 8))
    end)

    it("are listed as qemu-img lists them, whoever took them", function()
        if oracle.missing then return pending(oracle.missing) end
        local path = folder .. "/disk.qcow2"
        oracle.create(path, 16 * MiB, {})
        oracle.must(oracle.img, "snapshot", "-c", "theirs", path)
        local image = assert(qcow2.open(path))
        assert(image:snapshot_create "ours")
        assert(image:snapshot_create "ours") -- names need not be unique
        image:close()
        oracle.must(oracle.img, "snapshot", "-c", "last", path)
        local list = theirs(path)
        image = assert(qcow2.open(path))
        local own = image:snapshots()
        assert.same(list, setmetatable(image:info().snapshots, nil))
        image:close()
        assert.equal(4, #own)
        for i, snapshot in ipairs(own) do
            local other = list[i]
            assert.same({ other.id, other.name, other["vm-state-size"], other["date-sec"], other["date-nsec"], other["vm-clock-sec"] },
                { snapshot.id, snapshot.name, snapshot.vm_state_size, snapshot.date_sec, snapshot.date_nsec, snapshot.vm_clock_nsec // 1000000000 })
            assert.equal(16 * MiB, snapshot.disk_size)
        end
        assert.equal("4", own[4].id)
    end)

    it("of qemu-img's are applied here, and ours there", function()
        if oracle.missing then return pending(oracle.missing) end
        for _, options in ipairs { {}, { compat = "0.10" }, { cluster_size = 512 }, { extended_l2 = "on" }, { refcount_bits = 4 } } do
            local path = folder .. "/disk.qcow2"
            oracle.create(path, 16 * MiB, options)
            oracle.qemu_io(path, { "write -P 1 0 1M", "write -P 2 8M 100k" })
            oracle.must(oracle.img, "snapshot", "-c", "theirs", path)
            oracle.qemu_io(path, { "write -P 3 500k 1M" })
            local image = assert(qcow2.open(path))
            assert(image:snapshot_create "ours")
            assert(image:write(0, ("\9"):rep(2 * MiB)))
            assert(image:snapshot_apply "theirs")
            assert.equal(("\1"):rep(MiB) .. ("\0"):rep(100), image:read(0, MiB + 100))
            assert.equal("\2", image:read(8 * MiB, 1))
            image:close()
            assert_sound(path)
            oracle.must(oracle.img, "snapshot", "-a", "ours", path)
            local code, text = oracle.qemu_io(path, { "read -P 1 0 500k", "read -P 3 500k 1M", "read -P 2 8M 100k" })
            assert.equal(0, code, text)
            assert.is_nil(text:find "verification failed")
            assert_sound(path)
            oracle.must(oracle.img, "snapshot", "-d", "theirs", path)
            image = assert(qcow2.open(path))
            assert(image:snapshot_delete "ours")
            assert.equal("\3", image:read(MiB, 1))
            image:close()
            assert_sound(path)
            os.remove(path)
        end
    end)

    it("remember their size, across resizes", function()
        local path = folder .. "/disk.qcow2"
        local image <close> = assert(qcow2.create(path, { size = 4 * MiB, cluster_size = 4096 }))
        assert(image:write(3 * MiB, "end"))
        assert(image:snapshot_create "small")
        assert(image:resize(64 * MiB))
        assert(image:write(60 * MiB, "far"))
        assert(image:snapshot_create "large")
        assert(image:resize(MiB, { shrink = true }))
        assert.same({ 4 * MiB, 64 * MiB }, { image:snapshots()[1].disk_size, image:snapshots()[2].disk_size })
        assert(image:snapshot_apply "large")
        assert.equal(64 * MiB, image:size())
        assert.equal("far", image:read(60 * MiB, 3))
        assert(image:snapshot_apply "small")
        assert.equal(4 * MiB, image:size())
        assert.equal("end", image:read(3 * MiB, 3))
        assert_sound(image)
        image:close()
        local shown <close> = assert(qcow2.open(path, { snapshot = "large", read_only = true }))
        assert.same({ 64 * MiB, "far" }, { shown:size(), shown:read(60 * MiB, 3) })
    end)

    it("say what deleting them would free", function()
        local path = folder .. "/disk.qcow2"
        local image <close> = assert(qcow2.create(path, { size = 64 * MiB }))
        assert(image:write(0, ("a"):rep(10 << 16)))
        assert(image:snapshot_create "one")
        assert(image:write(0, ("b"):rep(4 << 16)))
        assert(image:snapshot_create "two")
        for _, name in ipairs { "one", "two" } do
            local said = assert(image:snapshot_exclusive(name))
            assert(image:flush())
            local before = assert(image:check())
            local used = 0
            for cluster = 0, before["image-end-offset"] // 65536 - 1 do used = used + (image:refcount(cluster) > 0 and 1 or 0) end
            assert(image:snapshot_delete(name))
            local left = 0
            for cluster = 0, before["image-end-offset"] // 65536 - 1 do left = left + (image:refcount(cluster) > 0 and 1 or 0) end
            -- the table of snapshots goes with the last one, or is written anew
            local table_goes = name == "two" and 1 or 0
            assert.equal(said >> 16, used - left - table_goes)
        end
    end)

    it("are thousands where they must be", function()
        local path = folder .. "/disk.qcow2"
        local image <close> = assert(qcow2.create(path, { size = 8 * MiB, refcount_bits = 16 }))
        assert(image:write(0, "first"))
        for i = 1, 1000 do assert(image:snapshot_create("s" .. i)) end
        assert.equal(1000, #image:snapshots())
        assert(image:write(0, "later"))
        assert(image:snapshot_apply "s500")
        assert.equal("first", image:read(0, 5))
        for i = 1, 1000, 7 do assert(image:snapshot_delete("s" .. i)) end
        assert(image:flush())
        assert_sound(image)
    end)

    it("that cannot be are refused with a sentence", function()
        local function refused(code, text, done, message, found)
            assert.same({ nil, code }, { done, found })
            assert.matches(text, message)
        end
        local narrow <close> = assert(qcow2.create(qcow2.memory(), { size = MiB, refcount_bits = 1 }))
        refused("ENOTSUP", "refcounts of 1 bit", narrow:snapshot_create "x")
        local two <close> = assert(qcow2.create(qcow2.memory(), { size = MiB, refcount_bits = 2 }))
        assert(two:write(0, "x"))
        for i = 1, 2 do assert(two:snapshot_create("s" .. i)) end
        refused("ERANGE", "as many as 2 bits hold", two:snapshot_create "s3")
        local report = assert(two:check())
        assert.same({ 0, 0 }, { report.corruptions, report.leaks })
        assert(two:write(0, "still writable"))
        refused("ENOENT", "there is no snapshot 'none'", two:snapshot_apply "none")
        refused("ENOENT", "there is no snapshot 'none'", two:snapshot_delete "none")
        refused("EINVAL", "1 to 65535 bytes", two:snapshot_create "")
        assert.has_error(function() two:snapshot_create(7) end)
        local raw <close> = assert(qcow2.create(qcow2.memory(), { size = MiB, format = "raw" }))
        refused("ENOTSUP", "a raw image", raw:snapshot_create "x")
        assert.same({}, raw:snapshots())
        local beside <close> = assert(qcow2.create(folder .. "/beside.qcow2", { size = MiB, data_file = "data" }))
        refused("ENOTSUP", "external data file", beside:snapshot_create "x")
        local queue <close> = assert(two:queue { depth = 1 })
        assert.has_error(function() two:snapshot_create "x" end)
        queue:close()
        beside:close()
        refused("EINVAL", "needs read_only", qcow2.open(folder .. "/beside.qcow2", { snapshot = "x" }))
        refused("ENOENT", "no snapshot 'x'", qcow2.open(folder .. "/beside.qcow2", { snapshot = "x", read_only = true }))
    end)
end)

-- ---- random courses ----

local function copy_of(model)
    local copy = Model.copy(model)
    copy.size = model.size
    return copy
end

local function snapshot_step(random, image, state)
    local kind = random:between(1, 3)
    if kind == 1 and #state.names < 6 then
        state.serial = state.serial + 1
        local name = "s" .. state.serial
        assert(image:snapshot_create(name))
        state.names[#state.names + 1] = name
        state.models[name] = copy_of(state.model)
    elseif kind == 2 and #state.names > 0 then
        local name = random:choice(state.names)
        assert(image:snapshot_apply(name))
        state.model = copy_of(state.models[name])
    elseif kind == 3 and #state.names > 0 then
        local index = random:between(1, #state.names)
        local name = table.remove(state.names, index)
        assert(image:snapshot_delete(name))
        state.models[name] = nil
    end
end

describe(("snapshots in random courses (QCOW2_SEED=%d)"):format(SEED), function()
    before_each(function() folder, remove = oracle.temp_dir() end)
    after_each(function() remove() end)

    local SHAPES = {
        { cluster_size = 512 }, { cluster_size = 4096, compat = "0.10" }, { cluster_size = 4096, refcount_bits = 8 }, { cluster_size = 65536 },
        { cluster_size = 16384, extended_l2 = true },
    }
    for index, shape in ipairs(SHAPES) do
        it(("agree with the model, clusters of %d%s"):format(shape.cluster_size, shape.extended_l2 and ", extended L2" or ""), function()
            local random, path = Random.new(SEED + index), folder .. "/disk.qcow2"
            local state = { model = Model.new(2 * MiB), names = {}, models = {}, serial = 0 }
            local options = { size = 2 * MiB }
            for name, value in pairs(shape) do options[name] = value end
            assert(qcow2.create(path, options)):close()
            local image
            for _ = 1, 12 do
                image = assert(qcow2.open(path, { l2_cache_size = 1024, l2_cache_entry_size = 512, refcount_cache_size = 512 }))
                for _ = 1, 25 do
                    if random:one_in(6) then snapshot_step(random, image, state) end
                    if random:one_in(30) then
                        local size = random:between(1, 4096) * 512
                        if options.compat ~= "0.10" or #state.names == 0 then
                            assert(image:resize(size, { shrink = true }))
                            if size < state.model.size then state.model:zero(size, state.model.size - size) end
                            state.model.size = size
                        end
                    end
                    verbs.step(random, image, state.model, {
                        unit = shape.cluster_size, discard_unit = shape.extended_l2 and shape.cluster_size // 32, longest = 60000,
                        discard_zeroes = true, compresses = true,
                    })
                end
                assert.is_nil(state.model:difference(image))
                assert(image:close())
                for name, model in pairs(state.models) do
                    local shown <close> = assert(qcow2.open(path, { snapshot = name, read_only = true }))
                    assert.equal(model.size, shown:size())
                    assert.is_nil(model:difference(shown))
                end
                assert_sound(path)
            end
        end)
    end
end)

-- ---- failures and crashes ----

--- A small image with two snapshots; after `verb`, whatever of it was done, the disk holds `before` or `after`, and snapshots what they held.
local VERBS = {
    { name = "taking one", run = function(image) return image:snapshot_create "new" end, before = "now", after = "now" },
    { name = "applying one", run = function(image) return image:snapshot_apply "old" end, before = "now", after = "old" },
    { name = "deleting one", run = function(image) return image:snapshot_delete "old" end, before = "now", after = "now" },
}

local function build()
    local memory = qcow2.memory "disk"
    local image <close> = assert(qcow2.create(memory, { size = 2 * MiB, cluster_size = 4096 }))
    assert(image:write(0, ("old"):rep(20000)))
    assert(image:write_compressed(MiB, ("o"):rep(8192)))
    assert(image:snapshot_create "old")
    assert(image:write(0, ("now"):rep(10000)))
    assert(image:snapshot_create "mid")
    assert(image:write(30000, ("now"):rep(10000)))
    assert(image:write(MiB, ("n"):rep(100)))
    image:close()
    return memory
end

local CONTENT = {
    old = { ("old"):rep(20000), "o" }, now = { ("now"):rep(20000), "n" }, mid = { ("now"):rep(10000) .. ("old"):rep(10000), "o" },
}

local function holds(storage, snapshot)
    local image, _, code = qcow2.open(storage, { snapshot = snapshot, read_only = true })
    if not image then return code == "ENOENT" and "absent" or error("it does not open: " .. tostring(code)) end
    local bytes, packed = image:read(0, 60000), image:read(MiB, 1)
    image:close()
    for name, content in pairs(CONTENT) do
        if content[1] == bytes and content[2] == packed then return name end
    end
    return "something else"
end

--- After a failure or crash: what every name shows, and that opening for writing makes it sound.
local function judge(storage, verb)
    local disk = holds(storage)
    assert.is_true(disk == verb.before or disk == verb.after, disk)
    local old = holds(storage, "old")
    assert.is_true(old == "old" or (verb.name == "deleting one" and old == "absent"), old)
    assert.equal("mid", holds(storage, "mid"))
    local image <close> = assert(qcow2.open(storage))
    local report = assert(image:check { repair = "leaks" })
    assert.same({ 0, 0, 0 }, { report.corruptions, report.leaks, report["check-errors"] })
    assert(image:write(500, "more"))
    image:close()
    assert.equal("mid", holds(storage, "mid"))
    assert.equal(0, qcow2.check(storage).corruptions)
end

describe(("a failure while (QCOW2_SEED=%d)"):format(SEED), function()
    for _, verb in ipairs(VERBS) do
        it(verb.name .. " leaves the disk and all snapshots whole", function()
            for nth = 1, 1000 do
                local memory = build()
                local disk = assert(qcow2.fault(memory))
                local image = assert(qcow2.open(disk))
                disk:fail { nth = nth }
                local done = verb.run(image)
                local _, failed = disk:fault_counts()
                disk:fail(nil)
                image:close()
                if done then assert.equal(verb.after, holds(disk)) end
                judge(disk, verb)
                disk:close()
                memory:close()
                if failed == 0 then return assert.is_true(nth > 10) end
            end
            error "it never ends"
        end)

        it(verb.name .. " that the power ends leaves them whole too", function()
            local random = Random.new(SEED)
            for nth = 1, 60 do
                local memory = build()
                local disk = assert(qcow2.fault(memory, { crashes = true }))
                local image = assert(qcow2.open(disk))
                disk:fail { nth = nth, times = 0 }
                verb.run(image)
                for _, keep in ipairs { 0, 50, 100 } do
                    local left = assert(disk:crash(random:bits(), keep))
                    judge(left, verb)
                    left:close()
                end
                disk:fail(nil)
                pcall(image.close, image)
                disk:close()
                memory:close()
            end
        end)
    end
end)
