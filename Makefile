# make run     build, then start a router with conf/standalone.conf (another: make run CONF=file)
# make hello   send a first message through it (another router: make hello URL=amqp://host:port)
# make test    lint, types, all short tests      make test-quick    unit and component tests that start no process
# make check F=router/links/settlement.pyx   build, test and lint one file, in seconds
# make test-long   soak, churn, brokers, random kills, fuzzing (LONG_SECONDS=600: longer, each)
# make build   the commands in .venv/bin         make build-debug   the debug flavour in build/debug
# make wheel   wheel and source distribution of this commit, in dist       make manylinux   a wheel for package indexes
# make deb     Debian package, in dist           make image   container image, in build/image
# make bench-instructions   instructions of a delivery, counted by callgrind
# make bench-scale   growth of costs with workers, consumers and connections: counted, or on many cores under load
# make bench   benchmarks, as tables (ARGS=pipeline: those of the pipeline; ARGS='landing --quick': one row, shorter)
# make long-spark   tests of the pipeline with each supported version of Spark (SPARK_VERSIONS='4.0 4.1'); 2 GB, minutes
# make fuzz          fuzz targets (SECONDS=60 for each)
# make fuzz-workers   coverage-guided fuzzing of whole workers (SECONDS=60), by libFuzzer of clang
# make pipeline    demonstration: router, landers, a query and telemetry on this machine (PIPELINE_SECONDS=30)
# make loadtest    locust's users for a minute (ARGS='--users 200 --seconds 300'; ARGS=--web: in the browser)
# make console the web console (npm); make build builds it as well if its sources changed
# make console-shots   screenshots of the console's pages, in build/console-shots
# make test-packaging   container image, Helm chart, alerts (installs helm and other tools into build/tools first)
# make lint    ruff, mypy, cython-lint           make docs          check the documentation
# make man     man pages in build/man, completion scripts in build/completion
# make site    the documentation as a static site, in build/site
# make release VERSION=…   checks, wheels, source, package, image, chart, site, notes, checksums in dist/release; tag
# make spec-report   rules of the specification that no code or no test cites
# make clean   remove everything that make built
#
# Each target first installs what it needs. If make itself is missing: apt-get install make.

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
# Seconds that each fuzz target runs in `make fuzz`.
SECONDS ?= 60
# Seconds that `make pipeline` sends.
PIPELINE_SECONDS ?= 30
# Seconds that each of soak, liveness, random kills and attacks runs in `make test-long`; a fuzz target runs a sixth of it.
LONG_SECONDS ?= 120
# Processes of pytest-xdist, for tests that compute and for tests that mostly wait for processes they start.
COMPUTING ?= $(shell nproc)
WAITING ?= $(shell echo $$(($$(nproc) * 3)))

