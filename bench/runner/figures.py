# SPDX-License-Identifier: Apache-2.0
"""Figures, their medians and spreads, and what is plotted of a distribution."""
import dataclasses
import statistics

# As bench/support/figure.cc prints them.
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)


@dataclasses.dataclass
class Figure:
    """What one run of a program measured; of latencies also pairs of a quantile and microseconds. `looks` are
    what distance.py saw before and behind it."""
    value: float
    quantiles: list = dataclasses.field(default_factory=list)
    looks: tuple = (None, None)


def quantiles_of(samples):
    ordered = sorted(samples)
    return [(quantile, ordered[int(quantile * (len(ordered) - 1) + 0.5)]) for quantile in QUANTILES]


def latency_figure(samples):
    """Of microseconds; at least one."""
    quantiles = quantiles_of(samples)
    return Figure(dict(quantiles)[0.5], quantiles)


def middle_quantiles(runs):
    """The median of the runs at each quantile; those without quantiles count for nothing."""
    runs = [run for run in runs if run]
    if not runs:
        return []
    return [(column[0][0], statistics.median(value for _, value in column)) for column in zip(*runs)]


def summary(values):
    """Of one value a round; rounds without one hold None."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


def ratios(ours, theirs):
    """Of neighbours in the rounds that have both: a machine's pace changes from minute to minute."""
    return [a / b for a, b in zip(ours, theirs) if a is not None and b]
