# SPDX-License-Identifier: Apache-2.0
"""Reads what the programs print. Each function takes a program's output and returns its Figure, or
raises Unreadable."""
import json
import re

from figures import Figure, latency_figure

MIB = 1 << 20


class Unreadable(ValueError):
    """A program printed no figure."""


def ours(output):
    """A program of bench/: one line of JSON, the last."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                said = json.loads(line)
                return Figure(float(said["value"]), [tuple(pair) for pair in said.get("quantiles", [])])
            except (ValueError, KeyError, TypeError) as error:
                raise Unreadable(f"a line of JSON without a figure: {error}") from error
    raise Unreadable("no line of JSON")


def _last_row(output, least):
    """The numbers of perftest's last row that has at least so many."""
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]", line)]
    rows = [row for row in rows if len(row) >= least]
    if not rows:
        raise Unreadable("perftest printed no row of figures")
    try:
        return [float(word) for word in rows[-1][:least]]
    except ValueError as error:
        raise Unreadable(f"perftest printed a row that is none: {error}") from error


def perftest_bandwidth(output):
    """GB/s, from a report in Gbit/s: size, iterations, peak, average, million messages a second."""
    if "BW average[Gb/sec]" not in output:
        raise Unreadable("perftest did not report in Gbit/s")
    return Figure(_last_row(output, 5)[3] / 8)


def perftest_rate(output):
    return Figure(_last_row(output, 5)[4])


def perftest_latency(output):
    """From -U: a line `number, microseconds` for each iteration, and a table, which counts where
    there are none."""
    samples = [float(value) for value in re.findall(r"^\d+, ([\d.]+(?:e[+-]?\d+)?)$", output, re.MULTILINE)]
    return latency_figure(samples) if samples else Figure(_last_row(output, 5)[4])


def iperf3(output):
    """GB/s that arrived, from -J."""
    try:
        return Figure(json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8e9)
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"iperf3 printed no JSON with a sum: {error}") from error


def rstream(output):
    """GB/s, from its only row: name, bytes, transfers, iterations, total, time, Gbit/s, microseconds of each."""
    rows = [line.split() for line in output.splitlines() if re.search(r"\d+\.\d+s\s", line)]
    if len(rows) != 1 or len(rows[0]) != 8:
        raise Unreadable("rstream printed no row of figures")
    return Figure(float(rows[0][6]) / 8)


def _ucx_final(output):
    """Iterations; of latency the median, the last average and the overall one; bandwidth in MiB/s and
    message rate, of each the last average and the overall one."""
    found = re.search(r"^\s*Final:((?:\s+[\d.]+){8})\s*$", output, re.MULTILINE)
    if not found:
        raise Unreadable("ucx_perftest printed no final line")
    return [float(word) for word in found[1].split()]


def ucx_latency(output):
    return Figure(_ucx_final(output)[1])


def ucx_bandwidth(output):
    return Figure(_ucx_final(output)[5] * MIB / 1e9)


def ucx_rate(output):
    return Figure(_ucx_final(output)[7] / 1e6)


def sockperf_latency(output):
    """Half round trips, some percentiles only."""
    found = re.findall(r"percentile ([\d.]+) =\s+([\d.]+)", output)
    quantiles = sorted((round(float(percent) / 100, 6), float(value)) for percent, value in found)
    least = re.search(r"<MIN> observation =\s+([\d.]+)", output)
    if least:
        quantiles.insert(0, (0.0, float(least[1])))
    if 0.5 not in dict(quantiles):
        raise Unreadable("sockperf printed no median")
    return Figure(dict(quantiles)[0.5], [pair for pair in quantiles if pair[0] < 0.99995])
