"""What the parts of the torture share: programs, guests, results.

A part is a program of its own. It starts itself again inside a guest of the
lab, with the same arguments, does its work there and prints one line for each
failure. The last line is "NAME: N cases, N failures, N tried twice, N s".
"""
import concurrent.futures
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("BUILD") or os.path.join(PROJECT, "build")
LAB = os.path.join(PROJECT, "tests", "lab", "lab")

# Emulated guests on a busy machine are slow: nothing is late before this.
SLACK = float(os.environ.get("TORTURE_SLACK", "2"))

# What programs with two sides get as --timeout. Both have to start within it.
TIMEOUT = int(os.environ.get("TORTURE_TIMEOUT", "3"))

# How many cases run at once: most of them wait, for a peer or for a timeout.
WORKERS = int(os.environ.get("TORTURE_WORKERS", "4"))


def at_once(function, cases):
    """Calls @function with each of the @cases, WORKERS at a time."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(function, cases):
            pass    # an exception in one of them comes out here


def enter_guest(argv):
    """Runs this program again in a guest, unless it is in one already."""
    if os.environ.get("TORTURE_INSIDE"):
        return
    guest = [LAB, "run", "--root", "--writable", BUILD, "--"]
    if os.environ.get("RDMA") == "host":
        guest = []
    environment = ["TORTURE_INSIDE=1", "BUILD=" + BUILD] + [
        "%s=%s" % item for item in os.environ.items()
        if item[0].startswith("TORTURE_")]
    os.execvp("env", ["env"] + guest_first(guest, environment) +
              ["python3", os.path.abspath(sys.argv[0])] + argv)


def guest_first(guest, environment):
    """The lab passes no environment on, so `env` has to run inside."""
    return guest + ["env"] + environment if guest else environment


class Program:
    """A worked program: where it is, and how it is used."""

    def __init__(self, source, san):
        folder = os.path.join(BUILD, "san") if san else BUILD
        self.name = os.path.splitext(os.path.basename(source))[0]
        self.path = os.path.join(folder, os.path.dirname(source), self.name)
        with open(os.path.join(PROJECT, source), encoding="utf-8") as file:
            text = file.read()
        self.two_sided = re.search(r"^ \* Sides:", text, re.M)
        # Both sides send, and verify what they receive.
        self.ping_pong = "pattern_report(" in text
        # Its client's argument. The RDMA CM takes only the address of an
        # interface with a device: in a guest that is this one.
        self.cm = "rdma_cma.h" in text
        self.server = "10.9.0.1" if self.cm else "127.0.0.1"
        self._help = None

    def has(self, option):
        """Does --help list this option?"""
        if self._help is None:
            self._help = subprocess.run(
                [self.path, "--help"], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False).stdout
        return re.search(r"(^|[ ,])%s\b" % re.escape(option), self._help,
                         re.M) is not None

    def options(self, **wanted):
        """Those of the @wanted options that the program has."""
        words = []
        for name, value in wanted.items():
            option = "--" + name.replace("_", "-")
            if self.has(option):
                words.append(option if value is True
                             else "%s=%s" % (option, value))
        return words


def programs(san=False):
    """The programs that `make build` builds, by the Makefile's rule."""
    sources = sorted(glob.glob("[0-9][0-9]-*/*.c", root_dir=PROJECT))
    return [Program(s, san) for s in sources
            if os.path.basename(s) not in ("exercise.c", "broken.c")]


class Solution:
    """The solution of an exercise that needs no peer, and its arguments."""

    two_sided = None

    def __init__(self, name, words):
        self.name = name + " (solution)"
        self.path = os.path.join(BUILD, "torture", "solutions", name)
        self.words = words


def solutions():
    """Those of chapters 03 and 05 work with a peer; `make check` tests them."""
    known = {
        "01-devices": [],
        "02-context-pd-mr": ["3000", "L", "LR", "W"],
        "04-qp-states": ["0x111111", "0x222222", "0x333333", "B"],
    }
    return [Solution(name, words) for name, words in known.items()]


