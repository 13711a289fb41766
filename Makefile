# The workbook's only build file; `make` alone lists what it can do.
#
# A chapter is a folder NN-some-name. Its main program is some_name.c, or, if there is
# none, the first one by the alphabet; every other program.c in the folder is built the
# same way, into build/NN-some-name/program.

MAKEFLAGS += --no-builtin-rules --no-print-directory
# With a CDPATH, cd may print where it went, and it may go somewhere else.
unexport CDPATH
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ifeq ($(origin CC),default)
CC := gcc
endif
BUILD ?= build
OUT := $(BUILD)$(if $(SAN),/san)
Q := $(if $(V),,@)

CPPFLAGS += -D_GNU_SOURCE
CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
# A function whose body the reader has yet to write uses neither its parameters nor
# the functions that it will call.
EXERCISE_WARNINGS := -Wno-unused-parameter -Wno-unused-function
ALL_CFLAGS = -std=c11 $(WARNINGS) -pthread $(if $(WERROR),-Werror) $(CFLAGS) \
	$(if $(SAN),-fsanitize=address$(comma)undefined -fno-omit-frame-pointer)
comma := ,

# pkg-config runs only when something is compiled, because by then `packages` has installed it.
VERBS_CFLAGS = $(shell pkg-config --cflags libibverbs)
VERBS_LIBS = $(shell pkg-config --libs libibverbs)
# For programs that use the connection manager.
CM_LIBS = $(if $(shell grep -ls 'include.*rdma/rdma_' $1),$(shell pkg-config --libs librdmacm))

chapters := $(patsubst %/,%,$(sort $(wildcard [0-9][0-9]-*/)))
main_source = $(firstword $(wildcard $1/$(subst -,_,$(patsubst $(firstword $(subst -, ,$1))-%,%,$1)).c) \
	$(filter $1/%,$(sources)))
# A program that names its sides in its header comment runs as server and client.
two_sided := $(shell grep -ls '^ \* Sides:' [0-9][0-9]-*/*.c)

# Without the exercises, because a half-written one must not stop the other programs.
sources := $(filter-out %/exercise.c %/broken.c,$(wildcard [0-9][0-9]-*/*.c))
programs := $(sources:%.c=$(OUT)/%)
main_sources := $(foreach c,$(chapters),$(filter $(call main_source,$c),$(sources)))
main_first := $(foreach c,$(chapters),$(filter $(main_sources),$(filter $c/%,$(sources))) \
	$(filter-out $(main_sources),$(filter $c/%,$(sources))))
common := $(patsubst %.c,$(OUT)/%.o,$(wildcard common/*.c))
peer := $(addprefix $(OUT)/tests/grading/,peer cm_peer queues)
world := $(OUT)/tests/grading/world.so

##@ Building and looking around
.PHONY: help build
help: ## this list
	@for source in $(main_first); do \
		what=$$(sed -n '2s/^[^-]* - //p' $$source); name=$${source##*/}; \
		case " $(main_sources) " in \
		*" $$source "*) printf '  make run-%-10s %s\n' $${source%%-*} "$$what" ;; \
		*) printf '    PROGRAM=%-13s %s\n' $${name%.c} "$$what" ;; \
		esac; \
	done
	@$(foreach s,$(filter $(main_sources),$(two_sided)),printf '  make wire-%-9s the packets of %s between two guests\n' \
		$(firstword $(subst -, ,$s)) $(basename $(notdir $s));)
	@awk -F ' ?## ' '/^##@/ { print "\n" substr($$0, 5) ":" } \
		/^[a-z][a-zN -]*:.* ?## / { sub(/:.*/, "", $$1); \
			printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: $(programs) ## all programs, into build/

# run-05 runs the main program of chapter 05: make run-05 ARGS="-s 64 -n 10000",
# or another program of its folder: make run-05 PROGRAM=rc_pingpong ARGS=-e.
# debug-05 builds it without optimisation and runs it in gdb; of a two-sided one SIDE, the
# client or the server: make debug-05 SIDE=server GDB="-ex 'break transfer'". Both sides then
# wait for an hour; those of sync_ping have no deadlines.
# If the main one is two-sided, wire-05 draws the packets of a few rounds: make wire-05 LOSS=5%
ifeq ($(origin PROGRAM),environment)
PROGRAM :=
endif
export PROGRAM
ifeq ($(origin GDB),environment)
GDB :=
endif
SIDE := client

