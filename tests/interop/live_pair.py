# SPDX-License-Identifier: Apache-2.0
"""A server and a client that somebody disturbs while they run, and what may become of them."""
import dataclasses
import os
import re
import signal
import time

import programs

STEP = 0.005  # seconds between looks
LONGEST = 180  # seconds; a pair that needs so long hangs, on a busy machine too,
LONGEST_UNCONNECTED = 30  # or has lost the datagram that it waits for
# A survivor's time-outs are over by then: 8 of 67 ms, each up to fourfold.
WAITS = 4
WRONG_DATA = re.compile(r"invalid data|was overwritten|byte \d+ is 0x")
A_MESSAGE = re.compile(r"(?i)fail|error|could|unable|gone|refused|exceeded|stopped|not ")


@dataclasses.dataclass(frozen=True)
class Kind:
    """A program that both sides run. `waiting` names the sides that have nothing under way while
    they wait for a message: if the peer dies then, they wait for ever, on a card as well."""
    words: tuple
    done: str  # a regular expression that the output of who finished holds
    waiting: tuple = ("server", "client")
    connected: bool = True  # else what is lost stays lost, and both may wait

    @property
    def name(self):
        return " ".join(os.path.basename(word) for word in self.words if word not in ("-F", "-g", "0"))


def kinds(build):
    """Each runs for some tenths of a second when it is alone. Those that hand on the turn with each
    message make few: where many share the processors, a turn takes milliseconds."""
    pingpong = r"iters in .* usec/iter"
    perftest = r"#bytes.*\n\s*\d+\s+\d+"
    rc = ("ibv_rc_pingpong", "-g", "0", "-c")
    ud = ("ibv_ud_pingpong", "-g", "0", "-c")
    check = str(build / "bin" / "verbs_check")
    return [
        Kind((*rc, "-n", "8000"), pingpong),
        Kind((*rc, "-e", "-s", "70000", "-n", "2000"), pingpong),
        Kind((*ud, "-s", "1024", "-n", "8000"), pingpong, connected=False),
        Kind((*ud, "-e", "-n", "5000"), pingpong, connected=False),
        Kind(("ib_write_bw", "-F", "-n", "15000"), perftest, ()),
        Kind(("ib_write_bw", "-F", "-q", "8", "-s", "4096", "-n", "20000"), perftest, ()),
        Kind(("ib_read_bw", "-F", "-n", "15000"), perftest, ()),
        Kind(("ib_atomic_bw", "-F", "-n", "100000"), perftest, ()),
        Kind(("ib_send_bw", "-F", "-s", "4096", "-n", "150000"), perftest, ("server",)),
        Kind(("ib_send_bw", "-F", "-e", "-n", "10000"), perftest, ("server",)),
        Kind(("ib_send_bw", "-F", "-c", "UD", "-s", "1024", "-n", "100000"), perftest, ("server",), False),
        Kind(("ib_send_lat", "-F", "-e", "-n", "5000"), perftest),
        Kind(("ib_write_lat", "-F", "-n", "8000"), perftest),
        Kind((check,), "passed: WRITE after reconnecting"),
        Kind((check, "-e"), "passed: WRITE after reconnecting"),
    ]


# For seeing whether an address is fit for use.
SHORT = Kind(("ibv_rc_pingpong", "-g", "0", "-c", "-n", "50"), r"iters in .* usec/iter", ())


class LivePair:
    def __init__(self, build, kind, address, ports, extra=None, run=()):
        self.kind = kind
        self.port = ports.take()
        self.environment = {**os.environ, **(extra or {})}
        self.words = [str(build / "bin" / "verbena"), "run", "--addr", address, *run, "--",
                      kind.words[0], "-p", str(self.port), *kind.words[1:]]
        self.sides = {"server": programs.Process(self.words, self.environment)}
        self.hit = {}  # the signals that sides got from us

    def look(self):
        """Starts the client as soon as the server listens. Returns whether somebody still runs."""
        server = self.sides["server"].process
        if "client" not in self.sides and server.poll() is None and programs.listens(self.port):
            self.sides["client"] = programs.Process([*self.words, programs.ADDRESS], self.environment)
        return any(side.process.poll() is None for side in self.sides.values())

    def run_for(self, seconds, side=None):
        """Until then, and until the side is there; false when the pair has ended before."""
        deadline = time.monotonic() + seconds
        while self.look():
            if time.monotonic() >= deadline and (side is None or side in self.sides):
                return True
            time.sleep(STEP)
        return False

    def send(self, side, number):
        if side in self.sides and self.sides[side].process.poll() is None:
            os.killpg(self.sides[side].process.pid, number)
            self.hit[side] = number

    def wait(self, longest=None):
        """Until both have ended, or one has and the other waits for what will never come. Such a
        one, and everybody after `longest` seconds, is told to end."""
        usual = LONGEST if self.kind.connected else LONGEST_UNCONNECTED
        deadline = time.monotonic() + (longest or usual)
        alone_since = None
        while self.look() and time.monotonic() < deadline:
            left = [side for side, of in self.sides.items() if of.process.poll() is None]
            alone = len(left) == 1 and len(self.sides) == 2 and self.may_wait(left[0])
            alone_since = (alone_since or time.monotonic()) if alone else None
            if alone and time.monotonic() - alone_since > WAITS:
                break
            time.sleep(STEP)
        return self.end()

    def may_wait(self, side):
        """For ever, when the other side is gone: for a message, or for a client that never came."""
        return side in self.kind.waiting or side == "server" and programs.listens(self.port)

    def end(self):
        """Tells whoever is left to end, and returns what became of each side: done, failed, killed,
        broken pipe, waits, or what is wrong."""
        left = {side: self.may_wait(side) for side, of in self.sides.items() if of.process.poll() is None}
        for side in left:
            self.send(side, signal.SIGTERM)
        outcomes = {}
        for side, of in self.sides.items():
            try:
                of.process.wait(5)
            except Exception:
                outcomes[side] = "does not end on SIGTERM"
                continue
            outcomes[side] = self.outcome(side) if side not in left else "waits" if left[side] else "hangs"
        self.stop()
        return outcomes

    def outcome(self, side):
        """Of one that has ended: done, failed, killed, broken pipe, or what is wrong."""
        status = self.sides[side].process.returncode
        output = self.sides[side].output()
        if status == -signal.SIGKILL and self.hit.get(side) == signal.SIGKILL:
            return "killed"
        # Of its own: perftest leaves SIGPIPE as it is, and ends with two writes to the TCP connection on
        # which both sides say what they have measured. We send with MSG_NOSIGNAL.
        if status == -signal.SIGPIPE and signal.SIGKILL in self.hit.values():
            return "broken pipe"
        if status < 0:
            return f"died of signal {-status}"
        if WRONG_DATA.search(output):
            return "wrong data"
        if status == 0:
            return "done" if re.search(self.kind.done, output) else "ended with status 0, but is not done"
        return "failed" if A_MESSAGE.search(output) else f"status {status} without a message"

    def stop(self):
        for of in self.sides.values():
            of.stop()

    def said(self, side):
        """The last line in which a side says what is wrong, its numbers left out."""
        lines = [line for line in self.sides[side].output().splitlines() if A_MESSAGE.search(line)]
        return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "N", lines[-1].strip()) if lines else ""

    def report(self):
        return "".join(f"\n--- {side}: {' '.join(of.words)}\n{of.output()[-3000:]}"
                       for side, of in self.sides.items())
