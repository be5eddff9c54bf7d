# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys
import tempfile
import unittest

from distance import TRIES, Distance, cache_line


class Distances(unittest.TestCase):
    def setUp(self):
        self.pauses = 0

    def distance(self, *seen):
        """Of a machine where so much is seen, one after the other; the last for ever."""
        left = list(seen)

        def pause(_):
            self.pauses += 1
        return Distance(lambda: left.pop(0) if len(left) > 1 else left[0], pause)

    def test_a_run_between_two_near_looks_counts(self):
        distance = self.distance(0.06, 0.07)
        self.assertEqual(distance.run_near(lambda: "a run"), "a run")
        self.assertEqual((distance.repeated, distance.far, self.pauses), (0, 0, 0))

    def test_one_that_ended_far_apart_is_repeated(self):
        runs = iter(range(9))
        distance = self.distance(0.06, 0.25, 0.06)
        self.assertEqual(distance.run_near(lambda: next(runs)), 1)
        self.assertEqual((distance.repeated, distance.far), (1, 0))

    def test_nothing_is_run_before_they_are_near(self):
        distance = self.distance(0.06, 0.06, 0.25, 0.25, 0.06)
        distance.run_near(lambda: None)
        self.assertEqual(self.pauses, 0)
        distance.run_near(lambda: None)
        self.assertEqual((self.pauses, distance.repeated), (2, 0))

    def test_who_stays_far_counts_in_the_end_and_is_told(self):
        distance = self.distance(0.06, 0.25)
        self.assertEqual(distance.run_near(lambda: "a run"), "a run")
        self.assertEqual((distance.repeated, distance.far), (TRIES - 1, 1))

    def test_what_was_always_far_is_near(self):
        distance = self.distance(0.25)
        distance.run_near(lambda: None)
        self.assertEqual((distance.repeated, distance.far), (0, 0))

    def test_without_the_loop_or_a_second_processor_every_run_counts(self):
        for limits, cores in (("/nowhere/verbena-limits", ["0", "1"]), (sys.executable, ["0", "0"])):
            distance = Distance(cache_line(limits, cores))
            self.assertEqual(distance.run_near(lambda: 3), 3)
            self.assertEqual((distance.repeated, distance.far, distance.least), (0, 0, None))

    def test_a_loop_that_says_nothing_of_use_is_as_none(self):
        with tempfile.TemporaryDirectory() as folder:
            loop = pathlib.Path(folder) / "verbena-limits"
            for text in ("echo nothing", "echo '[]'", "echo '{}'", "exit 3"):
                loop.write_text(f"#!/bin/sh\n{text}\n")
                loop.chmod(0o755)
                self.assertIsNone(cache_line(loop, ["0", "1"])())


if __name__ == "__main__":
    unittest.main()
