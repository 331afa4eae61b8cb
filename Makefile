# Neap. `make help` lists what one can do. User settings come first; below the line nothing need change.

PREFIX ?= /usr/local
DESTDIR ?=
CC = gcc
OPT ?= -O3 -g
BUILD ?= build
# Tests to run: those whose path and name contain this text, e.g. make test FILTER=test_plan
FILTER ?=

# ---- below here nothing need change ---------------------------------------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-print-directory
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Werror
ARCH := $(shell uname -m)
MARCH := $(if $(filter x86_64,$(ARCH)),-march=x86-64-v2,)
PKGS := lua5.4 sqlite3 zlib jansson libpng libjpeg sndfile libprotobuf-c
OPENMP := -fopenmp
CFLAGS := -std=c11 -D_GNU_SOURCE $(OPT) $(MARCH) -fPIC $(OPENMP) -fno-math-errno -ffp-contract=off -fvisibility=hidden $(WARN) \
  -Isrc -I$(BUILD) $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(EXTRA_CFLAGS)
LIBS := $(shell pkg-config --libs sqlite3 zlib jansson libpng libjpeg sndfile libprotobuf-c 2>/dev/null) -lcsv -lopenblas -lm -lpthread
# What engines need, each in a file of its own: ENGINE_CFLAGS, ENGINE_LIBS, ENGINE_PACKAGES (of Debian), and ENGINE_LEFT_OUT,
# sources that this build does without.
comma := ,
ENGINE_CFLAGS :=
ENGINE_LIBS :=
ENGINE_PACKAGES :=
ENGINE_LEFT_OUT :=
include $(wildcard src/math/*.mk)
CFLAGS += $(ENGINE_CFLAGS)
LIBS += $(ENGINE_LIBS)
LUA_LIBS := $(shell pkg-config --libs lua5.4 2>/dev/null)

# The engine is every room but the binding.
SRC := $(filter-out $(ENGINE_LEFT_OUT),$(wildcard src/*/*.c src/*/*/*.c))
OBJ := $(SRC:src/%.c=$(BUILD)/%.o)
SCHEMA_OBJ := $(BUILD)/import/onnx.pb-c.o $(BUILD)/import/caffe.pb-c.o
OBJ += $(SCHEMA_OBJ)
ENGINE_OBJ := $(filter-out $(BUILD)/lua/%,$(OBJ))
OP_SRC := $(wildcard src/ops/*.c src/ops/control/*.c)
EMBEDDED := $(shell find lua/neap db scripts/nets -name '*.lua' -o -name '*.sql' -o -name '*.js' -o -name '*.css' 2>/dev/null | LC_ALL=C sort)
C_TESTS := $(patsubst tests/c/%.c,$(BUILD)/tests/%,$(wildcard tests/c/test_*.c))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_TESTS := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/tests/%)

.PHONY: all lib objects c-tests
all: $(BUILD)/neap $(BUILD)/neap.so ## the program build/neap and the Lua module build/neap.so
lib: $(BUILD)/libneap.so ## the C library build/libneap.so, for src/neap.h
objects: $(OBJ)
c-tests: $(C_TESTS) $(FUZZ_TESTS) ## the C test programs

# ---- what is made ---------------------------------------------------------------------------------------------------

# The flags of the last build: other ones make everything new.
.PHONY: FORCE
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(CFLAGS) $(LIBS)' | cmp -s - $@ || echo '$(CC) $(CFLAGS) $(LIBS)' >$@

# The list of ops: every record `const neap_op neap_op_NAME = {` in src/ops, in strcmp order.
$(BUILD)/op_list.h: $(OP_SRC) FORCE
	@mkdir -p $(@D)
	@sed -n 's/^const neap_op neap_op_\([A-Za-z0-9]*\) = {$$/X(\1)/p' $(OP_SRC) | LC_ALL=C sort >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Lua files, SQL and what a report is made of, embedded as bytes; made anew also when one is gone.
$(BUILD)/embedded.list: FORCE
	@mkdir -p $(@D)
	@echo '$(EMBEDDED)' | cmp -s - $@ || echo '$(EMBEDDED)' >$@

$(BUILD)/embedded.h: $(EMBEDDED) $(BUILD)/embedded.list scripts/tools/embed
	@scripts/tools/embed $(EMBEDDED) >$@

$(BUILD)/ops/registry.o: $(BUILD)/op_list.h
$(BUILD)/lua/module.o $(BUILD)/store/embedded.o $(BUILD)/base/embedded.o: $(BUILD)/embedded.h

# ONNX's own schema, as libonnx-dev installs it, in C; its types are in the headers that readers of it include.
ONNX_PROTO := $(firstword $(wildcard /usr/include/onnx/onnx-ml.proto /usr/include/onnx/onnx.proto /usr/local/include/onnx/onnx.proto))
$(BUILD)/import/onnx.pb-c.c: $(ONNX_PROTO)
	@mkdir -p $(@D)
	@cp $(ONNX_PROTO) $(@D)/onnx.proto
	@protoc-c --proto_path=$(@D) --c_out=$(@D) onnx.proto
# The part of Caffe's that holds numbers.
$(BUILD)/import/caffe.pb-c.c: src/import/caffe.proto
	@mkdir -p $(@D)
	@protoc-c --proto_path=src/import --c_out=$(@D) caffe.proto
$(SCHEMA_OBJ): %.o: %.c $(BUILD)/flags
	@$(CC) $(filter-out $(WARN),$(CFLAGS)) -c $< -o $@
$(patsubst src/%.c,$(BUILD)/%.o,$(wildcard src/import/*.c)): $(SCHEMA_OBJ:.o=.c)
$(BUILD)/import/%.o: CFLAGS += -I$(BUILD)/import

# Where speed is a matter of products and their sums alone, a multiply and an add are one instruction on processors that have it.
$(BUILD)/math/panels.o $(BUILD)/ops/lstm.o $(BUILD)/ops/lstm_grad.o: CONTRACT := -ffp-contract=fast

$(BUILD)/%.o: src/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(CONTRACT) -MMD -MP -c $< -o $@

$(BUILD)/neap: $(OBJ) $(BUILD)/main.o
	@$(CC) $(CFLAGS) -rdynamic $^ -o $@ $(LIBS) $(LUA_LIBS)

# What has been loaded stays: threads sleep in it, and oneDNN calls it (src/base/team.c, src/math/onednn_threads.c).
STAYS := -shared -Wl,-z,nodelete
$(BUILD)/neap.so: $(OBJ)
	@$(CC) $(CFLAGS) $(STAYS) $^ -o $@ $(LIBS)

# The library exports what neap.h and its parts declare: not the clones of kernels for several processors, which no attribute hides.
$(BUILD)/exports.map: src/neap.h $(wildcard src/neap/*.h)
	@mkdir -p $(@D)
	@{ echo '{ global:'; sed -n 's/^NEAP_API [^(]*\<\(neap_[a-z0-9_]*\)(.*/\1;/p' $^; echo 'local: *; };'; } >$@

