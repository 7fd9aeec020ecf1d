# What the tests, the checks and the benchmarks are built from, and their targets. Included by the Makefile.

# --- sources -----------------------------------------------------------------------------------------------------
UNIT    := $(sort $(shell find tests/unit -name '*.c'))
# Under the thread sanitizer the suites that have threads.
unit-tsan := $(addprefix tests/unit/,unit_main.c kv/disk/kv_disk_test.c sched/% grammar/grammar_cache_test.c engine/% base/pool_test.c base/task_test.c $(addprefix fcgi/,$(addsuffix .c,admin_test apikey_test bucket_test fastcgi_test fcgi_rig gate_test pulse_test reply_test responses_store_test status_test tenant_test)) tokenizer/vocab_file.c)
UNIT    := $(filter $(or $(unit-$(V)),%),$(UNIT))
# But for the back end that wraps what faulty_backend.c does.
SUPPORT := $(sort $(filter-out tests/support/scripted_backend.c,$(shell find tests/support -name '*.c')))
FUZZ    := $(sort $(shell find tests/fuzz -name '*.c'))
KERNELS := $(call here,$(shell find tests/kernels -name '*.c'))
GOLDEN  := $(basename $(notdir $(wildcard tests/golden/*.c)))
TESTS_C := $(UNIT) $(SUPPORT) $(KERNELS) $(FUZZ) $(wildcard tests/golden/*.c)
UNIT_LIBS := -lcheck -lsubunit -lrt

# --- programs ----------------------------------------------------------------------------------------------------
# Unit tests: each <stem>_test.c defines `Suite *<stem>_suite(void)`; the list of suites is generated from the names.
$(B)/unit_suites.c: $(UNIT)
	@mkdir -p $(@D)
	@{ echo '#include <check.h>'; \
	   for f in $(filter %_test.c,$(UNIT)); do s=$$(basename $$f _test.c)_suite; echo "Suite *$$s(void);"; done; \
	   echo 'typedef Suite *(*suite_fn)(void);'; echo 'extern const suite_fn unit_suites[];'; \
	   echo 'const suite_fn unit_suites[] = {'; \
	   for f in $(filter %_test.c,$(UNIT)); do echo "    $$(basename $$f _test.c)_suite,"; done; echo '    0};'; } > $@
$(B)/unit_suites.o: $(B)/unit_suites.c
	@$(CC) $(CFLAGS) -c -o $@ $<
$(B)/unittests: $(engine-obj) $(filter-out %/main.o,$(fcgi-obj)) $(call obj,$(UNIT) $(SUPPORT)) $(B)/unit_suites.o
	@echo "  LD $@"; $(CC) $(LDFLAGS) $(faulty) -Wl,--wrap=grammar_matcher_mask -Wl,--wrap=_mark_point -o $@ $^ $(UNIT_LIBS) $(FCGI_LIBS) $(LIBS)
# The process with a back end, an OpenCL and request threads that fail when they are told to (tests/support/faulty_backend.h,
# fake_opencl.h, faulty_task.c).
faulty := -Wl,--wrap=backend_find -Wl,--wrap=task_enter -Wl,--wrap=task_note
$(B)/infcgi_faulty: $(engine-obj) $(fcgi-obj) $(call obj,tests/support/faulty_backend.c tests/support/faulty_task.c tests/support/fake_opencl.c)
	@echo "  LD $@"; $(CC) $(LDFLAGS) $(faulty) -o $@ $^ $(FCGI_LIBS) $(LIBS)
# The process with a back end that says what a script has for a prompt (tests/support/scripted_backend.h).
$(B)/infcgi_scripted: $(engine-obj) $(fcgi-obj) $(call obj,tests/support/scripted_backend.c)
	@echo "  LD $@"; $(CC) $(LDFLAGS) -Wl,--wrap=backend_find -Wl,--wrap=engine_open -o $@ $^ $(FCGI_LIBS) $(LIBS)
# Fuzz targets: each <name>_fuzz.c defines `void <name>_fuzz(data, n)`; the table is generated from the names.
$(B)/fuzz_targets.c: $(FUZZ)
	@mkdir -p $(@D)
	@{ echo '#include "tests/fuzz/fuzz.h"'; names='$(patsubst %_fuzz,%,$(basename $(notdir $(filter %_fuzz.c,$(FUZZ)))))'; \
	   for n in $$names; do echo "void $${n}_fuzz(const unsigned char *data, size_t n);"; done; \
	   echo 'const struct fuzz_target fuzz_targets[] = {'; for n in $$names; do echo "    {\"$$n\", $${n}_fuzz},"; done; \
	   echo '    {0}};'; } > $@
$(B)/fuzz_targets.o: $(B)/fuzz_targets.c
	@$(CC) -I. $(CFLAGS) -c -o $@ $<
fuzz-objects = $(engine-obj) $(filter-out %/main.o,$(fcgi-obj)) $(call obj,$(filter-out $1,$(FUZZ))) $(B)/fuzz_targets.o
$(B)/fuzz-replay: $(call fuzz-objects,tests/fuzz/libfuzzer.c)
	@echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(FCGI_LIBS) $(LIBS)
build/fuzz/fuzz: $(call fuzz-objects,tests/fuzz/replay.c)
	@echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(FCGI_LIBS) $(LIBS)
$(B)/checkkern: $(call obj,$(filter-out %/json_read.c %/json_parse.c %/json_number.c %/json_write.c,$(filter engine/base/% engine/tensor/% engine/quant/% engine/kernels/% engine/kv/kv_type.c,$(ENGINE))) $(KERNELS)) # no jansson when cross-compiled
	@echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ -lm -lpthread

$(B)/load: tests/bench/load/load.c
	@mkdir -p $(@D)
	@echo "  LD $@"; $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< -lcurl -ljansson
$(B)/device_programs: override LDFLAGS += -Wl,--wrap=program_want
$(addprefix $(B)/,$(GOLDEN)): $(B)/%: $(B)/tests/golden/%.o $(engine-obj) $(call obj,tests/support/remote_backend.c tests/support/sharded_backend.c)
	@echo "  LD $@"; $(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(B)/drivers: $(B)/tests/support/fake_opencl.o
$(B)/golden: $(B)/tests/golden/golden_programs.o
$(B)/same_draft: $(addprefix $(B)/tests/golden/same_draft_,case.o backend.o)
$(B)/same_draft: override LDFLAGS += -Wl,--wrap=sched_new
$(B)/golden: override LDFLAGS += -Wl,--wrap=device_open,--wrap=program_set_new,--wrap=program_set_free


# --- Python packages: one environment per purpose, from its list of requirements ---------------------------------
VENV    := build/venv
GOLD    := build/venv-golden
LLG     := build/llguidance-venv
JSV     := build/jsonschema-venv
PEER    := build/peer-venv
SBOM    := build/sbom-venv
CLIENTS := build/clients
define venv
$1/.ok: $2
	@echo "  VENV $1"; rm -rf $1; mkdir -p build; python3 -m venv $1
	@$1/bin/python -m pip install -q --disable-pip-version-check -r $$< && touch $$@
endef
$(eval $(call venv,$(VENV),tests/e2e/requirements.txt))
$(eval $(call venv,$(GOLD),tests/golden/requirements.txt))
$(eval $(call venv,$(LLG),tests/golden/requirements-llguidance.txt))
$(eval $(call venv,$(JSV),tests/golden/requirements-jsonschema.txt))
$(eval $(call venv,$(PEER),tests/peer/requirements.txt))
$(eval $(call venv,$(SBOM),tests/deb/requirements.txt))
$(CLIENTS)/.ok: tests/clients/package.json tests/clients/requirements.txt
	@echo "  CLIENTS $(CLIENTS)"; rm -rf $(CLIENTS); mkdir -p $(CLIENTS); cp $< $(CLIENTS)
	@cd $(CLIENTS) && npm install --silent --no-audit --no-fund
	@python3 -m venv $(CLIENTS)/venv && $(CLIENTS)/venv/bin/python -m pip install -q --disable-pip-version-check -r $(lastword $^)
	@touch $@

# --- checks of parts ---------------------------------------------------------------------------------------------
unit: $(B)/unittests                    ## run unit tests (Check); SUITE=name: one suite
	$(B)/unittests $(SUITE)
kern: $(B)/checkkern                    ## compare kernels of every instruction set with ref
	$(B)/checkkern
kern-bench: $(B)/checkkern              ## measure kernels next to the limits of the machine; ISA=best|name|all OP=prefix REF=1
	$(B)/checkkern --bench $(if $(filter-out best,$(ISA)),--isa $(ISA)) $(if $(OP),--op $(OP)) $(if $(REF),--ref)
kern-valgrind:                          ## compare the kernels of ref and avx2 under valgrind (minutes)
	@sh tests/support/deps.sh valgrind
	@$(MAKE) V=valgrind build/valgrind/checkkern
	@echo 'valgrind decodes no AVX-512 and no AVX-VNNI: such ISAs are "not on this CPU"; "make V=asan kern" runs them'
	valgrind -q --error-exitcode=9 build/valgrind/checkkern
kern-arm:                               ## cross-compile the ARM kernels and compare them with ref under qemu
	@sh tests/support/deps.sh arm
	@$(MAKE) V=arm64 build/arm64/checkkern
	@bash tests/kernels/qemu_arm.sh
fuzz:                                   ## run libFuzzer on readers of untrusted input: T=name (default: all) S=60 seconds ARGS='libFuzzer options'
	@sh tests/support/deps.sh fuzz
	@$(MAKE) -s $(JOBS) V=fuzz build/fuzz/fuzz
	@for t in $(or $(T),$(notdir $(wildcard tests/fuzz/corpus/*))); do bash tests/fuzz/fuzz.sh $$t $(or $(S),60) $(ARGS) || exit; done
isa-report:                             ## print registers and instructions of OpenCL kernels on RDNA3: GFX='gfx1100 gfx1151' (docs/internals/opencl.md)
	@sh tests/support/deps.sh isa
	@$(MAKE) -s $(JOBS) V=release build/release/device_programs
	@JOBS="$$(nproc)" /usr/bin/python3 tests/isa/isa.py --table $(GFX)
golden: $(B)/golden                     ## compare every family on every back end and instruction set with transformers: ONLY=part of a name
	$(B)/golden --all $(if $(ONLY),--only '$(ONLY)')
same-bytes: $(B)/same_bytes $(B)/same_draft ## compare bits of 200 prompts alone, batched, cut and cached; of RUNS=60 random runs with and without drafts
	$(B)/same_draft --runs $(or $(RUNS),60)
	$(B)/same_bytes "$$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt
fidelity: $(B)/fidelity $(GOLD)/.ok all ## measure the distance from transformers in float32: MODEL=file.gguf (fetches 1 GB once)
	@test -n '$(MODEL)' || { echo 'error: fidelity: expected MODEL=file.gguf' >&2; exit 64; }
	$(GOLD)/bin/python tests/golden/fidelity.py '$(MODEL)' $(B)/fidelity.ref
	for b in cpu ref; do $(B)/fidelity '$(MODEL)' $(B)/fidelity.ref --backend $$b || exit; done
greedy: $(B)/greedy                     ## compare the default model's greedy text on every back end with ref (fetches the model)
	$(B)/greedy "$$(bash nginx/fetch-model.sh)" tests/golden/fidelity.txt cpu=0.2 +cpu=0.01 opencl=0.2 +opencl=0.01
fidelity-bounds: $(B)/fidelity          ## check the bounds of the default model: each KV type, prompt and decode (fetches the model)
	$(B)/fidelity "$$(bash nginx/fetch-model.sh)" tests/golden/fidelity_smollm2.top8 --bounds
maskbench: $(B)/maskbench $(B)/tokenizer_ids ## check JSON Schemas in the format of MaskBench and time masks, also of llguidance: DIR=folder MODEL=file ARGS=-v
	@test -n '$(DIR)' || { echo 'error: maskbench: expected DIR=folder with *.json of MaskBench' >&2; exit 64; }
	model="$(or $(MODEL),$$(bash nginx/fetch-model.sh))"; $(B)/maskbench $(ARGS) "$$model" '$(DIR)' || exit; \
	    $(MAKE) --no-print-directory $(LLG)/.ok || { echo 'maskbench: llguidance cannot be had from PyPI' >&2; exit 0; }; \
	    $(LLG)/bin/python tests/golden/maskbench_llguidance.py $(B)/maskbench $(B)/tokenizer_ids "$$model" '$(DIR)'
schemas: $(B)/maskbench $(JSV)/.ok      ## compare random JSON Schemas and values with PyPI's jsonschema; N=4000 SEED=1 MODEL=file ARGS=-v
	$(JSV)/bin/python tests/golden/schema_oracle.py $(or $(SEED),1) $(or $(N),4000) build/schemas 2>/dev/null
	model="$(or $(MODEL),$$(bash nginx/fetch-model.sh))"; $(B)/maskbench $(ARGS) "$$model" build/schemas 0
patterns: $(B)/maskbench                ## compare random patterns and strings with Node's RegExp; N=4000 SEED=1 MODEL=file ARGS=-v
	node tests/golden/pattern_oracle.mjs $(or $(SEED),1) $(or $(N),4000) build/patterns
	model="$(or $(MODEL),$$(bash nginx/fetch-model.sh))"; $(B)/maskbench $(ARGS) "$$model" build/patterns 0
chat: $(B)/chat_render                  ## compare published chat templates with Python's jinja2 (fetches 37 MB once)
	folder=$$(sh tests/golden/tokenizer_vectors.sh) && \
	    /usr/bin/python3 tests/golden/chat_oracle.py $(B)/chat_render --templates "$$folder/templates"
calls: $(B)/chat_render                 ## read back tool calls that published chat templates write: N=1000 random ones per template
	folder=$$(sh tests/golden/tokenizer_vectors.sh) && \
	    /usr/bin/python3 tests/golden/call_oracle.py $(B)/chat_render "$$folder/templates" $(or $(N),1000)
vectors: $(B)/tokenizer_vectors         ## check published token ids of every known vocabulary (fetches 37 MB once)
	folder=$$(sh tests/golden/tokenizer_vectors.sh) && $(B)/tokenizer_vectors "$$folder"
tokenizer-agreement: $(B)/tokenizer_ids $(GOLD)/.ok ## compare 10 MB of text per vocabulary with Hugging Face's tokenizers (fetches 1 GB once)
	folder=$$(sh tests/golden/tokenizer_vectors.sh) && model=$$(bash nginx/fetch-model.sh) && \
	$(GOLD)/bin/python tests/golden/tokenizer_agreement.py $(B)/tokenizer_ids "$$folder" "$$model" $(ARGS)

tidy:                                   ## run clang-tidy on the sources (.clang-tidy): 20 minutes, then only what changed
	@sh tests/support/deps.sh tidy
	@$(MAKE) $(JOBS) -k $(addprefix $(B)/,$(addsuffix .tidy,$(basename $(ENGINE) $(FCGI) $(OPENCL))))
$(B)/%.tidy: %.c $(B)/%.o .clang-tidy
	@echo "  TIDY $<"; clang-tidy --quiet --warnings-as-errors='*' $< -- -I. $(CSTD) $(call isa,$<) 2>/dev/null && touch $@
lint-words:                             ## check words and sentences of pages and headers with Vale (fetches its source once; needs go)
	@bash tests/lint/vale.sh

# --- all tests, and benchmarks -----------------------------------------------------------------------------------
e2e     = $(VENV)/bin/python tests/e2e/run.py --variant
load    = /usr/bin/python3 tests/bench/load/load.py --variant $(V) $(if $(MODEL),--model '$(MODEL)') $(if $(PEER_BIN),--peer '$(PEER_BIN)') --only '$(ONLY)' $(if $(SECONDS),--seconds $(SECONDS)) $(if $(OUT),--out '$(OUT)')
test: deps                              ## run lint, unit, kernel, golden and end-to-end tests, also under sanitizers (half an hour)
	@$(MAKE) $(JOBS) V=release $(addprefix build/release/,infcgi infcgi_faulty infcgi_scripted checkkern golden device_programs drivers same_bytes same_draft fidelity tokenizer_vectors chat_render load) $(VENV)/.ok page
	@$(MAKE) $(JOBS) V=asan ISAS=few $(addprefix build/asan/,infcgi infcgi_faulty infcgi_scripted unittests chat_render fuzz-replay)
	@$(MAKE) $(JOBS) V=tsan ISAS=few $(addprefix build/tsan/,infcgi unittests)
	@$(MAKE) $(JOBS) V=arm64 build/arm64/checkkern
	@bash tests/run.sh
test-long: deps                         ## run the rest: long contexts, all device code, soaks of minutes, all end-to-end tests in two builds
	@$(MAKE) $(JOBS) V=asan $(addprefix build/asan/,infcgi infcgi_faulty infcgi_scripted unittests checkkern chat_render) $(VENV)/.ok page
	@$(MAKE) $(JOBS) V=tsan $(addprefix build/tsan/,infcgi unittests)
	@$(MAKE) $(JOBS) V=arm64 build/arm64/checkkern
	@$(MAKE) $(JOBS) V=release $(addprefix build/release/,infcgi infcgi_faulty infcgi_scripted unittests golden device_programs drivers fidelity greedy same_bytes same_draft load)
	@bash tests/run.sh --long
test-e2e: deps                          ## run end-to-end tests: nginx, spawn-fcgi, openai, curl, Chromium; ONLY=name
	@$(MAKE) $(JOBS) all page $(B)/infcgi_faulty $(B)/infcgi_scripted $(VENV)/.ok
	@$(e2e) $(V) $(ONLY)
replay: deps                            ## replay an agent's session with and without kill -9 and count tokens computed twice; MODEL=file
	@$(MAKE) $(JOBS) all $(VENV)/.ok
	@$(VENV)/bin/python tests/e2e/replay.py --variant $(V) $(if $(MODEL),--model "$(MODEL)")
clients: deps                           ## run agents, the AI SDK, LangChain, LiteLLM, schemathesis and others against a scripted model: ONLY=name
	@$(MAKE) $(JOBS) all $(B)/infcgi_scripted $(VENV)/.ok $(CLIENTS)/.ok
	@$(e2e) $(V) --folder tests/clients $(ONLY)
peer-tests: deps                        ## run llama.cpp's server tests against infcgi (fetches 37 MB once): ONLY='words'
	@$(MAKE) $(JOBS) all $(PEER)/.ok
	folder=$$(sh tests/support/peer_source.sh server-tests 0 'tools/server/tests/*' 'models/templates/*') && model=$$(bash nginx/fetch-model.sh) && \
	    $(PEER)/bin/python tests/peer/peer_tests.py --variant $(V) --tests "$$folder" --model "$$model" $(ONLY)
check-asan: deps                        ## run unit, kernel and end-to-end tests under ASan and UBSan
	@$(MAKE) $(JOBS) V=asan $(addprefix build/asan/,infcgi infcgi_faulty infcgi_scripted unittests checkkern chat_render fuzz-replay) $(VENV)/.ok page
	@bash tests/run.sh unit-asan unit-asan-fork unit-asan-long kernels-asan chat-asan fuzz-replay e2e-asan e2e-asan-long
check-tsan: deps                        ## run unit suites with threads, and a minute of mixed clients, under the thread sanitizer
	@$(MAKE) $(JOBS) V=tsan $(addprefix build/tsan/,infcgi unittests) $(VENV)/.ok
	@bash tests/run.sh unit-tsan soak-tsan
bench-peer:                             ## compare speed with PEERS='llama.cpp ik_llama.cpp openvino': MODELS= ROUNDS=5 THREADS=2 TYPES= CSV= MACHINE= (docs/benchmarks.md)
	@sh tests/support/deps.sh $(if $(PEER_BIN),$(if $(PEERS),bench,run),bench)
	@$(MAKE) -s $(JOBS) all $(B)/checkkern
	@V='$(V)' MODELS='$(or $(MODELS),$(MODEL))' ROUNDS='$(ROUNDS)' THREADS='$(THREADS)' TYPES='$(TYPES)' ONLY='$(ONLY)' PEERS='$(PEERS)' \
	 PEER_BIN='$(PEER_BIN)' IK_BIN='$(IK_BIN)' IK_SRC='$(IK_SRC)' OV_BIN='$(OV_BIN)' OUT='$(OUT)' CSV='$(CSV)' MACHINE='$(MACHINE)' \
	 SETTINGS='$(SETTINGS)' exec bash tests/bench/peer.sh
bench-peer-types:                       ## compare speed with llama.cpp in other weight types
	@$(MAKE) -s bench-peer TYPES='$(or $(TYPES),all)'
bench-gpu: all                          ## measure a device, and llama.cpp on it: MODEL= LLAMA_BENCH=llama-bench ROUNDS=3 DEVICE=auto (docs/benchmarks.md)
	@python3 tests/bench/gpu.py --infcgi $(B)/infcgi --model "$(or $(MODEL),$$(bash nginx/fetch-model.sh))" --device '$(or $(DEVICE),auto)' \
	 --llama-bench '$(LLAMA_BENCH)' --rounds '$(or $(ROUNDS),3)'
bench-http:                             ## compare streams over HTTP with llama-server: PEER_BIN= MODEL= TESTS= ROUNDS=5 (docs/benchmarks.md)
	@sh tests/support/deps.sh run
	@$(MAKE) -s $(JOBS) all
	@V='$(V)' MODEL='$(MODEL)' PEER_BIN='$(PEER_BIN)' TESTS='$(TESTS)' ROUNDS='$(ROUNDS)' THREADS='$(THREADS)' PARALLEL='$(PARALLEL)' \
	 CONTEXT='$(CONTEXT)' ARGS='$(ARGS)' PEER_ARGS='$(PEER_ARGS)' SCHEMA='$(SCHEMA)' OUT='$(OUT)' CSV='$(CSV)' exec bash tests/bench/http.sh
bench-load:                             ## measure gaps, overload, aborts and kills through nginx: PEER_BIN= ONLY=name (docs/benchmarks.md)
	@sh tests/support/deps.sh load
	@$(MAKE) -s $(JOBS) all
	@$(MAKE) -s V=release build/release/load
	@$(load) --size bench
test-load:                              ## load the server for hours: 10,000 aborts, 100 kills, an hour of load; ONLY=name SECONDS= of overload and soak
	@sh tests/support/deps.sh load
	@$(MAKE) -s $(JOBS) all
	@$(MAKE) -s V=release build/release/load
	@$(load) --size long
peer-loads:                             ## load converted golden folders in llama.cpp: ONLY= PEER_SRC= PEER_BUILD= (docs/ops/convert.md)
	@sh tests/support/deps.sh bench
	@$(MAKE) -s $(JOBS) all
	@V='$(V)' ONLY='$(ONLY)' PEER_SRC='$(PEER_SRC)' PEER_BUILD='$(PEER_BUILD)' exec bash tests/bench/peer_loads.sh
DEBIAN := bookworm trixie
deb-test: deb                           ## test the packages in bare Debians 12 and 13: install, upgrade, purge; DEBIAN=trixie: one (root; fetches 800 MB)
	@sh tests/support/deps.sh deb-test
	@for d in $(DEBIAN); do bash tests/deb/deb_test.sh $(DEB) $$d || exit 1; done
deb-reproducible: deb                   ## build the packages again elsewhere and compare the bytes
	@bash tests/deb/reproducible.sh $(DEB) $(PAGE)
image-test: page                        ## build and test the image of nginx/Containerfile in a bare Debian (buildah)
	@sh tests/support/deps.sh image-test
	@bash tests/deb/image_test.sh
sbom-test: sbom $(SBOM)/.ok             ## check that list with CycloneDX's schema
	@$(SBOM)/bin/python tests/deb/sbom_test.py $(B)/infcgi.cdx.json $(B)/infcgi

.PHONY: tidy lint-words unit kern kern-bench kern-valgrind kern-arm fuzz golden same-bytes fidelity greedy fidelity-bounds maskbench schemas patterns chat calls vectors tokenizer-agreement test test-long test-e2e replay peer-tests check-asan check-tsan bench-peer bench-peer-types bench-gpu bench-http bench-load test-load peer-loads deb-test deb-reproducible image-test sbom-test
