-- luacheck: `make lint` runs it over lua, scripts and tests.
std = "lua54"
max_line_length = 100
self = false -- methods keep `self` where the class's shape asks for it
unused_args = false -- verbs, methods and callbacks share signatures
ignore = { "211/guard", "431" } -- a guard is there to be closed; an inner `list` may hide an outer one
read_globals = { "neap" } -- scripts may use the engine as a global, as the prompt does
files["tests"] = { std = "lua54+busted" }
