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

local arguments = require "qcow2.arguments"
local check = require "qcow2.check"
local bench = require "qcow2.bench"
local core = require "qcow2.core"
local known_options = require "qcow2.known_options"
local model = require "qcow2.model"
local options = require "qcow2.options"

require "qcow2.image" -- gives images their methods

local qcow2 = {}

local FILE = { { name = "write", kind = "boolean" }, { name = "create", kind = "boolean" }, { name = "direct", kind = "boolean" } }
local FAULT = { { name = "crashes", kind = "boolean" } }

--- The options of a function whose every mistake is misuse.
local function read_options(name, known, given)
    local flat, message = known_options.read(known, given)
    if not flat then error(("%s: %s"):format(name, message), 3) end
    return flat
end

--- Makes a new image and opens it for writing. An existing file is replaced; when anything is wrong with the options or the backing
-- file it stays as it is.
-- @param target path, or a storage (`qcow2.memory()`)
-- @tparam table opts
--
--   * format: "qcow2" (the default) or "raw"
--   * size: bytes, or "16G"; may be left out with backing_file, whose size it is then
--   * cluster_size: 512 to "2M", a power of two ("64K")
--   * refcount_bits: 1 to 64, a power of two (16): how often a cluster can be shared
--   * compat: "1.1" (version 3, the default) or "0.10" (version 2)
--   * preallocation: "off" (the default); "metadata": all tables, so that no write allocates; "falloc": the space too; "full": written with zeroes
--   * extent_size_hint: in what units the filesystem shall give space, "1M" for example (XFS; elsewhere it is an error)
--   * lazy_refcounts: refcounts may be behind on disk (false)
--   * extended_l2: 32 subclusters a cluster, each allocated by itself; needs clusters of "16K" or more (false)
--   * compression_type: of clusters that are written compressed: "zlib" (the default: deflate) or "zstd", where the build has it
--   * data_file: name of a file that guest bytes go to, each at its own offset, relative to this one's folder; it is made anew
--   * data_file_raw: the data file alone stays a valid raw image; all of it is mapped from the start, no backing_file (false)
--   * backing_file: name of the image that shows through where this one has nothing, relative to this one's folder
--   * backing_format: "qcow2" or "raw"; without it the backing file is probed
--
-- @return the open image; or nil, message, code
function qcow2.create(target, opts)
    arguments.target(target, "create")
    local flat, message, code = options.create(opts)
    if not flat then return nil, message, code end
    local done
    done, message, code = core.create(target, flat)
    if not done then return nil, message, code end
    return core.open(target, (assert(options.open { format = flat.format })))
end

--- Opens an image.
-- @param target path, or a storage
-- @tparam[opt] table opts
--
--   * read_only: open for reading only (false)
--   * format: "qcow2" or "raw"; without it the file is probed
--   * cache: "writeback" (the default: the page cache), "none" (O_DIRECT), "directsync" (O_DIRECT, each write is flushed),
--     "writethrough" (page cache, each write is flushed), "unsafe" (flushes do nothing)
--   * aio: how queues and benchmarks do I/O: "auto" (the default: io_uring where there is one, what is in the page cache at once),
--     "io_uring", "threads", "sync"
--   * l2_cache_size: bytes of L2 tables kept in memory (what covers the image, at most "32M")
--   * l2_cache_entry_size: 512 to the cluster size, a power of two: how much of a table is read at once ("4K")
--   * refcount_cache_size: bytes of refcount blocks kept in memory (the least that works; "256K" with clusters of 64K)
--   * cache_clean_interval: seconds after which tables that nobody used give their memory back (600; 0: never)
--   * overlap_check: what a write must not overwrite: "none", "constant" (header, active L1, refcount table and the like),
--     "cached" (the default: also tables as they are met), "all", or a table of sections by name: { template = "cached", ["inactive-l2"] = true }
--   * discard: "unmap" (the default: discarded clusters are freed) or "ignore"
--   * detect_zeroes: "off" (the default), "on" (a write of nothing but zeroes writes none), "unmap" (and frees the clusters)
--   * cow: what surrounds the bytes of a first write in a cluster: "skip" (the default: nothing where zeroes are there already), "zero"
--     (fallocate), "write" (zeroes are written)
--   * backing: false: without its backing file (true)
--   * data_file: path of the external data file, where it is not the one that the image names
--   * open_data_file: false: without its external data file, so that tables can be looked at but no bytes (true)
--   * force_share: also while another process writes to it; needs read_only (false)
--   * snapshot: id or name of an internal snapshot that is shown instead of the disk; needs read_only
--   * repair: check and repair the image first, also when it is marked corrupt (false). One marked dirty is repaired in any case
--     before it opens for writing
--
-- @return the open image; or nil, message, code
function qcow2.open(target, opts)
    arguments.target(target, "open")
    local flat, message, code = options.open(opts)
    if not flat then return nil, message, code end
    return core.open(target, flat)
end

--- Checks an image, and repairs it if asked to; it need not be one that opens. `qcow2.check` (the module) says what comes back.
-- @param target path, or a storage
-- @tparam[opt] table opts repair ("leaks", "all"), max_findings, memory_limit
-- @return a table of numbers and findings; or nil, message, code when there is nothing that can be checked
function qcow2.check(target, opts) return check.target(target, opts) end

--- A buffer: bytes aligned for O_DIRECT, for read_into and write. `#buffer` is its length; buffer:get([offset, length]) gives a string,
-- buffer:set(offset, bytes) and buffer:fill(byte) change it and return it.
-- @param content a length in bytes (all zero), or a string to copy
-- @return the buffer; or nil, message, code
function qcow2.buffer(content) return core.buffer(content) end

--- A storage in memory, for images without a file. Storages have read(offset, length), write(offset, bytes), length(), save(path).
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
function qcow2.file(path, opts)
    arguments.target(path, "file")
    return core.file(path, read_options("file", FILE, opts))
end

--- A storage over another one that can be made to fail, and to crash: storage:fail{ op =, nth =, times =, code = },
-- storage:crash(seed, keep_percent).
-- @param storage what lies below
-- @tparam[opt] table opts crashes: keep a log so that storage:crash works
function qcow2.fault(storage, opts) return core.fault(storage, read_options("fault", FAULT, opts)) end

--- A storage on a simulated disk, in virtual time; `qcow2.model` (the module) has the options.
-- @tparam table opts kind ("hdd", "ssd", "nvme"), storage, and the kind's parameters by name
-- @return the storage; or nil, message, code
function qcow2.model(opts) return model.new(opts) end

--- What a simulated disk is made of.
-- @param disk a storage that model made, or the name of a kind
-- @treturn table it prints as one line
function qcow2.model_parameters(disk) return model.parameters(disk) end

--- A simulated disk's clock.
-- @param disk a storage that model made
-- @treturn number seconds of virtual time since it was made
function qcow2.model_clock(disk) return core.model_clock(disk) / 1e9 end

--- Lets a simulated disk's time go on, so that what it still does by itself (such as emptying its write cache) ends.
-- @param disk a storage that model made
-- @tparam number seconds of virtual time since it was made; nothing happens when they are over
function qcow2.model_wait(disk, seconds) return core.model_wait(disk, math.floor(seconds * 1e9)) end

--- Runs benchmark jobs, on one image or on several, at the same time; `qcow2.bench` (the module) has the options.
-- @tparam {table,...} jobs
-- @tparam[opt] table opts
-- @return a list of results, one a job; or nil, message, code
function qcow2.bench(jobs, opts) return bench.run(jobs, opts) end

--- Seconds on a clock that only goes forward.
function qcow2.clock() return core.clock() end

return qcow2
