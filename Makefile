# make run     build, then start a router with conf/standalone.conf (another: make run CONF=file)
# make hello   send a first message through it (another router: make hello URL=amqp://host:port)
# make test    lint, types, all short tests      make test-quick    unit tests that start nothing
# make test-long   soak, churn, brokers, random kills, fuzzing (LONG_SECONDS=600: longer, each)
# make build   the commands in .venv/bin         make build-debug   the debug flavour in build/debug
# make bench-instructions   instructions of a delivery, counted by callgrind
# make bench-scale   what grows with workers, consumers and connections: counted, or on many cores under load
# make bench   benchmarks, as tables             make fuzz          fuzz targets (SECONDS=60 for each)
# make fuzz-workers   coverage-guided fuzzing of whole workers (SECONDS=60), by libFuzzer of clang
# make pipeline    router, landers, a query and telemetry on this machine, to watch (PIPELINE_SECONDS=30)
# make bench-pipeline   benchmarks of the pipeline (ARGS='landing --quick': one row, shorter)
# make loadtest    locust's users for a minute (ARGS='--users 200 --seconds 300'; ARGS=--web: in the browser)
# make console the web console (npm); make build does it, too, when its sources changed
# make console-shots   pictures of each of its pages, in build/console-shots
# make lint    ruff, mypy, cython-lint           make docs          check the documentation
# make clean   remove all that make made
#
# Each verb installs what it lacks first. On a machine without make: apt-get install make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := build

CONF ?= conf/standalone.conf
URL ?= amqp://127.0.0.1:5672
# Arguments for pytest (make test-unit ARGS='-k codec -x') and for the benchmarks.
ARGS ?=
# How long each fuzz target runs in `make fuzz`.
SECONDS ?= 60
# How long `make pipeline` sends.
PIPELINE_SECONDS ?= 30
# How long soak, liveness, random kills and attacks run, each, in `make test-long`; each fuzz target a sixth of it.
LONG_SECONDS ?= 120
# Processes of pytest-xdist: for tests that compute, and for those that mostly wait for processes that they start.
COMPUTING ?= $(shell nproc)
WAITING ?= $(shell echo $$(($$(nproc) * 3)))

