-- SPDX-License-Identifier: MIT
-- create's extent_size_hint, on a filesystem that has such hints (a small XFS, mounted here) and on those that have none.

local oracle = require "spec.support.oracle"
local qcow2 = require "qcow2"

local folder

local function run(command) return (os.execute(command .. " >/dev/null 2>&1")) end

--- Whether a new XFS is mounted at folder/xfs.
local function mount_xfs()
    return run(("truncate -s 400M %s/disk && mkfs.xfs -q %s/disk && mkdir %s/xfs && mount -o loop %s/disk %s/xfs"):format(
        folder, folder, folder, folder, folder))
end

local function blocks(path)
    local pipe <close> = assert(io.popen("stat -c %b " .. path))
    return tonumber(pipe:read "l")
end

describe("extent_size_hint", function()
    before_each(function() folder = oracle.temp_dir() end)
    after_each(function() os.execute("rm -rf " .. folder) end)

    it("gives space in units of the hint", function()
        if not mount_xfs() then return pending "no XFS can be mounted here" end
        finally(function() run("umount " .. folder .. "/xfs") end)
        for _, format in ipairs { "raw", "qcow2" } do
            local path = ("%s/xfs/disk.%s"):format(folder, format)
            for _ = 1, 2 do -- the second one replaces a file that has extents
                local image <close> = assert(qcow2.create(path, { size = "16M", format = format, extent_size_hint = "4M" }))
                assert(image:write(0, ("x"):rep(65536)))
                assert(image:flush())
                assert.is_true(blocks(path) >= 8192) -- 4 MiB in sectors of 512; without a hint it would be 128 and some metadata
                image:close()
            end
        end
        local path = folder .. "/xfs/odd"
        local image, message, code = qcow2.create(path, { size = "1M", extent_size_hint = 5000 })
        assert.same({ nil, "EINVAL" }, { image, code })
        assert.matches("hint of 5000 bytes for '" .. path, message, 1, true)
        assert.is_nil(io.open(path))
    end)

    it("is refused where there is none, and the file that is there stays", function()
        local mount = folder .. "/small"
        if not run(("mkdir %s && mount -t tmpfs -o size=1m tmpfs %s"):format(mount, mount)) then return pending "no tmpfs here" end
        finally(function() run("umount " .. mount) end)
        local file <close> = assert(io.open(mount .. "/disk", "w"))
        file:write "precious"
        file:close()
        for _, target in ipairs { mount .. "/disk", mount .. "/new", qcow2.memory() } do
            local image, message, code = qcow2.create(target, { size = "1M", extent_size_hint = "1M" })
            assert.same({ nil, "ENOTSUP" }, { image, code })
            assert.matches("has no extent size hints", message)
        end
        assert.is_nil(io.open(mount .. "/new"))
        local kept <close> = assert(io.open(mount .. "/disk"))
        assert.equal("precious", kept:read "a")
    end)
end)
