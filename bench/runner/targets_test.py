# SPDX-License-Identifier: Apache-2.0
import pathlib
import unittest

import targets
from catalogue import measurements

TABLE = pathlib.Path(__file__).resolve().parent.parent / "targets.toml"
LINE = """[[target]]
path = "loopback"
name = "{write,send} beside it"
ours = "ours.{write,send}"
against = "peer"
at_least = 2
"""
KNOWN = {"ours.write", "ours.send", "peer"}


class Targets(unittest.TestCase):
    def test_the_table_names_measurements_that_a_quick_run_has(self):
        loaded = targets.load(TABLE.read_text(), measurements(curves=False))
        self.assertGreater(len(loaded), 40)
        self.assertEqual(len(loaded), len({(each.path, each.name) for each in loaded}))

    def test_alternatives_are_lines_of_their_own(self):
        loaded = targets.load(LINE, KNOWN)
        self.assertEqual([(each.name, each.ours, each.against) for each in loaded],
                         [("WRITE beside it", "ours.write", "peer"), ("SEND beside it", "ours.send", "peer")])

    def test_wrong_tables_are_told(self):
        for wrong in ("[[target]", LINE.replace('"peer"', '"nobody"'), LINE.replace("at_least", "at_worst"),
                      LINE + "at_most = 3\n", LINE + 'limit = "nobody"\n', LINE.replace('against = "peer"\n', ""),
                      LINE.replace("beside it", "{a,b,c}")):
            with self.subTest(wrong), self.assertRaises(targets.WrongTargets):
                targets.load(wrong, KNOWN)

    def test_a_verdict_is_that_of_the_rounds_median(self):
        target = targets.load(LINE, KNOWN)[0]
        verdict = targets.judge_in("near", target, {"ours.write": [2.0, 30.0, 3.0], "peer": [1.0, 10.0, 2.0]})
        self.assertEqual((verdict.ratio, verdict.rounds, verdict.spread, verdict.word), (2.0, 3, (1.5, 3.0), "holds"))
        verdict = targets.judge_in("near", target, {"ours.write": [2.0, 3.0], "peer": [1.0, 3.0]})
        self.assertEqual(verdict.word, "does not hold")

    def test_at_most(self):
        target = targets.load(LINE.replace("at_least", "at_most"), KNOWN)[0]
        for ours, word in ((2.0, "holds"), (2.1, "does not hold")):
            self.assertEqual(targets.judge_in("", target, {"ours.write": [ours], "peer": [1.0]}).word, word)

    def test_a_target_that_its_limit_does_not_reach_is_out_of_reach(self):
        target = targets.load(LINE + 'limit = "loop"\n', KNOWN | {"loop"})[0]
        self.assertEqual(target.measurements(), ["ours.write", "peer", "loop"])
        for ours, loop, word in ((2.0, 1.5, "holds"), (1.0, 2.0, "does not hold"), (1.0, 1.9, "out of reach"),
                                 (1.0, None, "does not hold")):
            verdict = targets.judge_in("", target, {"ours.write": [ours], "peer": [1.0], "loop": [loop]})
            self.assertEqual((verdict.word, verdict.limit), (word, loop))

    def verdicts(self, near, far):
        """Where ours has so much in the rounds of each state; the peer has 1."""
        values = {"near": {"ours.write": near, "peer": [1.0] * len(near)},
                  "far": {"ours.write": far, "peer": [1.0] * len(far)}}
        return [(each.state, each.word) for each in targets.judge(targets.load(LINE, KNOWN)[0], values)]

    def test_each_state_of_the_processors_has_a_verdict_and_the_worse_counts(self):
        self.assertEqual(self.verdicts([3.0, 3.0], [1.0, None]), [("far", "does not hold"), ("near", "holds")])
        self.assertEqual(self.verdicts([1.0, 1.0], [3.0, 3.0]), [("near", "does not hold"), ("far", "holds")])

    def test_what_was_seen_in_few_rounds_does_not_count(self):
        self.assertEqual(self.verdicts([3.0] * 5, [1.0, 1.0]), [("near", "holds"), ("far", "does not hold")])

    def test_a_state_that_was_not_seen_has_no_verdict(self):
        self.assertEqual(self.verdicts([3.0], [None]), [("near", "holds")])
        self.assertEqual(self.verdicts([None], []), [("", "not measured")])

    def test_what_was_not_measured_is_said(self):
        target = targets.load(LINE, KNOWN)[0]
        for values in ({}, {"ours.write": [1.0]}, {"ours.write": [None], "peer": [1.0]}):
            verdict = targets.judge_in("", target, values)
            self.assertEqual((verdict.word, verdict.ratio), ("not measured", None))


if __name__ == "__main__":
    unittest.main()
