# SPDX-License-Identifier: Apache-2.0
"""How far apart the two processors are: what a cache line takes from one to the other.

In a virtual machine that changes. For seconds its processors share a cache, then their host has moved one to where
they do not, and what one writes for the other costs three times as much (docs/performance.md). Two programs that are
compared must not meet different ones.
"""
import json
import pathlib
import subprocess
import time

FAR = 2  # times the least that was seen
TRIES = 6
PAUSE = 0.2  # seconds
PATIENCE = 5  # seconds to wait for the processors to be near


class Distance:
    """`look` gives it in microseconds, or None where nobody can tell; then every run counts."""

    def __init__(self, look, pause=time.sleep):
        self.look = look
        self.pause = pause
        self.least = None
        self.repeated = 0  # runs that did not count
        self.far = 0  # runs that count although the processors were far apart

    def is_near(self):
        seen = self.look()
        if seen is None:
            return True
        self.least = seen if self.least is None else min(self.least, seen)
        return seen <= FAR * self.least

    def as_json(self):
        return {"least_us": self.least, "runs_repeated": self.repeated, "runs_far_apart": self.far}

    def wait_until_near(self):
        for _ in range(int(PATIENCE / PAUSE)):
            if self.is_near():
                return
            self.pause(PAUSE)

    def run_near(self, run):
        """What `run` returns where the processors were near before and behind it, at most TRIES times."""
        for left in reversed(range(TRIES)):
            self.wait_until_near()
            result = run()
            if self.is_near():
                break
            if left:
                self.repeated += 1
            else:
                self.far += 1
        return result


def cache_line(limits, cores):
    """What `Distance` looks with: our loop, if it is there and there are two processors."""
    if not pathlib.Path(limits).exists() or len(set(cores)) < 2:
        return lambda: None
    words = ["taskset", "--cpu-list", ",".join(cores), str(limits), "cache-line", "--seconds", "0.01"]

    def look():
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=10)
            return json.loads(done.stdout)["value"]
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
            return None
    return look
