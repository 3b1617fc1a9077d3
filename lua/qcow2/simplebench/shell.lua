-- SPDX-License-Identifier: MIT

--- Words for the shell.
-- @module qcow2.simplebench.shell

local shell = {}

--- A text as one word, whatever is in it. Commands want `--` before words that may begin with a dash.
-- @tparam string text
-- @treturn string
function shell.quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

return shell
