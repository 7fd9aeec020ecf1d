# Builds, tests and runs infcgi. `make help` lists the targets. Objects go to build/$(V)/.
V       ?= release
B       := build/$(V)
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# --- flags: one line per build variant ---------------------------------------------------------------------------
HARDEN       = -fstack-protector-strong -D_FORTIFY_SOURCE=2 $(branch-$(ARCH)) -fPIE
branch-x86  := -fcf-protection
branch-arm  := -mbranch-protection=standard
opt-release  = -O2 -g $(HARDEN)
opt-debug   := -O0 -g3 -fPIE
opt-asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
opt-tsan    := -O1 -g1 -fsanitize=thread
opt-cov     := -O0 -g --coverage
opt-valgrind := -O2 -g -DCHECK_VALGRIND
opt-arm64   := -O2
opt-fuzz    := $(opt-asan) -fsanitize=fuzzer-no-link
ld-release  := -pie -Wl,-z,relro,-z,now
ld-arm64    := -static
ld-fuzz     := -fsanitize=fuzzer
cc-arm64    := aarch64-linux-gnu-gcc
cc-fuzz      = $(shell command -v clang || command -v clang-14 || echo clang)
CSTD  := -std=c17 -D_GNU_SOURCE
WARN  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wwrite-strings
ifdef CI
WARN += -Werror
endif
FP    := -ffp-contract=off -fno-math-errno
CC    := $(or $(cc-$(V)),gcc)
ARCH  := $(if $(filter aarch64-%,$(shell $(CC) -dumpmachine)),arm,x86)
override CFLAGS  := $(CSTD) $(WARN) $(FP) $(opt-$(V)) $(CFLAGS)
override LDFLAGS := $(opt-$(V)) $(ld-$(V)) $(LDFLAGS)
ifeq ($(opt-$(V)),)
$(error V=$(V) is not a variant: release debug asan tsan cov valgrind arm64 fuzz)
endif