# Each process of pytest-xdist loads all tests. Bytecode reduces the time to a third.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
STAMPS := build/stamps
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard $(addsuffix /__init__.py,router workers supervisor pipeline)))
CYTHON := $(sort $(shell find $(PACKAGES) -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h'))
PYTHON_FILES := $(sort $(shell find $(PACKAGES) -name '*.py' -o -name '*.json'))
WIRE_TOOLS := $(wildcard loadtests/wire/Makefile)
NODE_PACKAGES := $(wildcard tests/interop/package.json tests/interop/*/package.json)

# Lists of sources. A list changes when a file is added or removed, which no file's modification time shows.
remember = $(shell printf '%s\n' $(2) >$(1).new; cmp -s $(1).new $(1) || cp $(1).new $(1))
$(shell mkdir -p $(STAMPS))
$(call remember,$(STAMPS)/cython-files,$(CYTHON))
$(call remember,$(STAMPS)/python-files,$(PYTHON_FILES))
$(call remember,$(STAMPS)/packages,$(filter-out %/__pycache__,$(wildcard sluice/*)))

.PHONY: console console-shots build build-debug run hello test test-quick test-long test-unit test-debug test-system test-interop test-pipeline bench \
    build-fuzz fuzz-workers \
    bench-instructions bench-scale pipeline loadtest fuzz lint docs site release clean FORCE

build: $(STAMPS)/release $(STAMPS)/bytecode $(STAMPS)/console
	@:

build-debug: $(STAMPS)/debug
	@:

# Without npm or its registry the console is not built; the router's first page then explains how to build it.
CONSOLE_FILES := $(sort $(shell find console -name node_modules -prune -o -type f -not -path 'console/test/*' -print))
$(STAMPS)/console: $(CONSOLE_FILES) scripts/build-console $(if $(wildcard supervisor/web/console/index.html),,FORCE)
	@scripts/system-packages console || true
	@scripts/build-console --optional && touch $@

console:
	@scripts/system-packages console
	@scripts/build-console
	@touch $(STAMPS)/console

console-shots: console .venv/test-dependencies
	@$(BIN)/python -m tests.console.shots build/console-shots

# The environment is created again in a copied checkout, and if its Python does not exist.
MADE_FOR := $(if $(wildcard $(BIN)/python),$(file <.venv/checkout))
.venv/compile-dependencies: pyproject.toml constraints.txt scripts/make-venv $(STAMPS)/packages \
    $(if $(filter $(CURDIR),$(MADE_FOR)),,FORCE)
	@scripts/make-venv compile
	@touch $@

.venv/build-dependencies: .venv/compile-dependencies
	@scripts/make-venv build
	@touch $@

.venv/test-dependencies: .venv/build-dependencies
	@scripts/make-venv test
	@touch $@

# Compiled modules: of the router, also of the pipeline, also those that only tests need. SOURCE=1 compiles them even if
# dist/ has a wheel of this commit.
SOURCES := .venv/compile-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files
compile = SLUICE_FLAVOUR=release SLUICE_MODULES=$(1) $(BIN)/python setup.py -q build_ext --inplace
take-wheel = $(if $(SOURCE),false,scripts/take-wheel)
# Compiling needs neither the router's libraries nor the console, and pip and npm mostly wait for the network, so all run
# at the same time. `run` builds the console again if that failed, and reports why.
beside-libraries = $(MAKE) -s .venv/build-dependencies & libraries=$$!; status=0; { $(1); } || status=$$?; \
    wait $$libraries || status=$$?; exit $$status
console-if-missing = { [ -e supervisor/web/console/index.html ] || scripts/build-console --optional; }
$(STAMPS)/router: $(SOURCES)
	@$(call beside-libraries,$(take-wheel) || { echo "Compiling the router; this takes a minute or two"; \
	    $(call console-if-missing) >/dev/null 2>&1 & console=$$!; $(call compile,router); compiled=$$?; \
	    wait $$console; [ $$compiled = 0 ]; })
	@touch $@

$(STAMPS)/release: $(SOURCES)
	@$(call beside-libraries,$(take-wheel) || $(call compile,product))
	@touch $@

testing: $(STAMPS)/testing
$(STAMPS)/testing: $(STAMPS)/release
	@$(call compile,all)
	@touch $@
.PHONY: testing

# Bytecode, as in an installed router, even if Python is configured not to write any: a start takes a quarter less CPU.
$(STAMPS)/bytecode: .venv/build-dependencies $(PYTHON_FILES) $(STAMPS)/python-files
	@$(BIN)/python -m compileall -q -j 0 $(addprefix sluice/,$(PACKAGES))
	@touch $@

$(STAMPS)/debug: .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files $(PYTHON_FILES) \
    $(STAMPS)/python-files
	@mkdir -p build/debug; find build/debug -name '*.py' -delete
	SLUICE_FLAVOUR=debug SLUICE_MODULES=all $(BIN)/python setup.py -q build --build-lib build/debug --build-temp build/temp-debug
	@$(BIN)/python -m compileall -q build/debug
	@touch $@

# The debug flavour for libFuzzer, and libFuzzer with our mutations. Skipped if clang cannot be installed.
FUZZER := build/fuzz/libfuzzer.so
build-fuzz: $(STAMPS)/fuzz $(FUZZER)
	@:

$(STAMPS)/clang:
	@scripts/system-packages fuzz && touch $@

$(STAMPS)/fuzz: $(STAMPS)/clang .venv/build-dependencies setup.py $(CYTHON) $(STAMPS)/cython-files $(PYTHON_FILES) \
    $(STAMPS)/python-files
	@mkdir -p build/fuzz; find build/fuzz -name '*.py' -delete
	SLUICE_FLAVOUR=fuzz SLUICE_MODULES=all $(BIN)/python setup.py -q build --build-lib build/fuzz --build-temp build/temp-fuzz
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

# Third-party brokers and clients. A failed installation is retried each time; tests report what is missing.
INTEROP_FILES := $(wildcard scripts/interop-tools $(addprefix tests/interop/,java/* go/* rust/Cargo.* rust/src/* scanner/*))
$(STAMPS)/interop: $(INTEROP_FILES)
	@scripts/interop-tools && touch $@ || true

# Wheel and source distribution in dist/, of this commit (RELEASE=1: of the version).
wheel: build
	@scripts/build-wheel
# Wheel for package indexes, with OpenSSL, in dist/manylinux.
manylinux: wheel
	@scripts/repair-wheel
# Debian package in dist/, with man pages and completion; container image in build/image (needs root).
deb: build
	@scripts/build-deb
image: build
	@scripts/system-packages image
	@$(BIN)/python scripts/build_image.py
.PHONY: wheel manylinux deb image

wire-tools: build
	@$(if $(WIRE_TOOLS),MAKEFLAGS= $(MAKE) -C loadtests/wire)
.PHONY: wire-tools

# Without npm there is no console; `make build` installs npm.
run: $(STAMPS)/router $(STAMPS)/bytecode
	@$(call console-if-missing)
	@echo "Starting a router with $(CONF); Ctrl-C stops it."
	@echo "It says below where it listens. To send a first message, in another terminal: make hello"
	@exec $(BIN)/sluice run -c $(CONF)

hello: $(STAMPS)/router $(STAMPS)/bytecode
	@$(BIN)/sluice hello -t 10 -b $(URL)

# Run pytest on $(2), which may have no tests, with command prefix $(1) and options $(3).
pytest = if [ -n "$$(find /dev/null $(2) -name 'test_*.py' -print -quit 2>/dev/null)" ]; then \
    $(1) $(BIN)/python scripts/run_tests.py $(3) $(2) $(ARGS); else echo "No tests in $(2)"; fi

# Tests without processes: of modules, and of routers in one process.
UNIT_TESTS := tests/unit tests/component
SYSTEM_TESTS := $(filter-out $(UNIT_TESTS) tests/fuzz tests/interop tests/migration tests/peer tests/vectors,$(patsubst %/,%,$(wildcard tests/*/)))
# Fewer examples of properties that Hypothesis tries.
FEW_EXAMPLES := --hypothesis-profile=quick
ON_CORES := -n $(COMPUTING) --dist worksteal
# A shell makes background processes ignore SIGINT, but tests must stop their processes on Ctrl-C.
DEFAULT_INT := env --default-signal=INT
# loadgroup: tests that share a router stay in one process (tests/worker_counts.py).
BESIDE_EACH_OTHER := -n $(WAITING) --dist loadgroup
# Not more processes than cores: Spark gives its workers a fixed 10 s to start.
ALONE := -n $(COMPUTING) --dist loadgroup

