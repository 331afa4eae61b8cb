--- neap help [TOPIC]: a verb, a page, or what neap.help knows of a name.
-- @module neap.cli.help

return {
  name = "help",
  summary = "Help on a command or a name; questions, env and options are pages.",
  plain = true,
  define = function(command)
    command:argument "topic":args "?":description "A command; a page: questions, env, options; or \z
      what help(x) knows at the prompt: Conv2d, ws:run, lenet, budget."
  end,
  run = function(args)
    local cli, topics = require "neap.cli", require "neap.help.topics"
    local parser, commands = cli.parser()
    local topic = args.topic
    if topic == nil or commands[topic] then
      print((commands[topic] or parser):get_help())
      return
    end

    -- A command comes before a page, a page before a name of the library.
    for _, page in ipairs(topics.pages()) do
      if topic == page then return print(topics.texts(topic)[1]) end
    end
    local known, text = pcall(require("neap").help, topic)
    if known then return print(text) end
    local near = require("neap.inner.options").nearest(topic, require(
      "neap.inner.options").keys(commands))
    cli.usage(("there is no command and no help \"%s\"%s"):format(topic,
      near and (", did you mean \"" .. near .. "\"?")
        or text.hint and ", " .. text.hint
        or "; neap help lists commands, neap ops NAME shows an op"))
  end,
}
