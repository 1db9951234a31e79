# Three words to know: make demo, make test, make check. Each makes .venv first, once.

.DEFAULT_GOAL := help
.PHONY: help demo test check docs fix install clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
# make PYTHON=/path/to/python3.12 test: takes that one and no other
PYTHON :=
PYTHONS := python3.11 python3 python3.12 python3.13 python3.14
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

help:  ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(STAMP)  ## train on dates, translate them, draw what the model looks at (about five minutes)
	$(BIN)/python -m headwise demo

test: $(STAMP)  ## every test
	$(PYTEST)

check: $(STAMP)  ## format, lint, types, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST) -m "not slow"

docs: $(STAMP)  ## the documentation site, in build/site; no network is needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fix: $(STAMP)  ## rewrite what ruff can: lint, then format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)  ## only make .venv

clean:  ## remove .venv and caches; runs stay
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Again only when what to install changes. A half-made .venv (an interrupted install) is made anew.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		for python in $(or $(PYTHON),$(PYTHONS)); do \
			if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
			then found=$$python; break; fi; \
		done; \
		if [ -z "$${found:-}" ]; then \
			echo "headwise needs Python 3.11 or newer with its venv module: none of $(or $(PYTHON),$(PYTHONS)) is;" \
				"install one (Debian: python3 python3-venv) or name it: make PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "making $(VENV) with $$($$found --version)"; \
		$$found -m venv --clear $(VENV); \
	fi
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[test,check,docs]'
	@touch $@
