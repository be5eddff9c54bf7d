# SPDX-License-Identifier: Apache-2.0
"""The table of targets (bench/targets.toml), and whether they hold."""
import dataclasses
import re
import statistics
import tomllib

from distance import UNKNOWN
from figures import ratios


class WrongTargets(Exception):
    """The table cannot be used as it is."""


@dataclasses.dataclass(frozen=True)
class Target:
    path: str
    name: str
    ours: str
    against: str
    operator: str  # ">=" or "<="
    factor: float
    limit: str | None = None  # a loop that does nothing else: what it does not reach nobody can

    def measurements(self):
        return [each for each in (self.ours, self.against, self.limit) if each]

    def holds(self, ratio):
        return ratio >= self.factor if self.operator == ">=" else ratio <= self.factor


@dataclasses.dataclass(frozen=True)
class Verdict:
    target: Target
    state: str  # of the processors (distance.py)
    ratio: float | None  # the median of the rounds' ratios
    rounds: int  # how many there are
    spread: tuple  # the least and the largest of them
    word: str  # "holds", "does not hold", "out of reach" or "not measured"
    limit: float | None = None  # the same ratio of the target's limit


ALTERNATIVES = re.compile(r"\{([^{}]+)\}")


def chosen(text, which):
    return ALTERNATIVES.sub(lambda found: found[1].split(",")[which], text)


def _expanded(line):
    """A line of the table for each of its alternatives, which are as many in all of its texts."""
    texts = {key: line[key] for key in ("path", "name", "ours", "against")}
    if "limit" in line:
        texts["limit"] = line["limit"]
    counts = {len(found.split(",")) for text in texts.values() for found in ALTERNATIVES.findall(text)}
    if len(counts) > 1:
        raise WrongTargets(f"{line['name']}: the alternatives differ in number")
    for which in range(max(counts, default=1)):
        yield {**line, **{key: chosen(text, which) for key, text in texts.items()}}


def _target(line, known):
    unknown = [line[side] for side in ("ours", "against", "limit") if side in line and line[side] not in known]
    if unknown:
        raise WrongTargets(f"{line['name']}: there is no measurement {unknown[0]}")
    if ("at_least" in line) == ("at_most" in line):
        raise WrongTargets(f"{line['name']}: wants either at_least or at_most")
    operator, factor = (">=", line["at_least"]) if "at_least" in line else ("<=", line["at_most"])
    name = re.sub(r"^(write|send|read)\b", lambda found: found[1].upper(), line["name"])
    return Target(line["path"], name, line["ours"], line["against"], operator, float(factor), line.get("limit"))


def load(text, known):
    """The targets of the table, in its order; `known` are the measurements there are."""
    try:
        lines = tomllib.loads(text).get("target", [])
        return [_target(each, known) for line in lines for each in _expanded(line)]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise WrongTargets(f"the table of targets: {error}") from error


def judge_in(state, target, values):
    """`values` has each measurement's figures in that state, one a round, None where there is none."""
    rounds = ratios(values.get(target.ours, []), values.get(target.against, []))
    if not rounds:
        return Verdict(target, state, None, 0, (), "not measured")
    ratio = statistics.median(rounds)
    limits = ratios(values.get(target.limit, []), values.get(target.against, []))
    limit = statistics.median(limits) if limits else None
    word = ("holds" if target.holds(ratio) else
            "does not hold" if limit is None or target.holds(limit) else "out of reach")
    return Verdict(target, state, ratio, len(rounds), (min(rounds), max(rounds)), word, limit)


WORST_FIRST = ("does not hold", "out of reach", "holds", "not measured")


def judge(target, values):
    """The verdicts of the states that have any, by `values` of each; first that which counts for the target: the
    worst of those with at least half as many rounds as there are of the most frequent."""
    verdicts = [judge_in(state, target, of_state) for state, of_state in values.items()]
    most = max(each.rounds for each in verdicts)
    if not most:
        return [judge_in(UNKNOWN, target, {})]
    return sorted(filter(lambda each: each.rounds, verdicts),
                  key=lambda each: (2 * each.rounds < most, WORST_FIRST.index(each.word)))
