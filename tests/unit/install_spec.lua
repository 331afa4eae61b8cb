-- What `make install` brings, used from where it lies: program, module, library, manual page, nets
-- and examples.
local build = os.getenv "NEAP_BUILD" or "build"
local sanitized = require "support".sanitized

--- Runs a command, whose output it returns; what fails, fails with all that was printed.
local function sh(command, ...)
  command = command:format(...)
  local pipe = assert(io.popen("{ " .. command .. "\n} 2>&1"))
  local text = pipe:read "a"
  assert(pipe:close(), command .. "\n" .. text)
  return text
end

--- `make TARGET` on what is built already, whatever flags it was built with: nothing is compiled.
local function make(target, ...)
  return sh("env -u MAKEFLAGS -u MAKELEVEL make -o all -o lib -o %s/neap BUILD=%s %s", build, build,
    target:format(...))
end

describe("what make install brings", function()
  local root, prefix
  setup(function()
    root = sh("mktemp -d"):gsub("%s+$", "")
    prefix = root .. "/usr"
    sh("test -e %s/libneap.so.0 || make BUILD=%s lib", build, build)
    make("install PREFIX=%s", prefix)
  end)
  teardown(function() sh("rm -rf %s", root) end)

  it("is a program that runs an installed example from any folder", function()
    local text = sh("cd / && NEAP_DB=off %s/bin/neap run %s/share/neap/examples/xor.lua --quick",
      prefix, prefix)
    assert.is_true(#text > 0)
    assert.has_match("lenet", sh("ls %s/share/neap/nets", prefix))
    assert.has_match("arena",
      sh("cd / && NEAP_DB=off %s/bin/neap plan %s/share/neap/nets/lenet.lua --batch 4", prefix,
        prefix))
  end)

  it("has stubs for editors that are Lua, and a manual page with the questions", function()
    local stubs = prefix .. "/share/neap/types/neap.lua"
    assert.is_truthy(loadfile(stubs))
    local text = sh("cat %s", stubs)
    for _, part in ipairs { "nn.Conv2d.options", "neap.Plan", "Plan:whatif", "neap.help" } do
      assert.is_truthy(text:find(part, 1, true), part)
    end
    assert.has_match("Which op has the peak", sh("cat %s/share/man/man1/neap.1", prefix))
  end)

  it("is a module that stock Lua requires", function()
    if sanitized then return end -- a sanitizer must be in the program, which is stock here
    local code = "print(require('neap').ones(3):sum():item())"
    assert.has_match("^3",
      sh("cd / && LUA_CPATH='%s/lib/lua/5.4/?.so' NEAP_DB=off lua5.4 -e \"%s\"", prefix, code))
  end)

  it("is a library that pkg-config finds, and that a program meets by its soname", function()
    local source, program = root .. "/user.c", root .. "/user"
    local file <close> = assert(io.open(source, "w"))
    file:write [[
      #include <neap.h>
      #include <stdio.h>
      #include <string.h>

      int main(void) {
        neap_error error = {0};
        neap_net *net = NULL;
        neap_figures figures;
        const char *text = "net f\ninput x f32 (4,2)\nparam w f32 (3,2) = Xavier\ny = FC(x, w)\n";
        if (neap_net_read(text, &net, &error) != NEAP_OK ||
            neap_net_forecast(net, NULL, &figures, NULL, &error) != NEAP_OK) {
          fprintf(stderr, "%s\n", error.message);
          return 1;
        }
        neap_net_free(net);
        neap_db *db = NULL;
        neap_sql_rows *rows = NULL;
        const char *query = "SELECT count(*) FROM plan";
        if (neap_db_open(":memory:", &db, &error) != NEAP_OK ||
            neap_db_rows(db, query, 0, NULL, true, &rows, &error) != NEAP_OK) {
          fprintf(stderr, "%s\n", error.message);
          return 1;
        }
        neap_free(rows);
        neap_db_close(db);
        printf("%s %d\n", neap_version(), strcmp(neap_version(), NEAP_VERSION));
        return 0;
      }
    ]]
    file:close()
    local config = ("PKG_CONFIG_PATH=%s/lib/pkgconfig pkg-config"):format(prefix)
    sh("cc -std=c11 -Wall -Werror %s %s $(%s --cflags neap) $(%s --libs neap) -o %s",
      sanitized and "-fsanitize=address,undefined" or "", source, config, config, program)
    -- the name to link by, which is not the one to run by
    sh("mv %s/lib/libneap.so %s/lib/away.so", prefix, prefix)
    local ok, text = pcall(sh, "ASAN_OPTIONS=detect_leaks=0 LD_LIBRARY_PATH=%s/lib %s", prefix,
      program)
    sh("mv %s/lib/away.so %s/lib/libneap.so", prefix, prefix)
    assert(ok, text)
    local version = text:match "^(%S+) 0\n"
    assert.are.equal(version, (sh("%s --modversion neap", config):gsub("%s+$", "")))
  end)

  it("is a library that exports what the installed headers declare, and nothing else", function()
    local declared, exported = {}, {}
    local headers <close> = assert(
      io.popen(("cat %s/include/neap.h %s/include/neap/*.h"):format(prefix, prefix)))
    for line in headers:lines() do
      local name = line:match "^NEAP_API [^(]-([%w_]+)%("
      if name then declared[name] = true end
    end
    for name in sh("nm -D --defined-only %s/lib/libneap.so.0",
      prefix):gmatch "%x+ [TDBRVWi] ([%w_.]+)" do
      exported[name] = true
    end
    for name in pairs(declared) do
      assert.is_true(exported[name], name .. " is declared and not exported")
    end
    for name in pairs(exported) do
      assert.is_true(declared[name] or name:sub(1, 5) ~= "neap_",
        name .. " is exported and not declared")
    end
    assert.is_true(next(declared) ~= nil)
  end)

  it("is a manual page that knows every command and variable, and that troff has \z
      nothing to say about", function()
    local page = prefix .. "/share/man/man1/neap.1"
    assert.are.equal("", sh("groff -man -Tutf8 -ww -z %s", page))
    local text = sh("groff -man -Tutf8 -P-bou -rLL=200n %s", page)
    local n = 0
    for command in sh("%s/bin/neap --help", prefix):match("Commands:\n(.-)\n\n")
      :gmatch "   (%l+)  " do
      assert.is_truthy(text:find("neap " .. command .. "\n", 1, true), command)
      n = n + 1
    end
    assert.is_true(n >= 9)
    for line in sh("env -i %s/bin/neap help env", prefix):gmatch "[^\n]+" do
      assert.is_truthy(text:find(line, 1, true), line)
    end
  end)

  it("is gone after make uninstall, and goes below DESTDIR when packed", function()
    local packed = root .. "/packed"
    make("install PREFIX=/opt/neap DESTDIR=%s", packed)
    assert.has_match("prefix=/opt/neap\n", sh("cat %s/opt/neap/lib/pkgconfig/neap.pc", packed))
    make("uninstall PREFIX=/opt/neap DESTDIR=%s", packed)
    assert.are.equal("", sh("find %s -type f -o -type l", packed))
  end)
end)

describe("the rockspec", function()
  it("builds here: it finds every library, and installs module and program", function()
    local tree = sh("mktemp -d"):gsub("%s+$", "")
    -- LuaRocks calls the same Makefile, by a make that takes what is built for new. lua-cjson and
    -- argparse are Debian's here.
    sh([[mkdir %s/bin; cd %s/bin
      printf '#!/bin/sh\nexec "%%s" -o all "$@"\n' "$(command -v make)" >make; chmod +x make]],
      tree, tree)
    local ok, text = pcall(sh, "PATH=%s/bin:$PATH env -u MAKELEVEL -u MAKEFLAGS BUILD=%s luarocks \z
      --lua-version 5.4 --tree %s/rock make --deps-mode none", tree, build, tree)
    local installed = ok
      and sh("ls %s/rock/lib/lua/5.4/neap.so; NEAP_DB=off %s/rock/bin/neap --version", tree, tree)
    sh("rm -rf %s", tree)
    assert(ok, text)
    assert.has_match("neap%.so\nneap %d", installed)
  end)
end)

describe("scripts/setup", function()
  it("names every program that a test calls", function()
    local text = sh "cat scripts/setup"
    for _, package in ipairs {
      "graphviz", "sqlite3", "strace", "tmux", "groff-base", "luarocks", "lua5.4", "pkg-config",
    } do
      assert.is_truthy(text:find(package, 1, true), package)
    end
  end)
end)
