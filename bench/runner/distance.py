# SPDX-License-Identifier: Apache-2.0
"""How far apart the two processors are: what a cache line takes from one to the other.

In a virtual machine that changes. For seconds its processors share a cache, then their host has moved one to where
they do not, and what one writes for the other costs three times as much (docs/performance.md). So each run is marked
with what was seen before and behind it, and only runs of one state are compared.
"""
import json
import pathlib
import subprocess

NEAR, FAR, MOVED, UNKNOWN = "near", "far", "moved", ""
STATES = (NEAR, FAR, UNKNOWN)  # in which runs are compared
APART = 2  # times the least that was seen
TRIES = 3


class Distance:
    """`look` gives it in microseconds, or None where nobody can tell."""

    def __init__(self, look):
        self.look = look
        self.least = None
        self.repeated = 0  # runs that did not count

    def seen(self):
        value = self.look()
        if value is not None:
            self.least = value if self.least is None else min(self.least, value)
        return value

    def state(self, looks):
        """Of a run between two looks, by the least seen so far: only in the end is that the least of all."""
        if None in looks:
            return UNKNOWN
        near = [look <= APART * self.least for look in looks]
        return NEAR if all(near) else MOVED if any(near) else FAR

    def as_json(self):
        return {"least_us": self.least, "runs_repeated": self.repeated}

    def run_steady(self, run):
        """What `run` returns where the processors stayed where they were, at most TRIES times, and both looks."""
        for left in reversed(range(TRIES)):
            before = self.seen()
            result = run()
            looks = (before, self.seen())
            if self.state(looks) != MOVED:
                break
            self.repeated += bool(left)
        return result, looks


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
