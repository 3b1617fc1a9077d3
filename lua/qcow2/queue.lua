-- SPDX-License-Identifier: MIT

--- Many requests on one image at the same time, for coroutines and for callbacks.
--
--     local queue <close> = assert(img:queue { depth = 32 })
--     for i = 0, 99 do
--         queue:spawn(function() assert(queue:write(i << 20, bytes)) end)
--     end
--     queue:run()                                      -- until every coroutine and request has ended
--     queue:read(0, 512, function(bytes, message) … end)
--     queue:run()
--
-- A method called in a coroutine waits there and returns what the image's method of that name returns. With a callback as its last argument it
-- returns at once, and `run` or `poll` call the callback with those values. When all slots are taken, coroutines wait in the order in which
-- they came; a method with a callback goes on with other requests until a slot is free, so callbacks may run in it.
-- One thread: nothing happens but in the queue's own methods.
-- @module qcow2.queue

local arguments = require "qcow2.arguments"
local core = require "qcow2.core"
local known_options = require "qcow2.known_options"
local options = require "qcow2.options"

local queue = {}

local OPTIONS = {
    { name = "depth", kind = "integer", min = 1, max = 1024, default = 32 },
    { name = "aio", kind = "choice", choices = options.AIO },
}

local ZERO_OPTIONS = { { name = "unmap", kind = "boolean", default = false } }

local methods = {}
local metatable = { __index = methods }

--- Opens a queue: `image:queue { depth = 32 }`.
-- @tparam[opt] table opts depth (1 to 1024; 32), aio ("auto", "io_uring", "threads", "sync"; as the image was opened)
-- @return the queue; or nil, message, code. The image cannot be closed before it.
function queue.on_image(image, opts)
    local flat, message, misuse = known_options.read(OPTIONS, opts)
    if misuse then error("queue: " .. message, 3) end
    if not flat then return nil, message, "EINVAL" end
    local handle, why, code = core.queue(image, flat.depth, flat.aio)
    if not handle then return nil, why, code end
    return setmetatable({ handle = handle, depth = flat.depth, under_way = 0, waiting = {}, line = {} }, metatable)
end

function metatable.__tostring(self) return ("qcow2.Queue (depth %d)"):format(self.depth) end

function metatable.__close(self) self:close() end

--- Ends the queue, after all that is under way has ended; nobody is told of it any more.
function methods.close(self)
    self.waiting, self.line, self.under_way, self.closed = {}, {}, 0, true
    self.handle:close()
end

-- ---- going on ----

local function resume(self, thread, ...)
    local good, message = coroutine.resume(thread, ...)
    if not good then self.failure = self.failure or debug.traceback(thread, message) end
end

--- Coroutines that found no slot go on in the order in which they came.
local function serve_line(self)
    while self.line[1] and self.under_way < self.depth do resume(self, table.remove(self.line, 1)) end
end

--- Tells whoever waits for a request that it is done.
local function deliver(self, number, ...)
    local waiter = self.waiting[number]
    self.waiting[number] = nil
    self.under_way = self.under_way - 1
    if waiter then waiter(...) end
    serve_line(self)
    return true
end

--- False: nothing has ended. What was told may have closed the queue.
local function reap(self, wait)
    if self.closed then return false end
    local function took(number, ...)
        return number and deliver(self, number, ...) or false
    end
    return took(self.handle:reap(wait))
end

--- Goes on with what has ended by now, without waiting.
-- @treturn boolean whether anything is still under way
function methods.poll(self)
    while reap(self, false) do end
    return next(self.waiting) ~= nil
end

--- Goes on until every request, and every coroutine that `spawn` started, has ended.
-- @raise what a coroutine raised
function methods.run(self)
    while reap(self, true) do end
    local failure = self.failure
    self.failure = nil
    if failure then error(failure, 0) end
    return true
end

--- Starts a function in a coroutine, in which the queue's methods wait.
-- @treturn thread the coroutine
function methods.spawn(self, func, ...)
    local thread = coroutine.create(func)
    resume(self, thread, ...)
    return thread
end

-- ---- requests ----

--- The methods end in calls of `request`, so what it raises is their caller's.
local function check_open(self)
    if self.closed then error("queue: attempt to use a closed queue", 3) end
end

--- Waits until a slot is free: a coroutine in the line, anybody else by going on with what is under way.
local function wait_for_slot(self, in_coroutine)
    if in_coroutine and (self.line[1] or self.under_way >= self.depth) then
        self.line[#self.line + 1] = coroutine.running()
        coroutine.yield(self)
    end
    while self.under_way >= self.depth and reap(self, true) do end
end

--- Hands the request to the core. What it calls misuse is the caller's of a method.
local function submit(self, ...)
    local good, number = pcall(self.handle.submit, self.handle, ...)
    if not good then error("queue: " .. tostring(number):gsub("^[^:]*:%d+: ", ""), 3) end
    assert(number, "a slot was free")
    self.under_way = self.under_way + 1
    return number
end

--- Starts a request; `finish` turns the core's result into the method's.
local function request(self, finish, callback, ...)
    if callback ~= nil and type(callback) ~= "function" then error("queue: a callback must be a function", 2) end
    if callback == nil and not coroutine.isyieldable() then error("queue: a callback is needed outside of a coroutine", 2) end
    check_open(self)
    wait_for_slot(self, callback == nil)
    check_open(self)
    local number = submit(self, ...)
    if callback then
        self.waiting[number] = function(...) callback(finish(...)) end
        return true
    end
    local thread = coroutine.running()
    self.waiting[number] = function(...) resume(self, thread, ...) end
    return finish(coroutine.yield(self))
end

local function as_it_is(...) return ... end

--- Reads `length` bytes.
-- @return a string; or nil, message, code
function methods.read(self, offset, length, callback)
    length = arguments.bytes(length, "queue:read", "the length")
    local buffer, message, code = core.buffer(length)
    if not buffer then return nil, message, code end
    return request(self, function(done, ...)
        if done then return buffer:get() end
        return done, ...
    end, callback, "read", offset, buffer)
end

--- Reads into a buffer, which is the queue's until the request has ended.
-- @return true; or nil, message, code
function methods.read_into(self, offset, buffer, position, length, callback)
    if type(position) == "function" then position, callback = nil, position end
    return request(self, as_it_is, callback, "read", offset, buffer, position, length)
end

--- Writes a string or a buffer.
-- @return true; or nil, message, code
function methods.write(self, offset, bytes, callback) return request(self, as_it_is, callback, "write", offset, bytes) end

--- Writes zeroes.
-- @tparam[opt] table opts unmap: host clusters may be given up
-- @return true; or nil, message, code
function methods.write_zeroes(self, offset, length, opts, callback)
    if type(opts) == "function" then opts, callback = nil, opts end
    opts = opts and arguments.options(ZERO_OPTIONS, opts, "queue:write_zeroes")
    return request(self, as_it_is, callback, "write_zeroes", offset, length, opts and opts.unmap)
end

--- Discards whole clusters.
-- @return true; or nil, message, code
function methods.discard(self, offset, length, callback) return request(self, as_it_is, callback, "discard", offset, length) end

--- Makes durable what was done before.
-- @return true; or nil, message, code
function methods.flush(self, callback) return request(self, as_it_is, callback, "flush") end

return queue
