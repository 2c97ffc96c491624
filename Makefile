# Two commands are enough on a new machine: `make demo` and `make test`. Both build .venv first.
# They write to this folder and to ~/.cache/ragguard: the model smol, examinations, and environments of heavy tests.

PYTHON ?= python3
BIN    := .venv/bin
ENVIRONMENT := PYTHONPATH=tests $(BIN)/python -m support.environments
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test quick lint types check golden docs test-install test-newest test-vllm test-phoenix test-floors test-foreign test-servers test-ray clean

help:
	@echo "make demo          install what the demonstration needs, and run it"
	@echo "make test          install what the tests need, and run them all"
	@echo "make quick         the tests of numbers, records, capture, storage and scorers, in under a minute"
	@echo "make check         lint, format, types, and the rules for pages and for words"
	@echo "make golden        write the golden files of tests/golden again, after a change that users are meant to see"
	@echo "make test-install  test the package in a clean environment: size, imports"
	@echo "make test-vllm     test engines and scores with a real vLLM, also in an actor of Ray (own environments, 4 GB)"
	@echo "make test-servers  test engines and scores with llama.cpp, LiteLLM's proxy and transformers serve (own environment, 2 GB)"
	@echo "make test-newest   test the store, the service, the guard and faults on the newest Python of this machine"
	@echo "make test-floors   test frameworks and OpenTelemetry at the lowest supported versions (own environments)"
	@echo "make test-foreign  test telemetry beside other instrumentations (own environment)"
	@echo "make test-ray      test scoring on a real Ray cluster of two nodes (own environment, 0.6 GB)"
	@echo "make test-phoenix  test telemetry with a real Phoenix (own environment)"
	@echo "make bench-NAME    run a benchmark of benchmarks/, such as bench-metrics; with ARGS=--quick in seconds"
	@echo "make docs          build the site of docs/, with the reference from the docstrings, in docs/_build"
	@echo "make pictures      take the pictures of the report and of Phoenix in docs/images again (needs Chromium)"
	@echo "make study-NAME    run a study and write its page: distraction, distractors, belief, retrieval, sets, coverage, judges, decisions, likelihood, lists, credit, real"
	@echo "make train-nano    train the small model that ships with ragguard: about an hour on two cores (ARGS=...)"
	@echo "make evaluate-nano measure that model on held-out cases, and write the figures into its card"
	@echo "make clean         remove .venv and the caches of this folder"

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
	@echo; echo "Real text: three questions about examples/notes, read by smol, a small real model. The answers: found, superseded, not there"
	@if $(BIN)/ragguard fetch smol; then \
		$(BIN)/ragguard try examples/notes "What caused the last outage?" "How many days of paid leave does a full-time employee get?" \
			"Where can I park my car?" --engine smol --out demo-out/try; \
	else echo "smol could not be fetched, so the questions about real text are left out"; fi

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
