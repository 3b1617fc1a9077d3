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
-- returns at once, and `run` or `poll` call the callback with those values. When all slots are taken a method goes on with other
-- requests until one is free, so callbacks may run in it. One thread: nothing happens but in the queue's own methods.
-- @module qcow2.queue

local core = require "qcow2.core"
local known_options = require "qcow2.known_options"

local queue = {}

local OPTIONS = {
    { name = "depth", kind = "integer", min = 1, max = 1024, default = 32 },
    { name = "aio", kind = "choice", choices = { "auto", "io_uring", "threads", "sync" } },
}

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
    return setmetatable({ handle = handle, depth = flat.depth, waiting = {} }, metatable)
end

function metatable.__tostring(self) return ("qcow2.Queue (depth %d)"):format(self.depth) end

function metatable.__close(self) self:close() end

--- Ends the queue, after all that is under way has ended; nobody is told of it any more.
function methods.close(self)
    self.waiting = {}
    self.handle:close()
end

-- ---- going on ----

--- Tells whoever waits for a request that it is done.
local function deliver(self, number, ...)
    local waiter = self.waiting[number]
    self.waiting[number] = nil
    if waiter then waiter(...) end
    return true
end

local function reap(self, wait)
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

local function resume(self, thread, ...)
    local good, message = coroutine.resume(thread, ...)
    if not good then self.failure = self.failure or debug.traceback(thread, message) end
end

--- Starts a function in a coroutine, in which the queue's methods wait.
-- @treturn thread the coroutine
function methods.spawn(self, func, ...)
    local thread = coroutine.create(func)
    resume(self, thread, ...)
    return thread
end

-- ---- requests ----

local function submit(self, ...)
    local number = self.handle:submit(...)
    while not number do
        reap(self, true)
        number = self.handle:submit(...)
    end
    return number
end

--- Starts a request; `finish` turns the core's result into the method's.
local function request(self, finish, callback, ...)
    if callback ~= nil and type(callback) ~= "function" then error("queue: a callback must be a function", 3) end
    if callback == nil and not coroutine.isyieldable() then error("queue: a callback is needed outside of a coroutine", 3) end
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
    return request(self, as_it_is, callback, "write_zeroes", offset, length, opts and opts.unmap)
end

--- Discards whole clusters.
-- @return true; or nil, message, code
function methods.discard(self, offset, length, callback) return request(self, as_it_is, callback, "discard", offset, length) end

--- Makes durable what was done before.
-- @return true; or nil, message, code
function methods.flush(self, callback) return request(self, as_it_is, callback, "flush") end

return queue
