# SPDX-License-Identifier: MIT
# The engine is one Lua C module, build/qcow2/core.so, made of csrc/*/*.c. Variants are built beside it in build/NAME.
# Lua is looked for when the first file is compiled, so that help, deps and clean work without it; liblua is never linked.

BUILD = build
# Libraries used where they are found, each as NAME:header:library; one that is found gives -DHAVE_NAME and -llibrary.
OPTIONAL = LIBURING:liburing.h:uring LIBDEFLATE:libdeflate.h:deflate ZSTD:zstd.h:zstd
CFLAGS = -O2 -g
ASSERTS = -DNDEBUG
WARNINGS = -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wmissing-declarations \
	-Wpointer-arith -Wcast-align -Wcast-qual -Wundef -Wwrite-strings -Wredundant-decls -Wnested-externs
LUA_CFLAGS = $(eval LUA_CFLAGS := $$(shell CC='$$(CC)' LUA_INCDIR='$$(LUA_INCDIR)' sh .ci/find-lua cflags))$(LUA_CFLAGS)
LUA_RUN = $(eval LUA_RUN := $$(shell LUA='$$(LUA)' sh .ci/find-lua interpreter))$(LUA_RUN)
NO_LUA = $(error Lua 5.4 was not found: try `make deps`, or name LUA_INCDIR (headers) and LUA (interpreter))
FOUND = $(eval FOUND := $(foreach one,$(OPTIONAL),$(call probe,$(one),$(subst :, ,$(one)))))$(FOUND)
probe = $(shell printf '$(hash)include <$(word 2,$(2))>\nint main(void) { return 0; }\n' | \
	$(CC) $(CPPFLAGS) $(addprefix -I,$(ZLIB_INCDIR)) $(addprefix -L,$(ZLIB_LIBDIR)) -xc - -o /dev/null -l$(word 3,$(2)) 2>/dev/null && echo $(1))
found = $(word $(1),$(subst :, ,$(2)))
hash = \#

INST_PREFIX = /usr/local
INST_LIBDIR = $(INST_PREFIX)/lib/lua/5.4
INST_LUADIR = $(INST_PREFIX)/share/lua/5.4
INST_BINDIR = $(INST_PREFIX)/bin

COMPILE = $(CC) -std=gnu11 -ffp-contract=off -fPIC -fvisibility=hidden -pthread $(WARNINGS) $(ASSERTS) $(CFLAGS) $(CPPFLAGS) -Icsrc \
	$(or $(LUA_CFLAGS),$(NO_LUA)) $(addprefix -I,$(ZLIB_INCDIR)) \
	$(foreach one,$(FOUND),-DHAVE_$(call found,1,$(one)))
LINK = $(CC) -pthread $(CFLAGS) -Wl,--as-needed $(LDFLAGS)
NO_ZLIB = $(error zlib was not found: try `make deps`, or name ZLIB_INCDIR and ZLIB_LIBDIR)
ZLIB = $(eval ZLIB := $(call probe,-lz,_ zlib.h z))$(ZLIB)
LIBS = $(addprefix -L,$(ZLIB_LIBDIR)) $(or $(ZLIB),$(NO_ZLIB)) -lm $(foreach one,$(FOUND),-l$(call found,3,$(one)))
LUA_ENV = env -u LUA_INIT -u LUA_INIT_5_4 LUA_PATH_5_4='./lua/?.lua;./lua/?/init.lua;;' LUA_CPATH_5_4='$(BUILD)/?.so;;'
RUN = $(LUA_ENV) $(TEST_ENV) $(or $(LUA_RUN),$(NO_LUA))

