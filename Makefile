# The one entry point for building, testing and checking. `make` lists targets.

# Older make (3.81 ships with macOS) ignores the two settings below without a
# word, and a failing stage could then pass.
ifeq ($(filter oneshell,$(.FEATURES)),)
$(error this Makefile needs GNU make 4 or newer; on macOS: brew install make, then run gmake)
endif

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
# Stages that may run side by side are started so by `test`; nothing else is.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

GOLANGCI := go tool -modfile=tools/go.mod golangci-lint
# How long `fuzz` spends on each target.
FUZZTIME ?= 30s
# The version that `release-check` checks: unless told, the first that CHANGELOG.md has.
VERSION ?= $(shell awk '/^.. v[0-9]/ { sub(/,$$/, "", $$2); print $$2; exit }' CHANGELOG.md)
# How much `bench` measures: all, or little (short). LEASES is how many it holds, 100000 unless told (short: 3000).
BENCH ?=
LEASES ?=
# How many seeds of each simulation `sim` tries, and from which on.
SEEDS ?= 20000
FROM ?= 0
SHORT_SEEDS := 150
# Which mutants `mutants` tries: those whose name, guarantee or file matches a regular expression; all unless told.
MUTANTS ?=
# How long `promises` and `nemesis` play faults, and which; 0 is others each time.
DURATION ?= 2m
SEED ?= 0
# Of `nemesis`: the directory with proof.md to write into, what to break on purpose, the lock to test, the one part to run.
DOCS ?=
BREAK ?=
LOCK ?=
PART ?=
# The packages beside core that have a simulation.
SIMULATED := ./core/semaphore ./cronlock ./httplock ./queuelock

# The oldest Redis that core.New accepts: on older servers `servers` expects it to refuse.
MINIMUM_REDIS := 6.2.7

GOVULNCHECK := v1.9.0
# What `vuln` asks for vulnerabilities, such as file:///DIR (https://vuln.go.dev unless told), and whether it must answer.
VULNDB ?=
VULN ?=

# The modules beside this one, but for tools, which has no code.
NESTED := $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod */*/*/go.mod)))

# The race detector leaves out the Lua interpreter of embedded nodes, which runs in one goroutine at a time: that
# and a lazier garbage collector save a third of the CPU. What `vet` looks at is not looked at again. Programs without
# debug information are linked in half the time.
RACE := -vet=off -race -gcflags='github.com/yuin/gopher-lua/...=-race=false' -ldflags=-w
PLAIN := -vet=off -ldflags=-w
# Leaves out examples, which TestExamples runs in bubbles: go test itself runs them in real time, in which a node of a
# machine that stands still is down.
IN_BUBBLES := -skip='^Example'
# By default a program with the race detector waits for a second before it exits.
NO_WAIT := atexit_sleep_ms=0

# Commands, and packages with few goroutines of their own: `test` runs them without the race detector, and soak with it.
SEQUENTIAL := ./core/lockctl ./internal/api ./internal/docs ./internal/gotest ./internal/mutants ./internal/release ./internal/schedule ./internal/sim ./otel/dashboards

# Is go test, and ends with the list of failed tests and how to repeat each.
GOTEST := "$(CURDIR)/bin/gotest"

# How many packages are tested at a time: one more than there are processors, since they also wait.
AT_ONCE = $$(($$(getconf _NPROCESSORS_ONLN) + 1))
# How many tests of a package run at a time: those with real servers mostly wait.
IN_PARALLEL = $$(($$(getconf _NPROCESSORS_ONLN) * 2))

# Required: a test that needs Redis or promtool fails without it, instead of skipping.
WITH_TOOLS := LOCKKIT_REDIS=required LOCKKIT_PROMTOOL=required

# Installs the packages of $$missing with apt-get, or ends with what to do instead: $$elsewhere is for where there is no
# apt-get. Servers that the packages start are stopped: the tests start their own. Carries on without a service manager.
define install-missing
if [ -n "$$missing" ]; then
	if ! command -v apt-get >/dev/null; then
		echo "not on this machine:$$missing, and there is no apt-get to install it with." >&2
		echo "$$elsewhere, then run make again." >&2
		exit 1
	fi
	install="apt-get install -y --no-install-recommends$$missing"
	as_root=
	if [ "$$(id -u)" -ne 0 ]; then
		if ! command -v sudo >/dev/null; then
			echo "not on this machine:$$missing; installing needs root, but there is no sudo." >&2
			echo "As root, run: apt-get update && $$install" >&2
			echo "Then run make again." >&2
			exit 1
		fi
		as_root=sudo
	fi
	echo "installing with apt-get:$$missing"
	$$as_root apt-get update
	$$as_root env DEBIAN_FRONTEND=noninteractive $$install
	for server in redis-server prometheus etcd postgresql mariadb; do
		[[ "$$missing" == *"$$server"* ]] || continue
		if [ -d /run/systemd/system ]; then
			$$as_root systemctl disable --now "$$server" || true
		elif command -v service >/dev/null; then
			$$as_root service "$$server" stop >/dev/null 2>&1 || true
		fi
	done
fi
endef

