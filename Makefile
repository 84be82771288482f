# Two commands matter: `make demo` and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
OUT    ?= paper-run

export OMP_WAIT_POLICY := passive

.PHONY: setup demo test lint unit dist test-wheel test-lowest test-gpu test-browser test-faults bench paper docs clean help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## a virtual environment with the package and its development tools

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup      ## the whole way on the embedded graph
	$(BIN)/unkgcp demo -o demo-run

test: lint unit  ## lint, types and all tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup
	$(BIN)/python -m pytest -n 2 --dist loadscope

dist: setup      ## source distribution and wheel, in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

test-wheel: setup  ## the wheel alone in an empty environment: demonstration, types, commands, every line of README
	$(BIN)/python -m pytest tests/test_release.py tests/test_quick_start.py -m wheel -n 0

test-lowest:     ## all tests with the lowest versions that pyproject.toml allows, in an environment of their own
	@test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	$(PYTHON) .ci/lowest.py > .venv-lowest/pins.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-lowest/pins.txt -e '.[dev]'
	.venv-lowest/bin/python -m pytest -n 2 --dist loadscope

test-gpu: setup  ## the fused kernels on this machine's GPU; `test` runs them in Triton's interpreter
	UNKGCP_TEST_GPU=1 $(BIN)/python -m pytest tests/training/test_fused.py -n 0

test-faults: setup  ## kills, replacements and reloads under load, altered runs, mixed load: minutes, loopback only
	$(BIN)/python -m pytest tests/faults -m faults -n 0 -s

test-browser: setup  ## the pages in a real browser (Debian's chromium), also part of `test` where there is one
	$(BIN)/python -m pytest tests/browser -n 0

docs: setup $(VENV)/.docs-installed  ## the documentation site in site/, tutorials executed; a broken link or a page not for everybody stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python -m pytest tests/browser/test_site.py -m site -n 0

$(VENV)/.docs-installed: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: bench-everything  ## side by side with others, or with less work: all figures in benchmarks/README.md

bench-%: setup
	$(BIN)/python benchmarks/$(subst -,_,$*).py

paper: setup     ## the paper's tables, claims and figures; MODELS, DATA, SEEDS, PROTOCOL, DEVICE, OUT as in benchmarks/paper
	$(BIN)/python -m benchmarks.paper -o $(OUT) $(foreach name,MODELS DATA METHODS SEEDS PROTOCOL DEVICE,$(if $($(name)),--$(shell echo $(name) | tr A-Z a-z) "$($(name))"))

clean:           ## remove what the targets above made
	find src -name '*.nb[ic]' -delete
	rm -rf $(VENV) .venv-peers .venv-lowest dist demo-run paper-run .mypy_cache .ruff_cache .pytest_cache site
