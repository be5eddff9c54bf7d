# SPDX-License-Identifier: Apache-2.0
"""Plots as inline SVG, whose colours are the page's (report.css)."""
import html
import math

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46  # margins
COLOURS = 8  # classes c0 to c7; with more lines they come again, dashed


class Scale:
    """From values to places between two ends, by their logarithms."""

    def __init__(self, values, begin, end):
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            self.low, self.high = self.low / 2, self.high * 2
        self.begin, self.end = begin, end

    def __call__(self, value):
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + part * (self.end - self.begin)

    def ticks(self):
        """1, 2 and 5 of each power of ten while they are few, else the powers."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine = [digit * 10.0 ** power for power in powers for digit in (1, 2, 5)]
        fine = [tick for tick in fine if self.low <= tick * 1.0001 and tick <= self.high * 1.0001]
        return fine if len(fine) <= 8 else [tick for tick in fine if f"{tick:.0e}"[0] == "1"]


class Line:
    """From values to places between two ends, evenly."""

    def __init__(self, low, high, begin, end):
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value):
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def text(x, y, words, anchor="middle", style=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{html.escape(words)}</text>'


def size_label(size):
    for unit, name in ((1 << 20, " MiB"), (1 << 10, " KiB")):
        if size >= unit:
            return f"{size // unit}{name}"
    return f"{size} B"


def svg(parts, height=HEIGHT):
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'


def axes(x_ticks, y_ticks, x_title, y_title):
    """Ticks are pairs of a place and a label."""
    parts = []
    for x, label in x_ticks:
        parts += [f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
                  text(x, HEIGHT - BOTTOM + 16, label)]
    for y, label in y_ticks:
        parts += [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>',
                  text(LEFT - 8, y + 4, label, "end")]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_title, style="title"),
              f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle" class="title">'
              f"{html.escape(y_title)}</text>"]
    return parts


def line_style(colour):
    return f"line c{colour % COLOURS}{' again' if colour >= COLOURS else ''}"


def legend(names):
    keys = "".join(f'<span><i class="{line_style(i)}"></i>{html.escape(name)}</span>' for i, name in enumerate(names))
    return f'<div class="legend">{keys}</div>'


def path(points, colour):
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{line_style(colour)}" points="{line}"/>'


def spread(x, low, high, colour):
    return f'<line class="line thin c{colour % COLOURS}" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'


def curves(series, x_title, y_title, x_label):
    """`series`: by name, points of x, median, least and largest."""
    points = [point for each in series.values() for point in each]
    xs = sorted({point[0] for point in points})
    x = Scale(xs, LEFT + 14, WIDTH - RIGHT - 14)
    y = Scale([value for point in points for value in point[1:]], HEIGHT - BOTTOM - 6, TOP + 6)
    parts = axes([(x(each), x_label(each)) for each in xs], [(y(tick), f"{tick:g}") for tick in y.ticks()],
                 x_title, y_title)
    for colour, (name, each) in enumerate(series.items()):
        parts.append(path([(x(point[0]), y(point[1])) for point in each], colour))
        for size, median, low, high in each:
            parts += [spread(x(size), y(low), y(high), colour),
                      f'<circle class="dot c{colour % COLOURS}" cx="{x(size):.1f}" cy="{y(median):.1f}" r="3.5">'
                      f"<title>{html.escape(name)}, {x_label(size)}: {median:.3g}</title></circle>"]
    return svg(parts) + legend(series)


def distributions(by_name):
    """`by_name`: pairs of a quantile and microseconds. What is above 99.9 % hardly repeats."""
    by_name = {name: [(q, value) for q, value in pairs if q <= 0.999 and value > 0] for name, pairs in by_name.items()}
    x = Scale([value for pairs in by_name.values() for _, value in pairs], LEFT, WIDTH - RIGHT)
    y = Line(0, 1, HEIGHT - BOTTOM, TOP)
    parts = axes([(x(tick), f"{tick:g}") for tick in x.ticks()],
                 [(y(part), f"{part:.0%}") for part in (0, 0.25, 0.5, 0.75, 1)],
                 "one way, microseconds", "of all messages took no longer")
    for colour, pairs in enumerate(by_name.values()):
        parts.append(path([(x(value), y(quantile)) for quantile, value in pairs], colour))
    return svg(parts) + legend(by_name)


def bars(items, unit):
    """`items`: name, value and whether it is ours; the best first, on a logarithmic scale."""
    items = sorted(items, key=lambda item: item[1], reverse=unit != "us")
    left, step = 330, 22
    values = [value for _, value, _ in items]
    scale = Scale([min(values) / 2, max(values)], left, WIDTH - 90)
    parts = []
    for place, (name, value, own) in enumerate(items):
        y = 6 + place * step
        parts += [text(left - 8, y + 14, name, "end"),
                  f'<rect class="bar {"own" if own else ""}" x="{left}" y="{y}" height="{step - 6}" '
                  f'width="{scale(value) - left:.1f}"/>',
                  text(scale(value) + 6, y + 13, f"{value:.3g} {unit}", "start")]
    return svg(parts, 6 + step * len(items) + 4)


def _points(measured, plot):
    """The series of a plot, each in the order of x."""
    series = {}
    for each in measured.values():
        point = each.get("point", {})
        if point.get("plot") == plot and "median" in each:
            series.setdefault(point["series"], []).append((point["x"], each["median"], each["min"], each["max"]))
    return {name: sorted(points) for name, points in series.items()}


def all_plots(measured):
    """Titles and plots of all there is to plot."""
    for plot, title in (("loopback", "Size against bandwidth, loopback"), ("host", "Size against bandwidth, same host")):
        series = _points(measured, plot)
        if any(len(points) > 1 for points in series.values()):
            yield title, curves(series, "message", "GB/s", size_label)
    scaling = _points(measured, "scaling")
    if any(len(points) > 1 for points in scaling.values()):
        yield "Scaling, loopback", curves(scaling, "queue pairs or streams", "GB/s", lambda x: f"{x:g}")
    for figure, unit, title in (("setup", "us", "Set-up time of each"), ("memory", "KiB", "Memory of each"),
                                ("rate", "M/s", "Rate of 64 bytes")):
        cost = _points(measured, f"cost, {figure}")
        if any(len(points) > 1 for points in cost.values()):
            yield (f"{title}, by how many there are",
                   curves(cost, "queue pairs or memory regions", unit, lambda x: f"{x:,}"))
    spreads = {f"{name}: {each['title']}": each["quantiles"] for name, each in measured.items() if "quantiles" in each}
    for title, wanted in (("Distribution of latency, loopback", (".udp", ".tcp", ".rxd")),
                          ("Distribution of latency, same host", (".host", ".shm"))):
        chosen = {name.split(": ", 1)[1]: pairs for name, pairs in spreads.items()
                  if any(word in name.split(": ")[0] for word in wanted)}
        if chosen:
            yield title, distributions(chosen)
    for unit, title in (("us", "Latency of 64 bytes, one way (logarithmic)"),
                        ("M/s", "Rate of 64 bytes (logarithmic)")):
        items = [(f"{each['title']}{' (same host)' if name.startswith('ours.host') else ''}", each["median"],
                  name.startswith("ours.")) for name, each in measured.items()
                 if each["unit"] == unit and each.get("median", 0) > 0]
        if items:
            yield title, bars(items, unit)
