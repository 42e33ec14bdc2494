# Each target installs the packages that it needs; the machine must have python >= 3.11, node >= 20 and make.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
UV_VERSION := 0.13.9
COMPAT_PYTHONS ?= python3.11 python3.12
UV ?= $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
CDK := node_modules/.bin/cdk
PYTEST := python -m pytest
# `make fuzz` starts no test after FUZZ_SECONDS; FUZZ_SEED=N repeats the examples of the round with this seed.
FUZZ_SECONDS ?= 300
FUZZ_SEED ?=
BIN := $(CURDIR)/.venv/bin

# uv uses the machine's own Python, because a download of another one would fail on a machine without a network.
export UV_PYTHON_DOWNLOADS := never
# Container images often set PYTHONDONTWRITEBYTECODE. Hundreds of test processes would then each compile the same packages,
# which takes longer than the tests; so bytecode is written, to a folder away from the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.bytecode
export PATH := $(BIN):$(CURDIR)/node_modules/.bin:$(PATH)
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export CDK_DISABLE_CLI_TELEMETRY := 1
# Without this variable `make docs` prints MkDocs' advertisement for a successor, and no other line.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup demo test test-failed test-fast check examples conformance fuzz audit synth lock format bench bench-local load compare bench-load bench-handler bench-shared drills bench-onnx docs clean compat

help: ## List the targets of make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready $(CDK) ## Install the locked Python and Node packages into this folder

demo: setup ## Deploy, call, change and remove encoders on this machine, without an AWS account
	cohost demo