define check-format
echo "==> gofmt"
unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l .)
if [ -n "$$unformatted" ]; then
	echo "these files need make fmt:" >&2
	echo "$$unformatted" >&2
	exit 1
fi
endef

# A renamed test would make `go test -run` match nothing and still pass.
define check-simulation
for package in ./core $(SIMULATED); do
	found=$$(go test -vet=off $$package -list '^TestSimulation') || { echo "$$found" >&2; exit 1; }
	if [[ "$$found" != *TestSimulation* ]]; then
		echo "no TestSimulation in $$package: nothing to run" >&2
		exit 1
	fi
done
endef

# Of a simulation's -v: what failed, and the counts of faults and outcomes that show what it reached.
quiet := grep -vE '^(=== | *--- PASS|redis: )'

# Passes on a test's -v, and fails if the test was skipped, or has another name by now.
must-run = awk -v test='$(1)' '{ print } index($$0, "--- PASS: " test " ") == 1 { ran = 1 } END { if (!ran) { print test " did not run" > "/dev/stderr"; exit 1 } }'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# The tests of programs mostly wait, so they run beside those of libraries. Programs hold leases of seconds in real time, and
# libraries mostly run in virtual time, so libraries give way. What failed is listed once more at the end.
.PHONY: test
test: tools vet bin/gotest ## everything a change must pass; installs what it needs with apt-get
	@failed=$$(mktemp)
	trap 'rm -f "$$failed"' EXIT
	export LOCKKIT_FAILED="$$failed"
	# Programs wait for real leases of seconds, and so come before tests that need no more than a processor.
	($(MAKE) programs demos && nice -n 3 $(MAKE) sweeps) &
	beside=$$!
	passed=yes
	nice -n 3 $(MAKE) libraries sim-short || passed=
	wait "$$beside" || passed=
	cat "$$failed" >&2
	if [ -z "$$passed" ]; then
		echo "==> make test FAILED" >&2
		exit 1
	fi
	echo "==> all stages passed"

bin/gotest: $(wildcard internal/gotest/*.go)
	@go build -o $@ ./internal/gotest

.PHONY: check
check: vet ## what to run on each save: also go fix, go mod tidy and golangci-lint; the first run builds the linter, for minutes
	@echo "==> check: go fix"
	# Each Go release brings new fixes: judge only by the release in go.mod, so
	# that a newer toolchain does not fail code nobody touched.
	want=$$(go mod edit -json | sed -n 's/^\t"Go": "\([0-9]*\.[0-9]*\).*/\1/p')
	case "$$(go env GOVERSION)" in
	"go$$want"|"go$$want".*)
		if ! go fix -diff ./...; then
			echo "go fix would change the code above (or could not read it): run go fix ./..." >&2
			exit 1
		fi ;;
	*)
		echo "skipped, it needs go$$want and this is $$(go env GOVERSION)" ;;
	esac
	echo "==> check: go mod tidy"
	for module in . $(NESTED); do
		(cd "$$module" && go mod tidy -diff) || { echo "go.mod or go.sum of $$module is not tidy: run go mod tidy there" >&2; exit 1; }
	done
	echo "==> check: golangci-lint"
	$(GOLANGCI) run

.PHONY: fmt
fmt: ## format the code
	@"$$(go env GOROOT)/bin/gofmt" -l -w .

.PHONY: campaign
campaign: sim lean differential mutants servercost soak stalls unit newest vuln fuzz dashboards chaos-cron promises nemesis nemesis-broken choose fence hosts release-check ## for nights: many seeds and repetitions, code that is broken on purpose, lowest and newest libraries, every fuzz target, every panel, chaos, promises, nemesis, etcd, PostgreSQL and the libraries of examples/hosts
	@echo "==> the campaign is over, without findings"

.PHONY: tools
tools: ## check that redis-server, promtool and a C compiler are there; install them with apt-get when not
	@echo "==> tools: looking for redis-server, promtool and a C compiler, which the race detector needs"
	missing=
	command -v redis-server >/dev/null || missing+=" redis-server"
	command -v promtool >/dev/null || missing+=" prometheus"
	command -v "$$(go env CC)" >/dev/null || missing+=" gcc libc6-dev"
	elsewhere="Install Redis (macOS: brew install redis; Fedora: dnf install redis; or
	https://redis.io/docs/latest/operate/oss_and_stack/install/), Prometheus (macOS: brew
	install prometheus; or https://prometheus.io/download/) and a C compiler,
	check that \"redis-server --version\" and \"promtool --version\" work"
	$(install-missing)
	redis-server --version

.PHONY: vet
vet: ## gofmt, and go vet of every module
	@$(check-format)
	echo "==> vet: go vet"
	go vet ./...
	for module in $(NESTED); do
		echo "==> vet: go vet of $$module"
		(cd "$$module" && go vet ./...)
	done

.PHONY: portable
portable: ## go vet of all code and tests, as macOS and Windows see them
	@for os in darwin windows; do
		echo "==> portable: go vet for $$os"
		GOOS=$$os go vet ./...
	done