# Each process of pytest-xdist reads all tests. From bytecode that takes a third of the time.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
STAMPS := build/stamps
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard $(addsuffix /__init__.py,router workers supervisor pipeline)))
CYTHON := $(sort $(shell find $(PACKAGES) -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h'))
PYTHON_FILES := $(sort $(shell find $(PACKAGES) -name '*.py' -o -name '*.json'))
WIRE_TOOLS := $(wildcard loadtests/wire/Makefile)
NODE_PACKAGES := $(wildcard tests/interop/package.json tests/interop/*/package.json)

# Lists of the sources; they change when a file comes or goes, which the time of no other file shows.
remember = $(shell printf '%s\n' $(2) >$(1).new; cmp -s $(1).new $(1) || cp $(1).new $(1))
$(shell mkdir -p $(STAMPS))
$(call remember,$(STAMPS)/cython-files,$(CYTHON))
$(call remember,$(STAMPS)/python-files,$(PYTHON_FILES))
$(call remember,$(STAMPS)/packages,$(PACKAGES))

.PHONY: console console-shots build build-debug run hello test test-quick test-long test-unit test-debug test-system test-interop test-pipeline bench \
    build-fuzz fuzz-workers \
    bench-instructions bench-scale bench-pipeline pipeline loadtest fuzz lint docs clean FORCE

build: $(STAMPS)/release $(STAMPS)/bytecode $(STAMPS)/console
	@:

build-debug: $(STAMPS)/debug
	@:

# Where npm, or its registry, cannot be had, a router says at its first page how to build the console.
CONSOLE_FILES := $(sort $(shell find console -name node_modules -prune -o -type f -not -path 'console/test/*' -print))
$(STAMPS)/console: $(CONSOLE_FILES) scripts/build-console $(if $(wildcard supervisor/web/console/index.html),,FORCE)
	@scripts/system-packages console || true
	@scripts/build-console --optional && touch $@

console:
	@scripts/system-packages console
	@scripts/build-console
	@touch $(STAMPS)/console

console-shots: build .venv/test-dependencies
	@$(BIN)/python -m tests.console.shots build/console-shots

# An environment in a copied checkout, or one whose Python is gone, is made anew.
MADE_FOR := $(if $(wildcard $(BIN)/python),$(file <.venv/checkout))
.venv/build-dependencies: pyproject.toml constraints.txt scripts/make-venv $(STAMPS)/packages \
    $(if $(filter $(CURDIR),$(MADE_FOR)),,FORCE)
	@scripts/make-venv build
	@touch $@

.venv/test-dependencies: .venv/build-dependencies
	@scripts/make-venv test
	@touch $@

$(STAMPS)/release: .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files
	SLUICE_FLAVOUR=release SLUICE_TESTING=1 $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# As an installed router has it, also where Python is told not to write any: a start takes a quarter less CPU.
$(STAMPS)/bytecode: .venv/build-dependencies $(PYTHON_FILES) $(STAMPS)/python-files
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

$(STAMPS)/debug: .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files $(PYTHON_FILES) \
    $(STAMPS)/python-files
	@mkdir -p build/debug; find build/debug -name '*.py' -delete
	SLUICE_FLAVOUR=debug SLUICE_TESTING=1 $(BIN)/python setup.py -q build --build-lib build/debug --build-temp build/temp-debug
	@$(BIN)/python -m compileall -q build/debug
	@touch $@

# The debug flavour for libFuzzer, and libFuzzer with our mutations. What clang cannot be had for is left out.
FUZZER := build/fuzz/libfuzzer.so
build-fuzz: $(STAMPS)/fuzz $(FUZZER)
	@:

$(STAMPS)/clang:
	@scripts/system-packages fuzz && touch $@

$(STAMPS)/fuzz: $(STAMPS)/clang .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files $(PYTHON_FILES) \
    $(STAMPS)/python-files
	@mkdir -p build/fuzz; find build/fuzz -name '*.py' -delete
	SLUICE_FLAVOUR=fuzz SLUICE_TESTING=1 $(BIN)/python setup.py -q build --build-lib build/fuzz --build-temp build/temp-fuzz
	@$(BIN)/python -m compileall -q build/fuzz
	@touch $@

$(FUZZER): tests/fuzz/libfuzzer/slices.c $(STAMPS)/clang
	@mkdir -p $(@D)
	clang -shared -fPIC -O1 -Wall -Wextra -Werror -o $@ $< -Wl,--whole-archive \
	    "$$(clang -print-file-name=libclang_rt.fuzzer_no_main-$$(uname -m).a)" -Wl,--no-whole-archive -lstdc++ -lm -lpthread

$(STAMPS)/node: $(NODE_PACKAGES) $(NODE_PACKAGES:.json=-lock.json) .venv/test-dependencies
	@for package in $(NODE_PACKAGES); do npm --prefix $$(dirname $$package) ci \
	    --no-audit --no-fund --ignore-scripts --loglevel=error; done
	@touch $@

# Other people's brokers and clients. What cannot be had here is asked for again each time; tests say what they miss.
INTEROP_FILES := $(wildcard scripts/interop-tools $(addprefix tests/interop/,java/* go/* rust/Cargo.* rust/src/* scanner/*))
$(STAMPS)/interop: $(INTEROP_FILES)
	@scripts/interop-tools && touch $@ || true

wire-tools: build
	@$(if $(WIRE_TOOLS),MAKEFLAGS= $(MAKE) -C loadtests/wire)
.PHONY: wire-tools

run: build
	@echo "Starting a router with $(CONF); Ctrl-C stops it."
	@echo "It says below where it listens. To send a first message, in another terminal: make hello"
	@exec $(BIN)/sluice run -c $(CONF)

hello: .venv/build-dependencies
	@$(BIN)/python scripts/hello.py $(URL)

# pytest over $(2), which may have no tests, started by $(1), with the options $(3).
pytest = if [ -n "$$(find /dev/null $(2) -name 'test_*.py' -print -quit 2>/dev/null)" ]; then \
    $(1) $(BIN)/python scripts/run_tests.py $(3) $(2) $(ARGS); else echo "No tests in $(2)"; fi

SYSTEM_TESTS := $(filter-out tests/unit tests/fuzz tests/interop tests/migration tests/peer tests/vectors,$(patsubst %/,%,$(wildcard tests/*/)))
# loadgroup: tests that share a router stay in one process (tests/worker_counts.py).
# Of properties that Hypothesis tries.
FEW_EXAMPLES := --hypothesis-profile=quick
ON_CORES := -n $(COMPUTING) --dist worksteal
# A shell lets what it starts beside itself ignore Ctrl-C; tests have processes to stop.
DEFAULT_INT := env --default-signal=INT
BESIDE_EACH_OTHER := -n $(WAITING) --dist loadgroup
# Spark gives its workers 10 s to start, and asks nobody whether that is enough.
ALONE := -n $(COMPUTING) --dist loadgroup

