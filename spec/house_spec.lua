-- SPDX-License-Identifier: MIT

--- The house checks itself: storeys, sizes, openings, doc comments. Each finding names file and line.

local STOREYS = { "base", "storage", "format", "metadata", "guest", "image", "jobs", "lua" } -- from the ground up
local FILE_LINES, FUNCTION_LINES, OPENING_LINES = 600, 80, 4
local PROGRAM_LINES = 900 -- a program of checks, one after the other

-- Files of one storey that include each other, with the reason. Everything else has an order.
local MUTUAL = {
    ["format/header format/header_extensions"] = "the list of extensions is a part of the header, in a file of its own",
    ["guest/request guest/pieces"] = "pieces.h is what request.c and the plans, which all know request.h, say to each other",
}

local function find(folders, ...)
    local files = {}
    local pipe <close> = assert(io.popen("find " .. folders .. " -type f | LC_ALL=C sort"))
    for path in pipe:lines() do
        for _, ending in ipairs { ... } do
            if path:sub(-#ending) == ending then files[#files + 1] = path end
        end
    end
    return files
end

local function lines_of(path)
    local list = {}
    for line in io.lines(path) do list[#list + 1] = line end
    return list
end

local C_FILES = find("csrc spec", ".c", ".h")
local LUA_FILES = find("lua spec bench .ci", ".lua")
local SCRIPTS = { "Makefile", ".ci/run", ".ci/deps", ".ci/find-lua", ".busted", ".luacheckrc", "qcow2-scm-1.rockspec" }

local function every(...)
    local all = {}
    for _, list in ipairs { ... } do table.move(list, 1, #list, #all + 1, all) end
    return all
end

--- Fails with all findings at once.
local function none(findings) assert.equal("", table.concat(findings, "\n")) end

--- Collects what `look(path, lines, report)` reports about each file.
local function survey(files, look)
    local findings = {}
    for _, path in ipairs(files) do
        look(path, lines_of(path), function(line, what) findings[#findings + 1] = ("%s:%d: %s"):format(path, line, what) end)
    end
    none(findings)
end

local function storey_of(folder)
    for number, name in ipairs(STOREYS) do
        if name == folder then return number end
    end
end

--- The graph of a storey's files: edges["image/open"]["image/backing"] is where the one includes the other.
local function includes_by_stem()
    local edges = {}
    for _, path in ipairs(find("csrc", ".c", ".h")) do
        local stem = path:match "^csrc/(.*)%.[ch]$"
        edges[stem] = edges[stem] or {}
        for number, line in ipairs(lines_of(path)) do
            local other = line:match '^%s*#%s*include "(.*)%.h"'
            if other and other ~= stem and other:match "^[^/]*" == stem:match "^[^/]*" then
                edges[stem][other] = edges[stem][other] or ("%s:%d"):format(path, number)
            end
        end
    end
    return edges
end

local function mutual(one, other)
    return MUTUAL[one .. " " .. other] or MUTUAL[other .. " " .. one]
end

--- Walks the graph; reports each edge that leads back into the way that led to it.
local function find_cycles(edges, report)
    local state = {} -- "open": on the way; "done"
    local function visit(stem)
        state[stem] = "open"
        for other, place in pairs(edges[stem] or {}) do
            if not mutual(stem, other) then
                if state[other] == "open" then report(("%s: %s and %s need each other"):format(place, stem, other))
                elseif not state[other] then visit(other)
                end
            end
        end
        state[stem] = "done"
    end
    local stems = {}
    for stem in pairs(edges) do stems[#stems + 1] = stem end
    table.sort(stems)
    for _, stem in ipairs(stems) do
        if not state[stem] then visit(stem) end
    end
end

--- Calls report(first line, length, name) for each function of a C file. What begins in the first column and opens a brace at
-- the end of a line is a body, which ends with a closing brace in the first column; with a parenthesis before, a function's.
local function each_c_function(lines, report)
    local first, name, inside
    for number, line in ipairs(lines) do
        if inside then
            if line:find "^}" then
                if name then report(first, number - first + 1, name) end
                first, name, inside = nil, nil, false
            end
        else
            if line:find "^[%a_]" then first, name = number, line:match "([%w_]+)%(" end
            local code = line:gsub("/%*.-%*/", ""):gsub("%s+$", "")
            inside = first ~= nil and code:sub(-1) == "{"
            if code:find "[;}]$" then first = nil end
        end
    end
end

--- The same for a Lua file: from `function name` to `end` with the same indentation.
local function each_lua_function(lines, report)
    local open = {}
    for number, line in ipairs(lines) do
        local indent, name = line:match "^(%s*)local function ([%w_]+)"
        if not name then indent, name = line:match "^(%s*)function ([%w_.:]+)" end
        if name and not line:find "%f[%w]end%s*$" then open[indent] = { number, name } end
        local closing = line:match "^(%s*)end%f[^%w_]"
        if closing and open[closing] then
            report(open[closing][1], number - open[closing][1] + 1, open[closing][2])
            open[closing] = nil
        end
    end
end

describe("the house", function()
    it("includes downwards", function()
        survey(find("csrc", ".c", ".h"), function(path, lines, report)
            local own = storey_of(path:match "^csrc/([^/]*)/")
            if not own then return report(1, "a folder that is no storey") end
            for number, line in ipairs(lines) do
                local included = line:match '^%s*#%s*include "(.*)"'
                local storey = included and storey_of(included:match "^([^/]*)/")
                if included and not storey then report(number, included .. " is not named from its storey") end
                if storey and storey > own then report(number, included .. " is on a higher storey") end
            end
        end)
    end)

    it("has an order on every storey", function()
        local findings = {}
        find_cycles(includes_by_stem(), function(what) findings[#findings + 1] = what end)
        table.sort(findings)
        none(findings)
    end)

    it("names its licence in every file once", function()
        survey(every(C_FILES, LUA_FILES, SCRIPTS), function(_, lines, report)
            local count = 0
            for _, line in ipairs(lines) do
                if line:find("SPDX-" .. "License-Identifier: MIT", 1, true) then count = count + 1 end
            end
            if count ~= 1 then report(1, ("%d SPDX lines"):format(count)) end
        end)
    end)

    it("opens every C file with its idea", function()
        survey(C_FILES, function(_, lines, report)
            local length = 0
            for number, line in ipairs(lines) do
                length = number
                if line:find("*/", 1, true) then break end
            end
            if not lines[1]:find "^/%*" then report(1, "does not begin with a comment")
            elseif length < OPENING_LINES then report(1, ("the opening comment has %d lines"):format(length))
            end
        end)
    end)

    it("keeps files short", function()
        survey(every(C_FILES, LUA_FILES, SCRIPTS), function(path, lines, report)
            local most = path:find "^spec/unit/" and PROGRAM_LINES or FILE_LINES
            if #lines > most then report(#lines, ("%d lines"):format(#lines)) end
        end)
    end)

    it("keeps functions short", function()
        local seen = 0
        local function judge(report)
            return function(first, length, name)
                seen = seen + 1
                if length > FUNCTION_LINES then report(first, ("%s has %d lines"):format(name, length)) end
            end
        end
        survey(C_FILES, function(_, lines, report) each_c_function(lines, judge(report)) end)
        survey(LUA_FILES, function(_, lines, report) each_lua_function(lines, judge(report)) end)
        assert.is_true(seen > 100, "only " .. seen .. " functions were found")
    end)

    it("leaves nothing lying about", function()
        local words = { "TO" .. "DO", "FIX" .. "ME", "XX" .. "X" }
        survey(every(C_FILES, LUA_FILES, SCRIPTS, { "README.md" }), function(path, lines, report)
            for number, line in ipairs(lines) do
                for _, word in ipairs(words) do
                    if line:find("%f[%w]" .. word .. "%f[%W]") then report(number, word) end
                end
                if line:find "\t" and path ~= "Makefile" then report(number, "a tab") end
                if line:find "%s$" then report(number, "trailing space") end
            end
        end)
    end)
end)

describe("the Lua side of the house", function()
    local function each_require(lines, look)
        for number, line in ipairs(lines) do
            for name in line:gmatch "%f[%w_]require%s*%(?%s*[\"']([^\"']+)[\"']" do look(number, name) end
        end
    end

    it("keeps simplebench free of what it measures", function()
        survey(find("lua/qcow2/simplebench", ".lua"), function(_, lines, report)
            each_require(lines, function(number, name)
                if not name:find "^qcow2%.simplebench" then report(number, "requires " .. name) end
            end)
        end)
    end)

    it("lets commands use only the face and the options", function()
        local allowed = { qcow2 = true, ["qcow2.options"] = true, ["qcow2.size"] = true }
        survey(find("lua/qcow2", ".lua"), function(path, lines, report)
            if not path:find("/cmd/", 1, true) then return end
            each_require(lines, function(number, name)
                if not allowed[name] and not name:find "^qcow2%.cmd%." then report(number, "requires " .. name) end
            end)
        end)
    end)

    it("documents every public function", function()
        survey(find("lua", ".lua"), function(_, lines, report)
            for number, line in ipairs(lines) do
                local name = line:match "^function ([%w_.:]+)" or line:match "^([%w_]+%.[%w_.]+)%s*=%s*function"
                local above = number - 1
                while name and lines[above] and lines[above]:find "^%-%-" and not lines[above]:find "^%-%-%-" do above = above - 1 end
                if name and name:find "[.:]" and not name:find "[.:]__" and not (lines[above] or ""):find "^%-%-%-" then
                    report(number, name .. " has no doc comment")
                end
            end
        end)
    end)

    it("is mapped in the README, as is the engine", function()
        local readme, findings, seen = table.concat(lines_of "README.md", "\n"), {}, {}
        for _, path in ipairs(every(find("csrc", ".c", ".h"), find("lua", ".lua"))) do
            local folder = path:match "^(.*/)"
            if not seen[folder] and not readme:find("`" .. folder .. "`", 1, true) then
                findings[#findings + 1] = folder .. " is not on the README's map"
            end
            seen[folder] = true
        end
        none(findings)
    end)
end)
