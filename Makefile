PYTHON ?= python3
VENV := .venv

# Programs and workers start in half the time where they find compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo demo-shell test test-long test-forky test-trixie test-releases test-chaos test-tutorial test-install test-gpu test-quiet \
	fast lint bench paper man lock deb deb-source clean

$(VENV)/.ready: setup.cfg
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --editable '.[dev,highs,metrics,web,examples]'
	touch $@

setup: $(VENV)/.ready

demo: setup
	$(VENV)/bin/python -m examples.demo

# docs/tutorial.md: a shell on a private cluster, until it is left.
demo-shell: setup
	@$(VENV)/bin/python -m examples.demo.shell

# Live tests wait more than they compute.
test: setup
	$(VENV)/bin/python -m pytest -n 4 --dist worksteal

# The tests that take two seconds of processor time or more each, but for a few of the core's.
test-long: setup
	HOPS_LONG=1 $(VENV)/bin/python -m pytest -m long -n 4 --dist worksteal

# The contract with Slurm on other Debian suites: 26.05 and 24.11.
test-forky test-trixie: test-%: setup
	HOPS_RELEASES=$* $(VENV)/bin/python -m pytest -s -rs tests/releases

test-releases: setup
	HOPS_RELEASES=trixie,forky $(VENV)/bin/python -m pytest -s -rs tests/releases

# Two hopsd, and faults of most kinds, for some minutes: docs/chaos.md.
test-chaos: setup
	HOPS_CHAOS=1 $(VENV)/bin/python -m pytest tests/daemon/test_chaos.py

# What other programs on this machine would disturb: half an hour on two idle cores.
test-quiet: setup
	HOPS_LONG=1 HOPS_QUIET=1 $(VENV)/bin/python -m pytest tests/health/test_nodes_live.py

# docs/tutorial.md, command by command, on the demo's cluster: two minutes.
test-tutorial: setup
	HOPS_TUTORIAL=1 $(VENV)/bin/python -m pytest tests/demo/test_tutorial.py

# The profiler on this machine's GPU, with PyTorch's build for it.
test-gpu: setup
	HOPS_GPU=1 $(VENV)/bin/python -m pytest -rs -m gpu tests/profiler

# The quick tests that need no server, with fewer examples of each property.
fast: setup
	$(VENV)/bin/python -m pytest -m "not live and not slow" --hypothesis-profile=fast -n auto --dist worksteal

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	mkdir -p build/types && ln -sfn ../../profiler build/types/hops_profiler && ln -sfn ../../rivals build/types/hops_rivals
	MYPYPATH=build/types $(VENV)/bin/mypy --package hops_profiler --package hops_rivals

paper: setup
	$(VENV)/bin/python -m bench.paper

# Man pages, from the commands and settings themselves: man build/man/hopsctl.1
man: setup
	$(VENV)/bin/python -m hopsd.ctl.shell.manual build/man

# The releases that an installation takes from PyPI, with their hashes: for Python 3.11 and newer.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet uv
	build/lock/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --upgrade --python-version 3.11 \
		--extra highs --extra metrics --extra web --custom-compile-command 'make lock' \
		--output-file requirements.lock setup.cfg

# Packages for the Debian release that this runs on, into build/deb; debian/control names what it
# needs: apt-get build-dep . installs it.
deb:
	rm -rf build/deb
	$(MAKE) -s deb-source FOLDER=build/deb/source
	cd build/deb/source && DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage --build=binary --no-sign
	rm -r build/deb/source
	ls build/deb/*.deb

deb-source:
	mkdir -p $(FOLDER)
	git ls-files -z --cached --others --exclude-standard -- ':!tests' ':!bench' | xargs -0 cp --parents --no-dereference --target-directory=$(FOLDER)

# docs/admin.md, command by command, on Debian 12 and 13 booted in a container.
test-install: setup
	HOPS_INSTALL="$(or $(RELEASE),bookworm trixie)" $(VENV)/bin/python -m pytest -s -rs tests/install
