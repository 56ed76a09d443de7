# make run     build, then start a router with conf/standalone.conf (another: make run CONF=file)
# make hello   send a first message through it (another router: make hello URL=amqp://host:port)
# make test    lint, types and all tests        make test-long     what takes longer (LONG_SECONDS=600 for each)
# make build   the commands in .venv/bin         make build-debug   the debug flavour in build/debug
# make bench   benchmarks, as tables             make fuzz          fuzz targets (SECONDS=60 for each)
# make loadtest    locust's users for a minute (ARGS='--users 200 --seconds 300'; ARGS=--web: in the browser)
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
# How long each fuzz target runs: in `make fuzz`, and in `make test`.
SECONDS ?= 60
TEST_FUZZ_SECONDS := 5
# How long soak, liveness and random kills run, each, in `make test-long`.
LONG_SECONDS ?= 600

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

.PHONY: build build-debug run hello test test-long test-unit test-debug test-fuzz test-system test-interop bench loadtest \
    fuzz lint docs clean FORCE

build: $(STAMPS)/release $(STAMPS)/bytecode
	@:

build-debug: $(STAMPS)/debug
	@:

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
	SLUICE_FLAVOUR=release $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# As an installed router has it, also where Python is told not to write any: a start takes a quarter less CPU.
$(STAMPS)/bytecode: .venv/build-dependencies $(PYTHON_FILES) $(STAMPS)/python-files
	@$(BIN)/python -m compileall -q router supervisor workers
	@touch $@

$(STAMPS)/debug: .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files $(PYTHON_FILES) \
    $(STAMPS)/python-files
	@mkdir -p build/debug; find build/debug -name '*.py' -delete
	SLUICE_FLAVOUR=debug $(BIN)/python setup.py -q build --build-lib build/debug --build-temp build/temp-debug
	@$(BIN)/python -m compileall -q build/debug
	@touch $@

$(STAMPS)/node: $(NODE_PACKAGES) $(NODE_PACKAGES:.json=-lock.json) .venv/test-dependencies
	@for package in $(NODE_PACKAGES); do npm --prefix $$(dirname $$package) ci \
	    --no-audit --no-fund --ignore-scripts --loglevel=error; done
	@touch $@

# Other people's brokers and clients. What cannot be had here is asked for again each time; tests say what they miss.
INTEROP_FILES := $(wildcard scripts/interop-tools tests/interop/java/* tests/interop/go/*)
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
    $(1) $(BIN)/python -m pytest $(3) $(2) $(ARGS); else echo "No tests in $(2)"; fi

SYSTEM_TESTS := $(filter-out tests/unit tests/fuzz tests/interop,$(patsubst %/,%,$(wildcard tests/*/)))

# Interop and system tests mostly wait for processes that they start: beside all others, what they say behind that.
# A shell lets what it starts beside itself ignore Ctrl-C; these have processes to stop.
BESIDE := env --default-signal=INT
SYSTEM_BESIDE := $(wildcard tests/system/test_[a-n]*.py)
SYSTEM_BEHIND := $(filter-out tests/system,$(SYSTEM_TESTS)) $(filter-out $(SYSTEM_BESIDE),$(wildcard tests/system/test_*.py))
test: lint docs build wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@status=0; ($(call pytest,$(BESIDE),tests/interop)) >build/test-interop.log 2>&1 & interop=$$!; \
	    ($(call pytest,$(BESIDE),$(SYSTEM_BESIDE))) >build/test-system.log 2>&1 & system=$$!; \
	    $(MAKE) test-unit test-debug test-fuzz || status=1; $(call pytest,,$(SYSTEM_BEHIND)) || status=1; \
	    wait $$system || status=1; wait $$interop || status=1; \
	    cat build/test-system.log build/test-interop.log; exit $$status

test-unit: build wire-tools .venv/test-dependencies
	@$(call pytest,,tests/unit)

test-debug: build-debug .venv/test-dependencies
	@$(call pytest,scripts/with-asan,tests/unit/router)

# A thread that watches over the time would hold a lock of the sanitizer's allocator when a target forks.
fuzz-targets = $(call pytest,SLUICE_FUZZ_SECONDS=$(1) scripts/with-asan,tests/fuzz,-o faulthandler_timeout=0)

test-fuzz: build-debug .venv/test-dependencies
	@$(call fuzz-targets,$(TEST_FUZZ_SECONDS))

test-system: build wire-tools .venv/test-dependencies
	@$(call pytest,,$(SYSTEM_TESTS))

test-interop: build wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@$(call pytest,,tests/interop)

# Before an issue is called done. Brokers that cannot be had here are left out (status 2).
test-long: build wire-tools .venv/test-dependencies $(STAMPS)/interop
	@status=0; $(BIN)/python -m loadtests.liveness --seconds $(LONG_SECONDS) --keep-going || status=1; \
	    $(call pytest,SLUICE_SOAK_SECONDS=$(LONG_SECONDS),tests/system/test_soak.py,-o faulthandler_timeout=0) \
	    || status=1; \
	    $(BIN)/python -m loadtests.killed --seconds $(LONG_SECONDS) || [ $$? = 2 ] || status=1; exit $$status

fuzz: build-debug .venv/test-dependencies
	@$(call fuzz-targets,$(SECONDS))

bench: build wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.bench $(ARGS)

loadtest: build .venv/test-dependencies $(STAMPS)/interop
	@$(BIN)/python -m loadtests.load $(ARGS)

# cython-lint looks for pycodestyle on the path.
lint: .venv/test-dependencies
	@status=0; export PATH="$(CURDIR)/$(BIN):$$PATH"; set -x; \
	    $(BIN)/ruff check . || status=1; \
	    $(BIN)/mypy $(PACKAGES) $(if $(wildcard loadtests/*.py),loadtests) tests scripts || status=1; \
	    $(BIN)/cython-lint $(filter %.pyx %.pxd,$(CYTHON)) || status=1; \
	    { set +x; } 2>/dev/null; exit $$status

docs: .venv/build-dependencies
	@$(BIN)/python scripts/make_reference.py --check
	@$(BIN)/python scripts/check_docs.py

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis $(addsuffix node_modules,$(dir $(NODE_PACKAGES)))
	@$(if $(WIRE_TOOLS),MAKEFLAGS= $(MAKE) -C loadtests/wire clean)
	find . -path ./.git -prune -o \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(CYTHON)))