# Unit and component tests run first, because they use all cores. System and interop tests mostly wait for processes they
# start.
test: build testing wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@status=0; (scripts/timed "  lint, docs, console (beside the others)" $(MAKE) -k lint docs test-console) >build/test-lint.log 2>&1 & linting=$$!; \
	    $(call pytest,scripts/timed "  unit and component tests",$(UNIT_TESTS),$(ON_CORES) $(FEW_EXAMPLES)) || status=1; \
	    $(call pytest,scripts/timed "  system and interoperability tests",$(SYSTEM_TESTS) tests/interop,$(BESIDE_EACH_OTHER)) || status=1; \
	    wait $$linting || status=1; cat build/test-lint.log; exit $$status

test-quick: build testing .venv/test-dependencies
	@$(call pytest,,$(UNIT_TESTS),$(ON_CORES) -q -m 'not starts' $(FEW_EXAMPLES))

# Type check of the console, and its tests without a browser. Skipped if npm is missing.
test-console: $(STAMPS)/console
	@if [ -d console/node_modules ]; then npm --prefix console run --silent check && npm --prefix console run --silent test; \
	    else echo "The console is not tested: npm is missing"; fi
.PHONY: test-console

# Stamps of other targets stay as they are: `make build` still builds what is left.
check: .venv/test-dependencies
	@$(BIN)/python -m scripts.check_file '$(F)' $(ARGS)