# --- ISA flags: the last _word of a file name picks them; everything else is built for the baseline CPU -----------
isa-avx2    := -mavx2 -mfma -mf16c
isa-avxvnni := $(isa-avx2) -mavxvnni
isa-avx512  := $(isa-avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
isa-amx     := $(isa-avx512) -mamx-tile -mamx-int8
isa-neon    := -march=armv8-a
isa-dotprod := -march=armv8.2-a+dotprod
isa-i8mm    := $(isa-dotprod)+i8mm
# With these checks vector kernels take 2.5 times as long to compile; ASan and checkkern's guard pages watch their pointers.
# Checks of addresses in functions (--param asan-instrumentation-with-call-threshold=0) halve it again, but then the kernels take 2 to 4
# times as long to run, which costs more.
vec-asan    := -fno-sanitize=alignment,null,object-size,pointer-overflow
vec-fuzz    := -fno-sanitize=all # no target computes
vec-release := -fno-var-tracking # where a variable lies at each instruction, which takes as long as all else
isa-of       = $(lastword $(subst _, ,$(basename $(notdir $1))))
isa          = $(isa-$(isa-of)) $(if $(isa-$(isa-of)),$(vec-$(V)))

# --- sources: found, not listed ----------------------------------------------------------------------------------
skip-few := $(addprefix engine/kernels/x86/%_,avxvnni.c avx512.c amx.c) # ISAS=few, with sanitizers only: for make test
skip-x86 := engine/kernels/arm/% $(skip-$(ISAS))
skip-arm := engine/kernels/x86/% tests/kernels/%_avx512.c
here     = $(sort $(filter-out $(skip-$(ARCH)),$1))
ENGINE  := $(call here,$(shell find engine -name '*.c'))
OPENCL  := $(sort $(shell find opencl -name '*.c'))
CL      := $(sort $(wildcard opencl/kernels/*))
FCGI    := $(sort $(shell find fcgi -name '*.c'))
obj      = $(patsubst %.c,$(B)/%.o,$1)

LIBS      := -ljansson -lpcre2-8 -lutf8proc -lcrypto -lOpenCL -lpciaccess -ledit -lm -lpthread
FCGI_LIBS := -lfcgi

all: $(B)/infcgi                        ## build the FastCGI process, build/<variant>/infcgi
engine-obj := $(call obj,$(ENGINE) $(OPENCL)) $(B)/opencl_sources.o
fcgi-obj   := $(call obj,$(FCGI)) $(B)/openapi.o
$(B)/infcgi: $(engine-obj) $(fcgi-obj)
	@echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(FCGI_LIBS) $(LIBS)

# The OpenCL C sources as strings, one for each file of opencl/kernels.
$(B)/opencl_sources.c: $(CL)
	@mkdir -p $(@D)
	@{ echo '#include "opencl/program.h"'; echo 'const struct program_source program_sources[] = {'; \
	   for f in $(CL); do echo "    {\"$${f##*/}\","; sed 's/[\\"]/\\&/g; s/.*/     "&\\n"/' $$f; echo '    },'; done; \
	   echo '    {0}};'; } > $@
$(B)/opencl_sources.o: $(B)/opencl_sources.c
	@$(CC) -I. $(CFLAGS) -c -o $@ $<

# docs/openapi.json as a string.
$(B)/openapi.c: docs/openapi.json
	@mkdir -p $(@D)
	@{ echo 'extern const char openapi_json[];'; echo 'const char openapi_json[] ='; sed 's/[\\"]/\\&/g; s/.*/    "&\\n"/' $<; echo '    ;'; } > $@
$(B)/openapi.o: $(B)/openapi.c
	@$(CC) $(CFLAGS) -c -o $@ $<

# A copy of the sources without tests/ builds the program, too.
-include tests/tests.mk

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo "  CC $<"; $(CC) -I. $(CFLAGS) $(call isa,$<) -MMD -MP -c -o $@ $<

docs: all                               ## renew generated pages: options, manual page, completion, openapi.json
	@bash docs/make.sh $(B)/infcgi
	@bash docs/diagram.sh
lint: all                               ## check rules for code and pages; silent if all pass
	@INFCGI=$(B)/infcgi bash tests/lint/lint.sh

format:                                 ## format C files with clang-format
	@git ls-files -co --exclude-standard engine fcgi opencl tests | grep '\.[ch]$$' | xargs -n 40 -P 2 clang-format -i
format-check:                           ## list C files that clang-format would change
	@bash tests/lint/format.sh

# --- running, testing, installing ---------------------------------------------------------------------------------
PAGE   := build/html
DEB    := build/deb
# Installed with their folders, so that links between pages work there too.
PAGES   = $(sort $(wildcard *.md) $(shell find docs -type f ! -path 'docs/man/*' ! -name '*.sh' ! -name '*.py' ! -name '*.json'))
PREFIX ?= /usr/local
DEST    = $(DESTDIR)$(PREFIX)
JOBS    = -j$(shell nproc)

# The tools must be there before the sources are compiled, so these targets call make again.
deps:                                   ## install missing Debian packages (root or sudo)
	@sh tests/support/deps.sh test
page: $(PAGE)/.ok                       ## build the chat page with its Markdown libraries (npm)
# Where they cannot be fetched it is not made, but told, and the next make tries again.
$(PAGE)/.ok: nginx/page.sh $(wildcard nginx/html/*)
	@echo "  PAGE $(PAGE)"; bash $< $(PAGE)
run: override export MODEL := $(value MODEL)
run: override export PORT := $(value PORT)
run:                                    ## build and serve on nginx; MODEL=path PORT=8080 ARGS='options of infcgi serve'
	@sh tests/support/deps.sh run
	@$(MAKE) -s $(JOBS) all page
	@V=$(V) exec bash nginx/run.sh --any-model $(ARGS)
ci:                                     ## run make test with warnings as errors
	@bash .ci/run
install: all page                       ## install into PREFIX=/usr/local (DESTDIR= for packagers)
	install -D -m 755 $(B)/infcgi $(DEST)/bin/infcgi
	install -d $(DEST)/share/infcgi/html $(DEST)/share/infcgi/nginx $(DEST)/lib/systemd/system
	install -m 644 nginx/html/* $(DEST)/share/infcgi/html
	[ ! -e $(PAGE)/lib ] || install -D -m 644 -t $(DEST)/share/infcgi/html/lib $(PAGE)/lib/*
	install -m 644 nginx/infcgi.conf $(DEST)/share/infcgi/nginx/infcgi.conf
	sed 's|/usr/share/infcgi|$(PREFIX)/share/infcgi|' nginx/infcgi-http.conf > $(DEST)/share/infcgi/nginx/infcgi-http.conf
	install -m 644 nginx/systemd/infcgi.socket $(DEST)/lib/systemd/system/infcgi.socket
	sed 's|/usr/|$(PREFIX)/|' nginx/systemd/infcgi.service > $(DEST)/lib/systemd/system/infcgi.service
	sed -f nginx/systemd/template.sed nginx/systemd/infcgi.socket > $(DEST)/lib/systemd/system/infcgi@.socket
	sed -f nginx/systemd/template.sed nginx/systemd/infcgi.service | sed 's|/usr/|$(PREFIX)/|' > $(DEST)/lib/systemd/system/infcgi@.service
	install -D -m 644 nginx/systemd/infcgi-gpu.conf $(DEST)/share/infcgi/systemd/infcgi-gpu.conf
	for f in $(PAGES); do install -D -m 644 $$f $(DEST)/share/doc/infcgi/$$f || exit; done
	install -D -m 644 docs/man/infcgi.1 $(DEST)/share/man/man1/infcgi.1
	install -D -m 644 docs/man/infcgi.bash $(DEST)/share/bash-completion/completions/infcgi
deb:                                    ## build Debian packages into build/deb and check them with lintian
	@sh tests/support/deps.sh deb
	@$(MAKE) -s page
	@bash nginx/deb.sh $(DEB) $(PAGE) >$(DEB).log 2>&1 || { tail -n 30 $(DEB).log >&2; exit 1; }
	@lintian --allow-root --fail-on error,warning $(DEB)/*.changes
	@ls $(DEB)/*.deb
release:                                ## set VERSION=x.y.z, date the changelogs, build the packages (docs/howto/release.md)
	@bash nginx/release.sh '$(VERSION)'
sbom: all                               ## list linked libraries and parts of the page as CycloneDX: build/<variant>/infcgi.cdx.json
	@nginx/sbom.py $(B)/infcgi $(B)/infcgi.cdx.json
clean:                                  ## remove build/
	rm -rf build
FIRST  := run test all install unit test-e2e lint format docs bench-peer
help:                                   ## list the targets
	@list=$$(sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)); \
	 for t in $(FIRST); do echo "$$list" | grep -P "^$$t\t"; done | expand -t 20; echo; \
	 echo "$$list" | grep -vP "^($$(echo $(FIRST) | tr ' ' '|'))\t" | sort | expand -t 20
.PHONY: all format format-check page docs lint deps run ci install deb release sbom clean help
-include $(patsubst %.o,%.d,$(call obj,$(ENGINE) $(OPENCL) $(FCGI) $(TESTS_C) tests/support/scripted_backend.c))
