# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys
import tempfile
import unittest

from distance import FAR, MOVED, NEAR, TRIES, UNKNOWN, Distance, cache_line


class Distances(unittest.TestCase):
    def distance(self, *seen):
        """Of a machine where so much is seen, one after the other; the last for ever."""
        left = list(seen)
        return Distance(lambda: left.pop(0) if len(left) > 1 else left[0])

    def test_a_run_between_two_like_looks_counts(self):
        for looks in ((0.06, 0.07), (0.2, 0.3)):
            distance = self.distance(*looks)
            self.assertEqual(distance.run_steady(lambda: "a run"), ("a run", looks))
            self.assertEqual(distance.repeated, 0)

    def test_one_in_which_the_processors_were_moved_is_repeated(self):
        for looks in ((0.06, 0.25, 0.06), (0.25, 0.06)):
            runs = iter(range(9))
            distance = self.distance(*looks)
            self.assertEqual(distance.run_steady(lambda: next(runs)), (1, (0.06, 0.06)))
            self.assertEqual(distance.repeated, 1)

    def test_who_is_moved_for_ever_is_told(self):
        distance = self.distance(*(0.06, 0.25) * TRIES)
        result, looks = distance.run_steady(lambda: "a run")
        self.assertEqual((result, distance.state(looks)), ("a run", MOVED))
        self.assertEqual(distance.as_json(), {"least_us": 0.06, "runs_repeated": TRIES - 1})

    def test_states_are_by_the_least_that_was_seen_in_all(self):
        distance = self.distance(0.25, 0.25, 0.06)
        _, first = distance.run_steady(lambda: None)
        self.assertEqual(distance.state(first), NEAR)
        _, second = distance.run_steady(lambda: None)
        self.assertEqual((distance.state(first), distance.state(second)), (FAR, NEAR))

    def test_without_the_loop_or_a_second_processor_nobody_knows(self):
        for limits, cores in (("/nowhere/verbena-limits", ["0", "1"]), (sys.executable, ["0", "0"])):
            distance = Distance(cache_line(limits, cores))
            result, looks = distance.run_steady(lambda: 3)
            self.assertEqual((result, distance.state(looks), distance.repeated), (3, UNKNOWN, 0))

    def test_a_loop_that_says_nothing_of_use_is_as_none(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = pathlib.Path(folder) / "verbena-limits"
            for text in ("echo nothing", "echo '[]'", "echo '{}'", "exit 3"):
                loop.write_text(f"#!/bin/sh\n{text}\n")
                loop.chmod(0o755)
                self.assertIsNone(cache_line(loop, ["0", "1"])())


if __name__ == "__main__":
    unittest.main()
