# make demo   run the quickstart here, without a TPU or a key
# make lab    open it in JupyterLab
# make test   everything CI runs
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COLAB := .venv-colab
QUICKSTART := example_notebooks/01_quickstart.ipynb
REPLAYED := example_notebooks/02_recipes.ipynb example_notebooks/03_hitl.ipynb example_notebooks/04_auto_claude.ipynb
BENCH := example_notebooks/05_jaxbench.ipynb example_notebooks/06_search.ipynb
CHIP := example_notebooks/08_on_a_tpu.ipynb
NBVAL := --nbval --nbval-current-env --nbval-sanitize-with tests/nbval.cfg
# Each of these notebooks works in an empty project of its own: its outputs name the first run there.
own_project = MAXKERNEL_PROJECT=$(CURDIR)/build/nbval/$$(basename $$notebook .ipynb)
INSTALL := $(BIN)/python -m pip install --quiet --editable
# A browser test that fails is tried once more and listed as R: on a loaded machine a browser can outlast any limit.
BROWSER_TESTS := $(BIN)/python -m pytest tests -m e2e --reruns 1 -rR
export MPLBACKEND := agg

.PHONY: papermill demo quickstart replayed test lab dev lint types e2e e2e-wheel colab-pins kernels frontend clean

demo: $(VENV)/.installed-tpu-lab
	$(BIN)/python .ci/demo.py

# Runs the quickstart in an empty project and keeps its outputs in the notebook; commit the result.
quickstart: $(VENV)/.installed-tpu-lab
	$(BIN)/python .ci/demo.py --store

# Runs the notebooks that replay recordings and the benchmark's, and keeps their outputs; tests/support/record_examples.py
# makes the recordings.
replayed: $(VENV)/.installed-tpu-lab
	rm -rf build/nbval
	for notebook in $(REPLAYED) $(BENCH) $(CHIP); do $(own_project) $(BIN)/jupyter nbconvert --to notebook --execute --inplace \
	    --ExecutePreprocessor.record_timing=False $$notebook && sed -i 's|$(CURDIR)/||g' $$notebook || exit 1; done

# Every example notebook by papermill, each in an empty project; a notebook that fails ends it.
papermill: $(VENV)/.installed-tpu-dev
	rm -rf build/papermill && mkdir -p build/papermill
	for notebook in $(REPLAYED) $(BENCH) $(CHIP) $(QUICKSTART); do MAXKERNEL_PROJECT=$(CURDIR)/build/papermill/$$(basename $$notebook .ipynb) \
	    $(BIN)/papermill --no-progress-bar --log-level WARNING --cwd example_notebooks $$notebook build/papermill/$$(basename $$notebook) \
	    && echo "papermill: $$notebook done" || exit 1; done

lab: $(VENV)/.installed-tpu-lab
	$(BIN)/jupyter lab $(QUICKSTART)

dev: $(VENV)/.installed-tpu-dev
	@echo "Ready: $(BIN)/python has the package (editable), its tests' tools, ruff and mypy."

# The lab extension's TypeScript too, where Node is: nobody needs it to install or to run.
lint: $(VENV)/.installed-tpu-dev labextension/node_modules/.installed
	$(BIN)/ruff check .
	if command -v npm >/dev/null; then cd labextension && npm run -s lint; fi

types: $(VENV)/.installed-tpu-dev
	$(BIN)/mypy

# The whole tests' pytest comes last, so that its summary is the last line. Those with a browser run apart; the others
# wait for compilers more than they compute, so two files run at a time.
test: $(VENV)/.installed-tpu-dev lint types colab-pins widgets/frontend/node_modules/.installed
	.ci/browser
	$(MAKE) --no-print-directory kernels
	rm -rf build/nbval && mkdir -p build/nbval
	for notebook in $(REPLAYED) $(BENCH) $(CHIP); do $(own_project) $(BIN)/python -m pytest $$notebook $(NBVAL) || exit 1; done
	MAXKERNEL_PROJECT=$(CURDIR)/build/nbval $(BIN)/python -m pytest $(QUICKSTART) $(NBVAL)
	$(BROWSER_TESTS)
	$(BIN)/python -m pytest tests -m "not e2e" -n 2 --dist loadfile --durations=30 --durations-min=5

e2e: $(VENV)/.installed-tpu-dev
	.ci/browser
	$(BROWSER_TESTS)

# The same, with servers and kernels of an environment that has the built wheel and no Node.
e2e-wheel: $(VENV)/.installed-tpu-dev
	.ci/browser
	MAXKERNEL_E2E=wheel $(BROWSER_TESTS)

# Other versions of ipykernel that clicks are delivered on, each a small wheel alone in a folder.
kernels: build/kernels/7.1.0
build/kernels/%:
	$(BIN)/python -m pip install --quiet --no-deps --target $@ ipykernel==$*

# Colab's kernel stack (Python 3.13, IPython 7.34 ...), as pinned in tests/colab/pins.txt.
colab-pins: $(COLAB)/.installed
	MAXKERNEL_COLAB_PINS=1 $(COLAB)/bin/python -m pytest tests/colab tests/magics -p no:cacheprovider

# The built files in widgets/static and labextension/built are committed: nobody needs Node to install.
frontend:
	cd widgets/frontend && npm ci && npm run build
	cd labextension && npm ci && npm run build

clean:
	rm -rf $(VENV) $(COLAB) build dist test-results

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is older than 3.11; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A wheel carries the lab extension into share/jupyter; an editable install gets a link to the sources' build.
$(VENV)/.installed-tpu-%: pyproject.toml | $(BIN)/python
	$(INSTALL) ".[tpu,$*]"
	mkdir -p $(VENV)/share/jupyter/labextensions
	ln -sfn $(CURDIR)/labextension/built $(VENV)/share/jupyter/labextensions/maxkernel-nb
	mkdir -p $(VENV)/etc/jupyter/jupyter_server_config.d
	ln -sf $(CURDIR)/labextension/config/maxkernel-nb.json $(VENV)/etc/jupyter/jupyter_server_config.d/
	touch $@

%/node_modules/.installed: %/package-lock.json
	if command -v npm >/dev/null; then cd $* && npm ci --silent && touch node_modules/.installed; fi

$(COLAB)/.installed: pyproject.toml tests/colab/pins.txt
	python=$$(.ci/find-python 3.13) && $$python -m venv $(COLAB)
	$(COLAB)/bin/python -m pip install --quiet --requirement tests/colab/pins.txt --editable .
	touch $@
