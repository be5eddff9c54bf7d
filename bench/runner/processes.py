# SPDX-License-Identifier: Apache-2.0
"""Runs a measurement's programs: one alone, or a server and its client, on the processors that they
are given. Nothing outlives the run."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

LISTENING = "0A"  # in the kernel's table of TCP sockets


class Failed(Exception):
    """A program ended with an error, or did not end."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def has_general_services(pid):
    """Whether the process hears what comes to a queue pair 1 of ours, as who listens by rdma_cm does."""
    try:
        links = {os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        lines = pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
    except OSError:
        return False
    return any(f"socket:[{words[6]}]" in links for words in map(str.split, lines)
               if len(words) > 7 and words[7].startswith("@verbena/") and words[7].endswith("/general"))


def is_bound(port, pid, listens="tcp"):
    """Whether somebody listens at the TCP port on the process's host, or has the UDP port, or the
    process listens by rdma_cm. Asked of the kernel's tables: a connection would use up a server's only
    accept."""
    if listens == "rdma_cm":
        return has_general_services(pid)
    udp = listens == "udp"
    for table in ("udp", "udp6") if udp else ("tcp", "tcp6"):
        try:
            lines = pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[1].endswith(f":{port:04X}") and (udp or words[3] == LISTENING):
                return True
    return False


def written(file):
    """What a program has written into the file so far."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


class Process:
    """A program in a process group of its own, its output and its complaints in files."""

    def __init__(self, words, environment):
        self.words = words
        self.stdout, self.stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.stdout,
                                        stderr=self.stderr, env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.stdout.close()
        self.stderr.close()

    def output(self):
        return written(self.stdout)

    def failed(self, how):
        return Failed(f"{how}: {' '.join(self.words)}\n{self.output()[-2000:]}{written(self.stderr)[-2000:]}")

    def wait(self, deadline):
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self.failed("did not end in time") from None
        if status != 0:
            raise self.failed(f"status {status}")

    def wait_until_bound(self, port, listens, deadline):
        while not is_bound(port, self.process.pid, listens):
            if self.process.poll() is not None:
                raise self.failed("the server ended before its client came")
            if time.monotonic() > deadline:
                raise self.failed("the server does not listen")
            time.sleep(0.01)
        if listens == "rdma_cm":
            time.sleep(0.2)  # it is bound, and listens next


def run_alone(words, environment, longest):
    """The program's output."""
    with Process(words, environment) as program:
        program.wait(time.monotonic() + longest)
        return program.output()


def run_pair(server_words, client_words, port, environment, longest, listens="tcp", serves_on=False):
    """The client's output. A server that serves on is killed then."""
    deadline = time.monotonic() + longest
    with Process(server_words, environment) as server:
        server.wait_until_bound(port, listens, deadline)
        with Process(client_words, environment) as client:
            client.wait(deadline)
            if not serves_on:
                server.wait(min(deadline, time.monotonic() + 10))
            return client.output()