.PHONY: check

test-unit: build testing .venv/test-dependencies
	@$(call pytest,,$(UNIT_TESTS),$(ON_CORES))

# Tests of Python code, which test-debug leaves out because the sanitizers see compiled code only.
PYTHON_TESTS := $(addprefix tests/unit/router/,cli config control) tests/unit/supervisor tests/unit/pipeline
DEBUG_TESTS := $(filter-out $(addprefix tests/unit/router/,cli config control),$(patsubst %/,%,$(wildcard tests/unit/router/*/))) \
    tests/unit/workers $(addprefix tests/component/,router workers)
test-debug: build-debug .venv/test-dependencies
	@$(call pytest,scripts/with-asan,$(DEBUG_TESTS),$(ON_CORES))

test-system: build testing wire-tools .venv/test-dependencies
	@$(call pytest,,$(SYSTEM_TESTS),$(BESIDE_EACH_OTHER))

test-interop: build testing wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@$(call pytest,,tests/interop,$(BESIDE_EACH_OTHER))

# No faulthandler timeout: its thread might hold a lock of the sanitizer's allocator when a target forks.
fuzz-targets = $(call pytest,SLUICE_FUZZ_SECONDS=$(1) $(DEFAULT_INT) $(3) scripts/with-asan,$(2),-o faulthandler_timeout=0)

test-pipeline: build testing wire-tools .venv/test-dependencies
	@$(call pytest,$(DEFAULT_INT),tests/pipeline,$(BESIDE_EACH_OTHER))

# Each part can also run alone, for example make long-debug. With a deadline (SLUICE_TESTS_UNTIL, as in .ci/run) the order
# of parts rotates with the commit, and parts that do not fit are listed.
LONG_PARTS := long-pipeline long-system long-debug long-python
LONG_LOADS := long-liveness long-killed long-attacks
# Seconds for a slow machine to build the previous release and run the tests with it.
MIGRATION_SECONDS := 900
test-long: build testing build-debug wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@$(BIN)/python scripts/long_tests.py $(LONG_PARTS) $(addsuffix =$(LONG_SECONDS),$(LONG_LOADS)) \
	    long-migration=$(MIGRATION_SECONDS) long-fuzz-workers=$$(($(LONG_SECONDS) + $(CLANG_SECONDS)))

LONG := SLUICE_SOAK_SECONDS=$(LONG_SECONDS) SLUICE_TEST_EXEC=1
LONG_OPTIONS := --long -o faulthandler_timeout=0
long-pipeline: build testing wire-tools .venv/test-dependencies
	@$(call pytest,$(LONG),tests/pipeline,$(ALONE) $(LONG_OPTIONS))

# Not a part of test-long: it downloads Spark four times.
SPARK_VERSIONS ?=
long-spark: build testing wire-tools .venv/test-dependencies
	@ARGS='$(ARGS)' scripts/spark-versions $(SPARK_VERSIONS)
.PHONY: long-spark

# The log, metrics and traces in a real OpenTelemetry Collector, which Go builds in ten minutes, once.
long-collector: build testing .venv/test-dependencies
	@scripts/interop-tools collector || true
	@$(call pytest,,tests/interop/test_otel_collector.py,-n 1 --long)
.PHONY: long-collector

# Fuzz targets compute while system tests mostly wait. They have the lowest priority, like some clients of the tests, so
# that they do not starve those clients.
long-system: build testing build-debug wire-tools .venv/test-dependencies $(STAMPS)/node $(STAMPS)/interop
	@status=0; ($(call fuzz-targets,$$(($(LONG_SECONDS) / 6)),tests/fuzz,nice -n 19)) >build/test-fuzz.log 2>&1 & fuzzing=$$!; \
	    $(call pytest,$(LONG),$(filter-out tests/pipeline,$(SYSTEM_TESTS)) tests/interop,$(BESIDE_EACH_OTHER) $(LONG_OPTIONS)) || status=1; \
	    wait $$fuzzing || status=1; cat build/test-fuzz.log; exit $$status

long-debug: test-debug

long-python: build testing .venv/test-dependencies
	@$(call pytest,,$(PYTHON_TESTS),$(ON_CORES))

long-liveness: build testing .venv/test-dependencies
	@$(BIN)/python -m loadtests.liveness --seconds $(LONG_SECONDS) --keep-going

# If the previous release cannot be built, the tests report it.
long-migration: build testing .venv/test-dependencies
	@scripts/previous-release >/dev/null || true
	@$(call pytest,$(LONG),tests/migration,-n $(COMPUTING) $(LONG_OPTIONS))

# Status 2: a broker cannot be installed here, so the test is skipped.
long-killed: build testing .venv/test-dependencies $(STAMPS)/interop
	@$(BIN)/python -m loadtests.killed --seconds $(LONG_SECONDS) || [ $$? = 2 ]

long-attacks: build testing wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.attacks --seconds $$(($(LONG_SECONDS) / 2))
	@$(BIN)/python -m loadtests.attacks --seconds $$(($(LONG_SECONDS) / 2)) --workers 3

# Seconds for a slow machine to install clang and build with it.
CLANG_SECONDS := 900
long-fuzz-workers: .venv/test-dependencies
	@if scripts/system-packages fuzz; then $(MAKE) build-fuzz && $(call fuzz-workers-for,$(LONG_SECONDS)); \
	    else echo "Workers are not fuzzed: clang cannot be had"; fi
.PHONY: $(LONG_PARTS) $(LONG_LOADS) long-migration long-fuzz-workers

# Programs for the tests of image and chart. Go builds two of them, which takes minutes.
packaging-tools: .venv/test-dependencies
	@scripts/system-packages image || true
	@$(BIN)/python scripts/packaging_tools.py || true
.PHONY: packaging-tools

# The container image and the Helm chart: tests that `make test` leaves out.
test-packaging: build packaging-tools
	@$(call pytest,,tests/packaging tests/system/monitoring/test_alerts.py tests/pipeline/test_lander_alerts.py,-n 1 --long -o faulthandler_timeout=0)
.PHONY: test-packaging

# The manifests of packaging/kubernetes, rendered from the chart.
CHART := packaging/helm/sluice
chart-manifests: packaging-tools
	@for case in one network; do build/tools/helm template sluice $(CHART) --namespace messaging --kube-version 1.37.0 \
	    --values $(CHART)/ci/$$case.yaml >packaging/kubernetes/$$case.yaml; done
.PHONY: chart-manifests

fuzz: build-debug .venv/test-dependencies
	@$(call fuzz-targets,$(SECONDS),tests/fuzz)

# New inputs stay in build/fuzz-corpus. A failing input is written to tests/fuzz/crashes.
fuzz-workers-for = mkdir -p tests/fuzz/crashes && export SLUICE_FLAVOUR=fuzz && \
    scripts/with-asan $(BIN)/python -m tests.fuzz.workers --unpack build/fuzz-corpus && \
    exec scripts/with-asan $(BIN)/python -m tests.fuzz.workers -seed=1 -max_total_time=$(1) -timeout=60 -rss_limit_mb=4096 \
    -print_final_stats=1 -artifact_prefix=tests/fuzz/crashes/workers- $(ARGS) build/fuzz-corpus
fuzz-workers: build-fuzz .venv/test-dependencies
	@$(call fuzz-workers-for,$(SECONDS))

bench: build testing wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.bench $(ARGS)

bench-instructions: build testing .venv/test-dependencies
	@$(BIN)/python -m loadtests.instructions $(ARGS)

bench-scale: build testing wire-tools .venv/test-dependencies
	@$(BIN)/python -m loadtests.scale $(ARGS)

pipeline: build .venv/test-dependencies
	@exec $(BIN)/python scripts/pipeline_demo.py $(PIPELINE_SECONDS)

loadtest: build testing .venv/test-dependencies $(STAMPS)/interop
	@$(BIN)/python -m loadtests.load $(ARGS)

# cython-lint looks for pycodestyle on the path.
lint: .venv/test-dependencies
	@status=0; export PATH="$(CURDIR)/$(BIN):$$PATH"; set -x; \
	    $(BIN)/ruff check . || status=1; \
	    $(BIN)/mypy sluice pyspark_amqp.py $(if $(wildcard loadtests/*.py),loadtests) tests scripts || status=1; \
	    $(BIN)/cython-lint $(filter %.pyx %.pxd,$(CYTHON)) || status=1; \
	    $(BIN)/python scripts/check_commits.py || status=1; \
	    { set +x; } 2>/dev/null; exit $$status

docs: .venv/build-dependencies
	@$(BIN)/python scripts/make_reference.py --check
	@$(BIN)/python -m scripts.make_commands --check
	@$(BIN)/python scripts/make_sizing.py --check
	@$(BIN)/python scripts/check_docs.py
	@$(BIN)/python -m scripts.spec_report

man: .venv/build-dependencies
	@$(BIN)/python -m scripts.make_man
.PHONY: man

.venv/docs-dependencies: .venv/build-dependencies
	@scripts/make-venv docs
	@touch $@

site: .venv/docs-dependencies
	@$(BIN)/python scripts/make_site.py

# VERSION=0.2.0 [KEY=…] [WITHOUT="image test"]: checks, files of the release in dist/release, tag.
release: build .venv/test-dependencies
	@$(BIN)/python -m scripts.release $(or $(VERSION),$(error make release needs VERSION=…)) $(if $(KEY),--key $(KEY)) \
	    $(if $(WITHOUT),--without $(WITHOUT))

# The files of a release that is tagged, without checks.
release-files: build
	@$(BIN)/python -m scripts.release $(or $(VERSION),$(error make release-files needs VERSION=…)) --files \
	    $(if $(WITHOUT),--without $(WITHOUT))
.PHONY: release-files

# Signed checksums of all files in dist/release, after those of other machines were added.
release-sums: .venv/build-dependencies
	@$(BIN)/python -m scripts.release $(or $(VERSION),$(error make release-sums needs VERSION=…)) --sums \
	    --key $(or $(KEY),$(error make release-sums needs KEY=…))
.PHONY: release-sums

# ARGS='"management.md 5.7"': the places that cite this rule.
spec-report: .venv/build-dependencies
	@$(BIN)/python -m scripts.spec_report $(ARGS)
.PHONY: spec-report

clean:
	rm -rf .venv build dist supervisor/web/console console/node_modules *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis $(addsuffix node_modules,$(dir $(NODE_PACKAGES)))
	@$(if $(WIRE_TOOLS),MAKEFLAGS= $(MAKE) -C loadtests/wire clean)
	find . -path ./.git -prune -o \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +
	rm -f $(patsubst %.pyx,%.c,$(filter %.pyx,$(CYTHON)))
