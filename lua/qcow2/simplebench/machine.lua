-- SPDX-License-Identifier: MIT

--- What numbers depend on besides the code: the machine and what runs on it. Every source may be missing.
-- @module qcow2.simplebench.machine

local shell = require "qcow2.simplebench.shell"

--- DECISIVE: the facts that have to be the same for numbers to be compared.
local machine = { DECISIVE = { "host", "cpu", "cpus", "memory", "kernel", "governor", "filesystem" } }

local function first_line(path)
    local file <close> = io.open(path)
    return file and file:read "l" or nil
end

local function matching(path, pattern)
    local file <close> = io.open(path)
    for line in file and file:lines() or function() end do
        local found = line:match(pattern)
        if found then return found end
    end
    return nil
end

--- What a command prints, or nil where it fails or is missing.
local function output(command)
    local pipe <close> = io.popen(command .. " 2>/dev/null")
    local text = pipe and pipe:read "l"
    return text ~= "" and text or nil
end

local function count_cpus()
    local count = 0
    local file <close> = io.open "/proc/cpuinfo"
    for line in file and file:lines() or function() end do
        if line:find "^processor%s*:" then count = count + 1 end
    end
    return count > 0 and count or nil
end

local function memory_total()
    local kibibytes = matching("/proc/meminfo", "^MemTotal:%s+(%d+)")
    return kibibytes and ("%.1f GiB"):format(kibibytes / (1 << 20))
end

--- The machine's facts, as strings and numbers by name.
-- @tparam[opt] string directory whose filesystem is meant, and whose git commit; the working directory otherwise
-- @tparam[opt] table versions more facts, such as versions of what is measured
-- @treturn table host, cpu, cpus, memory, kernel, governor, filesystem, lua, commit, date (UTC)
function machine.facts(directory, versions)
    local where = shell.quote(directory or ".")
    local facts = {
        host = first_line "/proc/sys/kernel/hostname",
        cpu = matching("/proc/cpuinfo", "^model name%s*:%s*(.*)$"),
        cpus = count_cpus(),
        memory = memory_total(),
        kernel = first_line "/proc/sys/kernel/osrelease",
        governor = first_line "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        filesystem = output(("stat -f -c %%T -- %s"):format(where)),
        lua = _VERSION,
        commit = output "git describe --always --dirty --abbrev=12",
        date = os.date "!%Y-%m-%dT%H:%M:%SZ",
    }
    for name, value in pairs(versions or {}) do facts[name] = value end
    return facts
end

--- Whether numbers of two machines may be compared.
-- @tparam table a
-- @tparam table b
-- @treturn boolean
-- @treturn ?string what differs: "kernel: 6.1 and 6.5"
function machine.same(a, b)
    for _, name in ipairs(machine.DECISIVE) do
        if a[name] ~= b[name] then return false, ("%s: %s and %s"):format(name, a[name], b[name]) end
    end
    return true
end

return machine
