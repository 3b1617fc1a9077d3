-- SPDX-License-Identifier: MIT
-- The scripts below bench/ as programs: what they refuse, and that those which no other run covers do run.
local oracle = require "spec.support.oracle"

--- What a script prints, and its exit code.
local function run(words)
    local pipe = assert(io.popen(("%s bench/%s 2>&1"):format(oracle.lua, words)))
    local text = pipe:read "a"
    local _, _, code = pipe:close()
    return code, text
end

describe("scenarios", function()
    local refused = {
        ["trust.lua --same x"] = "%-%-same is 'x'; it is a whole number from 0 on",
        ["trust.lua --slower=-1"] = "%-%-slower is '%-1'; it is a whole number from 0 on",
        ["overlap.lua --snapshots 1.5"] = "%-%-snapshots is '1.5'; it is a whole number from 0 on",
        ["prealloc.lua --disk file /no/such/folder"] = "prealloc: /no/such/folder/probe.raw: No such file",
        ["prealloc.lua --disk file --qemu-img /bin/true"] = "'/bin/true' is no qemu%-img",
        ["fio.lua --disk hdd"] = "fio: it knows no simulated disks",
    }
    for words, message in pairs(refused) do
        it("refuses: " .. words, function()
            local code, text = run(words)
            assert.equal(2, code)
            assert.matches(message, text)
        end)
    end

    it("leaves out of trust.lua what is asked for 0 times", function()
        assert.same({ 0, "" }, { run "trust.lua --quick --same 0 --slower 0" })
        local code, text = run "trust.lua --quick --count 2 --same 1 --slower 0 --verbose"
        assert.equal(0, code)
        assert.matches("^1/1: %d\nthe same column twice: %d of 1 called different[^\n]*\n$", text)
    end)

    it("compares directories in prealloc.lua, and leaves nothing in them", function()
        local folder, remove = oracle.temp_dir()
        oracle.must("mkdir", folder .. "/a", folder .. "/b")
        local code, text = run(("prealloc.lua --quick --count 1 --disk file --qemu-img '' %s/a %s/b"):format(folder, folder))
        local left = oracle.must("find", folder, "-type", "f")
        remove()
        assert.equal(0, code, text)
        assert.matches(folder .. "/a, from the start", text, 1, true)
        assert.matches(folder .. "/b, qcow2, full", text, 1, true)
        assert.equal("", left)
    end)

    it("counts what a write moves", function()
        local code, text = run "moved.lua"
        assert.equal(0, code, text)
        assert.matches("| a new cluster | `cow=write` | – | – | 1 × 64 | – |", text, 1, true)
        assert.matches("| a new cluster | `cow=zero` | – | – | 1 × 4 | 60 |", text, 1, true)
        assert.matches("| over a backing file | `cow=skip`, subclusters | – | – | 1 × 4 | – |", text, 1, true)
        assert.matches("| shared with a snapshot | `cow=skip` | 60 | 60 | 1 × 64 | – |", text, 1, true)
        assert.matches("| a compressed cluster | `cow=skip` | 60 | 0.1 | 1 × 64 | – |", text, 1, true)
    end)

    it("measures against fio", function()
        if not os.execute "fio --version >/dev/null 2>&1" then return pending "there is no fio" end
        local code, text = run "fio.lua --quick --count 1"
        assert.equal(0, code, text)
        assert.matches("randwrite, io_uring, depth 32 +%d", text)
        assert.matches("p99.9 ours", text, 1, true)
    end)
end)
