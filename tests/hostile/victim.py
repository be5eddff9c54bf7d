# SPDX-License-Identifier: Apache-2.0
"""The victim: a program that keeps its own connections busy, checks its memory, and says so."""
import os
import pathlib
import select
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import leftovers  # noqa: E402

ANSWERS_IN = 60  # seconds
PEER_QPN = 0x77
WARM = 100  # rounds of its own traffic
# What threads keep of freed memory would count as used (mallinfo2(3)), and grow for hours.
EXACT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


class Victim:
    def __init__(self, build, address, peer):
        self.gid = f"::ffff:{peer}"
        self.process = subprocess.Popen(
            [str(build / "bin" / "verbena"), "run", "--addr", address, "--", str(build / "bin" / "hostile_victim")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True,
            env={**os.environ, **EXACT})
        # What goes often to one peer gets a socket of its own, which is not to be counted as a leak.
        while self.check()[1] < WARM:
            time.sleep(0.01)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        if not select.select([self.process.stdout], [], [], ANSWERS_IN)[0]:
            raise RuntimeError(f"the victim does not answer '{line}'")
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the victim died with status {self.process.wait()}")
        return answer

    def target(self):
        """A new connection to the peer: the options that tell the peer of it."""
        return self.ask(f"target {self.gid} {PEER_QPN}").split()

    def check(self):
        """Whether the connection to the peer stands, and how many own rounds and breaks there were."""
        words = self.ask("check").split()
        if words[0] != "fine":
            raise RuntimeError(f"the victim: {' '.join(words)}")
        return words[1] == "alive", int(words[2]), int(words[3])

    def facts(self):
        return {**leftovers.of_process(self.process.pid), "heap_kib": int(self.ask("heap"))}

    def close(self):
        self.process.stdin.close()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
