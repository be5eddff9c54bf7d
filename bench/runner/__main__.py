#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the software NIC beside its peers and the machine's limits, on the same processors in one go.

Unmodified perftest programs on the NIC; iperf3, sockperf, libfabric (tcp, rxd, shm) and UCX (tcp, posix
with cma); and bare loops. Each is run once in a round, and those that are compared stand next to each
other. A ratio is the median of the rounds' ratios, of those in which the processors were equally far apart.
Programs that are not there are named, and what depends on them counts as not measured.
"""
import argparse
import json
import os
import pathlib
import signal
import sys

if sys.version_info < (3, 11):
    sys.exit("verbena bench: needs Python 3.11")

import machine
import report
import targets as target_table
from catalogue import measurements as all_measurements
from hosts import Hosts
from session import Results, Session, in_order, run_rounds

FOLDER = pathlib.Path(__file__).absolute().parent.parent  # as it was named: links lead elsewhere
EPILOG = """\
Examples:
  verbena bench --quick
  verbena bench --only latency --rounds 9
  verbena bench --only 'UDP loopback' --json

Writes bench.json and bench.html into the folder of --out. The server of a pair is on the first of the
two processors, the client on the second. Nothing else should run meanwhile.

Exit status: 0 when all that was run could be measured, whether or not the targets hold; 1 when a program
failed, or with --check when a target does not hold; 2 wrong usage, 130 interrupted."""


def processors(text):
    words = text.split(",")
    if len(words) != 2 or not all(word.isdecimal() and int(word) in os.sched_getaffinity(0) for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not two processors that this process may use, as in 0,1")
    return words


def rounds(text):
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 1000")
    return int(text)


def parse():
    parser = argparse.ArgumentParser(prog="verbena bench", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=rounds, metavar="N", help="how often each is run (5; 1 when quick)")
    parser.add_argument("--quick", action="store_true", help="one short round without the curves")
    parser.add_argument("--only", default="", metavar="WORD",
                        help="what has WORD in its name, and the targets that have, with all they need")
    parser.add_argument("--list", action="store_true", help="print the measurements and the targets, run nothing")
    parser.add_argument("--json", action="store_true", help="print the report as JSON, not as a table")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("verbena-bench"), metavar="DIR",
                        help="where the report goes (verbena-bench)")
    parser.add_argument("--cores", type=processors, metavar="A,B", help="the two processors (the first two)")
    parser.add_argument("--check", action="store_true", help="status 1 when a target does not hold")
    parser.add_argument("--verbena", default="verbena", help=argparse.SUPPRESS)
    return parser, parser.parse_args()


def choose(only, measurements, targets):
    """The measurements and targets in whose names the word is, and what the targets need."""
    word = only.lower()
    targets = [each for each in targets
               if any(word in text.lower() for text in (each.path, each.name, each.ours, each.against))]
    wanted = {name for each in targets for name in each.measurements()}
    wanted |= {name for name, each in measurements.items() if word in name.lower() or word in each.title.lower()}
    return {name: each for name, each in measurements.items() if name in wanted}, targets


def show_list(measurements, targets):
    for each in measurements.values():
        print(f"{each.name:44} {each.unit:5} {each.title}")
    print()
    for each in targets:
        print(f"{each.path}: {each.name}\n    {each.ours} {each.operator} {each.factor:g} x {each.against}")


def show_progress(number, place, count, measurement, outcome):
    """On a terminal also what runs just now."""
    line = f"round {number}, {place:3} of {count}: {measurement.name:44}"
    if outcome is None:
        if sys.stderr.isatty():
            print(line, end="\r", file=sys.stderr, flush=True)
        return
    text = str(outcome).splitlines()[0] if isinstance(outcome, str) else f"{outcome.value:10.4g} {measurement.unit}"
    print(f"{line} {text}", file=sys.stderr, flush=True)


def stop(*_):
    raise KeyboardInterrupt


def measure(options, chosen, targets):
    cores = options.cores or [str(each) for each in (sorted(os.sched_getaffinity(0)) * 2)[:2]]
    session = Session(options.verbena, cores, 0.3 if options.quick else 1.0, 0.1 if options.quick else 1.0,
                      Hosts(FOLDER / "two-hosts"))
    results = Results(in_order(chosen, targets))
    try:
        run_rounds(session, results, targets, options.rounds, show_progress)
    finally:
        session.close()
    values = results.values(session.distance)
    return {"machine": machine.facts(options.verbena, cores),
            "distance": session.distance.as_json(),
            "options": {"rounds": options.rounds, "quick": options.quick, "only": options.only},
            "targets": [report.target_as_json(target_table.judge(each, values)) for each in targets],
            "measurements": {each.name: results.as_json(each) for each in results.measurements}}


def write(result, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "bench.html").write_text(report.as_html(result))


def status_of(result, check):
    failed = any("failure" in each for each in result["measurements"].values())
    missed = any(each["verdict"] in ("does not hold", "out of reach") for each in result["targets"])
    return 1 if failed or (check and missed) else 0


def main():
    parser, options = parse()
    options.rounds = options.rounds or (1 if options.quick else 5)
    try:
        known = all_measurements()
        targets = target_table.load((FOLDER / "targets.toml").read_text(), known)
    except (OSError, target_table.WrongTargets) as error:
        sys.exit(f"verbena bench: {error}")
    chosen, targets = choose(options.only, all_measurements(curves=not options.quick), targets)
    if not chosen:
        parser.error(f"nothing has '{options.only}' in its name (try --list)")
    if options.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a pager may have seen enough
        show_list(chosen, targets)
        return 0
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    signal.signal(signal.SIGINT, stop)  # whoever starts this in the background may have it ignored
    result = measure(options, chosen, targets)
    write(result, options.out)
    print(json.dumps(result, indent=1) if options.json else report.as_text(result))
    print(f"verbena bench: the report is {options.out}/bench.html", file=sys.stderr)
    return status_of(result, options.check)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("verbena bench: interrupted; the programs were stopped", file=sys.stderr)
        sys.exit(130)
