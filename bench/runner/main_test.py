# SPDX-License-Identifier: Apache-2.0
import argparse
import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

import outputs
from catalogue import Measurement
from targets import Target


def command():
    """__main__.py, which is not to run."""
    place = pathlib.Path(__file__).parent / "__main__.py"
    spec = importlib.util.spec_from_file_location("bench_command", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prints(value):
    return (sys.executable, "-c", f'print(\'{{"value": {value}, "unit": "us"}}\')')


class Command(unittest.TestCase):
    def test_what_was_measured_is_reported_and_written(self):
        bench = command()
        chosen = {name: Measurement(name, f"program {name}", "us", outputs.ours, prints(value))
                  for name, value in (("ours", 2), ("peer", 1))}
        options = argparse.Namespace(verbena=sys.executable, cores=None, rounds=2, quick=True, only="")
        result = bench.measure(options, chosen, [Target("a path", "beside a peer", "ours", "peer", "<=", 2)])
        self.assertEqual([(each["verdict"], each["ratio"], each["rounds"]) for each in result["targets"]],
                         [("holds", 2, 2)])
        with tempfile.TemporaryDirectory() as folder:
            bench.write(result, pathlib.Path(folder))
            written = json.loads((pathlib.Path(folder) / "bench.json").read_text())
            self.assertIn("beside a peer", (pathlib.Path(folder) / "bench.html").read_text())
        self.assertEqual(written["measurements"]["ours"]["rounds"], [2, 2])
        self.assertEqual(bench.status_of(result, check=True), 0)


if __name__ == "__main__":
    unittest.main()
