#!/usr/bin/env python3
"""Runs the tests and ends with one line: "N passed, N failed, N skipped".

    check.py [--only TEXT] [--suite NAME]… [--list]

--only TEXT    only the cases whose "suite/program/case" contains TEXT
--suite NAME   only these suites (see SUITES at the end)
--list         name the suites and the test programs, run nothing

Each program runs by itself, in a scratch folder of its own, with a time limit; what it says goes to
build/test-logs/<suite>/<program>.log. A case is a cmocka test, a node test or a corpus folder. What a test finds in its
environment: TEST_BUILD (the build folder), TEST_QEMU, TEST_QEMU_DATA, TEST_TEMPLATE (a folder as the template build makes
it), TEST_TMP (the scratch folder, removed afterwards), TEST_FILTER (a case, for cmocka's programs); those of real machines
and servers also SPACE_TEST_INCOMING, SPACE_TEST_QEMU, SPACE_TEST_QEMU_DATA, SPACE_TEST_STATE (a state folder with the
template in it, to be copied), SPACE_TEST_TMP, SPACE_TEST_LOGS.
Exit code 0 when nothing failed and something passed.
"""
import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(REPO, os.environ.get("BUILD") or "build")
LOGS = os.path.join(BUILD, "test-logs")
COLOUR = sys.stdout.isatty()


def paint(text, code):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


class Results:
    """What each case came to; prints as it goes."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def add(self, name, outcome, note="", log=""):
        if outcome == "pass":
            self.passed += 1
            return
        (self.failed if outcome == "fail" else self.skipped).append((name, note, log))
        word = paint("FAILED ", 31) if outcome == "fail" else paint("skipped", 33)
        print(f"    {word} {name}{': ' if note else ''}{note}", flush=True)

    def counts(self):
        return self.passed, len(self.failed), len(self.skipped)


class Suite:
    """One kind of test: how its programs are found, run and read."""

    def __init__(self, name, find, parse, limit_s, needs=(), build=BUILD):
        self.name, self.find, self.parse, self.limit_s, self.needs, self.build = name, find, parse, limit_s, needs, build


# ---- reading what the programs say ----

def parse_cmocka(text, code):
    """[(case, outcome, note)] of cmocka's standard output: what follows each RUN line."""
    cases, running, notes = [], None, []
    for line in text.splitlines():
        m = re.match(r"\[\s*(RUN|OK|FAILED|SKIPPED)\s*\] (\w+)\s*$", line)
        if not m:
            notes.append(line)
        elif m.group(1) == "RUN":
            running, notes = m.group(2), []
        elif m.group(2) == running:
            skip = next((n[5:].strip() for n in notes if n.startswith("skip:")), "")
            error = next((n for n in notes if re.search(r"error:|exception|runtime error|ERROR: ", n)), "")
            outcome = {"OK": "pass", "SKIPPED": "skip"}.get(m.group(1), "fail")
            cases.append((running, outcome, {"pass": "", "skip": skip}.get(outcome, error)[:200]))
            running = None
    if running:
        cases.append((running, "fail", "the program ended within it"))
    return cases


def parse_tap(text, code):
    """[(case, outcome, note)] of the leaves of node's TAP; a parent counts only when it failed and no child did."""
    cases = []
    deepest_seen = []                      # indents of results since the last shallower one, with whether one failed
    awaited = False                        # the text of an error is on the next lines
    for line in text.splitlines():
        m = re.match(r"( *)(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO)\b ?(.*))?$", line)
        if not m:
            d = re.match(r" *error: ['|]?(.+?)'?$", line)
            if (d or awaited) and cases and cases[-1][1] == "fail" and not cases[-1][2]:
                told = d.group(1) if d else line.strip()
                awaited = told in ("-", "|-") or not told
                if not awaited:
                    cases[-1] = (cases[-1][0], "fail", told[:200])
            continue
        indent, word, name, mark, reason = len(m.group(1)), m.group(2), m.group(3), m.group(4), m.group(5) or ""
        children = [f for i, f in deepest_seen if i > indent]
        deepest_seen = [x for x in deepest_seen if x[0] <= indent]
        failed = word == "not ok"
        deepest_seen.append((indent, failed))
        if children:
            if failed and not any(children):
                cases.append((name, "fail", "the group failed outside its cases"))
            continue
        if mark:
            cases.append((name, "skip", reason or mark.lower()))
        else:
            cases.append((name, "fail" if failed else "pass", ""))
    return cases