# Of a chapter's folder: its number, its main program, and the one that is asked for.
number = $(firstword $(subst -, ,$1))
main_program = $(basename $(call main_source,$1))
asked_for = $(or $(PROGRAM:%=$1/%),$(main_program))
names_of = $(patsubst $1/%.c,%,$(filter $1/%,$(sources)))
has_two_sides = $(filter $1.c,$(two_sided))

# $1: a chapter's number; $2: its folder; $3: the program, as 05-pingpong/pingpong; $4: is
# not empty if that has two sides.
define run_rules
.PHONY: run-$1 debug-$1
run-$1: $(filter $(OUT)/$2/%,$(programs))
	$$(Q)tests/lab/lab auto -- $(if $4,tests/lab/both) $(OUT)/$3 $$(ARGS)
debug-$1:
	$$(Q)tests/lab/packages run debug
	$$(Q)$$(MAKE) BUILD=$(BUILD)/debug CFLAGS="-O0 -g" $(BUILD)/debug/$3
	$$(Q)tests/lab/lab auto -- $(if $4,tests/lab/both --gdb $$(SIDE),gdb -q) $$(GDB) \
		--args $(BUILD)/debug/$3 $(if $(filter-out %/sync_ping,$(if $4,$3)),--timeout 3600) $$(ARGS)
endef
define no_program_rules
.PHONY: run-$1 debug-$1
run-$1 debug-$1:
	@echo "there is no program $$$$PROGRAM in $2; choose one of: $(call names_of,$2)" >&2; exit 2
endef
define wire_rules
.PHONY: wire-$1
wire-$1: $(OUT)/$3
	$$(Q)tests/lab/packages wire
	$$(Q)tests/lab/wire $$(if $$(LOSS),--loss "$$(LOSS)") $$(if $$(DELAY),--delay "$$(DELAY)") \
		--out $$(BUILD)/wire/$1 $$< $(if $(filter-out %/sync_ping,$3),-n $$(if $$(LOSS),10,3)) \
		$$(ARGS)
endef
define no_wire_rules
.PHONY: wire-$1
wire-$1:
	@echo "$3 is not a program with two sides, so it sends nothing over a wire" >&2; exit 2
endef
chapter_rules = $(if $(filter-out $(call names_of,$1),$(PROGRAM)),no_program_rules,run_rules)
$(foreach c,$(chapters),$(if $(call main_source,$c),$(eval $(call $(call chapter_rules,$c),$(call \
	number,$c),$c,$(call asked_for,$c),$(call has_two_sides,$(call asked_for,$c))))))
$(foreach c,$(chapters),$(eval $(call \
	$(if $(call has_two_sides,$(call asked_for,$c)),wire_rules,no_wire_rules),$(call \
	number,$c),$c,$(call asked_for,$c))))

.PHONY: lab-shell softroce-up softroce-down doctor
lab-shell: | packages ## a shell in a guest with a Soft-RoCE device
	$(Q)tests/lab/lab shell

softroce-up: ## Soft-RoCE on this machine itself, without a guest
	$(Q)tests/lab/softroce up
softroce-down: ## undo softroce-up
	$(Q)tests/lab/softroce down

debug-NN: ## runs a program in gdb; if it has two sides, the client, or SIDE=server
doctor: ## what is here, what is missing, and the command that installs it
	$(Q)tests/lab/lab doctor

.PHONY: book
book: ## the whole workbook as one HTML file, build/book.html
	$(Q)tests/lab/packages book
	$(Q)docs/book/make-book $(BUILD)/book.html

.PHONY: web serve-web
web: ## the workbook as a web site whose programs run in the browser, build/web/
	$(Q)tests/lab/packages run book web
	$(Q)docs/web/make-web $(BUILD)/web
serve-web: web ## shows that site on localhost; PORT=8000
	$(Q)node docs/web/serve.mjs $(BUILD)/web $(PORT)

