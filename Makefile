# make book   execute every chapter and build the pages   (build/site/_build/html/index.html)
# make test   unit tests, lints, nbval over every chapter, the pages in a browser if there is one
# make test-all        the slow tests too
# make test-portable   every chapter under five arithmetics: do the outputs say the same?
# Nothing else is needed on a machine with Python 3.11 or later and make.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: book test test-all test-portable lint refresh clean

book: $(VENV)/.ready
	$(BIN)/python tools/book.py build

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest -m "not slow"
	$(BIN)/python -m pytest --nbval notebooks

test-all: $(VENV)/.ready lint
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --nbval notebooks

test-portable: $(VENV)/.ready
	$(BIN)/python tools/portable.py $(PORTABLE)

lint: $(VENV)/.ready
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python tools/book.py lint

# Execute the chapters in place: do this when a change alters what they print, and read the difference.
refresh: $(VENV)/.ready
	$(BIN)/python tools/book.py refresh

$(VENV)/.ready: requirements/book.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed.")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/book.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf build/site build/refresh build/screenshots $(VENV)