OBJECTS = $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard csrc/*/*.c)))
CORE_OBJECTS = $(filter-out $(BUILD)/csrc/lua/%,$(OBJECTS))
PROGRAMS = $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard spec/unit/*.c spec/thread/*.c)))

ifneq ($(filter deps deps-dev,$(MAKECMDGOALS)),)
.NOTPARALLEL: # what is found or installed first is used by the goals after it
endif
.SECONDARY:
.PHONY: all help deps deps-dev bench test unit programs asan tsan lint install clean FORCE

all: $(BUILD)/qcow2/core.so ## build the module (the default)

help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

deps: ## find what building, bench and test need, and install what is missing
	@CC='$(CC)' sh .ci/deps user

deps-dev: ## the same for lint, asan, tsan and the comparisons with qemu-img
	@CC='$(CC)' sh .ci/deps dev

bench: all ## run all scenarios into one report (BENCH=--help says what it takes)
	@$(RUN) bench/all.lua $(or $(BENCH),--quick)

test: all $(PRELOADED) ## run the specs (BUSTED=... are its options)
	@$(RUN) .ci/busted.lua --ignore-lua $(BUSTED)

unit: programs ## build and run the C programs of spec/unit and spec/thread
	@failed=0; for program in $(PROGRAMS); do \
		if $(TEST_WRAP) $$program; then echo "passed: $$program"; else echo "FAILED: $$program"; failed=1; fi; \
	done; exit $$failed

programs: $(PROGRAMS)

SANITIZE = ASSERTS= CFLAGS='-O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=$(1)' BUILD=build/$@
asan: ## the specs and C programs under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory -k $(call SANITIZE,address$(comma)undefined) LDFLAGS=-Wl,-z,nodelete unit test \
		PRELOADED=build/asan/alone.so \
		TEST_ENV="LD_PRELOAD='$$($(CC) -print-file-name=libasan.so) build/asan/alone.so'" \
		BUSTED="$(or $(BUSTED),--exclude-tags=resident)"

tsan: ## the C programs under ThreadSanitizer
	@$(MAKE) --no-print-directory $(call SANITIZE,thread) unit TEST_WRAP="$$(setarch -R true 2>/dev/null && echo setarch -R)"

lint: ## luacheck, and all C with gcc and clang, warnings being errors; one of them with asserts
	luacheck -q .
	@$(MAKE) --no-print-directory BUILD=build/gcc CC=gcc CFLAGS='-O2 -Werror' all programs
	@$(MAKE) --no-print-directory BUILD=build/clang CC=clang CFLAGS='-O2 -Werror' ASSERTS= all programs

install: all ## copy module and Lua files to INST_LIBDIR and INST_LUADIR
	cd lua && find qcow2 -name '*.lua' -exec install -D -m 644 {} '$(DESTDIR)$(INST_LUADIR)'/{} ';'
	install -D -m 755 $(BUILD)/qcow2/core.so '$(DESTDIR)$(INST_LIBDIR)/qcow2/core.so'
	set -e; for command in $(wildcard bin/*); do install -D -m 755 $$command '$(DESTDIR)$(INST_BINDIR)'/$${command##*/}; done

clean: ## remove everything that was built
	rm -rf build

comma = ,
Q = $(if $(V),,@)# V=1 shows the commands in full
SAY = $(if $(V),,@echo '  $(CC) $@')

# Compiled again when the compiler or its flags change: this file does when they do.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(COMPILE) | $(LINK)' | cmp -s - $@ || printf '%s\n' '$(COMPILE) | $(LINK)' >$@

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(SAY)
	$(Q)$(COMPILE) -MMD -MP -c -o $@ $<

$(BUILD)/qcow2/core.so: $(OBJECTS)
	@mkdir -p $(@D)
	$(SAY)
	$(Q)$(LINK) -shared -o $@ $^ $(LIBS)

$(BUILD)/alone.so: spec/support/alone.c
	@mkdir -p $(@D)
	$(SAY)
	$(Q)$(CC) -shared -fPIC -o $@ $<

$(BUILD)/spec/%: $(BUILD)/spec/%.o $(CORE_OBJECTS)
	$(SAY)
	$(Q)$(LINK) -o $@ $^ $(LIBS)

-include $(shell find $(BUILD)/csrc $(BUILD)/spec -name '*.d' 2>/dev/null)
