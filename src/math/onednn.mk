# The engine dnnl: which oneDNN it is compiled for and linked with. Read by the Makefile.
#   make                      the system's, oneDNN 2 or 3
#   make DNNL_DIR=FOLDER      that of FOLDER/include and FOLDER/lib
#   make DNNL=0               none
DNNL_DIR ?=
DNNL_FLAGS := $(if $(DNNL_DIR),-isystem $(DNNL_DIR)/include)
# The major version, as the header has it; the system's setup installs one where there is none.
DNNL ?= $(or $(shell printf '#include <dnnl_version.h>\nmajor DNNL_VERSION_MAJOR\n' | $(CC) $(DNNL_FLAGS) -E -P - 2>/dev/null | \
  sed -n 's/^major //p'),2)

ifeq ($(DNNL),0)
ENGINE_LEFT_OUT += src/math/onednn.c src/math/onednn_md.c src/math/onednn_desc.c src/math/onednn_threads.c \
  src/math/onednn_v2.c src/math/onednn_v3.c
else
ENGINE_LEFT_OUT += src/math/onednn_none.c $(filter-out src/math/onednn_v$(DNNL).c,src/math/onednn_v2.c src/math/onednn_v3.c)
ENGINE_CFLAGS += $(DNNL_FLAGS)
ENGINE_LIBS += $(if $(DNNL_DIR),-L$(abspath $(DNNL_DIR))/lib -Wl$(comma)-rpath$(comma)$(abspath $(DNNL_DIR))/lib) -ldnnl
ENGINE_PACKAGES += $(if $(DNNL_DIR),,libdnnl-dev)
endif
