# Every target sets up what it needs: a machine with Python 3.11+ and pip is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo
DOCS_READY := $(VENV)/.ready-docs
WORKERS ?= auto

.PHONY: setup test deep matrix slowest coverage demo serve-demo stubs docs release check format clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

# The demo needs weft and the digits, and nothing of what the tests need.
$(DEMO_READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $(DEMO_READY)

# The whole suite, sampled where it could go on for hours. Parity tests need torch and
# say so when they are skipped: pip install torch==2.13.0 in the environment runs them.
test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) -rs

# The long runs: thirty thousand random programs, every sample of PyTorch's own op table.
deep: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) -m deep -rs

# The tests that take longest, most expensive first. TESTS narrows the choice.
slowest: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --durations=40 --durations-min=1 $(TESTS)

# Which lines of weft the tests run: a summary here, pages in build/coverage.
coverage: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pytest-cov>=6'
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=html \
		--cov-report=term:skip-covered -W ignore::coverage.exceptions.CoverageWarning $(TESTS)

# The suite, or TESTS, for each instruction set, with and without oneDNN, in one thread and many.
matrix: $(READY)
	$(BIN)/python tools/matrix.py $(TESTS)

# A network learns to read digits; the report is in weft-demo/. ARGS adds options.
demo: $(DEMO_READY)
	$(BIN)/weft demo $(ARGS)

# The same, followed live in the browser.
serve-demo: $(DEMO_READY)
	$(BIN)/weft demo --live $(ARGS)

# The site, into site/: open site/index.html. A warning is an error.
$(DOCS_READY): pyproject.toml $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(DOCS_READY)

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

# Wheel and sdist in dist/, and the wheel tried out in an empty environment.
release: $(READY)
	$(BIN)/python tools/release.py $(ARGS)

# The type stubs of what the op blocks make.
stubs: $(READY)
	$(BIN)/python tools/stubs.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist site
