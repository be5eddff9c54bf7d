# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import pathlib
import sys
import tempfile
import unittest

import outputs
import processes
from catalogue import Measurement, iperf3, measurements, our_bandwidth
from distance import Distance
from hosts import Hosts, Link
from session import Missing, Results, Session, in_order, run_once, run_rounds
from targets import Target

FIGURE = 'print(\'{"value": 3, "unit": "us"}\')'
SERVER = "import socket,sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); s.accept()"
CLIENT = "import socket,sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])));" + FIGURE


def python(script, *words):
    return (sys.executable, "-c", script, *words)


def alone(script, name="alone", **more):
    return Measurement(name, "a program", "us", outputs.ours, python(script), **more)


class Sessions(unittest.TestCase):
    def setUp(self):
        core = str(min(os.sched_getaffinity(0)))
        self.session = Session("/nowhere/verbena", [core, core], 0.1, 0.1, Hosts("/nowhere/two-hosts"))
        self.addCleanup(self.session.close)

    def test_a_program_alone(self):
        self.assertEqual(self.session.run(alone(FIGURE)).value, 3)

    def test_a_server_and_its_client(self):
        pair = alone("", server=python(SERVER, "{port}"))
        pair = dataclasses.replace(pair, client=python(CLIENT, "{port}"))
        self.assertEqual(self.session.run(pair).value, 3)

    def test_what_goes_wrong_is_kept_for_the_report(self):
        wrong = {"ends": alone("import sys; print('so it was'); sys.exit(3)"), "says nothing": alone(""),
                 "server ends": alone(FIGURE, server=python("", "{port}"))}
        for name, each in wrong.items():
            with self.subTest(name):
                results = Results([each])
                self.assertIsNone(run_once(self.session, results, each))
                self.assertIn("alone", results.failures)
        results = Results([wrong["ends"]])
        run_once(self.session, results, wrong["ends"])
        self.assertIn("status 3", results.failures["alone"])
        self.assertIn("so it was", results.failures["alone"])

    def test_a_program_that_hangs_is_ended(self):
        with self.assertRaises(processes.Failed):
            processes.run_alone(python("import time; time.sleep(60)"), dict(os.environ), 0.3)

    def test_missing_programs_are_named_once_with_their_package(self):
        missing = dataclasses.replace(alone(""), client=("no-such-program",), package="some-package")
        with self.assertRaisesRegex(Missing, "no-such-program; as root: apt-get install some-package"):
            self.session.find(missing)
        results, told = Results([missing]), []
        run_rounds(self.session, results, [Target("", "", "alone", "alone", ">=", 1)], 3,
                   lambda *run: told.append(run))
        self.assertEqual(results.figures["alone"], [None] * 3)
        self.assertEqual(len(told), 2)  # it begins, and is missing; not again in the next rounds
        self.assertIn("missing", results.as_json(missing))

    def rounds(self, *seen):
        """Of two programs that are compared and one more, where each look at the processors sees the next."""
        looks = iter(seen)
        self.session.distance = Distance(lambda: next(looks))
        results = Results([alone(FIGURE, name=name) for name in ("ours", "peer", "other")])
        run_rounds(self.session, results, [Target("", "", "ours", "peer", ">=", 1)], 1, lambda *_: None)
        return results

    def test_sides_that_met_different_states_are_run_again(self):
        near, far = (1, 1), (3, 3)
        results = self.rounds(*near, *far, *near, *far, *far)
        values = results.values(self.session.distance)
        self.assertEqual(values["near"], {"ours": [3, None], "peer": [None, None], "other": [3, None]})
        self.assertEqual(values["far"], {"ours": [None, 3], "peer": [3, 3], "other": [None, None]})

    def test_they_are_not_run_for_ever(self):
        near, far = (1, 1), (3, 3)
        results = self.rounds(*near, *far, *near, *near, *far)
        self.assertEqual([len(each) for each in results.figures.values()], [2, 2, 2])

    def test_sides_that_met_the_same_are_not_run_again(self):
        results = self.rounds(*(1, 1) * 3)
        self.assertEqual([len(each) for each in results.figures.values()], [1, 1, 1])

    def test_hosts_that_cannot_be_made_are_missing(self):
        results = Results([alone(FIGURE, link=Link(1500))])
        self.assertIsNone(run_once(self.session, results, results.measurements[0]))
        self.assertRegex(results.missing["alone"], "two-hosts is missing|there is no")

    def test_both_sides_are_pinned_and_only_ours_run_on_the_nic(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("ib_write_bw", "iperf3"):
                pathlib.Path(folder, name).touch(mode=0o755)
            path, os.environ["PATH"] = os.environ["PATH"], folder
            self.addCleanup(os.environ.__setitem__, "PATH", path)
            self.session.cores = ["4", "7"]
            ours, peer = our_bandwidth("write", 4096, 1024), iperf3()
            for side in (0, 1):
                words = self.session.command(ours, side, 99)
                self.assertEqual(words[:6], ["taskset", "--cpu-list", "47"[side], "/nowhere/verbena", "run", "--addr"])
                self.assertEqual(self.session.command(peer, side, 99)[:3], ["taskset", "--cpu-list", "47"[side]])
                self.assertNotIn("run", self.session.command(peer, side, 99))
                self.assertIn("99", words)

    def test_no_place_is_left_unfilled(self):
        for each in measurements().values():
            for words in (each.server, each.client):
                for word in self.session.fill(each, list(words), 1):
                    self.assertNotIn("{", word, each.name)

    def test_settings_of_the_user_do_not_count(self):
        os.environ["VERBENA_FAULTS"] = "drop=1%"
        self.addCleanup(os.environ.pop, "VERBENA_FAULTS")
        session = Session("/nowhere/verbena", ["0", "0"], 1, 1, Hosts("/nowhere"))
        self.addCleanup(session.close)
        self.assertNotIn("VERBENA_FAULTS", session.environment)

    def test_what_is_compared_stands_together(self):
        known = {name: alone("", name=name) for name in "abcd"}
        ordered = in_order(known, [Target("", "", "c", "a", ">=", 1), Target("", "", "d", "a", ">=", 1)])
        self.assertEqual([each.name for each in ordered], ["c", "a", "d", "b"])


if __name__ == "__main__":
    unittest.main()