.PHONY: newest
newest: tools ## vet and all tests with the newest libraries, and vet of the other modules but bench, in a copy; go.mod has the lowest, with which all else runs
	@copy=$$(mktemp -d)
	trap 'rm -rf "$$copy"' EXIT
	tar -cf - --exclude=./.git . | tar -xf - -C "$$copy"
	cd "$$copy"
	libraries() { go list -m -f '{{if not (or .Main .Indirect .Replace)}}{{.Path}} {{.Version}}{{end}}' all | sort; }
	update() { # the libraries of a module to the newest
		lowest=$$(libraries)
		go get $$(sed 's/ .*/@latest/' <<< "$$lowest") 2>"$$copy/get.log" || { cat "$$copy/get.log" >&2; exit 1; }
		go mod tidy
		echo "==> newest: the libraries of $$1, instead of the lowest"
		join <(echo "$$lowest") <(libraries) | awk '{ print "  " $$1, $$3, ($$2 == $$3 ? "" : "(lowest: " $$2 ")") }'
	}
	update "this module"
	go vet ./...
	for module in $(filter-out bench,$(NESTED)); do # the versions of bench's peers are those of its figures
		(cd "$$module"
		go mod edit -dropreplace golang.org/x/sys -dropreplace github.com/ugorji/go/codec # what is newest needs newer ones
		go mod tidy
		update "$$module"
		go vet ./...)
	done
	# The tests come last, because those of the examples run programs of other modules.
	echo "==> newest: all tests of this module"
	$(WITH_TOOLS) LOCKKIT_LIBRARIES=newest GOGC=400 go test -vet=off -shuffle=on -timeout 15m ./...

.PHONY: vuln
vuln: ## known vulnerabilities in what the code calls, by govulncheck; skipped without the database, unless VULN=required
	@bin=$$(mktemp -d)
	trap 'rm -rf "$$bin"' EXIT
	GOBIN="$$bin" go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	failed=
	for module in . $(NESTED); do
		echo "==> vuln: govulncheck in $$module"
		if (cd "$$module" && "$$bin/govulncheck" $(if $(VULNDB),-db "$(VULNDB)") ./...) 2>"$$bin/errors"; then
			continue
		fi
		cat "$$bin/errors" >&2
		if [ "$(VULN)" != required ] && grep -q 'fetching vulnerabilities' "$$bin/errors"; then
			echo "==> vuln: SKIPPED: the database of vulnerabilities cannot be reached; VULNDB=URL names another"
			exit 0
		fi
		failed=yes
	done
	[ -z "$$failed" ]

.PHONY: release-check
release-check: tools ## whether the commit could be tagged: changelog, API, and the module as users get it, by nested modules and outside the clone (VERSION=v0.1.0: that of CHANGELOG.md unless told)
	@echo "==> release-check: $(VERSION), in a temporary directory"
	go run ./internal/release -version "$(VERSION)"

.PHONY: unit
unit: libraries programs ## all tests, those of libraries with the race detector, on real Redis

.PHONY: libraries
libraries: tools bin/gotest ## the tests of all libraries on real Redis, with the race detector where goroutines share anything
	@echo "==> libraries: their tests with the race detector, in random order, on real Redis"
	# The packages that take longest come first, lest one be left over.
	shared=$$(go list ./... | grep -v /examples/ | grep -vxFf <(go list $(SEQUENTIAL)))
	$(WITH_TOOLS) GOGC=400 GORACE=$(NO_WAIT) $(GOTEST) $(RACE) $(IN_BUBBLES) -shuffle=on -timeout 45m -p $(AT_ONCE) -parallel $(IN_PARALLEL) ./core ./queuelock ./cronlock $$shared
	echo "==> libraries: the tests of commands and of packages with few goroutines"
	$(WITH_TOOLS) GOGC=400 $(GOTEST) $(PLAIN) -short -shuffle=on -timeout 45m -p $(AT_ONCE) -parallel $(IN_PARALLEL) $(SEQUENTIAL)

.PHONY: programs
programs: tools bin/gotest ## the tests of the examples and of the other modules, without the race detector, which `soak` has for the examples
	@# On Debian the playground's page must be tested, unless LOCKKIT_CHROMIUM=no; elsewhere it is if there is a browser.
	if [ -z "$${LOCKKIT_CHROMIUM:-}" ] && $(has-chromium); then
		$(need-chromium)
		export LOCKKIT_CHROMIUM=required
	fi
	programs() { # the tests of a module, or of the examples
		echo "==> programs: the tests of $$1"
		cd "$$1" && $(WITH_TOOLS) $(GOTEST) $(PLAIN) -shuffle=on -parallel 3 -timeout 30m -v ./... | $(quiet) # -v: what is skipped is said
	}
	# One module after the other: real leases of seconds are lost where too many processes run at once.
	failed=
	for module in examples $(filter-out examples/hosts,$(NESTED)); do # `hosts` runs those
		(programs "$$module") || failed=yes
	done
	[ -z "$$failed" ]

# Debian has Chromium as a package; Ubuntu has one of that name that is none.
has-chromium := grep -qs '^ID=debian' /etc/os-release

