# The commands that a person needs; the work is in tools/. Settings, on the command line or in the environment:
#   STATE=folder   where the platform keeps its state   (root: /var/lib/space, others: ~/.local/share/space)
#   CACHE=folder   what was downloaded and built once   (root: /var/cache/space, others: ~/.cache/space)
#   LISTEN=host:port   where the API listens            (127.0.0.1:7777)
#   T=name         make check: only the cases whose name contains this
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
JOBS ?= $(shell nproc)
export STATE CACHE LISTEN BUILD T FORCE

.DEFAULT_GOAL := help
.PHONY: help deps build run stop check bench asan install clean purge

help: ## this list
	@echo "space: microVMs over HTTP. Start with: make run"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@sed -n 's/^#   \([A-Z]*=.*\)/  \1/p' $(MAKEFILE_LIST)

run: ## install what is missing, build, start the platform and show it at work
	@tools/run.sh

stop: ## end the platform started by make run, with all of its machines
	@tools/stop.sh

deps: ## install the Debian packages that are missing
	@tools/install-deps.sh build run

build: ## build the programs into build/
	@tools/build.sh $(BUILD) -- -j$(JOBS)

check: ## build and run all tests; one alone with T=name
	@tools/check.sh $(if $(T),--only '$(T)')

bench: ## measure, and write build/bench.json
	@tools/bench.sh

asan: ## build with the address and undefined-behaviour sanitizers into build-asan/
	@tools/build.sh $(BUILD)-asan --asan -- -j$(JOBS)

install: build ## install below PREFIX (and DESTDIR)
	@tools/build.sh $(BUILD) --prefix $(PREFIX) -- -j$(JOBS)
	@meson install -C $(BUILD) --no-rebuild --quiet $(if $(DESTDIR),--destdir '$(abspath $(DESTDIR))')
	@if [ -z '$(DESTDIR)' ]; then tools/fetch-qemu.sh $(PREFIX)/lib/space/qemu; fi

clean: ## remove what was built
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz

purge: ## remove the platform's state, caches and QEMU as well (asks; FORCE=1 does not)
	@tools/purge.sh
