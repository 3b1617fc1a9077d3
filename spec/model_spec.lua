-- SPDX-License-Identifier: MIT

--- Random verbs against a plain table: after any course of writes, zero writes, discards, flushes, resizes and reopenings an
-- image holds what the table holds. Caches are as small as they can be, so tables come and go all the time; the counts at the end
-- of each spec show that they did. Memory and files, every cache mode, with and without backing files. No other program is needed;
-- where qemu-img is there, it must also find each file without an error or a leak. The seed is in the names; QCOW2_SEED repeats a run.
local Model = require "spec.support.model"
local Random = require "spec.support.random"
local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"
local verbs = require "spec.support.verbs"

local OPERATIONS = { memory = 6000, growing = 3000, files = 5000, backing = 5000, raw = 1000 } -- 20,000 in a run
local SIZE_MAX, LONGEST = 8 << 20, 200000 -- bytes
local seed = Random.seed_of_run()

local folder, remove
local has_zstd = qcow2.create(qcow2.memory(), { size = "1M", compression_type = "zstd" }) ~= nil

--- What the rounds of one spec did, added up.
local function new_totals()
    return {
        operations = 0, rounds = 0, reopened = 0, l2_evictions = 0, refcount_evictions = 0, flush_rounds = 0, tables = 0,
        cow_bytes = 0, l1_growths = 0, refcount_growths = 0,
    }
end

local function add_stats(totals, image)
    local stats = image:stats()
    if not stats.l2_cache then return end
    totals.l2_evictions = totals.l2_evictions + stats.l2_cache.evictions
    totals.refcount_evictions = totals.refcount_evictions + stats.refcount_cache.evictions
    totals.flush_rounds = totals.flush_rounds + stats.flush_rounds
    totals.tables = totals.tables + stats.tables_allocated
    totals.cow_bytes = totals.cow_bytes + stats.cow_read_bytes + stats.cow_written_bytes
end

local function add_growth(totals, before, after)
    if not before then return end
    if after.l1_size > before.l1_size then totals.l1_growths = totals.l1_growths + 1 end
    if after.refcount_table_clusters > before.refcount_table_clusters then totals.refcount_growths = totals.refcount_growths + 1 end
end

--- One image's options to be created with; small clusters are likelier, since they have more tables.
local function create_options(random)
    local bits = random:one_in(2) and random:between(9, 12) or random:between(9, 21)
    local cluster_size = 1 << bits
    local old = random:one_in(4)
    local extended = not old and bits >= 14 and random:one_in(2)
    return {
        extended_l2 = extended or nil, compression_type = has_zstd and not old and random:one_in(3) and "zstd" or nil,
        size = math.min(random:between(1, 2000) * 512 + cluster_size * random:between(0, 400), SIZE_MAX),
        cluster_size = cluster_size, compat = old and "0.10" or "1.1", refcount_bits = old and 16 or 1 << random:between(0, 6),
        preallocation = random:choice { "off", "off", "off", "metadata" },
    }
end

local function open_options(random)
    return {
        cow = random:choice { "write", "zero", "skip" }, l2_cache_size = 512, l2_cache_entry_size = 512, refcount_cache_size = 512,
        cache = random:choice { "writeback", "writeback", "unsafe", "none", "directsync", "writethrough" },
        overlap_check = random:choice { "none", "constant", "cached", "all" },
        detect_zeroes = random:choice { "off", "off", "on", "unmap" },
    }
end

--- The model of a disk of `size` bytes that shows another one's bytes up to its end.
local function overlay_of(backing, size)
    local model = backing:copy()
    if size < model.size then model:zero(size, model.size - size) end
    model.size = size
    return model
end

local function resize(random, round)
    local old = round.model.size
    local unit = random:choice { 512, round.unit, 64 * round.unit }
    local size = math.max(512, math.min(old + random:between(-8, 12) * unit, SIZE_MAX))
    if round.format == "raw" then size = size // 512 * 512 end
    assert(round.image:resize(size, { shrink = true }))
    round.model = overlay_of(round.model, size)
    assert.equal(size, round.image:size())