def parse_exit(text, code):
    return []


# ---- processes: whatever a test starts and leaves comes back to this program ----

def become_subreaper():
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)      # PR_SET_CHILD_SUBREAPER


def descendants():
    """{pid: command} of the living processes below this one, the machines of a daemon that has ended among them."""
    parents, commands = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            command = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        if fields[0] not in "ZX":
            parents[int(pid)], commands[int(pid)] = int(fields[1]), command
    found, grown = {os.getpid()}, True
    while grown:
        more = {p for p, parent in parents.items() if parent in found and p not in found}
        found |= more
        grown = bool(more)
    return {p: commands[p] for p in found if p != os.getpid()}


def reap():
    """Takes the ended processes that were left to this program. Only called while none of its own runs."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def wait_and_reap(process, limit_s):
    """Until `process` has ended, or False after `limit_s`. The orphans that end meanwhile are reaped at once, as init would:
    a machine that is over must not look as if something of it were left."""
    deadline = time.monotonic() + limit_s
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        elif ended.si_pid == process.pid:
            process.wait()
            return True
        else:
            os.waitpid(ended.si_pid, os.WNOHANG)


def end_descendants(grace_s):
    """What is still there after `grace_s`, killed then: [command]."""
    deadline = time.monotonic() + grace_s
    while True:
        reap()
        left = descendants()
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    told = sorted(left.values())
    for _ in range(50):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
        reap()
        left = descendants()
        if not left:
            break
    return told


# ---- running one program ----

def run_program(suite, program, command, environment, only, results):
    """Runs it, reads its cases, counts them. A crash, a time-out or silence is one failed case more."""
    folder = os.path.join(LOGS, suite.name)
    os.makedirs(folder, exist_ok=True)
    log = os.path.join(folder, program + ".log")
    scratch = tempfile.mkdtemp(prefix="space-test-")
    env = dict(environment, TEST_TMP=scratch, SPACE_TEST_TMP=scratch, TMPDIR=scratch)
    if "SPACE_TEST_LOGS" in env:
        os.makedirs(env["SPACE_TEST_LOGS"], exist_ok=True)
    os.chmod(scratch, 0o711)
    start, ended = time.monotonic(), "exit"
    with open(log, "wb") as f:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, env=env,
                                   cwd=scratch, start_new_session=True)
        try:
            if not wait_and_reap(process, suite.limit_s):
                ended = "time"
        except KeyboardInterrupt:
            ended = "interrupt"
        if process.poll() is None:
            for sig in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sig)
                    process.wait(5)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    pass
            process.wait()
    left = end_descendants(5 if ended == "exit" else 0)
    shutil.rmtree(scratch, ignore_errors=True)
    if ended == "interrupt":
        raise KeyboardInterrupt
    text = open(log, "rb").read().decode("utf-8", "replace")
    code = process.returncode
    cases = suite.parse(text, code)
    taken = time.monotonic() - start
    name = f"{suite.name}/{program}"
    before = results.counts()
    for case, outcome, note in cases:
        if only is None or only in f"{name}/{case}" or only in name:
            results.add(f"{name}/{case}", outcome, note, log)
    bad = any(outcome == "fail" for _, outcome, _ in cases)
    if ended == "time":
        results.add(name, "fail", f"not done after {suite.limit_s} s", log)
    elif code == 77 and not cases:
        reason = next((l[5:].strip() for l in text.splitlines() if l.startswith("skip:")), "says it cannot run here")
        results.add(name, "skip", reason, log)
    elif code != 0 and not bad:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        lines = text.strip().splitlines() or [""]
        last = next((l for l in lines if "SUMMARY: " in l or "runtime error: " in l or "Assertion" in l), lines[-1])
        results.add(name, "fail", f"{how}: {last[:160]}", log)
    elif code == 0 and not cases and "TEST_FILTER" not in environment:
        results.add(name, "pass")
    if left and ended == "exit":
        results.add(name + "/nothing-is-left", "fail", f"{len(left)} processes: " + "; ".join(c[:80] for c in left)[:400], log)
    after = results.counts()
    p, f, s = (a - b for a, b in zip(after, before))
    mark = paint("ok  ", 32) if f == 0 else paint("FAIL", 31)
    print(f"  {mark} {name:40} {p:4} passed{f', {f} failed' if f else ''}{f', {s} skipped' if s else ''}   {taken:.1f} s",
          flush=True)


# ---- finding programs ----

def meson_tests(build, suite):
    """[(name, command, environment)] of one meson suite, as meson itself would run them."""
    try:
        out = subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True).stdout
    except (subprocess.CalledProcessError, FileNotFoundError):
        return []
    found = []
    for test in json.loads(out):
        if any(s.split(":")[-1] == suite for s in test["suite"]):
            found.append((test["name"].split(":")[-1].split(" / ")[-1].replace("/", "-"), test["cmd"], test["env"]))
    return found


def node_tests(folder):
    path = os.path.join(REPO, "tests", folder)
    if not os.path.isdir(path):
        return []
    found = []
    for file in sorted(os.listdir(path)):
        if re.search(r"\.test\.m?js$", file):
            command = ["node", "--test", "--test-reporter=tap", os.path.join(path, file)]
            found.append((re.sub(r"\.test\.m?js$", "", file), command, {}))
    return found


def fuzz_targets():
    """A bounded run of each libFuzzer target, on top of a copy of its corpus."""
    found = []
    seconds = os.environ.get("FUZZ_SECONDS") or "20"
    for name, command, env in meson_tests(BUILD + "-fuzz", "fuzz"):
        corpus = os.path.join(REPO, "tests", "fuzz", "corpus", name)
        inner = f'mkdir grown; if [ -d "$1" ]; then cp -r "$1" seeds; else mkdir seeds; fi; shift; ' \
                f'exec "$@" -max_total_time={seconds} -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 -error_exitcode=1 grown seeds'
        found.append((name, ["sh", "-c", inner, "sh", corpus] + command, env))
    return found


ASAN = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:abort_on_error=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:abort_on_error=1",
}

SUITES = [
    Suite("unit", lambda: meson_tests(BUILD, "unit"), parse_cmocka, 120),
    Suite("unit-asan", lambda: meson_tests(BUILD + "-asan", "unit"), parse_cmocka, 300, build=BUILD + "-asan"),
    Suite("layers", lambda: meson_tests(BUILD, "layers"), parse_exit, 60),
    Suite("jail", lambda: meson_tests(BUILD, "jail"), parse_cmocka, 300, needs=("qemu",)),
    Suite("agent", lambda: meson_tests(BUILD, "agent"), parse_cmocka, 300),
    Suite("cli", lambda: node_tests("cli"), parse_tap, 300),
    Suite("corpus", lambda: meson_tests(BUILD + "-asan", "corpus"), parse_exit, 120, build=BUILD + "-asan"),
    Suite("fuzz", fuzz_targets, parse_exit, 120, build=BUILD + "-fuzz"),
    Suite("vm", lambda: meson_tests(BUILD, "vm"), parse_cmocka, 600, needs=("qemu", "template")),
    Suite("e2e", lambda: node_tests("e2e"), parse_tap, 900, needs=("qemu", "template")),
    Suite("fault", lambda: node_tests("fault"), parse_tap, 1800, needs=("qemu", "template")),
]


# ---- what must not be left ----

def leftovers():
    """Mounts, cgroups, network namespaces and files of the platform that exist on this host now, as readable names."""
    found = set()
    for line in open("/proc/self/mounts"):
        where = line.split()[1]
        if "space" in where:
            found.add(f"mount {where}")
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        for name in folders:
            if name.startswith("space"):
                found.add(f"cgroup {os.path.join(folder, name)}")
    for folder in ("/run/netns", "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                # A lock file that all runs share is not a remainder of this one.
                if name.startswith("space") and not name.endswith(".lock"):
                    found.add(f"file {os.path.join(folder, name)}")
    return found


def check_leftovers(before, results):
    deadline = time.monotonic() + 10
    while True:
        left = sorted(leftovers() - before)
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if left:
        results.add("leftovers/nothing-is-left", "fail", "; ".join(left)[:1000])
    else:
        results.add("leftovers/nothing-is-left", "pass")


# ---- main ----

def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--only")
    arguments.add_argument("--suite", action="append")
    arguments.add_argument("--list", action="store_true")
    options = arguments.parse_args()

    qemu = os.environ.get("TEST_QEMU", "")
    template = os.environ.get("TEST_TEMPLATE", "")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SPACE_")}
    environment.update(TEST_BUILD=BUILD, CMOCKA_MESSAGE_OUTPUT="STDOUT", LC_ALL="C.UTF-8", **ASAN)

    become_subreaper()
    # A caller's ignored signals would be inherited by every test (a shell ignores SIGINT for what it puts in the background).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    results = Results()
    before = leftovers()
    ran = 0
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    try:
        chosen = [(s, s.find()) for s in SUITES if not options.suite or s.name in options.suite]
        if options.only:
            # A text that is in no program's name may be in a case's: then each program that has cases is asked.
            named = [(s, [p for p in programs if options.only in f"{s.name}/{p[0]}" or f"{s.name}/{p[0]}/" in options.only])
                     for s, programs in chosen]
            chosen = named if any(p for _, p in named) else [x for x in chosen if x[0].parse is not parse_exit]
        for suite, programs in chosen:
            if options.list:
                for program, _, _ in programs:
                    print(f"{suite.name}/{program}")
                continue
            if not programs:
                continue
            print(paint(suite.name, 1), flush=True)
            missing = [n for n in suite.needs if not {"qemu": qemu, "template": template}[n]]
            for program, command, env in programs:
                name = f"{suite.name}/{program}"
                if missing:
                    results.add(name, "skip", "no " + " and no ".join(missing))
                    continue
                full = dict(environment, **env)
                if suite.name in ("vm", "e2e", "fault"):
                    full.update(SPACE_TEST_INCOMING=template, SPACE_TEST_QEMU=qemu,
                                SPACE_TEST_QEMU_DATA=os.environ.get("TEST_QEMU_DATA", ""),
                                SPACE_TEST_STATE=os.environ.get("TEST_STATE", ""), SPACE_BUILD=BUILD,
                                SPACE_TEST_LOGS=os.path.join(LOGS, suite.name, program))
                if options.only and options.only not in name:
                    case = options.only.split("/")[-1]
                    full["TEST_FILTER"] = f"*{case}*"
                    if command[0] == "node":
                        command = command[:2] + [f"--test-name-pattern={re.escape(case)}"] + command[2:]
                run_program(suite, program, command, full, options.only, results)
                ran += 1
        if options.list:
            return 0
        check_leftovers(before, results)
    except KeyboardInterrupt:
        print("interrupted")
        return 130

    passed, failed, skipped = results.counts()
    if results.failed:
        print("\nfailed:")
        for name, note, log in results.failed:
            print(f"  {name}{': ' if note else ''}{note}{f'  ({log})' if log else ''}")
    if results.skipped:
        print("\nskipped:")
        for name, note, _ in results.skipped:
            print(f"  {name}: {note or 'no reason given'}")
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
