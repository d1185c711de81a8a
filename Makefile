# Needs only Python >= 3.11 with pip and venv; everything goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Tests of one file stay in one process: many share what is dear to make. In their own order long ones come first.
SPREAD := --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test test-all check format clean

help:
	@echo "make demo      measure this machine's CPU; ends with inferometer-demo/report.html"
	@echo "make test      the core tests"
	@echo "make test-all  every test, with every extra that installs here"
	@echo "make check     ruff, mypy --strict, import rules"

demo: $(VENV)/.core
	$(BIN)/inferometer demo --out inferometer-demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(SPREAD) -m "not slow"

test-all: $(VENV)/.all
	$(BIN)/python -m pytest $(SPREAD) --durations 25

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache inferometer-demo

$(VENV)/.new:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.new pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,dev]'
	@touch $@

EXTRAS := nvml redfish openvino onnxruntime-openvino fast weights tensorrt-rtx mlperf mpi
comma := ,
space := $(subst ,, )

# All extras at once; where that fails each by itself: one that has no package for this machine is left out.
$(VENV)/.all: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -e ".[$(subst $(space),$(comma),$(EXTRAS))]" 2>/dev/null \
	  || for extra in $(EXTRAS); do \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$$extra]" \
	      || echo "the extra $$extra does not install on this machine"; \
	  done
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check scikit-learn \
	  || echo "scikit-learn does not install here: the test that rebuilds the demo's images will skip"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps axe-playwright-python \
	  || echo "axe-core does not install here: the tests of pages' accessibility will skip"
	@for server in sushy-tools pyghmi; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check $$server \
	    || echo "$$server does not install here: the tests of its meter will skip"; \
	done
	@$(MAKE) --no-print-directory $(VENV)/exported/tensorflow PACKAGES='tensorflow-cpu tf2onnx'
	@$(MAKE) --no-print-directory $(VENV)/exported/paddle PACKAGES='paddlepaddle paddle2onnx setuptools packaging'
	@for exporter in 'torch onnxscript' skl2onnx keras; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check $$exporter \
	    || echo "$$exporter does not install here: the tests of its models will skip"; \
	done
	@touch $@

# Exporters that want other versions of what is installed here write their models in an environment of their own.
$(VENV)/exported/%: tests/corpus/export.py
	@rm -rf $@ $(VENV)/exporter
	@{ $(BIN)/python -m venv $(VENV)/exporter \
	  && $(VENV)/exporter/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES) \
	  && $(VENV)/exporter/bin/python $< $* $@ >$(VENV)/exporter/log 2>&1; } \
	  || { rm -rf $@; tail -n 1 $(VENV)/exporter/log 2>/dev/null; \
       echo "$* does not install or export here: the tests of its models will skip"; }
	@rm -rf $(VENV)/exporter