# Looks for a browser by the names that the tests of the page try.
define need-chromium
missing=
command -v chromium chromium-browser google-chrome >/dev/null || missing=" chromium"
elsewhere="Install Chromium as chromium or google-chrome (Ubuntu: snap install chromium; macOS: brew install --cask
chromium; or https://www.chromium.org/getting-involved/download-chromium/)"
if [ -n "$$missing" ] && ! $(has-chromium); then
	echo "$$elsewhere, then run make again." >&2
	exit 1
fi
$(install-missing)
endef

.PHONY: playground-test
playground-test: tools ## the playground's page in a headless Chromium, against the playground; installs Chromium
	@$(need-chromium)
	echo "==> playground-test: the playground's page in a browser"
	cd examples/drivers && $(WITH_TOOLS) LOCKKIT_CHROMIUM=required go test -vet=off ./playground -count=1 -parallel 4 -timeout 10m

.PHONY: playground-hour
playground-hour: tools ## the playground's page left open for an hour under bursts: what it takes, and whether it answers
	@$(need-chromium)
	echo "==> playground-hour: the page of the playground left open under bursts"
	cd examples/drivers && $(WITH_TOOLS) LOCKKIT_CHROMIUM=required LOCKKIT_LEFT_OPEN=1h go test -vet=off ./playground -run '^TestLeftOpen$$' -count=1 -timeout 2h -v | $(quiet)

.PHONY: screenshots
screenshots: tools ## the playground's page on a desktop and on a phone, light and dark, into docs/img
	@$(need-chromium)
	echo "==> screenshots: the playground's page; writes docs/img"
	cd examples/drivers && $(WITH_TOOLS) LOCKKIT_CHROMIUM=required LOCKKIT_SCREENSHOTS="$(CURDIR)/docs/img" go test -vet=off ./playground -run '^TestScreenshots$$' -count=1 -timeout 10m

.PHONY: sweeps
sweeps: tools ## the tests of a great many cases, which `unit` leaves out, without the race detector; soak tries more cases
	@echo "==> sweeps: the tests of a great many cases, without the race detector"
	# Not those of the examples and of SEQUENTIAL, which run without the race detector anyway.
	files=$$(grep -rl --include='*_test.go' --exclude-dir=examples 'race\.SkipSweep(t)' . | grep -vf <(printf '^%s/\n' $(SEQUENTIAL)))
	names=$$(awk '/^func Test/ { split($$2, name, "("); test = name[1] } /race\.SkipSweep\(t\)/ { print test }' $$files)
	ran=$$(GOGC=400 go test $(PLAIN) -short -p $(AT_ONCE) $$(xargs -n 1 dirname <<< "$$files" | sort -u) -run "^($$(paste -sd '|' <<< "$$names"))\$$" -count=1 -timeout 10m -v) || { $(quiet) <<< "$$ran" >&2; exit 1; }
	for name in $$names; do
		grep -F -- "--- PASS: $$name " <<< "$$ran" || { echo "$$name did not run" >&2; exit 1; }
	done

.PHONY: sim-short
sim-short: tools bin/gotest ## the simulations on a hundred seeds and more, and the tests that the race detector would spoil
	@echo "==> sim-short: the simulation on $(SHORT_SEEDS) seeds and the count of allocations, without the race detector"
	$(check-simulation)
	$(WITH_TOOLS) GOGC=400 $(GOTEST) $(PLAIN) ./core -run '^TestSimulation' -count=1 -timeout 20m -v -sim.seeds=$(SHORT_SEEDS) | $(quiet)
	for package in $(SIMULATED); do
		$(GOTEST) $(PLAIN) $$package -run '^TestSimulation' -count=1 -timeout 20m -v -sim.seeds=100 | $(quiet)
	done
	# `unit` skips these: here they must have run.
	for package in ./core ./otel/otellock; do
		counts=$$(go test $(PLAIN) "$$package" -run '^TestAllocations' -count=1 -v) || { echo "$$counts" >&2; exit 1; }
		if [[ "$$counts" != *"--- PASS: TestAllocations"* || "$$counts" == *"--- SKIP"* ]]; then
			echo "$$package: the count of allocations did not run" >&2
			exit 1
		fi
		grep -F allocations <<< "$$counts" || true
	done

.PHONY: sim
sim: ## the simulations, long campaign (SEEDS=20000, FROM=0)
	@echo "==> sim: the simulations on $(SEEDS) seeds each, from $(FROM) on"
	$(check-simulation)
	for package in ./core $(SIMULATED); do
		go test $$package -run '^TestSimulation' -count=1 -sim.seeds=$(SEEDS) -sim.from=$(FROM) -timeout 0 -v | $(quiet)
	done

.PHONY: lean
lean: tools ## what scripts do on a straight way beside their complete code, on 100000 random states of each kind of node
	@echo "==> lean: the plain ways of the scripts beside the complete code, on 100000 random states"
	$(WITH_TOOLS) go test -vet=off ./core/internal/wire -run '^TestPlainIsComplete$$' -count=1 -timeout 0 -v -lean.states=100000 | $(call must-run,TestPlainIsComplete) | $(quiet)

