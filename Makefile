# Every target sets up what it needs on a machine that has python >= 3.11, node >= 20 and make.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
UV_VERSION := 0.13.9
COMPAT_PYTHONS ?= python3.11 python3.12
UV ?= $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
CDK := node_modules/.bin/cdk
PYTEST := python -m pytest
# No test of `make fuzz` begins after so many seconds; FUZZ_SEED=N tries the examples of one of its rounds again.
FUZZ_SECONDS ?= 300
FUZZ_SEED ?=
BIN := $(CURDIR)/.venv/bin

# The interpreter is the machine's own: a download of another would surprise on a machine without a network.
export UV_PYTHON_DOWNLOADS := never
# Images of containers often say not to write bytecode. Hundreds of processes would then compile the same packages anew,
# which takes longer than what they are started for; so it is kept, away from the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.bytecode
export PATH := $(BIN):$(CURDIR)/node_modules/.bin:$(PATH)
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export CDK_DISABLE_CLI_TELEMETRY := 1
# Its advertisement for a successor would be the only line that `make docs` prints.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup demo test test-failed test-fast check examples conformance fuzz audit synth lock format bench bench-local load compare bench-load bench-handler bench-onnx docs clean compat

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready $(CDK) ## Install the locked Python and Node packages into this folder

demo: setup ## Deploy, call, change and remove the encoders on this machine, no account needed
	cohost demo

# Four processes on two cores: half of what the end-to-end tests take is waiting. In the order of the folders, so that the
# files of few long tests do not come last, which takes a minute more.
test: setup .browser-there ## Run the tests of every kind, of many alike a few; no network, account or GPU
	$(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: setup ## Run the tests that start no process and no server
	$(PYTEST) --numprocesses 2 --dist loadfile -m "not process and not exhaustive" tests/unit

test-failed: setup ## Run the files that had a failed test again, whole and one after another
	python tools/failed_tests.py

check: setup ## Lint, type-check, look for duplicate code, secrets and known faults; changes no file
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

conformance: setup ## Replay the recordings of the real server and say how many answers are equal
	python tests/integration/local_aws/lmi/conformance.py

fuzz: setup ## Try random examples in the tests that take Hypothesis' ones, for FUZZ_SECONDS
	python tools/fuzz.py --seconds $(FUZZ_SECONDS) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED))

audit: setup ## Look for secrets in the files, and for known faults of the pinned packages
	python tools/scan_secrets.py
	python tools/audit_packages.py

synth: setup ## Write the CloudFormation template to cdk.out
	$(CDK) synth LmiCohostStack --quiet

lock: .uv-there ## Refresh uv.lock, requirements*.txt and package-lock.json after a change of versions
	$(UV) lock
	$(UV) export --frozen --quiet --no-emit-project --no-header --no-annotate --output-file requirements.txt
	$(UV) export --frozen --quiet --no-emit-project --no-header --no-annotate --all-groups --output-file requirements-all.txt
	npm install --package-lock-only --omit-lockfile-registry-resolved

format: setup ## Rewrite the code in the project's format
	ruff check --fix .
	ruff format .

bench-local: setup ## Time a call through the AWS on this machine, layer by layer
	python benchmarks/local_call.py

bench: setup ## Time bundling, fleet planning and start-up; hold the estimate of activations against real passes
	python benchmarks/bundle.py
	python benchmarks/plan_fleet.py
	python benchmarks/activations.py
	python benchmarks/start_up.py

load: setup ## Deploy on this machine, run the short load test, write its report
	python -m load_tests.tools.on_this_machine

compare: setup ## Deploy the three designs on this machine, measure each, end in one page
	python -m load_tests.tools.compare_on_this_machine

bench-handler: setup ## Time both handlers on one server in one run and hold the goals, memory too
	@python benchmarks/handler.py; code=$$?; \
	  ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 python benchmarks/handler_memory.py && exit $$code

# The oldest and the newest transformers that the lmi image may have, on its Python and on the oldest that the handler
# runs on. What the tests import beside is not pinned here, for the two need different versions of it.
compat: .uv-there ## Run the handler's tests on Python 3.11 and 3.12 with transformers 4.56 and 5.9
	@for python in $(COMPAT_PYTHONS); do for version in 4.56.2 5.9.0; do \
	  echo "$$python, transformers $$version"; \
	  PYTHONPATH=$(CURDIR) $(UV) run --quiet --isolated --no-project --python "$$python" \
	    --with "transformers==$$version" --with "torch>=2.11,<2.12" --with disentangled-flash==1.1.1 --with httpx --with hypothesis \
	    --with protobuf --with psutil --with pydantic --with pytest --with pytest-timeout --with pyyaml --with sentencepiece \
	    python -m pytest --quiet -p no:cacheprovider tests/unit/handler || exit 1; \
	done; done

bench-onnx: setup ## Time int8 ONNX against torch fp32, one text at a time, and hold the labels equal
	python benchmarks/cpu_onnx.py

bench-load: setup ## Compare the load generator's calls a second with boto3's and wrk's
	python benchmarks/load.py

docs: setup ## Build the documentation as a site into site/
	python docs/catalog_tables.py
	python docs/error_texts.py
	mkdocs build --strict --quiet

clean: ## Remove what was built and installed here
	rm -rf .venv .uv .bytecode node_modules cdk.out .cohost .mypy_cache .pytest_cache .ruff_cache .hypothesis site

.PHONY: .python-there .node-there .uv-there .browser-there
.python-there:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "error: $(PYTHON) is missing or older than 3.11; fix: install Python 3.11 to 3.13, or name one: make PYTHON=python3.12" >&2; exit 1; }

.node-there:
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || \
	  { echo "error: node is missing or older than 20; fix: install Node.js 20 or newer, which the cdk command runs on" >&2; exit 1; }

# The report's page is looked at in a real browser. Where none can be installed like this, that one test is skipped, and
# says so.
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
