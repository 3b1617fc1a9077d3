-- SPDX-License-Identifier: MIT

--- A plain table that stands for a disk: pages of 4096 bytes by number, absent ones are zero.
-- What an image must hold, said in the most naive way there is.
local Model = {}
Model.__index = Model

local PAGE = 4096
local ZERO_PAGE = ("\0"):rep(PAGE)

--- A disk of `size` bytes, all zero.
function Model.new(size) return setmetatable({ size = size, pages = {} }, Model) end

--- Sets the bytes at `offset`.
function Model:write(offset, bytes)
    assert(offset >= 0 and offset + #bytes <= self.size, "the model's write passes its end")
    local done = 0
    while done < #bytes do
        local at = offset + done
        local number, start = at // PAGE, at % PAGE
        local part = math.min(PAGE - start, #bytes - done)
        local old = self.pages[number] or ZERO_PAGE
        self.pages[number] = old:sub(1, start) .. bytes:sub(done + 1, done + part) .. old:sub(start + part + 1)
        done = done + part
    end
end

--- Makes the range zero.
function Model:zero(offset, length)
    while length > 0 do
        local part = math.min(PAGE - offset % PAGE, length)
        if part == PAGE then self.pages[offset // PAGE] = nil
        elseif self.pages[offset // PAGE] then self:write(offset, ("\0"):rep(part)) end
        offset, length = offset + part, length - part
    end
end

--- The bytes at `offset`.
function Model:read(offset, length)
    local parts = {}
    while length > 0 do
        local start = offset % PAGE
        local part = math.min(PAGE - start, length)
        parts[#parts + 1] = (self.pages[offset // PAGE] or ZERO_PAGE):sub(start + 1, start + part)
        offset, length = offset + part, length - part
    end
    return table.concat(parts)
end

--- A copy that later changes do not reach.
function Model:copy()
    local copy = Model.new(self.size)
    for number, page in pairs(self.pages) do copy.pages[number] = page end
    return copy
end

--- Where the image differs from the model, as a sentence; nil when it does not. Every byte is compared.
function Model:difference(image)
    local step = 1 << 20
    for offset = 0, self.size - 1, step do
        local length = math.min(step, self.size - offset)
        local bytes, message = image:read(offset, length)
        if not bytes then return message end
        local wanted = self:read(offset, length)
        if bytes ~= wanted then
            for i = 1, length do
                if bytes:byte(i) ~= wanted:byte(i) then
                    return ("byte %d is %d, should be %d"):format(offset + i - 1, bytes:byte(i), wanted:byte(i))
                end
            end
        end
    end
    return nil
end

return Model