.PHONY: differential
differential: tools ## random calls of the scripts beside a model of a node, 100000 on an embedded node and 25000 on Redis
	@echo "==> differential: the scripts beside a model of a node, in 100000 random calls"
	$(WITH_TOOLS) go test -vet=off ./core/internal/wire -run '^TestScriptsDoAsTheModel$$' -count=1 -timeout 0 -v -model.calls=100000 | $(call must-run,TestScriptsDoAsTheModel) | $(quiet)

.PHONY: mutants
mutants: ## break the code in one place at a time (internal/mutants/lists): a test must fail each time (MUTANTS=REGEXP: some)
	@echo "==> mutants: code that is broken on purpose, and the test that must notice"
	go run ./internal/mutants -run '$(MUTANTS)'

.PHONY: soak
soak: tools ## the core tests 20 times over, those of the examples, and once all sweeps, with the race detector
	@echo "==> soak: the core tests 20 times over, and those of the examples, with the race detector"
	$(WITH_TOOLS) GOGC=400 go test $(RACE) $(IN_BUBBLES) -shuffle=on -count=20 -timeout 0 ./core/...
	$(WITH_TOOLS) GOGC=400 go test $(RACE) -shuffle=on ./examples/...
	echo "==> soak: with the race detector, the sweeps too"
	$(WITH_TOOLS) GOGC=400 LOCKKIT_RACE=all go test $(RACE) $(IN_BUBBLES) -shuffle=on -timeout 0 $$(go list ./... | grep -v /examples/)

# A point of internal/stall, and a node for those that concern one.
STALLS := leave:0 leave:1 call:0 call:1 deliver:0 deliver:1 after:0 after:1 wake timer start

.PHONY: stalls
stalls: tools bin/gotest ## core, the adapters and testutil, while a thread stands still for 5 ms at each point of internal/stall in turn
	@if [ "$$(go env GOOS)" != linux ]; then
		echo "==> stalls: SKIPPED: only Linux has them"
		exit 0
	fi
	for stall in $(STALLS); do
		point=$${stall%%:*}
		node=$${stall#"$$point"}
		echo "==> stalls: $$point, node $${node#:}"
		$(WITH_TOOLS) GOGC=400 LOCKKIT_STALL="$$point" LOCKKIT_STALL_NODE="$${node#:}" $(GOTEST) $(PLAIN) $(IN_BUBBLES) -tags stalls -short -count=1 -shuffle=on -timeout 20m \
			-p $(AT_ONCE) -parallel $$(($(IN_PARALLEL) * 2)) ./core/... ./queuelock ./cronlock/... ./httplock ./otel/otellock ./testutil/... ./internal/stall
	done

# Builds $(1) as $$work/$(2), so that the clock of each of its processes can be moved by CRON_DEMO_PROCESS_SKEW.
define build-with-clock
time=$$(go env GOROOT)/src/time
sed 's/:= runtimeNow()$$/:= moved()/' "$$time/time.go" > "$$work/time.go"
grep -q 'moved()' "$$work/time.go"
printf '{"Replace": {"%s": "%s", "%s": "%s"}}' "$$time/time.go" "$$work/time.go" "$$time/moved.go" "$$PWD/examples/cron/testdata/moved.go" > "$$work/overlay.json"
go build -overlay "$$work/overlay.json" -o "$$work/$(2)" $(1)
endef

.PHONY: chaos-cron
chaos-cron: tools ## four replicas with cron jobs and clocks of their own, killed and stopped for two minutes, without an elector and with one
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	$(call build-with-clock,./examples/cron,cron)
	for elector in "" -elector; do
		echo "==> chaos-cron: ./examples/cron -chaos -for 130s $$elector"
		CRON_DEMO_PROCESS_SKEW=0 "$$work/cron" -chaos -for 130s $$elector
	done

.PHONY: promises
promises: tools ## the faults of docs/what-happens.md on real nodes and processes, and each promise judged (DURATION=2m, SEED=0: a new order)
	@echo "==> promises: the faults of docs/what-happens.md on three nodes and three processes, for $(DURATION)"
	go run ./examples/whathappens/promises -for $(DURATION) -seed $(SEED)

.PHONY: nemesis
nemesis: ## faults of all kinds, drawn by a seed, on one, three and five nodes, and a referee (DURATION=2m, SEED=0; DOCS=docs: fill in docs/proof.md; BREAK=, LOCK=, PART=)
	@work=$$(mktemp -d)
	trap 'rm -rf "$$work"' EXIT
	$(call build-with-clock,./examples/whathappens/promises,nemesis)
	shim=
	if [ "$$(go env GOOS)" = linux ] && command -v "$$(go env CC)" >/dev/null; then
		"$$(go env CC)" -shared -fPIC -O2 -Wall -o "$$work/clock.so" examples/whathappens/nemesis/testdata/clock.c
		shim=$$work/clock.so
	fi
	echo "==> nemesis: faults of all kinds, for $(DURATION)"
	"$$work/nemesis" -nemesis -moved -for $(DURATION) -seed $(SEED) -shim "$$shim" $(if $(DOCS),-docs "$(DOCS)") $(if $(BREAK),-break $(BREAK)) $(if $(LOCK),-lock $(LOCK)) $(if $(PART),-part $(PART))

# What nemesis must find in three minutes: a restart guard that is off, a client that ignores the contexts of its leases, and
# a store that does not check tokens.
.PHONY: nemesis-broken
nemesis-broken: ## nemesis on what is broken on purpose, three times; each time it must find that
	@for broken in guard:overlapping context:workers tokens:fence; do
		echo "==> nemesis-broken: $${broken%:*}"
		log=$$(mktemp)
		if $(MAKE) nemesis BREAK="$${broken%:*}" PART=1 DURATION=2m SEED=$(SEED) >"$$log" 2>&1 || ! grep '^VIOLATIONS:' "$$log" | grep "$${broken#*:}"; then
			cat "$$log" >&2
			echo "nemesis does not find what is broken: $${broken%:*}" >&2
			exit 1
		fi
		rm "$$log"
	done

.PHONY: servers
servers: tools ## the tests on each server that SERVERS=DIR has, as DIR/NAME/bin/redis-server
	@if [ -z "$(SERVERS)" ]; then
		echo "which servers? make servers SERVERS=DIR, with redis-server in DIR/NAME/bin for each NAME" >&2
		exit 1
	fi
	results=
	failed=
	for server in "$(SERVERS)"/*/bin/redis-server; do
		version=$$("$$server" --version) || { echo "$$server does not run" >&2; exit 1; }
		number=$$(sed -n 's/.* v=\([0-9.]*\) .*/\1/p' <<< "$$version")
		oldest=$$(printf '%s\n' "$$number" $(MINIMUM_REDIS) | sort -V | head -n 1)
		if [ "$$oldest" = $(MINIMUM_REDIS) ]; then
			what="all tests"
			run=.
			packages="./core ./cronlock ./queuelock ./httplock ./otel/otellock ./testutil"
		else
			what="refused"
			run='^TestServerVersion$$'
			packages=./core
		fi
		echo "==> servers: $$version: $$what"
		verdict=passed
		PATH="$$(cd "$$(dirname "$$server")" && pwd):$$PATH" $(WITH_TOOLS) go test -count=1 -run "$$run" $$packages || verdict=FAILED failed=yes
		results+="$$(cut -d ' ' -f 1-3 <<< "$$version"): $$what: $$verdict"$$'\n'
	done
	printf '==> servers:\n%s' "$$results"
	[ -z "$$failed" ]

.PHONY: fuzz
fuzz: ## each fuzz target of each package in turn (FUZZTIME=30s)
	@packages=$$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -r -n 1 dirname | sort -u)
	if [ -z "$$packages" ]; then
		echo "no fuzz targets: nothing to run" >&2
		exit 1
	fi
	for package in $$packages; do
		found=$$(go test "$$package" -list '^Fuzz') || { echo "$$found" >&2; exit 1; }
		for target in $$(sed -n '/^Fuzz/p' <<< "$$found"); do
			echo "==> fuzz: $$package $$target for $(FUZZTIME)"
			go test "$$package" -run '^$$' -fuzz "^$$target\$$" -fuzztime "$(FUZZTIME)"
		done
	done

