# All the set-up a fresh machine needs: Python 3.11+, make and the PyPI registry.
# With uv: make UV=1 review
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ifdef UV
MAKE_VENV = uv venv --quiet --seed $(VENV)
INSTALL = uv pip install --quiet --python $(BIN)/python
else
MAKE_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

.PHONY: install review picture test lint bench soak clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || $(MAKE_VENV)
	@echo "installing kvledger into $(VENV) (about a minute the first time)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools of the tests into $(VENV)"
	@$(INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.installed-soak: $(VENV)/.installed-dev
	@echo "installing Ray into $(VENV)"
	@$(INSTALL) -e '.[dev,ray]'
	@touch $@

# the main job on the sample: the decision and the path of the report
review: $(VENV)/.installed
	@$(BIN)/kvledger sample
	@$(BIN)/kvledger review

# the picture that opens the README: the first screen of the sample's report
picture: review $(VENV)/.installed-dev
	@report=$$(ls -d data/reports/week=*/review.html | tail -1) && \
	  $(BIN)/python tests/report_picture.py "$$report" .github/review.png

test: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not soak"

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/sqlfluff lint --disable-progress-bar sql

# speed against peers and bare DuckDB, ratios of one run; by hand
bench: $(VENV)/.installed-dev
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

# long trials: kills, fuzzing, schedule, Ray, other tools' loaders; by hand
soak: $(VENV)/.installed-soak
	@$(BIN)/python -m pytest -m soak

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .import_linter_cache
