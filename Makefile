# make demo   what it does, on this machine
# make test   everything CI checks
# make help   the rest
#
# Both need Python >= 3.11 and, to compile anything, a C++ compiler. They make an environment of their own in .venv.
#   PYTHON=python3.12          which Python to make it from
#   BE_SYSTEM_PYTHON=1         no environment: use PYTHON as it is, with the packages it has (no network needed)
#   BE_REQUIRE_TIERS=unit,...  a skip in these test tiers is a failure
#   RESOLUTION=highest         what test-range installs; lowest-direct otherwise
#   PYTEST_ARGS="-k cache -x"  passed to pytest
#   BRAINEVENT=0.2.1           the release of brainevent whose CUDA files `make brainevent` compiles
#   SPHINX_ARGS="-D nb_execution_mode=off"  passed to Sphinx; this leaves the gallery's pages unexecuted

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
RANGE := .venv-range
DOCS := .venv-docs
RESOLUTION ?= lowest-direct
BRAINEVENT ?= 0.3.0
WORKERS ?= auto
PYTEST_ARGS ?=
BENCH_ARGS ?=
SPHINX_ARGS ?=
DOCKER_ARGS ?=

ifdef PYTHON
CANDIDATES := $(PYTHON)
else
CANDIDATES := python3 python python3.14 python3.13 python3.12 python3.11
endif

# The first of CANDIDATES that runs and is new enough, or a message that says what was tried.
define find_python
found=; tried=; \
for each in $(CANDIDATES); do \
  version=$$("$$each" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.version_info >= (3, 11))' 2>/dev/null) || continue; \
  tried="$$tried $$each ($${version% *})"; \
  if [ "$${version#* }" = True ]; then found=$$each; break; fi; \
done; \
if [ -z "$$found" ]; then \
  echo "error: Python 3.11 or newer is needed; found:$${tried:- none of $(CANDIDATES)}." >&2; \
  echo "hint: install one, then: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
  exit 1; \
fi
endef

ifdef BE_SYSTEM_PYTHON
READY := system-python
RUN = $(firstword $(CANDIDATES))
export PYTHONPATH := $(CURDIR)$(addprefix :,$(PYTHONPATH))
else
READY := $(VENV)/ready
RUN = $(VENV)/bin/python
endif

.PHONY: help demo test test-fast test-full test-range test-faults test-jupyterlab forks lint format docs docs-links docs-browser brainevent bench bench-peers gallery dist docker rehearsal release-check clean system-python
help:
	@echo "make demo        compile kernels, call them from JAX, train a network with them"
	@echo "make test        lint, types, layers and tests in ten minutes on two cores; docs/contributing.md lists what it leaves out"
	@echo "make test-fast   lint, unit tests and what compiles C++ in one process: three minutes"
	@echo "make test-full   all tests: each CUDA case, fresh environments, conda, Docker, notebooks, faults; about an hour on two cores"
	@echo "make test-range  the tests, without lint, in an environment of the oldest releases that are allowed"
	@echo "make test-faults edits, kills, flipped bits, crowds and damaged inputs: some minutes; FULL=1: hours"
	@echo "make test-jupyterlab"
	@echo "                 cells of kernels in JupyterLab, in a headless Chromium; makes docs/pictures/jupyterlab.png anew"
	@echo "make forks       builds beside forks, 200 rounds of each way: some minutes"
	@echo "make lint        ruff, mypy, import-linter, codespell, the English of pages, docstrings and messages"
	@echo "make format      let ruff format and fix"
	@echo "make docs        the site, in build/docs/html; warnings and dead links are errors; needs npm"
	@echo "make docs-links  the links of the site that lead elsewhere: needs the network"
	@echo "make docs-browser"
	@echo "                 the site in Chromium: search, copy buttons, dark mode, a phone's width; pictures in build/docs"
	@echo "make brainevent  compile the CUDA files of brainevent's newest wheel as they are (minutes); BRAINEVENT=0.2.1: of another"
	@echo "make bench       the figures of benchmarks/"
	@echo "make bench-peers install what the benchmarks compare with, into .bench-peers"
	@echo "make gallery     run the pages of docs/gallery and write this machine's figures and their pictures"
	@echo "make dist        the sdist and the wheels, in dist/; needs g++-aarch64-linux-gnu"
	@echo "make docker      the image be-image, from this checkout; DOCKER_ARGS=... as docker/README.md says"
	@echo "make rehearsal   a release without its upload, served by this machine and installed as the pages say: 15 minutes"
	@echo "make release-check"
	@echo "                 the tests, also the slow ones, and whether this checkout can be released; RELEASE_TAG=v1.2.3: strictly"
	@echo "make clean       remove the environment and every build product"