.PHONY: bench
bench: tools ## lockkit beside other lockers, into docs/benchmarks.md: about 12 minutes; BENCH=short: three
	@echo "==> bench: lockkit beside other lockers, on servers of its own; writes docs/benchmarks.md"
	cd bench && go run . -docs ../docs $(if $(BENCH),-$(BENCH)) $(if $(LEASES),-leases $(LEASES))

.PHONY: bench-queue
bench-queue: tools ## queuelock beside asynq alone, into docs/benchmarks/queue.md: about three minutes
	@echo "==> bench-queue: queuelock beside asynq alone, on servers of its own; writes docs/benchmarks/queue.md"
	cd bench && go run . -queue -docs ../docs

.PHONY: bench-cron
bench-cron: tools ## what ticks of cronlock cost, into docs/benchmarks/cron.md: about six minutes
	@echo "==> bench-cron: jobs of cronlock on three replicas, on servers of its own; writes docs/benchmarks/cron.md"
	cd bench && go run . -cron -docs ../docs

.PHONY: bench-sets
bench-sets: tools ## several keys at once beside one by one, into docs/benchmarks/sets.md: a minute and a half; BENCH=short: less
	@echo "==> bench-sets: several keys at once beside one by one, on servers of its own; writes docs/benchmarks/sets.md"
	cd bench && go run . -sets -docs ../docs $(if $(BENCH),-$(BENCH))

.PHONY: bench-http
bench-http: tools ## what requests through httplock cost beside a bare handler, into docs/benchmarks/http.md: a minute
	@echo "==> bench-http: requests through httplock beside a bare handler, on servers of its own; writes docs/benchmarks/http.md"
	cd bench && go run . -http -docs ../docs

.PHONY: bench-semaphore
bench-semaphore: tools ## permits of semaphores beside plain locks, into docs/benchmarks/semaphore.md: about four minutes; BENCH=short: less
	@echo "==> bench-semaphore: permits of semaphores beside plain locks, on servers of its own; writes docs/benchmarks/semaphore.md"
	cd bench && go run . -semaphore -docs ../docs $(if $(BENCH),-$(BENCH))