# Four processes run on two cores, because the end-to-end tests wait for half of their time. The test files keep the order of
# the folders: if the few files with long tests came last, the run would take a minute longer.
test: setup .browser-there ## Run tests of every kind, but only a few of many similar cases; without network, account or GPU
	$(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: setup ## Run the tests that start no process and no server
	$(PYTEST) --numprocesses 2 --dist loadfile -m "not process and not exhaustive" tests/unit

test-failed: setup ## Run each test file that had a failed test again, one file after another
	python tools/failed_tests.py

check: setup ## Lint, type-check, and find duplicate code, secrets and vulnerable packages; changes no file
	ruff check .
	ruff format --check .
	mypy
	mypy app.py tools
	lint-imports --no-cache
	python tools/duplicate_code.py
	python tools/audit_packages.py & python tools/scan_secrets.py && wait $$!

# One process for each file of its tests, two at a time; the longest begins first.
examples: setup ## Deploy, call, change and remove every catalog; lint and price it; type in what README and docs say
	$(PYTEST) --numprocesses 2 --dist loadfile -m "" tests/e2e/test_examples_deployed.py tests/e2e/test_documents.py \
	  tests/infrastructure/test_examples.py

conformance: setup ## Replay the recordings of the real server, and print how many answers of the emulator are equal
	python tests/integration/local_aws/lmi/conformance.py

fuzz: setup ## Run the tests that use Hypothesis with new random examples, for FUZZ_SECONDS
	python tools/fuzz.py --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

audit: setup ## Look for secrets in the files and known faults of the pinned packages; fails if either cannot be checked
	python tools/scan_secrets.py --complete
	python tools/audit_packages.py --complete

synth: setup ## Write the CloudFormation template to cdk.out
	$(CDK) synth LmiCohostStack --quiet

lock: .uv-there ## Update uv.lock, requirements*.txt and package-lock.json after a change of versions
	$(UV) lock
	$(UV) export --frozen --quiet --no-emit-project --no-header --no-annotate --output-file requirements.txt
	$(UV) export --frozen --quiet --no-emit-project --no-header --no-annotate --all-groups --output-file requirements-all.txt
	npm install --package-lock-only --omit-lockfile-registry-resolved

format: setup ## Format the code with ruff
	ruff check --fix .
	ruff format .

bench-local: setup ## Measure the time of a call through the local AWS emulator, layer by layer
	python benchmarks/local_call.py

bench: setup ## Measure bundling, fleet planning and start-up; compare estimated activations with measured ones
	python benchmarks/bundle.py
	python benchmarks/plan_fleet.py
	python benchmarks/activations.py
	python benchmarks/start_up.py

load: setup ## Deploy on this machine, run a short load test, and write its report
	python -m load_tests.tools.on_this_machine

compare: setup ## Deploy the three designs on this machine, measure each, and write one page that compares them
	python -m load_tests.tools.compare_on_this_machine

bench-handler: setup ## Measure both handlers on one server, and check the goals for time and memory
	@python benchmarks/handler.py; code=$$?; \
	  ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 python benchmarks/handler_memory.py && exit $$code

# `make compat` uses the oldest and the newest transformers that the LMI image may have, on the image's Python and on the oldest
# Python that the handler supports. Other packages are not pinned, because the two versions of transformers need different ones.
compat: .uv-there ## Run the handler's tests on Python 3.11 and 3.12 with transformers 4.56 and 5.9
	@for python in $(COMPAT_PYTHONS); do for version in 4.56.2 5.9.0; do \
	  echo "$$python, transformers $$version"; \
	  PYTHONPATH=$(CURDIR) $(UV) run --quiet --isolated --no-project --python "$$python" \
	    --with "transformers==$$version" --with "torch>=2.11,<2.12" --with disentangled-flash==1.1.1 --with httpx --with hypothesis \
	    --with protobuf --with psutil --with pydantic --with pytest --with pytest-timeout --with pyyaml --with sentencepiece \
	    python -m pytest --quiet -p no:cacheprovider tests/unit/handler || exit 1; \
	done; done

bench-shared: setup ## Time one engine process for many models against as many workers, and hold the goals, memory too
	python benchmarks/shared.py

drills: setup ## Kill, hang and unload engine processes under load: no call may fail, nothing may be left
	python benchmarks/drills.py

bench-onnx: setup ## Compare the time of int8 ONNX and torch fp32 for single texts, and check that their labels are equal
	python benchmarks/cpu_onnx.py

bench-load: setup ## Compare the calls per second of the load generator with those of boto3 and wrk
	python benchmarks/load.py

docs: setup ## Build the documentation as a site into site/
	python docs/catalog_tables.py
	python docs/error_texts.py
	mkdocs build --strict --quiet

clean: ## Remove the files that make built or installed in this folder
	rm -rf .venv .uv .bytecode node_modules cdk.out .cohost .mypy_cache .pytest_cache .ruff_cache .hypothesis site

.PHONY: .python-there .node-there .uv-there .browser-there
.python-there:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: $(PYTHON) is missing or older than 3.11; fix: install Python 3.11 to 3.13, or name one: make PYTHON=python3.12" >&2; exit 1; }

.node-there:
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || \
	  { echo "error: node is missing or older than 20; fix: install Node.js 20 or newer, which the cdk command runs on" >&2; exit 1; }

# One test opens the report's page in a real browser. If no browser can be installed, pytest skips this test and prints the
# reason.
.browser-there:
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name >/dev/null && exit 0; done; \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    apt-get update -q >/dev/null && apt-get install -y -q chromium >/dev/null; \
	  else echo "note: no Chromium here, so no test looks at the report; fix: install the package chromium"; fi

.uv-there: .python-there
	@[ -x "$$(command -v $(UV))" ] || { $(PYTHON) -m venv .uv && .uv/bin/pip install --quiet uv==$(UV_VERSION); }

.venv/.ready: pyproject.toml uv.lock | .uv-there
	$(UV) sync --frozen --all-groups --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	ln -sf ../../node_modules/.bin/cdk .venv/bin/cdk
	@touch $@

$(CDK): package.json package-lock.json | .node-there
	npm ci --no-audit --no-fund
	@touch $@