##@ Exercises: exercise.c and broken.c of chapter NN
# check-03 checks the exercises of chapter 03, as often as you like.
exercises := $(patsubst tests/grading/checks/%,%,$(wildcard tests/grading/checks/*))
# $1: the number; $2: the folder.
define exercise_rules
.PHONY: check-$1 try-$1 hint-$1 diff-$1 reset-$1
check-$1: $(peer)
	$$(Q)tests/lab/packages grade
	$$(Q)tests/grading/student check $2
try-$1: $(peer)
	$$(Q)tests/lab/packages grade
	$$(Q)tests/grading/student try $2 $$(ARGS)
hint-$1 diff-$1 reset-$1:
	$$(Q)tests/lab/packages run grade
	$$(Q)tests/grading/student $$(@:%-$1=%) $2
endef
$(foreach c,$(exercises),$(eval $(call exercise_rules,$(call number,$c),$c)))

# A seed gives the same names, sizes and numbers again; HOSTS a file of machines.
export SEED HOSTS

check-NN: ## checks your exercises of a chapter, and shows where to look
try-NN: ## runs your exercise.c and its peer, and shows what both print; PROGRAM=broken runs broken.c
hint-NN: ## prints a hint for the first check that fails; the next hint says more
diff-NN: ## when all checks pass: compares your solution with ours
reset-NN: ## gives you a fresh exercise; your own files are kept as *.bak
.PHONY: progress watch
progress: ## your points in each chapter, from the last checks
	$(Q)tests/lab/packages run grade
	$(Q)tests/grading/student progress
watch: $(peer) ## check a chapter whenever its exercise is saved
	$(Q)tests/lab/packages grade
	$(Q)tests/grading/student watch

##@ Teaching
.PHONY: grade grade-all handout
SUBMISSION ?= .
# Names of folders reach the recipes through the environment, exactly as they were
# typed: a quote or a $ in them means nothing to make or to the shell.
define as_typed
ifeq ($(origin $1),command line)
override $1 := $$(value $1)
endif
export $1
endef
$(foreach v,SUBMISSION SUBMISSIONS RESULTS DIR,$(eval $(call as_typed,$v)))
grade: $(peer) ## grades SUBMISSION=folder, or this tree, into results/
	$(Q)tests/lab/packages grade
	$(Q)tests/grading/grade -- "$$SUBMISSION"
grade-all: $(peer) ## grades a class: SUBMISSIONS=folder has a folder for each
	$(Q)tests/lab/packages grade
	$(Q)tests/grading/grade-all -- "$$SUBMISSIONS" "$$RESULTS"
handout: ## makes DIR=folder, a tree for a class without solutions
	$(Q)tests/lab/packages run grade
	$(Q)tests/grading/handout -- "$$DIR"

##@ Testing
.PHONY: test test-all
test: ## all programs on a real Soft-RoCE device, and what runs and grades them
	$(Q)tests/lab/packages test
	$(Q)$(MAKE) BUILD=$(BUILD)/test WERROR=1 build
	$(Q)BUILD="$(abspath $(BUILD))/test" tests/run $(TESTS)
test-all: ## the same, and the sanitizers, the analyzers, and the long tests
	$(Q)tests/lab/packages test
	$(Q)$(MAKE) BUILD=$(BUILD)/test WERROR=1 build
	$(Q)$(MAKE) BUILD=$(BUILD)/test WERROR=1 SAN=1 build
	$(Q)BUILD="$(abspath $(BUILD))/test" tests/run --all $(TESTS)

.PHONY: test-corpus
test-corpus: $(peer) ## grades good, bad and cheating submissions, to test the grader; SEEDS=10 for more
	$(Q)tests/lab/packages test
	$(Q)tests/grading/grade-corpus $(PART)

.PHONY: test-book test-arm64
test-book: ## the book, in headless Chromium
	$(Q)tests/lab/packages test book
	$(Q)BUILD="$(abspath $(BUILD))/test" tests/run book
test-arm64: ## guests of another root and processor, emulated
	$(Q)tests/lab/packages test arm64
	$(Q)BUILD="$(abspath $(BUILD))/test" tests/run arm64

.PHONY: test-web
test-web: web ## the web site, in headless Chromium
	$(Q)tests/lab/packages grade
	$(Q)tests/web/run $(BUILD)/web

.PHONY: torture soak
torture: $(programs) $(peer) ## makes calls, peers, disks and guests fail on purpose; PARTS="calls wire"
	$(Q)tests/lab/packages test
	$(Q)$(MAKE) SAN=1 build
	$(Q)BUILD="$(abspath $(BUILD))" tests/torture/run $(PARTS)
soak: $(programs) ## a million round trips, and hundreds of pairs
	$(Q)tests/lab/packages test
	$(Q)BUILD="$(abspath $(BUILD))" tests/torture/run soak

.PHONY: bench
bench: $(programs) $(OUT)/tests/bench/udp_pingpong ## compares our speed with that of other programs; ROUNDS=3 SIZES="64 4096"
	$(Q)tests/lab/packages bench
	$(Q)BUILD="$(abspath $(BUILD))" tests/bench/bench

.PHONY: bench-lab
bench-lab: $(programs) $(peer) ## how long a person waits: guests, programs, checks; ROUNDS=3
	$(Q)tests/lab/packages grade bench
	$(Q)BUILD="$(abspath $(BUILD))" tests/bench/lab

.PHONY: bench-calls
bench-calls: $(programs) $(OUT)/tests/bench/udp_pingpong ## what a round trip costs: system calls, instructions, packets
	$(Q)tests/lab/packages bench
	$(Q)BUILD="$(abspath $(BUILD))" tests/bench/calls

.PHONY: bench-growth
bench-growth: $(programs) $(peer) ## time and memory, as guests, messages and classes grow; ROUNDS=1
	$(Q)tests/lab/packages grade bench
	$(Q)BUILD="$(abspath $(BUILD))" tests/bench/growth

.PHONY: lint
scripts = $(shell grep -lrI '^\#!.*bash' tests docs .ci)
c_files = $(wildcard [0-9][0-9]-*/*.c common/*.c tests/lab/*.c tests/grading/*.c tests/shims/*.c tests/grading/solutions/*.c tests/torture/*.c tests/bench/*.c)
headers = $(wildcard [0-9][0-9]-*/*.h common/*.h tests/*/*.h)
lint_flags = $(WARNINGS) -Werror $(CPPFLAGS) -iquote common \
	$(if $(filter %/exercise.c %/broken.c tests/grading/solutions/%,$<),$(EXERCISE_WARNINGS))
linted = $(c_files:%=$(BUILD)/lint/%.ok)
lint: $(linted) ## gcc -fanalyzer, clang, clang-tidy and shellcheck, all silent
	$(Q)shellcheck -x $(scripts)

# A file is looked at again when it has changed, or any header, or how it is looked at.
$(linted): $(BUILD)/lint/%.ok: % $(headers) Makefile .clang-tidy | lint-packages
	$(Q)mkdir -p $(@D)
	$(Q)gcc -std=c11 $(lint_flags) -O2 -fanalyzer -c -o /dev/null $<
	$(Q)clang -std=c11 $(lint_flags) -fsyntax-only $<
	$(Q)clang-tidy --quiet $< -- -std=c11 $(CPPFLAGS) -iquote common 2>/dev/null
	$(Q)touch $@
.PHONY: lint-packages
lint-packages:
	$(Q)NO_INSTALL=1 tests/lab/packages test

##@ Installing and cleaning
.PHONY: clean
clean: ## remove build/; what is cached: tests/lab/lab clean
	rm -rf $(BUILD)

# --- how a program is built ---

# What must be there before anything is compiled. A command that needs more says so in the
# first line of its recipe; tests/lab/packages has the groups, and make packages FOR="wire
# grade" installs them beforehand. To build a program is no reason to change the machine,
# so `make build` and `make lint` say what is missing, and how to get it.
.PHONY: packages
packages: ## install what `make run-NN` needs; FOR="grade test": what these need
	$(Q)tests/lab/packages $(or $(FOR),run)
build: export NO_INSTALL := 1

# People and tests ask for the first of the peers, and so get the others, and world.so, which
# every check loads.
$(firstword $(peer)): | $(filter-out $(firstword $(peer)),$(peer)) $(world)
$(world): tests/grading/world.c $(OUT)/flags | packages
	@mkdir -p $(@D)
	@$(if $(V),,echo "  LD    $@")
	$(Q)$(CC) -std=c11 $(WARNINGS) -O2 $(CPPFLAGS) $(VERBS_CFLAGS) -fPIC -shared -o $@ $<

$(OUT)/%: $(OUT)/%.o $(common)
	@$(if $(V),,echo "  LD    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(call CM_LIBS,$(@:$(OUT)/%=%.c)) $(VERBS_LIBS)

$(OUT)/%.o: %.c $(OUT)/flags | packages
	@mkdir -p $(@D)
	@$(if $(V),,echo "  CC    $@")
	$(Q)$(CC) $(ALL_CFLAGS) $(if $(filter %/exercise.c %/broken.c,$<),$(EXERCISE_WARNINGS)) \
		$(CPPFLAGS) $(VERBS_CFLAGS) -MMD -MP -c -o $@ $<

# Changes only when the flags do, and then everything is compiled again.
$(OUT)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS) $(EXERCISE_WARNINGS) $(CPPFLAGS) $(LDFLAGS)' | cmp -s - $@ || \
		echo '$(CC) $(ALL_CFLAGS) $(EXERCISE_WARNINGS) $(CPPFLAGS) $(LDFLAGS)' > $@
.PHONY: FORCE
FORCE:

.PRECIOUS: $(OUT)/%.o
-include $(wildcard $(OUT)/*/*.d $(OUT)/tests/*/*.d)