end

local function reopen(random, round)
    add_stats(round.totals, round.image)
    assert(round.image:close())
    local options = open_options(random)
    if round.format == "raw" then options = { format = "raw", cache = options.cache } end
    round.image = assert(qcow2.open(round.target, options))
    round.totals.reopened = round.totals.reopened + 1
    assert.equal(round.model.size, round.image:size())
end

local function step(random, round)
    if random:one_in(25) then return resize(random, round) end
    if random:one_in(30) then return reopen(random, round) end
    verbs.step(random, round.image, round.model, {
        unit = round.unit, discard_unit = round.options.extended_l2 and round.unit // 32,
        longest = math.min(random:choice { 3, 3, 400 } * round.unit, LONGEST), discard_zeroes = round.discard_zeroes,
        compresses = round.format ~= "raw",
    })
end

--- A course of random steps on the image at round.target, then everything is read, before closing and after.
local function walk(random, round)
    local totals = round.totals
    local before = round.image.header
    for _ = 1, random:between(1, 250) do
        step(random, round)
        totals.operations = totals.operations + 1
    end
    assert.is_nil(round.model:difference(round.image))
    add_growth(totals, before, round.image.header)
    reopen(random, round)
    assert.is_nil(round.model:difference(round.image))
    assert(round.image:close())
    if round.format ~= "raw" and type(round.target) == "string" and not oracle.missing then
        local code, text = oracle.check(round.target)
        assert.equal(0, code, text)
    end
    totals.rounds = totals.rounds + 1
end

