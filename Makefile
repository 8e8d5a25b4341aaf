# Ladon for Slurm. `make help` lists the targets.
SHELL = /bin/bash
PREFIX ?= /usr/local
DESTDIR ?=
SYSCONFDIR ?= /etc
CC ?= gcc
CFLAGS ?= -O2
SLURM_CFLAGS ?=
BIN = .venv/bin
LIB = $(PREFIX)/lib/ladon
C_PARTS = spank healthcheck
export CC CFLAGS SLURM_CFLAGS

all: venv c  ## build everything (the default)

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | sort | expand -t 16

deps:  ## install missing Debian packages; without root: print the command
	@tools/system-packages

venv: .venv/stamp  ## .venv with the project and its tools; PYTHON=... chooses the interpreter

.venv/stamp: pyproject.toml tools/find-python
	test -x $(BIN)/python || { python=$$(tools/find-python) && "$$python" -m venv .venv; }
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

# A gigabyte, for the tests of ladon_slurm.hooks alone; without it they are skipped.
.venv/stamp-hooks: .venv/stamp
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,test-hooks]'
	touch $@

c:  ## SPANK plugin and health check
	@set -e; for part in $(C_PARTS); do $(MAKE) --no-print-directory -C $$part; done

demo: deps all  ## the story on a real Slurm with played GPUs; root
	$(BIN)/python tests/testbed/story.py

test: test-deps all  ## all tests but the slow ones
	@tools/test $(ARGS)

# What is still missing after this, tests that need it are skipped, or fail where CI is set.
test-deps:
	@tools/system-packages || true

test-slow: test-deps all .venv/stamp-hooks  ## the slow ones: debootstrap roots, valgrind, trainings, long runs
	$(BIN)/pytest -m slow $(ARGS)

guards: test-deps all  ## take each guard that names a case out and see its test go red; ARGS="K01 K03"
	$(BIN)/python tools/guards.py $(ARGS)

bench: all  ## measure overheads, with the method printed
	$(BIN)/python tests/bench/bench.py $(ARGS)

eval: venv .venv/ladon-ml/stamp  ## the detector on the corpus, beside three rules of the field; ARGS="--seeds 20"
	$(BIN)/python -m ladon_slurm.lab.eval --ladon-ml .venv/ladon-ml/bin/python $(ARGS)

# The published detector, in an environment of its own. Where it cannot be had, eval goes on and says so.
.venv/ladon-ml/stamp: .venv/stamp
	$(BIN)/python -m venv .venv/ladon-ml
	if .venv/ladon-ml/bin/pip install -q --disable-pip-version-check ladon-ml==0.1.0a2; then touch $@; \
	else echo "ladon-ml 0.1.0a2 could not be installed (above); its columns will say: not run"; fi

lint: lint-style lint-types lint-imports lint-c  ## style, types, import arrows, C warnings

lint-style: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: venv
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/testbed/cluster.py

lint-imports: venv
	$(BIN)/lint-imports

lint-c: venv
	$(MAKE) --no-print-directory -C tests/testbed/fakenvml PYTHON=$(CURDIR)/$(BIN)/python
	$(CC) $(C_LINT) $(SLURM_CFLAGS) $(wildcard spank/*.c healthcheck/*.c tests/testbed/fakenvml/*.c)

C_LINT = -std=gnu11 -fsyntax-only -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla -Wwrite-strings -Werror

install: c  ## into DESTDIR and PREFIX (/usr/local); keeps a ladon.yaml that is there
	@umask 022 && $(MAKE) --no-print-directory install-files  # every user calls ladon

install-files:
	python=$$(tools/find-python) && "$$python" -m venv --clear "$(DESTDIR)$(LIB)/venv"
	rm -rf build  # setuptools would install what an earlier version left there
	"$(DESTDIR)$(LIB)/venv/bin/python" -m pip install -q --disable-pip-version-check .
	rm -rf build
	find "$(DESTDIR)$(LIB)/venv/bin" "$(DESTDIR)$(LIB)/venv/pyvenv.cfg" -type f \
		-exec sed -i 's|$(DESTDIR)$(LIB)|$(LIB)|g' {} +
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(SYSCONFDIR)/ladon"
	ln -sf $(LIB)/venv/bin/ladon "$(DESTDIR)$(PREFIX)/bin/ladon"
	for part in $(C_PARTS); do $(MAKE) --no-print-directory -C $$part install || exit; done
	test -e "$(DESTDIR)$(SYSCONFDIR)/ladon/ladon.yaml" \
		|| install -m 0644 etc/ladon.yaml "$(DESTDIR)$(SYSCONFDIR)/ladon/ladon.yaml"
	install -d "$(DESTDIR)$(PREFIX)/share/ladon" "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	for file in plugstack.conf slurm.conf.snippet ladon.rules.yml; do \
		sed 's|/usr/local|$(PREFIX)|g' etc/$$file >"$(DESTDIR)$(PREFIX)/share/ladon/$$file" || exit; \
	done
	install -D -m 0644 -t "$(DESTDIR)$(PREFIX)/share/ladon/tmpfiles.d" etc/tmpfiles.d/ladon.conf
	sed 's|/usr/local|$(PREFIX)|g' etc/ladond.service \
		>"$(DESTDIR)$(PREFIX)/lib/systemd/system/ladond.service"

clean:  ## remove what was built, .venv too
	for part in $(C_PARTS) tests/testbed/fakenvml; do $(MAKE) --no-print-directory -C $$part clean; done
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

export DESTDIR PREFIX
.NOTPARALLEL:  # `deps` before `all`, whatever MAKEFLAGS says
.PHONY: all help deps venv c demo test test-deps test-slow bench eval install install-files clean \
	lint lint-style lint-types lint-imports lint-c
