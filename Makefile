# The six commands of a developer, and `make demo` for everyone else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXAMPLE ?= examples/softmax.py

.PHONY: setup demo test test-all check format clean

# Several processes import the same tests, and everything that a test starts imports the same torch.
unexport PYTHONDONTWRITEBYTECODE

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@# An index may serve newer versions than were tested; constraints.txt pins what was.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev
	@# Workers are started behind walls, where none of them can keep what it compiled.
	$(BIN)/python -m compileall -q agents graphs kernelwright profiles tools ui
	@touch $@

setup: $(BIN)/.installed  ## Create the environment with the pinned versions.

demo: setup  ## Set everything up and make one module faster.
	$(BIN)/kernelwright optimize $(EXAMPLE) --search quick --export kernelwright-export/$(notdir $(basename $(EXAMPLE)))

# Tests wait for processes now and then, so one more than there are processors keeps these busy. A
# file's tests share their processes, so a file stays together; plain `pytest` works as well.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 3 ? n + 1 : 4)))
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--timeout 900 --durations 10

test: setup  ## What a person runs: a quick test of each behaviour, the chat in a browser.
	$(PYTEST)

test-all: setup  ## Only the exhaustive rest: tiles, cheats, layouts; property tests at depth.
	KERNELWRIGHT_TEST_DEPTH=all $(PYTEST) -m "(exhaustive or property) and not gpu"

check: setup  ## What must be clean before a commit.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
