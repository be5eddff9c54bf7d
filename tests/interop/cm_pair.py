# SPDX-License-Identifier: Apache-2.0
"""Programs that meet by rdma_cm: how they are run, and what becomes of them."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

from programs import TOO_EARLY, Process, free_port

LONGEST = 60  # seconds; a case that needs so long hangs
ENDS = 20  # seconds that a server has to end in when its client has


class Failed(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failed(sentence)


@dataclasses.dataclass
class Pair:
    """A server and a client, as their manual pages say. In their words ADDRESS and PORT stand for
    what the test gives them, and FOLDER for a place for files."""
    name: str
    server: list
    client: list
    expect: str = ""  # a regular expression that the client's output must hold
    served: str = ""  # the same of the server's
    endless: bool = False  # the server goes on when its client has ended
    tries: int = 1  # a client that comes before its server listens is refused: then both start anew
    clients: int = 1  # at the same time
    apart: float = 0  # seconds between their starts
    statuses: tuple = (0,)  # with which a client may end
    longest: float = LONGEST
    run: tuple = ()  # further options of `verbena run`
    environment: dict = dataclasses.field(default_factory=dict)
    address: str = ""  # if not the test's
    datagrams: bool = False  # the server has a socket of the kernel's at PORT in place of a listener


def general_services(pid):
    """The sockets of all who hear what comes to queue pair 1 on the host of the process, by their
    names in the kernel's list."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()
    except OSError:
        return set()
    return {f"socket:[{words[6]}]" for words in map(str.split, lines)
            if len(words) > 7 and words[7].startswith("@verbena/") and words[7].endswith("/general")}


def has_general_services(pid):
    """Whether the process is one of them, as who listens is."""
    try:
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return False
    return bool(links & general_services(pid))


def has_udp_port(port):
    wanted = f":{int(port):04X}"
    return any(line.split()[1].endswith(wanted)
               for line in pathlib.Path("/proc/net/udp").read_text().splitlines()[1:])


class Stage:
    """The processes of a test, all at one address."""

    def __init__(self, build, address, folder):
        self.build = build
        self.verbena = str(build / "bin" / "verbena")
        self.address = address
        self.folder = folder
        self.processes = []

    def program(self, name):
        return str(self.build / "bin" / name)

    def start(self, words, run=(), environment=None, address=""):
        address = address or self.address
        return self.start_bare([self.verbena, "run", "--addr", address, *run, "--", *words], environment)

    def start_bare(self, words, environment=None):
        process = Process(words, {**os.environ, **(environment or {})})
        self.processes.append(process)
        return process

    @staticmethod
    def wait_listening(process, listens=has_general_services):
        """Binding and listening are one after the other in all these programs."""
        deadline = time.monotonic() + ENDS
        while not listens(process.process.pid):
            check(process.process.poll() is None, "the server ended before it listened")
            check(time.monotonic() < deadline, "the server does not listen")
            time.sleep(0.01)
        time.sleep(0.2)

    @staticmethod
    def ended(process, longest, what, statuses=(0,)):
        try:
            found = process.wait(longest)
        except subprocess.TimeoutExpired:
            raise Failed(f"{what} did not end within {longest:g} s") from None
        if found < 0:
            raise Failed(f"{what} died of {signal.Signals(-found).name}")
        check(found in statuses, f"{what} ended with status {found}, not {statuses}")

    @staticmethod
    def see(process, pattern, what, longest=ENDS):
        deadline = time.monotonic() + longest
        while not re.search(pattern, process.output()):
            over = process.process.poll() is not None or time.monotonic() > deadline
            if over and not re.search(pattern, process.output()):
                raise Failed(f"{what}'s output lacks /{pattern}/")
            time.sleep(0.01)

    def told(self):
        return "".join(f"\n--- {' '.join(process.words)}\n{process.output()[-3000:]}"
                       for process in self.processes[-6:])

    def stop(self):
        for process in self.processes:
            process.stop()
        self.processes.clear()


def run_pair(stage, pair):
    """Raises Failed when not all is as it must be."""
    for failures in range(pair.tries):
        try:
            run_once(stage, pair)
            return f"after {failures} too early" if failures else None
        except Failed:
            early = any(TOO_EARLY.search(process.output()) for process in stage.processes)
            if not early or failures + 1 == pair.tries:
                raise
            stage.stop()
    return None


def run_once(stage, pair):
    port = str(free_port())
    address = pair.address or stage.address

    def words(template):
        return [word.replace("ADDRESS", address).replace("PORT", port).replace("FOLDER", stage.folder)
                for word in template]
    more = {"run": pair.run, "environment": pair.environment, "address": address}
    server = stage.start(words(pair.server), **more)
    if pair.datagrams:
        stage.wait_listening(server, lambda _: has_udp_port(port))
    else:
        stage.wait_listening(server)
    clients = []
    for _ in range(pair.clients):
        clients.append(stage.start(words(pair.client), **more))
        time.sleep(pair.apart)
    deadline = time.monotonic() + pair.longest
    for client in clients:
        try:
            Stage.ended(client, max(0.1, deadline - time.monotonic()), "a client", pair.statuses)
        except Failed as failed:
            status = server.process.poll()
            raise failed if status is None else Failed(f"{failed}; its server had ended: {status}") from None
        check(re.search(pair.expect, client.output()), f"a client's output lacks /{pair.expect}/")
    if pair.endless:
        check(server.process.poll() is None, f"the server ended: {server.process.returncode}")
        os.killpg(server.process.pid, signal.SIGTERM)
        server.process.wait(ENDS)
    else:
        Stage.ended(server, ENDS, "the server")
    check(re.search(pair.served, server.output()), f"the server's output lacks /{pair.served}/")
