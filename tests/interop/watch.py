# SPDX-License-Identifier: Apache-2.0
"""What a NIC counts and what its sockets hold while a pair takes longer than it should."""
import collections
import subprocess
import threading
import time

USUAL = 1.0  # seconds in which a short pair has mostly ended
STEP = 0.3  # seconds from look to look
KEPT = 8  # looks, the latest ones


class Watch:
    """Looks at an address from another thread for as long as the block lasts; a block that ends
    within the usual time is not looked at."""

    def __init__(self, build, address):
        self.counters = [str(build / "bin" / "verbena"), "counters", "--addr", address, "--qp"]
        self.sockets = ["ss", "-H", "-uanpm", "src", address]
        self.over = threading.Event()
        self.looks = collections.deque(maxlen=KEPT)
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.start = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        pause = USUAL
        while not self.over.wait(pause):
            at = time.monotonic() - self.start
            self.looks.append(f"{at:.1f} s\n{said(self.counters)}{busy(said(self.sockets))}")
            pause = STEP

    def report(self):
        return "".join(f"\n--- the NIC after {look}" for look in self.looks)


def busy(sockets):
    """Those of a pool's many sockets that hold packets or have dropped some."""
    lines = sockets.splitlines()
    return "".join(f"{name} {memory.strip()}\n" for name, memory in zip(lines[::2], lines[1::2])
                   if "(r0," not in memory or ",d0)" not in memory)


def said(words):
    try:
        one = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    return one.stdout
