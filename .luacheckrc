-- SPDX-License-Identifier: MIT
std = "lua54"
max_line_length = 160
include_files = { "lua/**/*.lua", "spec/**/*.lua", "bench/**/*.lua", ".ci/*.lua", "*.rockspec", ".busted", ".luacheckrc" }
files["spec"].std = "+busted"
files["*.rockspec"].std = "+rockspec"
files[".luacheckrc"].std = "+luacheckrc"
