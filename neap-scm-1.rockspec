rockspec_format = "3.0"
package = "neap"
version = "scm-1"
source = { url = "git+file://." }
description = {
  summary = "A deep learning engine whose memory is planned before it runs, scripted from Lua",
  detailed = [[
    Nets are written in Lua; before a net runs, Neap plans where every byte goes, proves how good the plan is, explains each
    decision, and keeps plans and profiles in SQLite. C11, for CPUs.]],
  license = "MIT",
}
supported_platforms = { "linux" }
dependencies = { "lua ~> 5.4", "lua-cjson", "argparse" }
test_dependencies = { "busted" }
external_dependencies = {
  OPENBLAS = { library = "openblas" }, -- cblas.h lies where Debian's alternatives put it, which only the compiler knows
  DNNL = { header = "dnnl.h", library = "dnnl" },
  SQLITE = { header = "sqlite3.h", library = "sqlite3" },
  ZLIB = { header = "zlib.h", library = "z" },
  JANSSON = { header = "jansson.h", library = "jansson" },
  PNG = { header = "png.h", library = "png" },
}
build = {
  type = "make",
  build_target = "all",
  install_target = "install-rock",
  install_variables = { LIBDIR = "$(LIBDIR)", BINDIR = "$(BINDIR)" },
}
test = { type = "busted", flags = { "--pattern=_spec", "tests/unit" } }
