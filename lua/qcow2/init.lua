-- SPDX-License-Identifier: MIT

--- qcow2 images for Lua: create, open, read, write, look inside.
--
--     local qcow2 = require "qcow2"
--     local img <close> = assert(qcow2.create("disk.qcow2", { size = "16G" }))
--     img:write(0, "hello");  print(img:read(0, 5));  print(img:explain(0))
--
-- Failures return `nil, message, code`, where the code is an errno's name or "ECORRUPT" for metadata that contradicts
-- itself. Misuse (an unknown option, a wrong type, a closed image) raises.
-- @module qcow2

local core = require "qcow2.core"
local options = require "qcow2.options"

require "qcow2.image" -- gives images their methods

local qcow2 = {}

--- Makes a new image and opens it for writing.
-- @param target path, or a storage (`qcow2.memory()`); an existing file is replaced
-- @tparam table opts size (bytes, or "16G"; may be left out with backing_file), cluster_size (512 … "2M"; "64K"), refcount_bits
-- (1 … 64; 16), compat ("1.1"; "0.10"), preallocation ("off", "metadata", "falloc", "full"), lazy_refcounts, backing_file,
-- backing_format ("qcow2", "raw"), format ("qcow2"; "raw")
-- @return the open image; or nil, message, code
function qcow2.create(target, opts)
    local flat, message, code = options.create(opts)
    if not flat then return nil, message, code end
    local done
    done, message, code = core.create(target, flat)
    if not done then return nil, message, code end
    return core.open(target, (assert(options.open { format = flat.format })))
end

--- Opens an image.
-- @param target path, or a storage
-- @tparam[opt] table opts read_only, format ("qcow2", "raw"; without it the file is probed), cache ("writeback", "none", "directsync",
-- "writethrough", "unsafe"), l2_cache_size, l2_cache_entry_size, refcount_cache_size (bytes), cache_clean_interval (seconds),
-- overlap_check ("cached", "none", "constant", "all", or a table of sections), discard ("unmap", "ignore"), detect_zeroes ("off", "on", "unmap"),
-- cow ("skip", "zero", "write"), backing (false: without its backing file), force_share
-- @return the open image; or nil, message, code
function qcow2.open(target, opts)
    local flat, message, code = options.open(opts)
    if not flat then return nil, message, code end
    return core.open(target, flat)
end

--- A buffer: bytes aligned for O_DIRECT, for read_into and write.
-- @param content a length in bytes (all zero), or a string to copy
-- @return the buffer; or nil, message, code
function qcow2.buffer(content) return core.buffer(content) end

--- A storage in memory, for images without a file.
-- @tparam[opt] string name for messages
function qcow2.memory(name) return core.memory(name) end

--- A storage that forgets what is written and reads as zeroes: the floor under a measurement.
-- @tparam integer length bytes
-- @tparam[opt] string name for messages
function qcow2.null(length, name) return core.null(length, name) end

--- A plain file as a storage.
-- @tparam string path
-- @tparam[opt] table opts write, create, direct (booleans)
-- @return the storage; or nil, message, code
function qcow2.file(path, opts) return core.file(path, opts) end

--- A storage over another one that can be made to fail, and to crash.
-- @param storage what lies below
-- @tparam[opt] table opts crashes: keep a log so that storage:crash(seed, keep_percent) works
function qcow2.fault(storage, opts) return core.fault(storage, opts) end

--- Seconds on a clock that only goes forward.
function qcow2.clock() return core.clock() end

return qcow2
