-- luacheck: `make lint` runs it over lua, scripts and tests.
std = "lua54"
max_line_length = 160
self = false -- methods keep `self` where the class's shape asks for it
files["tests"] = { std = "lua54+busted" }
files["lua/neap/cli"] = { ignore = { "212" } } -- verbs share one signature
