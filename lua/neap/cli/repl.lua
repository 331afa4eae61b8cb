--- neap repl: the interactive prompt.
-- @module neap.cli.repl
return {
  name = "repl", summary = "Try things: a Lua prompt with neap loaded (the default).", plain = true,
  define = function() end,
  run = function() return require("neap.repl").main() end,
}