# Unit tests compute, and take the cores; system and interop tests mostly wait for processes that they start, and come
# after them.
test: build wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@status=0; (scripts/timed "  lint, docs, console (beside the others)" $(MAKE) -k lint docs test-console) >build/test-lint.log 2>&1 & linting=$$!; \
	    $(call pytest,scripts/timed "  unit tests",tests/unit,$(ON_CORES) $(FEW_EXAMPLES)) || status=1; \
	    $(call pytest,scripts/timed "  system and interoperability tests",$(SYSTEM_TESTS) tests/interop,$(BESIDE_EACH_OTHER)) || status=1; \
	    wait $$linting || status=1; cat build/test-lint.log; exit $$status

test-quick: build .venv/test-dependencies
	@$(call pytest,,tests/unit,$(ON_CORES) -q -m 'not starts' $(FEW_EXAMPLES))

# The console's types, and what of it needs no browser; nothing where npm is missing.
test-console: $(STAMPS)/console
	@if [ -d console/node_modules ]; then npm --prefix console run --silent check && npm --prefix console run --silent test; \
	    else echo "The console is not tested: npm is missing"; fi
.PHONY: test-console

test-unit: build .venv/test-dependencies
	@$(call pytest,,tests/unit,$(ON_CORES))

# Those that the sanitizers, which see compiled code only, leave out.
PYTHON_TESTS := $(addprefix tests/unit/router/,cli config control) tests/unit/supervisor tests/unit/pipeline
DEBUG_TESTS := $(filter-out $(addprefix tests/unit/router/,cli config control),$(patsubst %/,%,$(wildcard tests/unit/router/*/))) \
    tests/unit/workers
test-debug: build-debug .venv/test-dependencies
	@$(call pytest,scripts/with-asan,$(DEBUG_TESTS),$(ON_CORES))

test-system: build wire-tools .venv/test-dependencies
	@$(call pytest,,$(SYSTEM_TESTS),$(BESIDE_EACH_OTHER))

test-interop: build wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@$(call pytest,,tests/interop,$(BESIDE_EACH_OTHER))

# A thread that watches over the time would hold a lock of the sanitizer's allocator when a target forks.
fuzz-targets = $(call pytest,SLUICE_FUZZ_SECONDS=$(1) $(DEFAULT_INT) $(3) scripts/with-asan,$(2),-o faulthandler_timeout=0)

test-pipeline: build wire-tools .venv/test-dependencies
	@$(call pytest,$(DEFAULT_INT),tests/pipeline,$(BESIDE_EACH_OTHER))

# Each part runs alone, too: make long-debug. With a deadline (SLUICE_TESTS_UNTIL, as in .ci/run) their order rotates with
# the commit, and what does not fit is listed.
LONG_PARTS := long-pipeline long-system long-debug long-python
LONG_LOADS := long-liveness long-killed long-attacks
# Seconds that a slow machine needs to build the previous release, and for the tests with it.
MIGRATION_SECONDS := 700
test-long: build build-debug wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@$(BIN)/python scripts/long_tests.py $(LONG_PARTS) $(addsuffix =$(LONG_SECONDS),$(LONG_LOADS)) \
	    long-migration=$(MIGRATION_SECONDS) long-fuzz-workers=$$(($(LONG_SECONDS) + $(CLANG_SECONDS)))

LONG := SLUICE_SOAK_SECONDS=$(LONG_SECONDS) SLUICE_TEST_EXEC=1
LONG_OPTIONS := --long -o faulthandler_timeout=0
long-pipeline: build wire-tools .venv/test-dependencies
	@$(call pytest,$(LONG),tests/pipeline,$(ALONE) $(LONG_OPTIONS))

# Fuzzing computes, system tests mostly wait. Some clients of the tests have the lowest priority; the fuzz targets have
# it, too, so that they do not take the processor from those clients.
long-system: build build-debug wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@status=0; ($(call fuzz-targets,$$(($(LONG_SECONDS) / 6)),tests/fuzz,nice -n 19)) >build/test-fuzz.log 2>&1 & fuzzing=$$!; \
	    $(call pytest,$(LONG),$(filter-out tests/pipeline,$(SYSTEM_TESTS)) tests/interop,$(BESIDE_EACH_OTHER) $(LONG_OPTIONS)) || status=1; \
	    wait $$fuzzing || status=1; cat build/test-fuzz.log; exit $$status

long-debug: test-debug

long-python: build .venv/test-dependencies
	@$(call pytest,,$(PYTHON_TESTS),$(ON_CORES))

long-liveness: build .venv/test-dependencies
	@$(BIN)/python -m loadtests.liveness --seconds $(LONG_SECONDS) --keep-going

# Where the previous release cannot be had the tests say so.
long-migration: build .venv/test-dependencies
	@scripts/previous-release >/dev/null || true
	@$(call pytest,$(LONG),tests/migration,-n $(COMPUTING) $(LONG_OPTIONS))

# Brokers that cannot be had here are left out (status 2).
long-killed: build .venv/test-dependencies $(STAMPS)/interop
	@$(BIN)/python -m loadtests.killed --seconds $(LONG_SECONDS) || [ $$? = 2 ]

long-attacks: build wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.attacks --seconds $$(($(LONG_SECONDS) / 2))
	@$(BIN)/python -m loadtests.attacks --seconds $$(($(LONG_SECONDS) / 2)) --workers 3

# Seconds that a slow machine needs to install clang and to build with it.
CLANG_SECONDS := 900
long-fuzz-workers: .venv/test-dependencies
	@if scripts/system-packages fuzz; then $(MAKE) build-fuzz && $(call fuzz-workers-for,$(LONG_SECONDS)); \
	    else echo "Workers are not fuzzed: clang cannot be had"; fi
.PHONY: $(LONG_PARTS) $(LONG_LOADS) long-migration long-fuzz-workers

fuzz: build-debug .venv/test-dependencies
	@$(call fuzz-targets,$(SECONDS),tests/fuzz)

# New inputs stay in build/fuzz-corpus. A failing one is written to tests/fuzz/crashes.
fuzz-workers-for = mkdir -p tests/fuzz/crashes && export SLUICE_FLAVOUR=fuzz && \
    scripts/with-asan $(BIN)/python -m tests.fuzz.workers --unpack build/fuzz-corpus && \
    exec scripts/with-asan $(BIN)/python -m tests.fuzz.workers -seed=1 -max_total_time=$(1) -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix=tests/fuzz/crashes/workers- $(ARGS) build/fuzz-corpus
fuzz-workers: build-fuzz .venv/test-dependencies
	@$(call fuzz-workers-for,$(SECONDS))

bench: build wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.bench $(ARGS)

bench-instructions: build .venv/test-dependencies
	@$(BIN)/python -m loadtests.instructions $(ARGS)

bench-scale: build wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.scale $(ARGS)

bench-pipeline: build wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.bench_pipeline $(ARGS)

pipeline: build .venv/test-dependencies
	@exec $(BIN)/python scripts/pipeline_demo.py $(PIPELINE_SECONDS)

loadtest: build .venv/test-dependencies $(STAMPS)/interop
	@$(BIN)/python -m loadtests.load $(ARGS)

# cython-lint looks for pycodestyle on the path.
lint: .venv/test-dependencies
	@status=0; export PATH="$(CURDIR)/$(BIN):$$PATH"; set -x; \
	    $(BIN)/ruff check . || status=1; \
	    $(BIN)/mypy $(PACKAGES) $(if $(wildcard loadtests/*.py),loadtests) tests scripts || status=1; \
	    $(BIN)/cython-lint $(filter %.pyx %.pxd,$(CYTHON)) || status=1; \
	    $(BIN)/python scripts/check_commits.py || status=1; \
	    { set +x; } 2>/dev/null; exit $$status

docs: .venv/build-dependencies
	@$(BIN)/python scripts/make_reference.py --check
	@$(BIN)/python scripts/check_docs.py

clean:
	rm -rf .venv build dist supervisor/web/console console/node_modules *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis $(addsuffix node_modules,$(dir $(NODE_PACKAGES)))
	@$(if $(WIRE_TOOLS),MAKEFLAGS= $(MAKE) -C loadtests/wire clean)
	find . -path ./.git -prune -o \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(CYTHON)))
