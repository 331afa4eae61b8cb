# Neap. `make help` lists what one can do. User settings come first; below the line nothing need change.

PREFIX ?= /usr/local
WITH_DNNL ?= 1
CC = gcc
OPT ?= -O3 -g
BUILD ?= build

# ---- below here nothing need change ---------------------------------------------------------------------------------

WARN := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Werror
ARCH := $(shell uname -m)
MARCH := $(if $(filter x86_64,$(ARCH)),-march=x86-64-v2,)
PKGS := lua5.4 sqlite3 zlib jansson
CFLAGS := -std=c11 -D_GNU_SOURCE $(OPT) $(MARCH) -fPIC -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off -fvisibility=hidden $(WARN) \
  -Isrc -I$(BUILD) $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(EXTRA_CFLAGS)
LIBS := $(shell pkg-config --libs sqlite3 zlib jansson 2>/dev/null) -lopenblas -lm -lpthread
ifeq ($(WITH_DNNL),1)
CFLAGS += -DNEAP_WITH_DNNL=1
LIBS += -ldnnl
else
CFLAGS += -DNEAP_WITH_DNNL=0
endif
LUA_LIBS := $(shell pkg-config --libs lua5.4 2>/dev/null)

SRC := $(filter-out src/main.c,$(wildcard src/*/*.c src/*/*/*.c))
OBJ := $(SRC:src/%.c=$(BUILD)/%.o)
OP_SRC := $(wildcard src/ops/*.c src/ops/control/*.c)
EMBEDDED := $(shell find lua/neap db -name '*.lua' -o -name '*.sql' 2>/dev/null | LC_ALL=C sort)

.DEFAULT_GOAL := all
.PHONY: all
all: $(BUILD)/neap $(BUILD)/neap.so ## build the program and the Lua module

# The list of ops: every record `const neap_op neap_op_NAME = {` in src/ops, in strcmp order.
$(BUILD)/op_list.h: $(OP_SRC)
	@mkdir -p $(@D)
	@sed -n 's/^const neap_op neap_op_\([A-Za-z0-9]*\) = {$$/X(\1)/p' $(OP_SRC) | LC_ALL=C sort >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Lua files and SQL, embedded as strings.
$(BUILD)/embedded.h: $(EMBEDDED) scripts/tools/embed
	@mkdir -p $(@D)
	@scripts/tools/embed $(EMBEDDED) >$@

$(BUILD)/ops/registry.o: $(BUILD)/op_list.h
$(BUILD)/lua/module.o $(BUILD)/store/embedded.o $(BUILD)/base/embedded.o: $(BUILD)/embedded.h

$(BUILD)/%.o: src/%.c
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/neap: $(OBJ) $(BUILD)/main.o
	@$(CC) $(CFLAGS) -rdynamic $^ -o $@ $(LIBS) $(LUA_LIBS)

$(BUILD)/neap.so: $(OBJ)
	@$(CC) $(CFLAGS) -shared $^ -o $@ $(LIBS)

# C tests: each tests/c/test_*.c is a program.
C_TESTS := $(patsubst tests/c/%.c,$(BUILD)/tests/%,$(wildcard tests/c/test_*.c))
.PHONY: objects c-tests
objects: $(OBJ)
c-tests: $(C_TESTS)
$(BUILD)/tests/%: tests/c/%.c tests/c/check.h $(OBJ)
	@mkdir -p $(@D)
	@$(CC) $(filter-out -Wmissing-prototypes -Wconversion,$(CFLAGS)) -Itests/c $< $(OBJ) -o $@ $(LIBS) $(LUA_LIBS)

-include $(OBJ:.o=.d) $(BUILD)/main.d

.PHONY: help
help: ## list what one can do
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 24

.PHONY: clean
clean: ## remove what was built
	@rm -rf $(BUILD)