.PHONY: choose
choose: tools ## locks of lockkit, etcd and PostgreSQL, tested and measured into docs/choose.md; installs what it needs
	@missing=
	command -v etcd >/dev/null || missing+=" etcd-server"
	command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=" postgresql"
	elsewhere="Install etcd (https://etcd.io/docs/latest/install/) and PostgreSQL (https://www.postgresql.org/download/),
	with etcd, initdb and postgres on PATH"
	$(install-missing)
	echo "==> choose: the same work under lockkit, etcd and PostgreSQL; writes docs/choose.md"
	cd examples/drivers
	export LOCKKIT_REDIS=required LOCKKIT_ETCD=required LOCKKIT_POSTGRES=required
	go test ./choose -count=1
	go run ./choose -docs ../../docs

# Installs PostgreSQL and MariaDB, whose servers the tests of fence start.
define look-for-postgres
command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || missing+=" postgresql"
endef

define need-postgres
missing=
$(look-for-postgres)
elsewhere="Install PostgreSQL (https://www.postgresql.org/download/), with initdb and postgres on PATH"
$(install-missing)
endef

define need-databases
missing=
$(look-for-postgres)
command -v mariadbd >/dev/null || test -x /usr/sbin/mariadbd || missing+=" mariadb-server"
elsewhere="Install PostgreSQL (https://www.postgresql.org/download/) and MariaDB (https://mariadb.org/download/),
with initdb, postgres, mariadb-install-db and mariadbd on PATH"
$(install-missing)
endef

.PHONY: bench-fence
bench-fence: ## what core/fence adds to a transaction, into docs/benchmarks/fence.md: about two minutes
	@$(need-databases)
	echo "==> bench-fence: transactions with Check and Once beside those without, on databases of its own; writes docs/benchmarks/fence.md"
	export LOCKKIT_FENCE=required LOCKKIT_FSYNC=on LOCKKIT_FENCE_DOCS="$(CURDIR)/docs"
	cd core/fence/databases
	go test -vet=off -count=1 -timeout 20m -run '^TestFigures$$' -v . | $(call must-run,TestFigures)

.PHONY: fence
fence: tools ## core/fence on PostgreSQL, MariaDB and SQLite, and 100 kills of examples/minimal/once on two of them; installs what it needs
	@$(need-databases)
	echo "==> fence: core/fence on SQLite, and on a PostgreSQL and a MariaDB of its own"
	(cd core/fence/databases && LOCKKIT_FENCE=required go test -vet=off -count=1 -timeout 15m -v . | $(call must-run,TestModesOfSQL) | $(quiet))
	echo "==> fence: payments by requests, tasks and ticks, whose processes are killed, on SQLite and on PostgreSQL"
	cd examples/drivers
	go build -o /dev/null ./once
	printf '%s\n' sqlite postgresql | xargs -P 2 -I DATABASE go run ./once -kills 100 -on DATABASE # they mostly wait

.PHONY: hosts
hosts: tools bin/gotest ## the code of docs/hosts.md against the real libraries, in processes that are killed and lose their leases: within four minutes
	@$(need-postgres)
	echo "==> hosts: certmagic, goose, River, watermill, gRPC and robfig/cron with locks of lockkit"
	cd examples/hosts
	LOCKKIT_POSTGRES=required $(WITH_TOOLS) $(GOTEST) $(PLAIN) -count=1 -shuffle=on -parallel $(IN_PARALLEL) -timeout 15m -v ./... | $(quiet) # they mostly wait

.PHONY: microbench
microbench: tools ## an HTTP request beside other lockers
	@echo "==> microbench: an HTTP request beside other lockers"
	cd bench && go test -run '^$$' -bench . -benchmem .

.PHONY: servercost
servercost: tools ## the instructions that a server executes for a lock, none of which may get 5 % dearer: needs valgrind
	@echo "==> servercost: instructions of redis-server for each request, under valgrind"
	LOCKKIT_CALLGRIND=yes go test ./core -run '^TestServerCost$$' -count=1 -v | $(call must-run,TestServerCost) | grep -E '^ +[a-z_]+\.go|FAIL|ok'

.PHONY: dashboards
dashboards: tools ## start Prometheus on the otel example and on failures: panels that stay empty, alerts that do not come
	@echo "==> dashboards: the queries of every panel against the otel example, and alerts on failures, within five minutes"
	LOCKKIT_NPM=required LOCKKIT_MUTANTS=all $(WITH_TOOLS) go test ./otel/dashboards -run '^(TestDashboardIsAsGrafanaHasIt|TestRulesSurviveNoMutation)$$' -count=1
	$(WITH_TOOLS) LOCKKIT_PROMETHEUS=required go test ./examples/otel -run '^(TestNoPanelIsEmpty|TestAlertScenes)$$' -count=1 -v -timeout 8m

