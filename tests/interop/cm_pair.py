# SPDX-License-Identifier: Apache-2.0
"""Programs that meet by rdma_cm: how they are run, and what becomes of them."""
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

from programs import Process, free_port

LONGEST = 60  # seconds; a case that needs so long hangs
ENDS = 20  # seconds that a server has to end in when its client has
LISTENS = 5  # seconds until a server that is slow to listen does
TOO_EARLY = re.compile(r"EVENT_REJECTED; error: 8|EVENT_UNREACHABLE; error: 1")  # nobody listens, in perftest's words


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
    slow_to_listen: bool = False  # it opens the device long before it listens
    clients: int = 1  # at the same time
    status: int = 0  # of the clients
    longest: float = LONGEST
    run: tuple = ()  # further options of `verbena run`
    environment: dict = dataclasses.field(default_factory=dict)
    address: str = ""  # if not the test's


def has_general_services(pid):
    """Whether the process hears what comes to queue pair 1, as who listens does: by its socket's
    name in the kernel's list."""
    try:
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
    except OSError:
        return False
    inodes = {words[6] for words in map(str.split, lines)
              if len(words) > 7 and words[7].startswith("@verbena/") and words[7].endswith("/general")}
    return any(link == f"socket:[{inode}]" for inode in inodes for link in links)


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

    def wait_listening(self, process):
        """Binding and listening are one after the other in all these programs."""
        deadline = time.monotonic() + ENDS
        while not has_general_services(process.process.pid):
            check(process.process.poll() is None, "the server ended before it listened")
            check(time.monotonic() < deadline, "the server does not listen")
            time.sleep(0.01)
        time.sleep(0.2)

    @staticmethod
    def ended(process, longest, what, status=0):
        try:
            found = process.process.wait(longest)
        except subprocess.TimeoutExpired:
            raise Failed(f"{what} did not end within {longest:g} s") from None
        if found < 0:
            raise Failed(f"{what} died of {signal.Signals(-found).name}")
        check(found == status, f"{what} ended with status {found}, not {status}")

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


def first_served(stage, start):
    """The first client that does not come too early."""
    deadline = time.monotonic() + LISTENS
    while True:
        client = start()
        while client.process.poll() is None and not TOO_EARLY.search(client.output()):
            time.sleep(0.01)
            if time.monotonic() > deadline:
                return client
        if not TOO_EARLY.search(client.output()) or time.monotonic() > deadline:
            return client
        client.stop()
        stage.processes.remove(client)


def run_pair(stage, pair):
    """Raises Failed when not all is as it must be."""
    port = str(free_port())
    address = pair.address or stage.address

    def words(template):
        return [word.replace("ADDRESS", address).replace("PORT", port).replace("FOLDER", stage.folder)
                for word in template]
    more = {"run": pair.run, "environment": pair.environment, "address": address}
    server = stage.start(words(pair.server), **more)
    stage.wait_listening(server)

    def start_client():
        return stage.start(words(pair.client), **more)
    clients = [first_served(stage, start_client) if pair.slow_to_listen else start_client()
               for _ in range(pair.clients)]
    deadline = time.monotonic() + pair.longest
    for client in clients:
        Stage.ended(client, max(0.1, deadline - time.monotonic()), "a client", pair.status)
        check(re.search(pair.expect, client.output()), f"a client's output lacks /{pair.expect}/")
    if pair.endless:
        check(server.process.poll() is None, f"the server ended: {server.process.returncode}")
        os.killpg(server.process.pid, signal.SIGTERM)
        server.process.wait(ENDS)
    else:
        Stage.ended(server, ENDS, "the server")
    check(re.search(pair.served, server.output()), f"the server's output lacks /{pair.served}/")