# The environment is complete when its last file, the stamp, is there: an interrupted set-up starts anew.
$(VENV)/ready: pyproject.toml
	@$(find_python); \
	echo "Making $(VENV) with $$found (once; a minute or two) ..."; \
	rm -f $@; \
	"$$found" -m venv --clear $(VENV) || { \
	  echo "error: '$$found -m venv' failed." >&2; \
	  echo "hint: on Debian and Ubuntu it is a package of its own: apt-get install python3-venv" >&2; \
	  exit 1; }; \
	$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=24' 'setuptools>=77'; \
	$(VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-build-isolation --editable '.[dev,cuda13]'; \
	touch $@

system-python:
	@$(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed, PYTHON is %s" % sys.version)'
	@$(RUN) -c 'import jax, jaxlib, ninja, packaging, platformdirs, pytest, rich, shtab' || { \
	  echo "error: BE_SYSTEM_PYTHON is set, so nothing is installed, and $(RUN) lacks a package that is needed." >&2; \
	  exit 1; }

demo: $(READY)
	@$(RUN) examples/demo.py

# Each tool runs even if the one before found something; the last line says whether all passed.
lint: $(READY)
	@failed=; \
	step() { \
	  if ! $(RUN) -c "import $$1" 2>/dev/null && [ -n "$(BE_SYSTEM_PYTHON)" ] && [ -z "$(BE_REQUIRE_TIERS)" ]; then \
	    echo "lint: $$1 is not installed: skipped"; return; \
	  fi; \
	  shift; echo "lint: $$*"; "$$@" || failed="$$failed $$1"; \
	}; \
	step ruff $(RUN) -m ruff check .; \
	step ruff $(RUN) -m ruff format --check .; \
	step mypy $(RUN) -m mypy; \
	step codespell_lib $(RUN) -m codespell_lib; \
	step tomllib $(RUN) -m docs.words.prose; \
	$(if $(filter-out 0,$(BE_FULL)),step proselint $(RUN) -m docs.words.prose --proselint;) \
	step importlinter $(RUN) -c 'from importlinter.cli import lint_imports_command as main; main(["--no-logo"])'; \
	[ -z "$$failed" ] || { echo "error: lint found something, see above" >&2; exit 1; }

# What a run of tests took in all, with the compilers that it started: wall time, and processor time as user + sys.
define timed
@TIMEFORMAT='$@: %R s, of processor time %U + %S s'; time ( $(MAKE) --no-print-directory lint && $(1) )
endef
PYTEST = $(RUN) -m pytest -n $(WORKERS) --dist loadgroup --durations=10 --durations-min=0.5

test: $(READY)
	$(call timed,$(PYTEST) $(PYTEST_ARGS))

# What a change of a line needs: what these folders compile is compiled and called in the process of the tests.
FAST := tests/unit $(addprefix tests/compile/be_runtime/,include call compile jax) be_toolchain be_runtime release
test-fast: $(READY)
	$(call timed,$(PYTEST) $(FAST) $(PYTEST_ARGS))

# All tests, those marked full too: a release and whoever changes packaging need them.
test-full: export BE_FULL := 1
test-full: $(READY)
	$(call timed,$(PYTEST) $(PYTEST_ARGS))

# Of this project's own requirements, bounds of the extras included; RESOLUTION=highest takes the newest.
test-range:
	@$(find_python); "$$found" -m venv --clear $(RANGE)
	@$(RANGE)/bin/python -m pip install -qq --disable-pip-version-check uv
	@$(RANGE)/bin/uv pip install --python $(RANGE) --resolution $(RESOLUTION) --editable '.[test,cuda13]'
	@BE_FULL=1 $(RANGE)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not packaging' $(PYTEST_ARGS)

# What breaks caches and readers: edits, kills, flipped bits, crowds, forks, damaged inputs. FULL=1 runs for hours;
# BE_FAULTS_SEED=7 begins at another seed. The counts are said at the end.
test-faults: $(READY)
	@BE_FAULTS=$(if $(FULL),full,minutes) $(RUN) -m pytest -n $(WORKERS) --dist loadgroup -m faults $(PYTEST_ARGS)

# JupyterLab and Selenium are in an environment of their own; chromium and chromedriver (Debian: chromium-driver) on PATH.
test-jupyterlab:
	@$(find_python); "$$found" -m venv --clear .jupyterlab
	@.jupyterlab/bin/python -m pip install -qq --disable-pip-version-check --editable . \
	  'jupyterlab>=4.2' 'pytest>=8.2,<9.2' 'pytest-timeout>=2.3' 'selenium>=4.20'
	@BE_PICTURE=docs/pictures/jupyterlab.png .jupyterlab/bin/python -m pytest -rs $(PYTEST_ARGS) \
	  tests/compile/be_runtime/notebook/test_jupyterlab.py

forks: $(READY)
	@$(RUN) -W ignore::DeprecationWarning -m tests.support.forking 200

format: $(READY)
	@$(RUN) -m ruff check --fix . || true
	@$(RUN) -m ruff format .

# The site has an environment of its own: what it needs, users and tests do not. Its pages load mermaid, which draws
# diagrams in the browser, from the site itself: npm fetches it.
MERMAID := 11.12.1
$(DOCS)/ready: pyproject.toml
	@$(find_python); \
	echo "Making $(DOCS) with $$found (once; half a minute) ..."; \
	rm -f $@; \
	"$$found" -m venv --clear $(DOCS); \
	npm pack --silent --pack-destination $(DOCS) mermaid@$(MERMAID) >/dev/null & \
	$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check uv; \
	$(DOCS)/bin/uv pip install -q --python $(DOCS) --editable '.[docs]'; \
	wait $$!; \
	tar -xzf $(DOCS)/mermaid-$(MERMAID).tgz -C $(DOCS) --strip-components 2 --wildcards --exclude '*.map' \
	  package/dist/mermaid.esm.min.mjs package/dist/chunks/mermaid.esm.min; \
	mkdir -p $(DOCS)/static/mermaid; \
	mv $(DOCS)/mermaid.esm.min.mjs $(DOCS)/chunks $(DOCS)/static/mermaid; \
	touch $@

# While one process runs the gallery's pages, one after the other since they take times, another one reads the rest.
SPHINX = $(DOCS)/bin/python -m sphinx --jobs 2 --fail-on-warning --keep-going --quiet $(SPHINX_ARGS) docs
docs: $(DOCS)/ready
	@$(SPHINX) -b html -d build/docs/doctrees build/docs/html
	@echo "The site is in build/docs/html: open index.html, or python -m http.server -d build/docs/html"

docs-links: SPHINX_ARGS += -D nb_execution_mode=off
docs-links: $(DOCS)/ready
	@$(SPHINX) -b linkcheck -d build/docs/links/doctrees build/docs/links

docs-browser: docs
	@$(DOCS)/bin/python -m pytest docs/browser $(PYTEST_ARGS)

bench: $(READY)
	@$(RUN) -m benchmarks $(BENCH_ARGS)

# The wheel is only unpacked, so it may need a newer Python than this one. The loads must warn of nothing. The end of the
# output names the files that the wheel itself breaks.
brainevent: $(READY)
	@rm -rf build/brainevent && mkdir -p build/brainevent
	@$(RUN) -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --ignore-requires-python \
	  --dest build/brainevent 'brainevent==$(BRAINEVENT)'
	@$(RUN) -m zipfile -e build/brainevent/*.whl build/brainevent
	@BE_BRAINEVENT=build/brainevent/brainevent $(RUN) -m pytest -rx -n $(WORKERS) tests/cuda/test_brainevent.py $(PYTEST_ARGS)

# What others offer, in an environment of its own, so that nothing of it gets into ours.
bench-peers: $(READY)
	@$(RUN) -m venv --clear .bench-peers
	@.bench-peers/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/peers/requirements.txt
	@echo "Installed; make bench BENCH_ARGS='--rows peers' measures beside them."

# FIGURES=h200.json on a machine with that GPU. The pictures need matplotlib.
FIGURES ?= cpu.json
gallery: $(READY)
	@$(RUN) -m benchmarks.gallery measure --out docs/gallery/figures/$(FIGURES)
	@$(RUN) -m benchmarks.gallery draw
	@$(RUN) -m benchmarks.gallery thumbnails

dist: $(READY)
	@$(RUN) -m release dist dist

# It needs no environment, only Docker and any Python that is new enough.
docker:
	@$(find_python); "$$found" docker/build.py devel --tag be-image $(DOCKER_ARGS)

# The commands that users type are printed as they run. The tests are in turn: they would wait for each other's pip.
rehearsal: $(READY)
	@$(RUN) -m pytest -v -s --timeout 3600 tests/rehearsal.py $(PYTEST_ARGS)

export RELEASE_TAG
release-check: export BE_REQUIRE_TIERS := unit,compile,cuda,packaging
release-check: test-full
	@$(RUN) -m release check --tag "$$RELEASE_TAG"

clean:
	rm -rf $(VENV) $(RANGE) $(DOCS) .bench-peers .jupyterlab build docs/generated dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