.PHONY: charts
charts: tools ## draw what panels show of the otel example and of failures, into docs/img: two minutes
	@echo "==> charts: panels of the dashboard, as the otel example and failures have them; writes docs/img"
	results=$$(mktemp -d)
	trap 'rm -rf "$$results"' EXIT
	LOCKKIT_CHARTS="$$results" $(WITH_TOOLS) LOCKKIT_PROMETHEUS=required go test ./examples/otel -run '^(TestNoPanelIsEmpty|TestAlertScenes)$$' -count=1 -timeout 8m
	cd bench && go run ./panels "$$results" ../docs/img

.PHONY: capacity
capacity: tools ## measure what locks, records and ticks take of each node
	@$(WITH_TOOLS) go test ./core ./cronlock -run '^TestFootprint' -count=1 -v | grep -E '^ +[a-z_]+\.go|FAIL'

# Shows on one line what is compiled, and all that was said if that failed; nothing is where nothing had to be.
define compiling
{
	said=
	packages=0
	while IFS= read -r line; do
		said+="$$line"$$'\n'
		packages=$$((packages + 1))
		if [ "$$line" = failed ]; then
			printf '\n%s' "$$said" >&2
			exit 1
		elif [ -t 1 ]; then
			printf '\r\033[K==> demo: compiling, %d s, package %d: %s' "$$SECONDS" "$$packages" "$$line"
		elif [ $$((packages % 50)) -eq 1 ]; then
			printf '==> demo: compiling, %d s, package %d: %s\n' "$$SECONDS" "$$packages" "$$line"
		fi
	done
	if [ "$$packages" -gt 0 ]; then
		printf '\n'
	fi
}
endef

.PHONY: demo
demo: ## the playground: a page on which to watch locks work, and to break what they stand on
	@program=$$(mktemp -d)
	trap 'rm -rf "$$program"' EXIT
	# What is compiled only for this is not optimized, which halves the time; the interpreter of embedded nodes is.
	{ go build -v -tags nomsgpack -ldflags='-s -w' -gcflags='github.com/...=-N -l' -gcflags='google.golang.org/...=-N -l' \
		-gcflags='github.com/yuin/...=' -o "$$program/playground" ./examples/playground 2>&1 || echo failed; } | $(compiling)
	"$$program/playground"

.PHONY: quickstart
quickstart: ## three contenders, five nodes, one killed and one emptied, in the terminal
	@go run ./examples/quickstart

.PHONY: demo-cron
demo-cron: ## run the cron example
	@go run ./examples/cron

.PHONY: demo-http
demo-http: ## three replicas of a server: updates lost without httplock, and with it
	@go run ./examples/http

.PHONY: demo-queue
demo-queue: ## run the queue example: asynq tasks; workers that are killed, a hot key, a worker without locks
	@go run ./examples/queue

.PHONY: demo-fencedsql
demo-fencedsql: ## a database that refuses a handler that is late, and books each task once
	@cd examples/drivers && go run ./fencedsql

.PHONY: demo-routers
demo-routers: ## httplock on chi and echo
	@cd examples/drivers && go run ./routers

.PHONY: demo-choose
demo-choose: ## the same work under lockkit, etcd and PostgreSQL, as far as they are installed; holders that are paused
	@cd examples/drivers && go run ./choose -short

.PHONY: demo-otel
demo-otel: ## run the otel example for half a minute
	@go run ./examples/otel -for 30s

.PHONY: demos
demos: tools ## run every example, as short as it can be; each fails if what it shows does not hold
	@demo() { # runs an example with its flags, and shows what it says if it fails
		example=$$1
		shift
		log=$$(mktemp)
		trap 'rm -f "$$log"' EXIT
		echo "==> demos: $$example $$*"
		if ! (cd "$$example" && go run -ldflags=-w . "$$@") >"$$log" 2>&1; then
			cat "$$log" >&2
			repeat="cd $$example && go run . $$*"
			printf '\nFAILED, and how to repeat it:\n  %s\n    %s\n' "$$example" "$$repeat" | tee -a "$${LOCKKIT_FAILED:-/dev/null}" >&2
			exit 255 # no others are begun
		fi
		grep '^SKIPPED' "$$log" || true
	}
	export -f demo
	for example in $(patsubst %main.go,%,$(filter-out examples/minimal/% examples/playground/% examples/drivers/choose/% examples/whathappens/%,$(wildcard examples/*/main.go examples/*/*/main.go))); do # those have tests that run them, or take minutes
		flags=
		case "$$example" in
		examples/queue/) flags="-tasks 60 -kills 2" ;;
		examples/limit/) flags="-for 5s" ;;
		examples/otel/) flags="-addr 127.0.0.1:0 -for 5s" ;;
		esac
		echo $$example $$flags # unquoted: xargs takes a blank at the end for a continuation
	done | xargs -L 1 -P 3 bash -c 'demo "$$@"' demo # they mostly wait

.PHONY: models
models: ## check the models in docs/models
	@$(MAKE) -C docs/models check

.PHONY: models-deep
models-deep: ## the larger searches of the models
	@$(MAKE) -C docs/models deep

.PHONY: mod-check
mod-check: ## go.mod and go.sum of every module are tidy, and the modules are what they claim
	@for module in . $(NESTED) tools; do
		echo "==> mod-check: go mod tidy, go mod verify in $$module"
		(cd "$$module" && go mod tidy -diff && go mod verify)
	done