# The number in the name rises with a change that programs linked before it can't bear.
SONAME := libneap.so.0
$(BUILD)/$(SONAME): $(ENGINE_OBJ) $(BUILD)/exports.map
	@$(CC) $(CFLAGS) $(STAYS) -Wl,-soname,$(SONAME) -Wl,--version-script=$(BUILD)/exports.map $(ENGINE_OBJ) -o $@ $(LIBS)

$(BUILD)/libneap.so: $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@

# Each tests/c/test_*.c is a program.
$(BUILD)/tests/%: tests/c/%.c $(OBJ)
	@mkdir -p $(@D)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/c $< $(OBJ) -o $@ $(LIBS) $(LUA_LIBS)

# This one is several files.
RANDOM_OBJ := $(patsubst tests/c/%.c,$(BUILD)/tests/%.o,$(wildcard tests/c/random/*.c))
$(BUILD)/tests/random/%.o: tests/c/random/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/c -c $< -o $@
$(BUILD)/tests/test_random_nets: tests/c/test_random_nets.c $(RANDOM_OBJ) $(OBJ)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/c $< $(RANDOM_OBJ) $(OBJ) -o $@ $(LIBS) $(LUA_LIBS)

# Packing is a library of its own: its test has the objects of two rooms and no others.
PACK_OBJ := $(filter $(BUILD)/base/% $(BUILD)/pack/%,$(OBJ))
$(BUILD)/tests/test_pack: tests/c/test_pack.c $(PACK_OBJ)
	@mkdir -p $(@D)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/c $^ -o $@ -lm

# A fuzz target on its seeds and changes of them, as a test; fuzz-targets below are the same files with libFuzzer.
FUZZ_FLAGS = $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/fuzz
$(FUZZ_TESTS): $(BUILD)/tests/%: tests/fuzz/%.c tests/fuzz/replay.c $(OBJ)
	@mkdir -p $(@D)
	@$(CC) $(FUZZ_FLAGS) $< tests/fuzz/replay.c $(OBJ) -o $@ $(LIBS) $(LUA_LIBS)

# The example at the head of the manual, as a program: test_api runs it.
$(BUILD)/manual_example.c: src/neap.h
	@mkdir -p $(@D)
	@sed -n '/^ \*   #include "neap.h"/,/^ \*   }$$/s/^ \*  \{0,2\}//p' $< >$@

# The tests of the public API are linked with the library alone: what they use, its users have.
API_TESTS := $(filter $(BUILD)/tests/test_api%,$(C_TESTS))
$(API_TESTS): $(BUILD)/tests/%: tests/c/%.c $(BUILD)/libneap.so
	@mkdir -p $(@D)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -MMD -MP -Itests/c $< -o $@ -L$(BUILD) -lneap \
	  -Wl,-rpath,'$$ORIGIN/..' -lm
$(BUILD)/tests/test_api: $(BUILD)/manual_example.c

-include $(OBJ:.o=.d) $(BUILD)/main.d $(RANDOM_OBJ:.o=.d) $(C_TESTS:=.d) $(FUZZ_TESTS:=.d)

# ---- set up, test, show ---------------------------------------------------------------------------------------------

# Set-up runs to its end before anything is compiled: pkg-config's answers change with it.
SETUP := ENGINE_PACKAGES='$(ENGINE_PACKAGES)' scripts/setup
RUN_TESTS = NEAP_BUILD=$(BUILD) NEAP_DB=off $(1) $(BUILD)/neap run tests/run.lua $(FILTER)

.PHONY: setup test demo asan valgrind
setup: ## install the missing Debian packages, those for developers too
	@$(SETUP) --dev

test: ## install what is missing, build, run all tests; FILTER=TEXT for some
	@$(SETUP) --test
	@$(MAKE) all c-tests
	@$(if $(FILTER),,$(MAKE) debug)
	@$(call RUN_TESTS,$(if $(FILTER),,NEAP_CHECKED_BUILD=build-debug))

demo: ## install what is missing, build, show what Neap does in two minutes
	@$(SETUP)
	@$(MAKE) all
	@scripts/demo

# What the INVARIANT: lines say is checked while the program runs (src/base/assert.h).
CHECKED := -DNEAP_DEBUG=1
DEBUG_BUILD := BUILD=build-debug OPT='-O1 -g' EXTRA_CFLAGS='$(CHECKED)'
.PHONY: debug debug-test debug-run
debug: ## program and C tests with every invariant checked, built in build-debug; make test runs these C tests too
	@$(MAKE) $(DEBUG_BUILD) all c-tests
debug-test: ## all tests in that build
	@$(MAKE) $(DEBUG_BUILD) all c-tests debug-run
debug-run: all c-tests
	@$(call RUN_TESTS,)

# Function multiversioning is off: its resolvers run before the sanitizers are ready.
SANITIZE := $(CHECKED) -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DNEAP_NO_MULTIVERSION
asan: ## all tests under AddressSanitizer and UBSan, built in build-asan
	@$(MAKE) BUILD=build-asan OPT='-O1 -g' EXTRA_CFLAGS='$(SANITIZE)' all c-tests asan-run
.PHONY: asan-run
asan-run: all c-tests
	@$(call RUN_TESTS,ASAN_OPTIONS='detect_leaks=1 allocator_may_return_null=1' LSAN_OPTIONS=suppressions=tests/leaks.supp:print_suppressions=0)

# What libgomp, oneDNN and OpenBLAS do among themselves the sanitizer does not see: tests/tsan.supp.
tsan: ## the C tests under ThreadSanitizer, built in build-tsan
	@$(MAKE) BUILD=build-tsan OPT='-O1 -g' EXTRA_CFLAGS='$(CHECKED) -fsanitize=thread -fno-omit-frame-pointer -DNEAP_NO_MULTIVERSION' c-tests tsan-run
.PHONY: tsan tsan-run
tsan-run: all c-tests
	@$(call RUN_TESTS,NEAP_TEST_ONLY=c NEAP_RANDOM_NETS=1000 NEAP_TEST_SECONDS=3000 \
	  TSAN_OPTIONS='suppressions=tests/tsan.supp ignore_noninstrumented_modules=1 die_after_fork=0 exitcode=66')

# libFuzzer is clang's. Warnings are gcc's: clang has others; and so are teams of threads.
SECONDS ?= 60
TARGET ?=
.PHONY: fuzz fuzz-targets
fuzz: ## hunt with every fuzz target of tests/fuzz for SECONDS=60, or with TARGET=net alone; built with clang in build-fuzz
	@$(MAKE) BUILD=build-fuzz CC=clang OPENMP='-fopenmp-simd -lgomp' OPT='-O1 -g' WARN=-w \
	  EXTRA_CFLAGS='$(SANITIZE) -fsanitize=fuzzer-no-link' fuzz-targets
	@SECONDS='$(SECONDS)' TARGET='$(TARGET)' scripts/tools/fuzz
fuzz-targets: $(FUZZ_TESTS) $(FUZZ_SRC:tests/fuzz/fuzz_%.c=$(BUILD)/hunt_%)
$(BUILD)/hunt_%: tests/fuzz/fuzz_%.c $(OBJ)
	@$(CC) $(FUZZ_FLAGS) -fsanitize=fuzzer $< $(OBJ) -o $@ $(LIBS) $(LUA_LIBS)

# As for the sanitizers without function multiversioning: valgrind 3.19 takes an ordered comparison of AVX (NaN is not unequal)
# for an unordered one. oneDNN is held to SSE4.1: the AVX2 matrix product it generates reads a vector past a buffer of its own.
valgrind: ## the C tests under valgrind, built in build-valgrind
	@$(MAKE) BUILD=build-valgrind OPT='-O1 -g' EXTRA_CFLAGS=-DNEAP_NO_MULTIVERSION c-tests valgrind-run
.PHONY: valgrind-run
valgrind-run: all c-tests
	@$(call RUN_TESTS,NEAP_TEST_ONLY=c OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=SSE41 NEAP_RANDOM_NETS=1000 NEAP_TEST_SECONDS=3000 \
	  NEAP_TEST_RUNNER='valgrind -q --suppressions=tests/valgrind.supp --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite')

# One version of each function, so that a line counts once; counters that several threads raise. What a killed process ran is not
# counted. tests/coverage.md says what is left. The rows are in build-coverage/coverage.txt, the lines in coverage.html beside it.
COUNTERS := --coverage -fprofile-update=atomic -DNEAP_NO_MULTIVERSION
.PHONY: coverage coverage-run
coverage: ## line and branch coverage of src by all tests, or by those of FILTER=TEXT, built in build-coverage
	@$(MAKE) BUILD=build-coverage OPT='-O1 -g' EXTRA_CFLAGS='$(COUNTERS)' all c-tests
	@$(MAKE) BUILD=build-coverage OPT='-O1 -g' EXTRA_CFLAGS='$(COUNTERS)' coverage-run
coverage-run:
	@find $(BUILD) -name '*.gcda' -delete
	@$(call RUN_TESTS,NEAP_TEST_SECONDS=3000); status=$$?; \
	gcovr -r . --filter src/ --exclude-unreachable-branches --exclude-throw-branches --txt $(BUILD)/coverage.txt \
	  --html-details $(BUILD)/coverage.html --print-summary $(BUILD) && exit $$status

# SEED=1 COUNT=300 FROM=1 FILTER= TIME=60: see scripts/tools/mutate.
.PHONY: mutate
mutate: ## change the sources in a copy, one place at a time, and list what no test noticed; SEED=, COUNT=, FROM=, FILTER=, TIME=
	@SEED='$(SEED)' COUNT='$(COUNT)' FROM='$(FROM)' FILTER='$(FILTER)' TIME='$(TIME)' scripts/tools/mutate

# ---- look after the sources -----------------------------------------------------------------------------------------

C_FILES = $(shell find src tests/c -name '*.[ch]' | LC_ALL=C sort)
LUA_FILES = $(shell { find lua scripts tests -name '*.lua'; grep -rlE '^\#!.*lua' scripts; } | LC_ALL=C sort -u)

.PHONY: lint format check-includes doc docs types
lint: check-includes $(BUILD)/op_list.h $(BUILD)/embedded.h ## luacheck, clang-format, cppcheck, the order of includes
	@luacheck -q --no-color $(LUA_FILES)
	@clang-format --dry-run -Werror $(C_FILES)
	@! grep -nE '^.{101}' $(C_FILES) $(LUA_FILES) lua/neap/report/page/* # which clang-format leaves in comments, and luacheck in strings
	@cppcheck -q --std=c11 --error-exitcode=1 --enable=warning,portability --library=tests/cppcheck.cfg \
	  -D__x86_64__ -D__GNUC__ -Isrc -I$(BUILD) -j $(shell nproc) src

format: ## lay the C files out by clang-format
	@clang-format -i $(C_FILES)

check-includes: $(BUILD)/neap ## rooms include and call lower rooms only, by sources and by the symbols of their objects
	@scripts/tools/check-includes $(BUILD)

# The page on options and the stubs are made from the records that the constructors read.
REFERENCE := NEAP_DB=off $(BUILD)/neap run scripts/tools/reference.lua
docs: doc
doc: $(BUILD)/neap ## reference of the Lua modules and of all options in build/doc, by ldoc
	@$(REFERENCE) options >$(BUILD)/options.md
	@ldoc -q -d $(BUILD)/doc .

types: $(BUILD)/types/neap.lua ## stubs for editors, build/types/neap.lua, for the Lua language server
$(BUILD)/types/neap.lua: $(BUILD)/neap scripts/tools/reference.lua
	@mkdir -p $(@D)
	@$(REFERENCE) types >$@

# ---- install --------------------------------------------------------------------------------------------------------

ROOT = $(DESTDIR)$(PREFIX)
VERSION = $(shell sed -n 's/^\#define NEAP_VERSION "\(.*\)"$$/\1/p' src/neap.h)
NETS := $(wildcard scripts/nets/*.lua)
EXAMPLES := $(wildcard scripts/examples/*.lua)

# The manual page is made of the program's own help.
$(BUILD)/neap.1: $(BUILD)/neap scripts/tools/man-page
	@scripts/tools/man-page $(BUILD)/neap >$@

# Made at each install: PREFIX is in it.
$(BUILD)/neap.pc: FORCE
	@printf '%s\n' 'prefix=$(abspath $(PREFIX))' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: neap' \
	  'Description: deep learning engine whose memory is planned before it runs' 'Version: $(VERSION)' \
	  'Libs: -L$${libdir} -lneap' 'Libs.private: $(LIBS)' 'Cflags: -I$${includedir}' >$@

.PHONY: install uninstall
install: all lib $(BUILD)/neap.1 $(BUILD)/neap.pc types ## program, module, library, header, manual page, stubs, nets and examples below PREFIX (DESTDIR in front)
	@install -d $(addprefix $(ROOT)/,bin include/neap lib/lua/5.4 lib/pkgconfig share/man/man1 share/doc/neap share/neap/nets share/neap/examples share/neap/types)
	@install $(BUILD)/neap $(ROOT)/bin/neap
	@install -m 644 $(BUILD)/neap.so $(ROOT)/lib/lua/5.4/neap.so
	@install -m 644 $(BUILD)/$(SONAME) $(ROOT)/lib/$(SONAME)
	@ln -sf $(SONAME) $(ROOT)/lib/libneap.so
	@install -m 644 src/neap.h $(ROOT)/include/neap.h
	@install -m 644 $(wildcard src/neap/*.h) $(ROOT)/include/neap
	@install -m 644 $(BUILD)/neap.pc $(ROOT)/lib/pkgconfig/neap.pc
	@install -m 644 $(BUILD)/neap.1 $(ROOT)/share/man/man1/neap.1
	@install -m 644 README.md LICENSE $(ROOT)/share/doc/neap
	@install -m 644 $(BUILD)/types/neap.lua $(ROOT)/share/neap/types
	@install -m 644 $(NETS) $(ROOT)/share/neap/nets
	@install -m 644 $(EXAMPLES) $(ROOT)/share/neap/examples

.PHONY: install-rock
install-rock: all # for luarocks, which names the folders
	@install -d $(LIBDIR) $(BINDIR)
	@install -m 644 $(BUILD)/neap.so $(LIBDIR)/neap.so
	@install $(BUILD)/neap $(BINDIR)/neap

uninstall: ## remove what install copied
	@rm -f $(addprefix $(ROOT)/,bin/neap lib/lua/5.4/neap.so lib/$(SONAME) lib/libneap.so lib/pkgconfig/neap.pc include/neap.h \
	  share/man/man1/neap.1)
	@rm -rf $(ROOT)/include/neap $(ROOT)/share/doc/neap $(ROOT)/share/neap

.PHONY: help clean
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

clean: ## remove what was built
	@rm -rf $(BUILD) build-asan build-coverage build-debug build-fuzz build-tsan build-valgrind
