# SPDX-License-Identifier: Apache-2.0
"""Pairs of programs at some addresses that are killed and stopped, and what becomes of the others."""
import collections
import dataclasses
import os
import queue
import re
import signal
import tempfile
import threading
import time
import traceback

import leftovers
import live_pair
import programs
import watch

LATEST = 1.0  # seconds after its start at which a pair is hit
AT_ONCE = 15  # seconds in which a short new pair has finished, start to end, on a busy machine
# What a new program says that finds only stopped ones.
STOPPED = re.compile(r"process (\d+) .*is it stopped\?")


@dataclasses.dataclass(frozen=True)
class Event:
    number: int
    kind: live_pair.Kind
    sides: tuple  # that are hit
    kill: bool
    moment: float
    address: str

    def __str__(self):
        verb = "kill" if self.kill else "stop"
        return f"{verb} {' and '.join(self.sides)} of {self.kind.name} at {self.moment:.2f} s"


def plan(chance, kinds, kills, stops, addresses):
    events = []
    for number, kill in enumerate(chance.sample([True] * kills + [False] * stops, kills + stops)):
        sides = chance.choice([("server",), ("client",), ("server",), ("client",), ("server", "client")])
        events.append(Event(number, chance.choice(kinds), sides, kill, chance.uniform(0, LATEST),
                            chance.choice(addresses)))
    return events


class Campaign:
    def __init__(self, build, seed, seconds, user):
        self.build = build
        self.seconds = seconds
        self.user = user
        # Addresses of its own, so that whoever else is on the machine has no part in it.
        place = os.getpid() % 60000
        self.addresses = [f"127.{66 + place // 250 % 50}.{place % 250}.{last}" for last in (1, 2)]
        self.ports = programs.Ports()
        self.mark = f"VERBENA_CAMPAIGN={os.getpid()}.{seed}"
        self.folder = tempfile.TemporaryDirectory()  # where the programs' temporary files go
        self.lock = threading.Lock()
        self.passed = self.failed = 0
        self.outcomes = collections.Counter()
        self.messages = collections.Counter()
        self.stopped = set()  # process ids of all that ever were
        self.over = threading.Event()

    def pair(self, kind, address, run=()):
        extra = dict([self.mark.split("=")], TMPDIR=self.folder.name)
        return live_pair.LivePair(self.build, kind, address, self.ports, extra, run)

    def left(self):
        return leftovers.count(self.addresses, self.ports.given, self.mark, self.folder.name)

    def note(self, problem, what, took):
        with self.lock:
            self.failed += bool(problem)
            self.passed += not problem
            print(f"{'FAILED' if problem else 'ok':6} {took:6.1f} s  {self.user}: {what}", flush=True)
            if problem:
                print(problem, flush=True)

    # What an event leads to.

    def strike(self, event):
        """Runs a pair and hits it; returns what is wrong, or nothing."""
        pair = self.pair(event.kind, event.address)
        try:
            if not pair.run_for(event.moment, event.sides[-1] if len(event.sides) == 1 else None):
                outcomes = pair.end()
                self.count("not hit, had ended", outcomes, pair)
                return "" if self.told_who_is_stopped(pair) else self.judge(pair, event, outcomes, undisturbed=True)
            problem = ""
            for side in event.sides:
                pair.send(side, signal.SIGKILL if event.kill else signal.SIGSTOP)
            if not event.kill:
                self.stopped.update(side.process.pid for side in pair.sides.values())
                problem = self.meanwhile(event)
                for side in event.sides:
                    pair.send(side, signal.SIGCONT)
            outcomes = pair.wait()
            self.count("killed" if event.kill else "stopped", outcomes, pair)
            return problem or self.judge(pair, event, outcomes) or self.probe(event.address)
        finally:
            pair.stop()

    def meanwhile(self, event):
        """The seconds of a stop, with a new pair."""
        end = time.monotonic() + self.seconds
        problem = self.probe(event.address)
        time.sleep(max(0, end - time.monotonic()))
        return problem

    def probe(self, address):
        """A new pair, which finishes at once, or names a process that we have stopped."""
        pair = self.pair(live_pair.SHORT, address)
        start = time.monotonic()
        with watch.Watch(self.build, address) as seen:
            outcomes = pair.wait(AT_ONCE)
        if all(outcome == "done" for outcome in outcomes.values()) and len(outcomes) == 2:
            return ""
        if self.told_who_is_stopped(pair):
            return ""
        return (f"a new pair at {address}, {time.monotonic() - start:.1f} s: {outcomes}{pair.report()}"
                f"{seen.report()}")

    def told_who_is_stopped(self, pair):
        """Whether a new program found nobody at the address but processes that we have stopped."""
        named = [STOPPED.search(side.output()) for side in pair.sides.values()]
        told = any(one and int(one[1]) in self.stopped for one in named)
        with self.lock:
            self.outcomes["new, beside stopped ones alone: told who does not answer"] += told
        return told

    def judge(self, pair, event, outcomes, undisturbed=False):
        fine = {"done"} if undisturbed else {"done", "failed", "killed", "broken pipe", "waits"}
        if not event.kind.connected and not undisturbed:
            fine.add("hangs")  # the other side may have lost what it waits for
        for side, outcome in outcomes.items():
            if outcome not in fine:
                return f"the {side}: {outcome}{pair.report()}"
        if list(outcomes.values()) == ["waits", "waits"] and event.kind.connected:
            return f"both wait for each other{pair.report()}"
        return ""

    def count(self, what, outcomes, pair):
        with self.lock:
            for side, outcome in outcomes.items():
                whose = "itself" if side in pair.hit and pair.hit[side] != signal.SIGTERM else "peer"
                self.outcomes[f"{what}, {whose}: {outcome}"] += 1
                if outcome == "failed":
                    self.messages[pair.said(side)] += 1

    # The whole.

    def work(self, events):
        while True:
            try:
                event = events.get_nowait()
            except queue.Empty:
                return
            start = time.monotonic()
            try:
                problem = self.strike(event)
            except Exception:  # a thread's is lost otherwise, and the event would not count
                problem = traceback.format_exc()
            self.note(problem, f"{event.number} {event}", time.monotonic() - start)

    def stand_by(self):
        """Pairs that nobody disturbs, one after the other at the busiest address."""
        start = time.monotonic()
        rounds = 0
        problem = ""
        while not problem and not (self.over.is_set() and rounds):
            problem = self.probe(self.addresses[0])
            rounds += 1
        self.note(problem, f"{rounds} bystanders, one after the other", time.monotonic() - start)

    def run(self, events, workers):
        before = self.left()
        waiting = queue.Queue()
        for event in events:
            waiting.put(event)
        threads = [threading.Thread(target=self.work, args=(waiting,)) for _ in range(workers)]
        bystander = threading.Thread(target=self.stand_by)
        for thread in (*threads, bystander):
            thread.start()
        for thread in threads:
            thread.join()
        self.over.set()
        bystander.join()
        self.look_back(before)

    def look_back(self, before):
        time.sleep(0.5)  # the kernel closes what a killed process had
        after = self.left()
        more = {what: after[what] - before[what] for what in after}
        text = ", ".join(f"{number} {what}" for what, number in more.items())
        self.note("" if not any(number > 0 for number in more.values()) else f"before: {before}, after: {after}",
                  f"left behind: {text}", 0.5)
        for table in (self.outcomes, self.messages):
            print("".join(f"       {number:5}  {what}\n" for what, number in table.most_common()))
