# `make demo` and `make test` each work alone on a fresh Debian 12 machine, as root.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Scripts of virtual environments, ssh's options and make's own lists are split at spaces.
ifneq ($(words $(CURDIR)),1)
$(error The path of this checkout, "$(CURDIR)", has a space: move it to a path without spaces. Example: /opt/deeplearning)
endif

# tests/run.py --python 3.13 uses .venv-3.13, which the same recipe makes.
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH):/usr/sbin:/sbin

# The local cloud boots and connects its machines with these.
PACKAGES := systemd-container mmdebstrap debian-archive-keyring nftables bindfs iproute2 openssh-client
# Another distribution's apt does not trust Debian's keys by itself. With gpg, mmdebstrap finds the right key file.
ifneq ($(shell . /etc/os-release && echo $$ID),debian)
PACKAGES += gpg
endif

# What apt and pip print.
log := build/setup.log

# Debian's own Python if it is new enough, as users have it. Otherwise the first that ansible-core 2.19 supports.
# Debian packages the module venv separately.
python := $(shell for python in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
    $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$python && break; done)
python_version = $(shell $(python) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

.PHONY: help
help: ## this list
	@sed -En 's/^([a-z -]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

.PHONY: setup
setup: packages venv ## install what is needed: Debian packages and .venv (quick if they exist)

.PHONY: python
python:
	@[ -n "$(python)" ] || { echo "Python 3.11, 3.12 or 3.13 is needed. On Ubuntu 22.04: apt-get install python3.11"; exit 1; }

.PHONY: packages
packages: python
	@missing=; \
	for package in $(PACKAGES); do \
	    dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || missing+=" $$package"; \
	done; \
	$(python) -c 'import ensurepip' 2>/dev/null || missing+=" python$(python_version)-venv"; \
	[ -n "$$missing" ] || exit 0; \
	echo "Debian packages that are missing:$$missing"; \
	[ "$$(id -u)" = 0 ] || { echo "Only root can install them: sudo apt-get install$$missing"; exit 1; }; \
	version() { dpkg-query -W -f '$${Version}' systemd || true; }; \
	before="$$(version)"; \
	tools/step $(log) "Debian packages ($(log))" bash -c "apt-get update -q && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends -o Dpkg::Use-Pty=0 $$missing"; \
	[ "$$before" = "$$(version)" ] || echo "systemd was upgraded with them, from $$before to $$(version)"

# Fill the virtual environment $(1) from the lock file $(2): wheels only, with the pinned checksums.
# uv, where it is installed, needs seconds; pip needs a minute.
define install
$(1)/bin/python -c '' 2>/dev/null || $(python) -m venv --clear $(1); \
install="$(1)/bin/python -m pip install -q --disable-pip-version-check"; \
if command -v uv >/dev/null; then install="uv pip install -q --python $(1)/bin/python"; fi; \
tools/step $(log) "Python packages into $(1) ($(log))" $$install --require-hashes --only-binary :all: -r $(2)
endef

.PHONY: venv
venv: $(VENV)/.installed ## .venv alone, as any user: the pinned versions of what playbooks and tests need

# The local cloud is in this checkout and has no checksum, so it is installed on its own.
$(VENV)/.installed: requirements.txt localcloud/pyproject.toml | python
	@$(call install,$(VENV),requirements.txt); \
	tools/step $(log) "the local cloud into $(VENV) ($(log))" $$install --no-deps --no-build-isolation -e ./localcloud
	@touch $@

# Every file of pins that people install, from the versions in its .in file. uv writes the marker python_full_version,
# which old releases of pip evaluate wrongly on Python 3.11.0rc1, Ubuntu 22.04's python3.11: they skip the package.
pins := requirements.txt meta/operator-requirements.txt tests/lint/packaging.txt .ci/audit.txt
.PHONY: lock
lock: ## pin the Python packages anew, with checksums, after a change of a .in file (needs uv)
	@for file in $(pins); do \
	    tested=; [ "$$file" != meta/operator-requirements.txt ] || tested="-c requirements.txt"; \
	    uv pip compile -q --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
	        $$tested "$${file%.txt}.in" -o "$$file" >/dev/null; \
	    sed -Ei "s/python_full_version ([<>=]+ '3\.[0-9]+')/python_version \1/g" "$$file"; \
	done

# The tools that check the built collection and build the documentation site, whose versions conflict with ours.
.PHONY: packaging
packaging: $(VENV)-packaging/.installed

$(VENV)-packaging/.installed: private python := $(VENV)/bin/python
$(VENV)-packaging/.installed: tests/lint/packaging.txt | $(VENV)/.installed
	@$(call install,$(@D),$<)
	@touch $@

.PHONY: docs
docs: build/site/html/index.html ## the documentation site: build/site/html/index.html

# A page is any Markdown file, and those of modules, plugins and roles are made from their own documentation.
build/site/html/index.html: $(VENV)-packaging/.installed $(wildcard $(shell git ls-files '*.md' docs galaxy.yml plugins roles tools/site))
	@$(VENV)-packaging/bin/python tools/site/build.py

# tools/framework_pins.py, framework_kernels.py, tensorflow_names.py and node_calls.py need the network or a download.
.PHONY: renew
renew: venv ## run every generator of documentation and data
	@for tool in alert_rules aws_errors_docs gpu_docs members_boundary settings_docs; do \
	    $(BIN)/python tools/$$tool.py; \
	done

.PHONY: demo
demo: log := build/demo.log
demo: started := $(shell date +%s)
demo: setup ## a cluster on the local cloud: one master, two workers
	@DEMO_STARTED=$(started) tools/demo $(log)

.PHONY: test test-nightly
test: setup ## the gate, and what the change since BASE needs; BASE=HEAD is the gate alone
	@$(BIN)/python tests/run.py --base "$(BASE)"
test-nightly: setup ## all layers in full and the nightly parts, or only PARTS="clusters runs"
	@$(BIN)/python tests/run.py --nightly $(PARTS)

.PHONY: lint unit
lint: venv ## ansible-lint, yamllint, ruff, mypy, scans of IAM policies
unit: venv ## the quick tests: no machine; without root, those that need it are counted and not run
lint unit:
	@$(BIN)/python tests/run.py $@

.PHONY: sanity account localcloud-unit localcloud integration molecule
sanity account localcloud-unit localcloud integration molecule: setup ## this layer alone, in full
	@$(BIN)/python tests/run.py $@

# Without the interpreter's own packages, as nothing but Python is needed: not even .venv.
.PHONY: gpu
gpu: python ## what needs a real GPU, in seven steps; without one it says so. Results in bench/results/gpu.md
	@$(python) -S tests/gpu/run.py

.PHONY: aws-smoke
aws-smoke: venv ## a first hour on an AWS account, for a stated amount: docs/first-hour-on-aws.md
	@$(BIN)/python tests/smoke/run.py

.PHONY: bench chaos
bench: setup ## the measurements
chaos: setup ## kill playbooks at each task, call and at random moments, and run them again
bench chaos:
	@[ -x bench/$@ ] || { echo "There is no bench/$@ yet."; exit 1; }; bench/$@

.PHONY: clean
clean: ## stop the local cloud, and remove .venv and caches
	@[ ! -x $(BIN)/localcloud ] || $(BIN)/localcloud down
	rm -rf .venv .venv-* build dist .ansible .cache .mypy_cache .pytest_cache .ruff_cache *.egg-info localcloud/src/*.egg-info *.tar.gz
	find . -name __pycache__ -prune -exec rm -rf {} +
