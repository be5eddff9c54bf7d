# SPDX-License-Identifier: Apache-2.0
"""Runs measurements in rounds: each once a round, those that are compared next to each other."""
import os
import pathlib
import shutil

import processes
from distance import STATES, Distance, cache_line
from figures import Figure, middle_quantiles, summary
from hosts import LOOPBACK, VETH, NoHosts
from catalogue import PATHS

LONGEST = 90  # seconds, for one run of a measurement


class Missing(Exception):
    """A program is not there."""


class Session:
    """What stays the same for all runs. `verbena` is the command; ours of bench/ are beside it."""

    def __init__(self, verbena, cores, seconds, effort, hosts):
        self.verbena = verbena
        self.cores = cores
        self.seconds = seconds
        self.effort = effort  # what part of a measurement's iterations is done
        self.hosts = hosts
        self.distance = Distance(cache_line(pathlib.Path(verbena).parent / "verbena-limits", cores))
        # Dropping what the programs' own variables say would only hide a user's mistake, but ours
        # must not count for the NIC under measurement.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("VERBENA_")}

    def close(self):
        self.hosts.close()

    def find(self, measurement):
        """The path of the measurement's program."""
        name = measurement.client[0]
        beside = pathlib.Path(self.verbena).parent / name
        found = str(beside) if name.startswith("verbena-") and beside.exists() else shutil.which(name)
        if not found:
            raise Missing(f"there is no {name}" + (f"; as root: apt-get install {measurement.package}"
                                                   if measurement.package else ""))
        return found

    def fill(self, measurement, words, port):
        """The words of a side, with their places filled."""
        values = {"{address}": VETH[0] if measurement.link else LOOPBACK, "{port}": str(port),
                  "{seconds}": str(self.seconds_of(measurement)),
                  "{count}": str(max(1000, int(measurement.count * self.effort)))}
        for place, value in values.items():
            words = [word.replace(place, value) for word in words]
        return words

    def seconds_of(self, measurement):
        """Programs of others take whole seconds."""
        whole = not measurement.client[0].startswith("verbena-")
        return max(1, round(self.seconds)) if whole else self.seconds

    def command(self, measurement, side, port):
        words = list(measurement.client if side == 1 else measurement.server)
        words = [self.find(measurement), *self.fill(measurement, words[1:], port)]
        if measurement.path:
            address = VETH[side] if measurement.link else LOOPBACK
            words = [self.verbena, "run", "--addr", address, *PATHS[measurement.path], "--", *words]
        core = self.cores[side] if measurement.server else ",".join(self.cores)
        words = ["taskset", "--cpu-list", core, *words]
        return self.hosts.words(side, words) if measurement.link else words

    def run(self, measurement):
        """The measurement's Figure. Raises Missing, NoHosts, processes.Failed, and
        ValueError for output that is not as it should be."""
        self.find(measurement)
        if measurement.link:
            self.hosts.set_link(measurement.link)
        figure, figure.looks = self.distance.run_steady(lambda: self.measure(measurement))
        return figure

    def measure(self, measurement):
        environment = {**self.environment, **dict(measurement.environment)}
        if not measurement.server:
            return measurement.read(processes.run_alone(self.command(measurement, 1, 0), environment, LONGEST))
        port = processes.free_port()
        return measurement.read(processes.run_pair(
            self.command(measurement, 0, port), self.command(measurement, 1, port), port, environment,
            LONGEST, measurement.listens, measurement.serves_on))


class Results:
    """Figures of each measurement, one a round, and why there are none."""

    def __init__(self, measurements):
        self.measurements = measurements
        self.figures = {each.name: [] for each in measurements}
        self.missing = {}  # by name: what is not there
        self.failures = {}  # by name: how it failed last

    def values(self, distance):
        """By state of the processors, then by name: a figure for each round, None where there is none of it."""
        return {state: {name: [figure.value if figure and distance.state(figure.looks) == state else None
                               for figure in figures] for name, figures in self.figures.items()}
                for state in STATES}

    def as_json(self, measurement):
        name = measurement.name
        values = [figure and figure.value for figure in self.figures[name]]
        result = {"title": measurement.title, "unit": measurement.unit, "rounds": values,
                  "cache_line_us": [figure and figure.looks for figure in self.figures[name]],
                  **(summary(values) or {})}
        quantiles = middle_quantiles([figure.quantiles for figure in self.figures[name] if figure])
        if quantiles:
            result["quantiles"] = quantiles
        if measurement.point:
            result["point"] = dict(zip(("plot", "series", "x"), measurement.point))
        for key, table in (("missing", self.missing), ("failure", self.failures)):
            if name in table:
                result[key] = table[name]
        return result


def in_order(measurements, targets):
    """Those that are compared come one after the other, the others behind."""
    names = [name for target in targets for name in target.measurements()]
    names += list(measurements)
    return [measurements[name] for name in dict.fromkeys(names) if name in measurements]


def run_rounds(session, results, targets, rounds, progress):
    """So many rounds of all, then at most as many again of targets whose sides met different states of the machine.
    `progress` is told of each run: round, place, how many, the measurement, what came of it."""
    for number in range(1, rounds + 1):
        run_round(session, results, {each.name for each in results.measurements}, number, progress)
    for number in range(rounds + 1, 2 * rounds + 1):
        names = {name for each in lacking(session, results, targets, rounds) for name in each.measurements()}
        if not names:
            return
        run_round(session, results, names, number, progress)


def lacking(session, results, targets, rounds):
    """The targets for which no state of the processors has so many rounds, although all could be measured."""
    values = results.values(session.distance)

    def whole(target, state):
        sides = [values[state][name] for name in target.measurements()]
        return sum(None not in row for row in zip(*sides))
    broken = results.missing.keys() | results.failures.keys()
    return [each for each in targets if broken.isdisjoint(each.measurements())
            and all(whole(each, state) < rounds for state in STATES)]


def run_round(session, results, names, number, progress):
    """Those of the names; a round of the others has no figure."""
    place = 0
    for measurement in results.measurements:
        figure = None
        if measurement.name in names:
            place += 1
            if measurement.name not in results.missing:
                progress(number, place, len(names), measurement, None)
                figure = run_once(session, results, measurement)
                progress(number, place, len(names), measurement,
                         figure or results.missing.get(measurement.name) or results.failures[measurement.name])
        results.figures[measurement.name].append(figure)


def run_once(session, results, measurement) -> Figure | None:
    try:
        return session.run(measurement)
    except (Missing, NoHosts) as missing:
        results.missing[measurement.name] = str(missing)
    except (processes.Failed, ValueError, OSError) as failure:
        results.failures[measurement.name] = str(failure)
    return None