class Run:
    """One process under calls.so."""

    def __init__(self, argv, san=False, fault=None, whose="program"):
        self.report = tempfile.NamedTemporaryFile(mode="r+")
        self.files = [tempfile.TemporaryFile(mode="w+", errors="replace")
                      for _ in range(2)]
        environment = dict(os.environ, TORTURE_REPORT=self.report.name,
                           LD_PRELOAD=BUILD + "/torture/calls" +
                           ("-san.so" if san else ".so"))
        if san:
            environment["ASAN_OPTIONS"] = ("verify_asan_link_order=0:"
                                           "detect_leaks=0:abort_on_error=1")
            environment["UBSAN_OPTIONS"] = "halt_on_error=1:abort_on_error=1"
        if fault:
            environment["TORTURE"] = "%s %s %d %s" % fault
            environment["TORTURE_WHOSE"] = whose
        elif whose == "library":
            environment["TORTURE_WHOSE"] = whose
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.files[0],
            stderr=self.files[1], env=environment)
        self.argv = argv
        self.hung = False
        self.started = time.monotonic()
        self.ended = None
        self.lines = []

    def wait(self, limit):
        """Waits until it ends; after @limit seconds it is killed."""
        try:
            self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.hung = True
            self.process.kill()
            self.process.wait()
        self.ended = time.monotonic()
        self.status = self.process.returncode
        self.out, self.err = (self.text(f) for f in self.files)
        self.lines = [line.split() for line in self.report if line.strip()]
        self.report.close()

    @staticmethod
    def text(file):
        file.seek(0)
        with file:
            return file.read()

    def reported(self, word):
        return [line[1:] for line in self.lines if line[0] == word]

    def broken(self):
        """What no fault may ever cause; or None."""
        if self.hung:
            return "hangs"
        if self.status < 0 or self.status >= 128:
            number = -self.status if self.status < 0 else self.status - 128
            try:
                return "ended by " + signal.Signals(number).name
            except ValueError:
                return "ended with status %d" % self.status
        if "Sanitizer" in self.err or "runtime error" in self.err:
            return "a sanitizer has something to say"
        if not self.reported("end"):
            return "no report"
        for word in ("leaked", "twice"):
            found = self.reported(word)
            if found:
                return "%s: %s" % (word if word == "leaked" else
                                   "released twice",
                                   ", ".join(" ".join(f) for f in found))
        return None


def state(run):
    """The state of a process, as proc(5) has it: Z, T, S, R ..."""
    try:
        with open("/proc/%d/stat" % run.process.pid, encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def cm_listens(port):
    """Does a program listen at this port by means of the RDMA CM?"""
    time.sleep(0.2)     # in an emulated guest the question takes as long
    shown = subprocess.run(["rdma", "resource", "show", "cm_id"],
                           capture_output=True, text=True, check=False).stdout
    return re.search(r"LISTEN .*:%d " % port, shown) is not None


def until_listening(argv, run=None, cm=False):
    """Waits until the server of this command line listens, or is over."""
    port = next((w.split("=")[1] for w in argv if w.startswith("--port=")),
                argv[argv.index("-p") + 1] if "-p" in argv else "18515")
    wanted = ":%04X " % int(port)
    for _ in range(400):
        if run and state(run) in ("Z", "T", "X"):
            return
        if cm and cm_listens(int(port)):
            return
        for family in ("tcp", "tcp6"):
            with open("/proc/net/" + family, encoding="ascii") as file:
                if any(wanted in line and " 0A " in line for line in file):
                    return
        time.sleep(0.05)


class Results:
    """Counts cases, prints failures, and says at the end how many."""

    def __init__(self, part):
        self.part = part
        self.cases = 0
        self.failures = 0
        self.again = []
        self.tried_twice = 0
        self.start = time.monotonic()
        self.lock = threading.Lock()

    def case(self, name, fault=None, details=""):
        """One case is over; @fault says what was wrong with it, if anything."""
        with self.lock:
            self.cases += 1
            if fault:
                self.failures += 1
                self.show("FAIL", name, fault, details)

    def attempt(self, name, function, *arguments):
        """One case: @function returns its fault, or None, and the output.

        On a busy machine a peer may come too late, and then the case shows
        nothing. So whatever was wrong is tried once more at the end, when
        no other case runs, and that counts.
        """
        fault, details = function(*arguments)
        if not fault:
            self.case(name)
            return
        with self.lock:
            self.show("again", name, fault, details)
            self.again.append((name, function, arguments))

    @staticmethod
    def show(word, name, fault, details):
        print("%s %s: %s" % (word, name, fault))
        for line in details.strip().splitlines()[-6:]:
            print("       " + line)
        sys.stdout.flush()

    def progress(self, what):
        """Says what comes next, and how far it is."""
        print("%6.0f s %5d cases: %s" % (time.monotonic() - self.start,
                                         self.cases, what))
        sys.stdout.flush()

    def try_again(self):
        """Has every case that was wrong once more, one after the other."""
        for name, function, arguments in self.again:
            self.tried_twice += 1
            self.case(name, *function(*arguments))
        self.again = []

    def end(self):
        """Prints the last line and ends the program."""
        self.try_again()
        print("%s: %d cases, %d failures, %d tried twice, %.0f s" %
              (self.part, self.cases, self.failures, self.tried_twice,
               time.monotonic() - self.start))
        sys.exit(1 if self.failures or not self.cases else 0)