--- Runs rounds until there are enough operations. `make(random)` gives a round: target, model, options. An error names the round's seed.
local function run(kind, make)
    local random, totals = Random.new(seed), new_totals()
    while totals.operations < OPERATIONS[kind] do
        local state = random.state
        local round = make(random)
        local options = round.options
        round.totals = totals
        local good, message = xpcall(function()
            round.image = assert(qcow2.open(round.target, round.options.format and { format = round.options.format } or open_options(random)))
            walk(random, round)
        end, debug.traceback)
        if not good then
            local words = {}
            for name, value in pairs(options) do words[#words + 1] = ("%s=%s"):format(name, value) end
            table.sort(words)
            error(("QCOW2_SEED=%d, generator at %d, round %d (%s): %s"):format(seed, state, totals.rounds + 1, table.concat(words, " "), message))
        end
    end
    return totals
end

--- A round on a new image. Discards are not modelled where they may leave bytes as they are: version 2 over a backing file, and raw.
local function new_round(target, options, model)
    assert(assert(qcow2.create(target, options)):close())
    return {
        target = target, options = options, model = model or Model.new(options.size), unit = options.cluster_size or 4096,
        format = options.format, discard_zeroes = not (options.format == "raw" or options.backing_file and options.compat == "0.10"),
    }
end

local function assert_small_caches(totals)
    assert.is_true(totals.l2_evictions > 1000, "L2 evictions: " .. totals.l2_evictions)
    assert.is_true(totals.flush_rounds > 100, "flush rounds: " .. totals.flush_rounds)
    assert.is_true(totals.cow_bytes > 0, "no copy-on-write")
    assert.is_true(totals.tables > 50, "tables allocated: " .. totals.tables)
    assert.is_true(totals.reopened > 100, "reopened: " .. totals.reopened)
    assert.is_true(totals.l1_growths > 0, "no L1 table grew")
end

--- Options with which the refcount structure is as deep as it can be: one cluster of the refcount table covers 2 MiB.
local function growing_options(random)
    return {
        size = SIZE_MAX // 2 + random:between(0, 4000) * 512, cluster_size = 512, refcount_bits = 64,
        preallocation = random:choice { "off", "off", "metadata" },
    }
end

--- A backing file of random content: raw or qcow2, and that one maybe over another one. Returns its model and format.
local function make_backing(random, path, depth)
    local options, model
    if random:one_in(2) then
        options = { format = "raw", size = random:between(1, 3000) * 512 }
        model = Model.new(options.size)
    else
        options = create_options(random)
        options.size = math.min(options.size, 2 << 20)
        model = Model.new(options.size)
        if depth > 0 and random:one_in(2) then
            local below, format = make_backing(random, path .. ".below", depth - 1)
            options.preallocation, options.backing_file, options.backing_format = "off", path .. ".below", format
            model = overlay_of(below, options.size)
        end
    end
    local image = assert(qcow2.create(path, options))
    for _ = 1, random:between(1, 25) do
        verbs.step(random, image, model, {
            unit = options.cluster_size or 4096, longest = LONGEST, discard_zeroes = false, compresses = options.format ~= "raw",
        })
    end
    assert(image:close())
    return model, options.format or "qcow2"
end

describe(("an image and its model (QCOW2_SEED=%d)"):format(seed), function()
    setup(function() folder, remove = oracle.temp_dir() end)
    teardown(function() remove() end)

    it(("agree in memory, %d operations"):format(OPERATIONS.memory), function()
        local totals = run("memory", function(random) return new_round(qcow2.memory "disk", create_options(random)) end)
        assert_small_caches(totals)
    end)

    it(("agree while refcount table and blocks grow, %d operations"):format(OPERATIONS.growing), function()
        local totals = run("growing", function(random) return new_round(qcow2.memory "disk", growing_options(random)) end)
        assert_small_caches(totals)
        assert.is_true(totals.refcount_evictions > 1000, "refcount evictions: " .. totals.refcount_evictions)
    end)

    it("agree when an image is filled and its refcount table grows twice", function()
        local image = assert(qcow2.create(qcow2.memory "disk", { size = "8M", cluster_size = 512, refcount_bits = 64 }))
        local model, random, before = Model.new(8 << 20), Random.new(seed), image.header.refcount_table_clusters
        for i = 0, 127 do
            local bytes = random:bytes(65536)
            assert(image:write(i * 65536, bytes))
            model:write(i * 65536, bytes)
        end
        assert.is_true(image.header.refcount_table_clusters >= before + 2)
        assert.is_nil(model:difference(image))
        assert(image:close())
    end)

    it(("agree in files, %d operations"):format(OPERATIONS.files), function()
        local path = folder .. "/disk.qcow2"
        local totals = run("files", function(random)
            os.remove(path)
            local options = create_options(random)
            if random:one_in(4) then options.preallocation = random:choice { "falloc", "full" } end
            return new_round(path, options)
        end)
        assert_small_caches(totals)
    end)

    it(("agree over backing files, %d operations"):format(OPERATIONS.backing), function()
        local path, below = folder .. "/overlay.qcow2", folder .. "/backing"
        local shorter, longer = 0, 0
        local totals = run("backing", function(random)
            local backing, format = make_backing(random, below, 1)
            local options = create_options(random)
            options.preallocation, options.backing_file, options.backing_format = "off", below, format
            if random:one_in(4) then options.size = backing.size end
            shorter = shorter + (backing.size < options.size and 1 or 0)
            longer = longer + (backing.size > options.size and 1 or 0)
            return new_round(path, options, overlay_of(backing, options.size))
        end)
        assert.is_true(shorter > 0 and longer > 0, "the backing file was never shorter, or never longer")
        assert_small_caches(totals)
    end)

    it(("agree where the image is raw, %d operations"):format(OPERATIONS.raw), function()
        local path = folder .. "/disk.raw"
        run("raw", function(random)
            return new_round(random:one_in(2) and path or qcow2.memory "disk", { format = "raw", size = random:between(1, 3000) * 512 })
        end)
    end)
end)
