-- SPDX-License-Identifier: MIT

--- Internal snapshots of an open image: methods of `qcow2.Image`.
--
--     img:snapshot_create "before"
--     img:write(0, "something else")
--     print(img:snapshots())
--     img:snapshot_apply "before"
--
-- Snapshots are named by id or by name; an id goes first. `qcow2.open(path, { snapshot = "before", read_only = true })` shows one.
-- @module qcow2.snapshots

local arguments = require "qcow2.arguments"
local core = require "qcow2.core"
local size = require "qcow2.size"

local functions = {}

local snapshot_metatable = {}

function snapshot_metatable.__tostring(snapshot)
    local state = snapshot.vm_state_size > 0 and (", VM state %s"):format(size.format(snapshot.vm_state_size)) or ""
    return ("snapshot %s '%s' of %s, disk %s%s"):format(
        snapshot.id, snapshot.name, os.date("%Y-%m-%d %H:%M:%S", snapshot.date_sec), size.format(snapshot.disk_size), state)
end

local snapshots_metatable = {}

function snapshots_metatable.__tostring(list)
    local lines = {}
    for i, snapshot in ipairs(list) do lines[i] = tostring(snapshot) end
    return #lines > 0 and table.concat(lines, "\n") or "no snapshots"
end

--- The internal snapshots, in the order of the table on disk: {id, name, disk_size, vm_state_size (bytes), date_sec, date_nsec (since
-- 1970), vm_clock_nsec, icount (absent: not recorded)}.
-- @return the list, which prints as text; or nil, message, code
function functions.snapshots(image)
    arguments.image(image, "snapshots")
    local list, message, code = image:snapshot_table()
    if not list then return nil, message, code end
    for _, snapshot in ipairs(list) do setmetatable(snapshot, snapshot_metatable) end
    return setmetatable(list, snapshots_metatable)
end

local function name_of(name, verb)
    if type(name) ~= "string" then error(("%s: a name must be a string, not a %s"):format(verb, type(name)), 3) end
    return name
end

--- Takes a snapshot of the disk as it is. Names need not be unique; ids are. Needs an image without open queues, as do the next two.
-- @tparam string name 1 to 65535 bytes
-- @return true; or nil, message, code
function functions.snapshot_create(image, name)
    arguments.image(image, "snapshot_create")
    return image:take_snapshot(name_of(name, "snapshot_create"))
end

--- The disk becomes what it was when the snapshot was taken, its size too. The snapshot stays.
-- @tparam string id_or_name
-- @return true; or nil, message, code
function functions.snapshot_apply(image, id_or_name)
    arguments.image(image, "snapshot_apply")
    return image:apply_snapshot(name_of(id_or_name, "snapshot_apply"))
end

--- Gives a snapshot up, and frees what nothing else uses.
-- @tparam string id_or_name
-- @return true; or nil, message, code
function functions.snapshot_delete(image, id_or_name)
    arguments.image(image, "snapshot_delete")
    return image:delete_snapshot(name_of(id_or_name, "snapshot_delete"))
end

--- What deleting a snapshot would free.
-- @tparam string id_or_name
-- @treturn[1] integer bytes of host clusters that nothing else uses
-- @return[2] nil, message, code
function functions.snapshot_exclusive(image, id_or_name)
    arguments.image(image, "snapshot_exclusive")
    return core.image_methods.exclusive_of_snapshot(image, name_of(id_or_name, "snapshot_exclusive"))
end

local snapshots = {}

--- The list as `qemu-img info --output=json` has it; nil where it cannot be read.
function snapshots.as_info(image)
    local list = functions.snapshots(image)
    for i, snapshot in ipairs(list or {}) do
        list[i] = {
            id = snapshot.id, name = snapshot.name, ["vm-state-size"] = snapshot.vm_state_size, ["date-sec"] = snapshot.date_sec,
            ["date-nsec"] = snapshot.date_nsec, ["vm-clock-sec"] = snapshot.vm_clock_nsec // 1000000000,
            ["vm-clock-nsec"] = snapshot.vm_clock_nsec % 1000000000, icount = snapshot.icount,
        }
    end
    return list
end

--- Puts the functions of this module, but these two, among an image's methods.
function snapshots.add_to(methods)
    for name, method in pairs(functions) do methods[name] = method end
end

return snapshots
