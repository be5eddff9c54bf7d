# SPDX-License-Identifier: Apache-2.0
"""Unmodified programs on the software NIC, alone or a server and a client at once: what the scripts
beside this file have in common."""
import dataclasses
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import traceback

LONGEST = 120  # seconds; a case that needs so long hangs
ADDRESS = "127.0.0.1"  # of the programs' TCP connections
EARLY_TRIES = 20  # of a program whose server listens a second time, unannounced
TOO_EARLY = re.compile(r"EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.")  # in perftest's words
HALT = 3  # seconds; the programs' retries would last one at most
MIB = 1 << 20
FOLDER = pathlib.Path(__file__).resolve().parent
LATE = ["gdb", "-q", "-batch", "-nx", "-return-child-result", "-x", str(FOLDER / "late-connect.gdb"), "--args"]
# rping 44, client or server, closes its event channel beside the thread that waits on it, which then,
# if it comes to it, ends the process with status 255: with its work done, and on a card too. What it
# has printed and the C library still held comes behind that.
RPING_ENDS = re.compile(r"(client DISCONNECT EVENT\.\.\.\n|server DISCONNECT EVENT\.\.\.\n"
                        r"wait for RDMA_READ_ADV state 10\n)rdma_get_cm_event: Bad file descriptor\n")


@dataclasses.dataclass
class Case:
    """A program alone, or a server and a client that run at once."""
    name: str
    server: list
    client: list | None = None
    run: list = dataclasses.field(default_factory=list)  # options of `verbena run`
    expect: str = ""  # a regular expression that the client's (or only) output must hold
    bare: bool = False  # not under `verbena run`: the command itself, or our library linked in
    status: int = 0  # of the client or the only program
    interrupt: bool = False  # once the output is as expected all get Ctrl-C, which is to end them
    late: bool = False  # the client waits before it connects by rdma_cm, since its server is slow
    halt: tuple = ()  # how each side in turn is made to stand still while it runs: "stop", "gdb"
    together: list = dataclasses.field(default_factory=list)  # other cases at the same time


def pingpong(program, name, *options, run=()):
    words = [program, "-g", "0", "-c", *map(str, options)]
    return Case(f"{program} {name}", words, [*words, ADDRESS], list(run), r"iters in .* usec/iter")


def perftest(program, name, *options, run=()):
    words = [program, "-F", *map(str, options)]
    return Case(f"{program} {name}", words, [*words, ADDRESS], list(run), r"#bytes.*\n\s*\d+\s+\d+")


def multicast(build, receivers):
    words = [str(build / "bin" / "multicast"), "-r", str(receivers)]
    return Case(f"multicast to {receivers} processes", words, [*words, ADDRESS],
                expect=r"passed: multicast")


def raw_frames(build, run=()):
    words = [str(build / "bin" / "raw_frames")]
    return Case("raw frames to another process", words, [*words, ADDRESS], list(run),
                expect=r"passed: \d+ frames")


class Ports:
    """TCP ports that nobody else takes: below those that the kernel gives to clients, and none given
    again before COUNT others were."""
    COUNT = 2000

    def __init__(self):
        self.lock = threading.Lock()
        first = random.randrange(10000, 30000)
        self.next = itertools.cycle(range(first, first + self.COUNT))
        self.given = set()

    def take(self):
        with self.lock:
            for port in itertools.islice(self.next, self.COUNT):
                with socket.socket() as probe:
                    try:
                        probe.bind(("", port))
                    except OSError:
                        continue
                self.given.add(port)
                return port
        raise OSError("all TCP ports that were tried are taken")


PORTS = Ports()


def free_port():
    return PORTS.take()


def listens(port, pid="self"):
    """Whether somebody does, on the host of the process. Looked up in the kernel's list: a
    connection would use up the server's only accept."""
    wanted = f":{port:04X}"
    for table in (f"/proc/{pid}/net/tcp", f"/proc/{pid}/net/tcp6"):
        try:
            lines = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[1].endswith(wanted) and words[3] == "0A":
                return True
    return False


