# SPDX-License-Identifier: Apache-2.0
import html.parser
import unittest

import report
import targets
from catalogue import measurements, our_bandwidth
from figures import Figure, quantiles_of
from session import Results

VOID = {"meta", "link", "br", "i"}


class Balance(html.parser.HTMLParser):
    """Each element that opens is closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> closes nothing")


def result_of(chosen, figure, verdicts=()):
    results = Results(chosen)
    for each in chosen:
        results.figures[each.name] = [figure(each)] * 2
    results.missing["gone"] = "there is no program"
    return {"machine": {"processor": "<One> & Co", "processors": 2, "cores": ["0", "1"], "memory_gib": 4.0,
                        "virtual_machine": True, "kernel": "6.1", "verbena": "0.1.0", "packages": {"perftest": "4.5"},
                        "load": 0.5, "time": "2026-01-01T00:00:00+00:00"},
            "distance": {"least_us": None, "runs_repeated": 0},
            "options": {"rounds": 2, "quick": False, "only": ""},
            "targets": [report.target_as_json(each) for each in verdicts],
            "measurements": {each.name: results.as_json(each) for each in chosen}}


def figure(measurement):
    latency = measurement.unit == "us"
    return Figure(2.5, quantiles_of([1.0, 2.5, 90.0]) if latency else [])


class Report(unittest.TestCase):
    def check_page(self, page):
        balance = Balance()
        balance.feed(page)
        self.assertEqual(balance.open, [])
        return balance.seen

    def test_a_whole_run_has_every_plot_and_is_one_file(self):
        page = report.as_html(result_of(list(measurements().values()), figure))
        self.assertEqual(self.check_page(page).count("svg"), 10)
        for outside in ("http://", "https://", "src=", "url("):
            self.assertNotIn(outside, page)
        self.assertIn("&lt;One&gt; &amp; Co", page)

    def test_runs_that_were_repeated_are_told(self):
        result = result_of(list(measurements().values()), figure)
        self.assertNotIn("repeated", report.as_text(result))
        result["distance"] = {"least_us": 0.056, "runs_repeated": 3}
        for text in (report.as_text(result), report.as_html(result)):
            self.assertIn("takes 56 ns where they are near", text)
            self.assertIn("3 runs were repeated", text)

    def test_nothing_measured_is_a_report_too(self):
        chosen = list(measurements().values())
        result = result_of(chosen, lambda _: None)
        self.check_page(report.as_html(result))
        self.assertIn("-", report.as_text(result))

    def test_one_figure_is_a_report_too(self):
        chosen = [our_bandwidth("write", 1 << 20, 4096, point=("loopback", "Verbena WRITE", 1 << 20))]
        self.assertNotIn("svg", self.check_page(report.as_html(result_of(chosen, figure))))

    def test_targets_are_told_with_their_verdicts(self):
        known = measurements()
        loaded = targets.load("""[[target]]
path = "loopback"
name = "WRITE beside {iperf3,itself}"
ours = "ours.udp.write.1MiB.pmtu1024"
against = "{peer.iperf3.lo,ours.udp.write.1MiB.pmtu1024}"
limit = "limit.icrc.1056"
at_least = 1.9
""", known)
        values = {"ours.udp.write.1MiB.pmtu1024": [2.0], "peer.iperf3.lo": [1.0], "limit.icrc.1056": [3.0]}
        result = result_of([known[loaded[0].ours]], figure, [targets.judge(each, {"": values}) for each in loaded])
        text = report.as_text(result)
        self.assertIn("1 hold, 0 do not, 1 are out of reach here, 0 were not measured", text)
        self.assertRegex(text, r"out of reach +1 .* >= 1.9 +loopback: WRITE beside itself \(limit.icrc.1056: 1.5\)")
        self.assertNotIn("limit", text.split("\n")[0])
        self.assertIn("WRITE beside iperf3", report.as_html(result))

    def test_both_states_of_the_processors_are_told(self):
        measured = "ours.udp.write.1MiB.pmtu1024"
        target = targets.Target("loopback", "WRITE", measured, "peer.iperf3.lo", ">=", 1.9, "limit.icrc.1056")
        near = {measured: [2.0, None, 2.0], "peer.iperf3.lo": [1.0, None, 1.0]}
        far = {measured: [None, 1.0], "peer.iperf3.lo": [None, 1.0], "limit.icrc.1056": [None, 1.5]}
        result = result_of([measurements()[measured]], figure, [targets.judge(target, {"near": near, "far": far})])
        result["distance"] = {"least_us": 0.025, "runs_repeated": 0}
        text = report.as_text(result)
        self.assertRegex(text, r"out of reach +far +1 .*\(limit.icrc.1056: 1.5; near: 2, holds, 2 of 3 rounds\)")
        self.assertIn("near: 2, holds, 2 of 3 rounds", report.as_html(result))
        self.assertIn("takes 25 ns where they are near", text)

    def test_numbers_have_three_digits(self):
        self.assertEqual([report.number(value) for value in (0.012345, 1.2345, 12.345, 1234.5)],
                         ["0.0123", "1.23", "12.3", "1234"])


if __name__ == "__main__":
    unittest.main()
