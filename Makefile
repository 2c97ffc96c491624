# Two commands are enough on a fresh machine: `make demo` and `make test`. Both build .venv first.
# Nothing outside the folder is touched, but for environments of heavy tests in the user's cache (~/.cache/ragguard).

PYTHON ?= python3
BIN    := .venv/bin
ENVIRONMENT := PYTHONPATH=tests $(BIN)/python -m support.environments
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test quick lint types check golden docs test-install test-newest test-vllm test-phoenix test-floors test-foreign test-servers test-ray clean

help:
	@echo "make demo          install what the demonstration needs and run it"
	@echo "make test          install what the tests need and run all of them"
	@echo "make quick         a part of the tests in under a minute: numbers, records, capture, storage and scorers"
	@echo "make check         lint, format, types, and what the pages and the words of the code are held to"
	@echo "make golden        the golden files of tests/golden, anew, where a change to what others see is meant"
	@echo "make test-install  the package alone in a clean environment: size, imports"
	@echo "make test-vllm     engines and scores against a real vLLM, also in an actor of Ray, in environments of their own (4 GB)"
	@echo "make test-servers  engines and scores against llama.cpp, LiteLLM's proxy and transformers serve, in an environment of its own (2 GB)"
	@echo "make test-newest   the store, the service, the guard and faults on the newest Python of this machine"
	@echo "make test-floors   frameworks and OpenTelemetry at the lowest supported versions, in environments of their own"
	@echo "make test-foreign  telemetry beside other instrumentations, in an environment of its own"
	@echo "make test-ray      scoring on a real Ray cluster of two nodes, in an environment of its own (0.6 GB)"
	@echo "make test-phoenix  telemetry against a real Phoenix, in an environment of its own"
	@echo "make bench-NAME    a benchmark of benchmarks/, such as bench-metrics; ARGS=--quick is a check of seconds"
	@echo "make docs          the site of docs/ with the reference from the docstrings, in docs/_build"
	@echo "make pictures      the pictures of the report and of Phoenix in docs/images, anew (needs Chromium)"
	@echo "make study-NAME     a study on nano's world: distraction, distractors, belief, retrieval, sets, coverage, judges, decisions, likelihood, lists"
	@echo "make train-nano     the small model that ships with ragguard, anew: about an hour on two cores (ARGS=...)"
	@echo "make evaluate-nano  its figures on held-out cases, into its card"
	@echo "make clean         remove .venv and caches of this folder"

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ragguard needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[demo]'
	@touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.demo

demo: .venv/.demo
	$(BIN)/ragguard demo
	@echo; echo "Real text: three questions about examples/notes, read by smol, a small real model: found, superseded, not there"
	@if $(BIN)/ragguard fetch smol; then \
		$(BIN)/ragguard try examples/notes "What caused the last outage?" "How many days of paid leave does a full-time employee get?" \
			"Where can I park my car?" --engine smol --out demo-out/try; \
	else echo "the part on real text is left out; all before it stands"; fi

# One thread of OpenBLAS in each of the two workers: a fork beside its other threads may hang (docs/reference/promises.md).
# One of OpenMP, since two workers' threads of torch would wait for each other; files with slow tests come first.
test: .venv/.dev
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/lint -m "not vllm and not phoenix and not install and not foreign and not servers"

# The inner loop: numbers, records, storage and scorers, without frameworks, servers and child processes.
quick: .venv/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow" tests/metrics tests/text tests/scorers tests/capture tests/storage tests/test_schema.py

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q tests/lint

types: .venv/.dev
	$(BIN)/mypy

check: lint types

golden: .venv/.dev
	RAGGUARD_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden

test-install: .venv/.dev
	$(BIN)/python -m pytest tests/packaging -m install

# What depends on Python's version: when connections are closed and collected, how event loops and forks end.
# `make test-newest NEWEST=/path/to/python3.12` tests another version.
FAULTS := $(wildcard tests/langchain/test_*fault*.py tests/llamaindex/test_*fault*.py)
test-newest: .venv/.dev
	python=$$($(ENVIRONMENT) newest $(NEWEST)) && $$python --version && \
	PYTHONPATH=$(CURDIR):$(CURDIR)/integrations:$(CURDIR)/tests $$python -m pytest \
		tests/storage tests/service tests/guard tests/faults tests/runtime tests/langchain/test_bad_input.py $(FAULTS)

test-vllm: .venv/.dev
	-$(ENVIRONMENT) vllm-ray
	$(BIN)/python -m pytest tests -m vllm

test-servers: .venv/.dev
	-$(ENVIRONMENT) servers
	-$(BIN)/ragguard fetch smol
	$(BIN)/python -m pytest tests/servers -m servers

test-floors: .venv/.dev
	python=$$($(ENVIRONMENT) llamaindex-floor) && $$python -m pytest tests/llamaindex tests/examples -k llamaindex
	python=$$($(ENVIRONMENT) langchain-floor) && $$python -m pytest tests/langchain
	python=$$($(ENVIRONMENT) telemetry-floor) && $$python -m pytest tests/telemetry

test-foreign: .venv/.dev
	python=$$($(ENVIRONMENT) foreign) && $$python -m pytest tests/langchain/test_spans.py tests/llamaindex/test_llamaindex_telemetry.py
	python=$$($(ENVIRONMENT) foreign) && $$python -m pytest tests/traces/test_foreign.py # OpenLLMetry gives no spans where it is attached a second time

test-ray: .venv/.dev
	python=$$($(ENVIRONMENT) ray) && $$python -m pytest tests/on_ray
	$(BIN)/python -m pytest -q tests/benchmarks -k ray

test-phoenix: .venv/.dev
	-$(ENVIRONMENT) phoenix
	$(BIN)/python -m pytest tests/phoenix -m phoenix

pictures: .venv/.dev
	$(BIN)/python docs/images/take.py
	PYTHONPATH=tests $(BIN)/python tests/phoenix/pictures.py

.venv/.docs: .venv/.dev
	$(PIP) -e '.[docs]'
	@touch $@

docs: .venv/.docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build

bench-%: .venv/.dev
	$(BIN)/python benchmarks/$*.py $(ARGS)

study-%: .venv/.dev
	$(BIN)/python -m studies $* $(ARGS)

train-nano: .venv/.dev
	$(BIN)/python -m training.nano.train --out checkpoints $(ARGS)

evaluate-nano: .venv/.dev
	$(BIN)/python -m training.nano.evaluate --cases 1000 $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
