# SPDX-License-Identifier: Apache-2.0
"""What programs printed once (recorded/) is read as it was meant."""
import pathlib
import unittest

import outputs

RECORDED = pathlib.Path(__file__).resolve().parent / "recorded"


def recorded(program):
    return (RECORDED / f"{program}.txt").read_text()


class Outputs(unittest.TestCase):
    def test_bandwidth_of_perftest_is_in_gigabytes(self):
        self.assertAlmostEqual(outputs.perftest_bandwidth(recorded("ib_write_bw")).value, 3.91 / 8)

    def test_rate_of_perftest_is_in_million_messages(self):
        self.assertAlmostEqual(outputs.perftest_rate(recorded("ib_write_bw")).value, 0.007460)

    def test_perftest_that_reports_mebibytes_is_refused(self):
        with self.assertRaises(outputs.Unreadable):
            outputs.perftest_bandwidth(recorded("ib_write_bw").replace("Gb/sec", "MB/sec"))

    def test_latency_of_perftest_is_the_median_of_its_samples(self):
        figure = outputs.perftest_latency(recorded("ib_send_lat"))
        samples = dict(figure.quantiles)
        self.assertEqual(figure.value, samples[0.5])
        self.assertAlmostEqual(samples[0.0], 3.77, delta=0.01)  # as its own table says
        self.assertAlmostEqual(figure.value, 16725.97, delta=300)  # which leaves the two largest out

    def test_latency_of_perftest_without_samples_is_what_its_table_calls_typical(self):
        figure = outputs.perftest_latency(recorded("ib_send_lat").rpartition("#bytes")[2])
        self.assertEqual((figure.value, figure.quantiles), (16725.97, []))

    def test_iperf3(self):
        self.assertGreater(outputs.iperf3(recorded("iperf3")).value, 0.01)
        with self.assertRaises(outputs.Unreadable):
            outputs.iperf3('{"error": "unable to connect"}')

    def test_ucx(self):
        output = recorded("ucx_perftest")
        self.assertAlmostEqual(outputs.ucx_bandwidth(output).value, 62.08 * (1 << 20) / 1e9)
        self.assertAlmostEqual(outputs.ucx_rate(output).value, 0.000993)
        self.assertEqual(outputs.ucx_latency(output).value, 0.417)

    def test_sockperf(self):
        figure = outputs.sockperf_latency(recorded("sockperf"))
        self.assertEqual(figure.value, 2.387)
        self.assertEqual(figure.quantiles[0], (0.0, 2.159))
        self.assertEqual(figure.quantiles[-1], (0.9999, 3456.425))

    def test_our_own_programs(self):
        figure = outputs.ours('noise\n{"value": 2.5, "unit": "us", "quantiles": [[0, 1.5], [0.5, 2.5]]}\n')
        self.assertEqual((figure.value, figure.quantiles), (2.5, [(0, 1.5), (0.5, 2.5)]))

    def test_output_without_figures_is_told(self):
        for read in (outputs.ours, outputs.perftest_bandwidth, outputs.perftest_rate, outputs.perftest_latency,
                     outputs.iperf3, outputs.ucx_latency, outputs.ucx_bandwidth, outputs.sockperf_latency):
            for output in ("", " 64 5 0.1 0.2x 0.3\nBW average[Gb/sec]", "Segmentation fault\n", "{", '{"value": []}', "BW average[Gb/sec]\n 1 2 x\n"):
                with self.subTest(read=read.__name__, output=output), self.assertRaises(outputs.Unreadable):
                    read(output)


if __name__ == "__main__":
    unittest.main()