class Process:
    """A program in a process group of its own, its output in a file."""

    def __init__(self, words, environment):
        self.words = words
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, env=environment,
                                        start_new_session=True)

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def wait(self, timeout):
        """Its status; that of an rping which fell over its own end is 0."""
        status = self.process.wait(timeout)
        return 0 if status == 255 and RPING_ENDS.search(self.output()) else status

    def output(self):
        """What it has printed so far. Read beside its writing, whose place in the file is shared."""
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode(errors="replace")


class Runner:
    longest = LONGEST

    def __init__(self, build):
        self.verbena = str(build / "bin" / "verbena")
        # Programs inherit it when whoever started this in the background had it ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def server(self, case, port):
        return self.words(case, case.server, port)

    def client(self, case, port):
        return self.words(case, case.client, port)

    def listens(self, port, server):
        return listens(port, server.pid)

    def finished(self, process):
        """For a runner that wants to see more than whether its cases passed."""

    def words(self, case, words, port):
        full = list(words)
        if case.client is not None:
            full[1:1] = ["-p", str(port)]
        if case.interrupt:  # what it has printed is not to be lost with it
            full = ["stdbuf", "-oL", *full]
        return full if case.bare else [self.verbena, "run", *case.run, "--", *full]

    def environment(self, case):
        environment = dict(os.environ)
        if case.bare:  # no `verbena run`, so its options go as the variables that they set
            for option, value in zip(case.run[::2], case.run[1::2], strict=True):
                environment["VERBENA_" + option.removeprefix("--").upper()] = value
        return environment

    def one(self, case, problems):
        """Runs a case; appends to `problems` what went wrong. perftest listens twice at one port with
        rdma_cm, and may be too late for its client, which then tries again and falls over what it has freed: both
        start anew."""
        try:
            for left in reversed(range(EARLY_TRIES)):
                problem = self.try_one(case)
                if left == 0 or not problem or not TOO_EARLY.search(problem):
                    break
            if problem:
                problems.append(problem)
        except Exception:  # a thread's is lost otherwise, and the case would count as passed
            problems.append(traceback.format_exc())

    def try_one(self, case):
        """Returns what went wrong, with what all have printed."""
        environment = self.environment(case)
        port = free_port()
        deadline = time.monotonic() + self.longest
        processes = [Process(self.server(case, port), environment)]
        try:
            if case.client is not None:
                server = processes[0].process
                while server.poll() is None and not self.listens(port, server):
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)
                late = LATE if case.late else []
                processes.append(Process([*late, *self.client(case, port)], environment))
            for way in case.halt:
                self.halt(processes, way)
            if case.interrupt:
                problem = self.interrupt(processes, case.expect, deadline)
            else:
                problem = self.wait(processes, case.status, deadline)
        finally:
            for process in processes:
                process.stop()
        for process in processes:
            self.finished(process)
        last = processes[-1].output()
        if not problem and case.expect and not re.search(case.expect, last):
            problem = f"the output lacks /{case.expect}/"
        if not problem:
            return None
        return problem + "".join(f"\n--- {' '.join(p.words)}\n{p.output()[-6000:]}" for p in processes)

    @staticmethod
    def halt(processes, way):
        """Each in turn, as long as both run."""
        for process in processes:
            time.sleep(0.5)
            if any(each.process.poll() is not None for each in processes):
                return
            if way == "gdb":
                attached = subprocess.run(["gdb", "-batch", "-nx", "-p", str(process.process.pid), "-ex",
                                           f"shell sleep {HALT}", "-ex", "detach"],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if attached.returncode != 0 and process.process.poll() is None:
                    raise RuntimeError(f"gdb could not halt {' '.join(process.words)}")
                continue
            os.killpg(process.process.pid, signal.SIGSTOP)
            time.sleep(HALT)
            os.killpg(process.process.pid, signal.SIGCONT)

    def wait(self, processes, wanted, deadline):
        for process in reversed(processes):
            try:
                status = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"did not end within {self.longest} s"
            if status != wanted:
                return f"status {status}: {' '.join(process.words)}"
            wanted = 0
            deadline = min(deadline, time.monotonic() + 20)  # the other one ends soon
        return None

    @staticmethod
    def interrupt(processes, expect, deadline):
        while not re.search(expect, processes[-1].output()):
            for process in processes:
                if process.process.poll() is not None:
                    return f"ended before it was interrupted: {' '.join(process.words)}"
            if time.monotonic() > deadline:
                return f"the output lacks /{expect}/"
            time.sleep(0.1)
        # As one terminal would, at once: who is interrupted first is not to be seen leaving by another.
        for each in (signal.SIGSTOP, signal.SIGINT, signal.SIGCONT):
            for process in processes:
                os.killpg(process.process.pid, each)
        for process in reversed(processes):
            try:
                status = process.process.wait(20)
            except subprocess.TimeoutExpired:
                return f"did not end when interrupted: {' '.join(process.words)}"
            if status != -signal.SIGINT:
                return f"status {status} when interrupted: {' '.join(process.words)}"
        return None

    def run(self, case):
        problems = []
        threads = [threading.Thread(target=self.one, args=(each, problems))
                   for each in (case, *case.together)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return problems


def run_one(runner, case, user=""):
    """Runs a case and reports it; whether it failed."""
    start = time.monotonic()
    problems = runner.run(case)
    took = time.monotonic() - start
    verdict = "FAILED" if problems else "ok"
    print(f"{verdict:6} {took:6.1f} s  {user}{': ' if user else ''}{case.name}", flush=True)
    for problem in problems:
        print(problem, flush=True)
    return bool(problems)


def run_all(cases, runner, user):
    failed = sum(run_one(runner, case, user) for case in cases)
    return len(cases) - failed, failed


def remove_domain_files():
    """What XRC programs leave in /tmp, which another user could not open."""
    for file in pathlib.Path("/tmp").glob("xrc_domain*"):
        file.unlink(missing_ok=True)


def run_as_nobody(script, build, arguments):
    """The calling script again without root's rights, from a copy, since nobody may not be able to
    read this folder. It is called with --part and prints its counts last."""
    remove_domain_files()
    with tempfile.TemporaryDirectory(prefix="verbena-interop-") as folder:
        os.chmod(folder, 0o755)
        copy = pathlib.Path(folder)
        (copy / "build").mkdir()
        for part in ("bin/verbena", "bin/verbs_check", "bin/verbs_check_linked", "bin/wire_check",
                     "bin/lost_memory", "bin/process_life", "bin/async_events", "bin/each_verb",
                     "bin/multicast", "bin/raw_frames", "bin/verbs_cm", "bin/stream_transfer", "bin/stream_crowd",
                     "lib"):
            source, target = build / part, copy / "build" / part
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
            elif source.exists():
                shutil.copy2(source, target)
        for file in (pathlib.Path(script), FOLDER / "two-hosts", *FOLDER.glob("*.py")):
            shutil.copy2(file, copy)
        words = [str(copy / pathlib.Path(script).name), "--build", str(copy / "build"), "--part", *arguments]
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        counts = counted(["su", "nobody", "-s", "/bin/sh", "-c", f"cd / && HOME=/ {quoted}"])
    remove_domain_files()
    return counts


def counted(words):
    """Runs a script that prints its counts last, passes its output on, and returns passed, failed and
    skipped."""
    counts = None
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        counts = re.fullmatch(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\n", line)
        if not counts:
            print(line, end="", flush=True)
    process.wait()
    return tuple(int(count or 0) for count in counts.groups()) if counts else (0, 1, 0)
