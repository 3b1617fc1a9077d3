-- SPDX-License-Identifier: MIT

--- The reference tools, for specs that compare with them: qemu-img and qemu-io 10 or later, from QEMU_IMG and QEMU_IO or PATH.
-- `oracle.missing` is a sentence when they are not there, so that a spec can be pending and say why. Temporary folders and
-- quoting are here too.
local oracle = {}

local OLDEST = 10

--- A word as the shell reads it back.
function oracle.quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

local function command_line(program, ...)
    local words = { "LC_ALL=C LD_PRELOAD=", oracle.quote(program) } -- a sanitizer that is preloaded here is none of theirs
    for _, word in ipairs { ... } do words[#words + 1] = oracle.quote(word) end
    return table.concat(words, " ")
end

--- Runs a program with no input.
-- @return exit code (128 + n for signal n), and what it wrote to stdout and stderr
function oracle.run(program, ...)
    local pipe = assert(io.popen(command_line(program, ...) .. " </dev/null 2>&1"))
    local text = pipe:read "a"
    local _, kind, code = pipe:close()
    return kind == "signal" and 128 + code or code, text
end

--- The same, but any exit code except 0 raises, with the command and its output.
function oracle.must(program, ...)
    local code, text = oracle.run(program, ...)
    if code ~= 0 then error(("%s: exit code %d\n%s"):format(command_line(program, ...), code, text), 2) end
    return text
end

oracle.img = os.getenv "QEMU_IMG" or "qemu-img"
oracle.io = os.getenv "QEMU_IO" or "qemu-io"

local function why_missing()
    for _, program in ipairs { oracle.img, oracle.io } do
        local code, text = oracle.run(program, "--version")
        local major = code == 0 and tonumber(text:match "version (%d+)%.")
        if not major then return ("%s is not installed"):format(program) end
        if major < OLDEST then return ("%s is version %d; the oracle is %d or later"):format(program, major, OLDEST) end
    end
    return nil
end

oracle.missing = why_missing()

--- `qemu-img check`: exit code (0 clean, 2 corrupt, 3 leaks) and text.
function oracle.check(path) return oracle.run(oracle.img, "check", "-f", "qcow2", path) end

--- `qemu-img compare`: exit code (0 equal, 1 different) and text. Formats are qcow2 and raw unless given.
function oracle.compare(one, other, one_format, other_format)
    return oracle.run(oracle.img, "compare", "-f", one_format or "qcow2", "-F", other_format or "raw", one, other)
end

--- `qemu-img create` of a qcow2 image. `options` is a table of its -o options; more words go before the path.
function oracle.create(path, size, options, ...)
    local words = { "create", "-q", "-f", "qcow2" }
    local names = {}
    for name, value in pairs(options or {}) do names[#names + 1] = ("%s=%s"):format(name, value) end
    table.sort(names)
    if names[1] then
        words[#words + 1] = "-o"
        words[#words + 1] = table.concat(names, ",")
    end
    table.move({ ... }, 1, select("#", ...), #words + 1, words)
    words[#words + 1] = path
    words[#words + 1] = ("%d"):format(size)
    oracle.must(oracle.img, table.unpack(words))
end

--- Does a list of qemu-io commands in one run on a qcow2 image; exit code and text.
function oracle.qemu_io(path, commands)
    local words = { "-f", "qcow2" }
    for _, command in ipairs(commands) do
        words[#words + 1] = "-c"
        words[#words + 1] = command
    end
    words[#words + 1] = path
    return oracle.run(oracle.io, table.unpack(words))
end

--- A new folder below TMPDIR or /tmp.
-- @return its path, and a function that removes it with all that is in it
function oracle.temp_dir()
    local pipe <close> = assert(io.popen 'mktemp -d "${TMPDIR:-/tmp}/qcow2-spec.XXXXXX"')
    local path = assert(pipe:read "l", "mktemp made no folder")
    return path, function() os.execute("rm -rf -- " .. oracle.quote(path)) end
end

--- All bytes of a file, or those of a part of it.
function oracle.bytes(path, offset, length)
    local file <close> = assert(io.open(path, "rb"))
    assert(file:seek("set", offset or 0))
    return file:read(length or "a") or ""
end

--- Changes bytes of a file where they are.
function oracle.patch(path, offset, bytes)
    local file <close> = assert(io.open(path, "r+b"))
    assert(file:seek("set", offset))
    assert(file:write(bytes))
end

function oracle.copy(from, to) oracle.must("cp", "--sparse=auto", from, to) end

--- Writes a model's bytes as a raw file.
function oracle.write_raw(model, path)
    local file <close> = assert(io.open(path, "w+b"))
    for number, page in pairs(model.pages) do
        assert(file:seek("set", number * #page))
        assert(file:write(page:sub(1, math.min(#page, model.size - number * #page))))
    end
    file:close()
    oracle.must("truncate", "-s", ("%d"):format(model.size), path)
end

--- The command for an interpreter like this one, which finds our module; with what is preloaded here.
oracle.lua = ("env %s %s"):format(
    os.getenv "QCOW2_PRELOAD" and "LD_PRELOAD=" .. oracle.quote(os.getenv "QCOW2_PRELOAD") or "", arg and arg[-1] or "lua5.4")

return oracle
