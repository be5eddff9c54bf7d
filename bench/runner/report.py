# SPDX-License-Identifier: Apache-2.0
"""A run's result as text, and as one HTML page."""
import html
import pathlib

import plots
from distance import FAR

FOLDER = pathlib.Path(__file__).resolve().parent


def verdict_as_json(verdict):
    return {"processors": verdict.state, "ratio": verdict.ratio, "rounds": verdict.rounds,
            "spread": list(verdict.spread), "verdict": verdict.word, "limit_ratio": verdict.limit}


def target_as_json(verdicts):
    """Of targets.judge(): the first counts."""
    target = verdicts[0].target
    return {"path": target.path, "name": target.name, "ours": target.ours, "against": target.against,
            "operator": target.operator, "factor": target.factor, "limit": target.limit,
            **verdict_as_json(verdicts[0]), "others": [verdict_as_json(each) for each in verdicts[1:]]}


def number(value):
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def counted(targets):
    words = [each["verdict"] for each in targets]
    return (f"{words.count('holds')} hold, {words.count('does not hold')} do not, {words.count('out of reach')} "
            f"are out of reach here, {words.count('not measured')} were not measured")


def limit_text(each, verdict):
    """What is left where a target does not hold: the ratio of a loop that does nothing else."""
    if verdict["limit_ratio"] is None or verdict["verdict"] == "holds":
        return ""
    return f"{each['limit']}: {number(verdict['limit_ratio'])}"


def asides(each):
    """What stands beside the ratio that counts: its limit, and the other state of the processors."""
    yield limit_text(each, each)
    for other in each["others"]:
        yield ", ".join(filter(None, [
            f"{other['processors']}: {number(other['ratio'])}", other["verdict"], limit_text(each, other),
            f"{other['rounds']} of {other['rounds'] + each['rounds']} rounds"]))


def aside_text(each):
    return "; ".join(filter(None, asides(each)))


def distance_text(result):
    """Of processors that were moved apart, or nearer."""
    seen = result["distance"]
    if not any(each["others"] or each["processors"] == FAR for each in result["targets"]) and not seen["runs_repeated"]:
        return ""
    return (f"Processors: a cache line from one to the other takes {seen['least_us'] * 1000:.0f} ns where they are near, "
            f"far is more than twice that; {seen['runs_repeated']} runs were repeated because it changed meanwhile.")


# --- Text

def as_text(result):
    lines = []
    for each in result["targets"]:
        ratio = f"{number(each['ratio']):>7} ({number(each['spread'][0])} to {number(each['spread'][1])})" \
            if each["ratio"] is not None else f"{'-':>7}"
        lines.append(f"{each['verdict']:13} {each['processors']:4} {ratio:26} {each['operator']} {each['factor']:<5g} "
                     f"{each['path']}: {each['name']}" + (f" ({aside_text(each)})" if aside_text(each) else ""))
    if not lines:
        lines = [f"{name:44} {number(each['median']) if 'median' in each else '-':>8} {each['unit']}"
                 for name, each in result["measurements"].items()]
    else:
        lines.append(f"\n{counted(result['targets'])}.")
    missing = sorted({each["missing"] for each in result["measurements"].values() if "missing" in each})
    return "\n".join([*lines, *filter(None, [distance_text(result)]), *(f"Not measured: {text}" for text in missing)])


# --- HTML

def row(cells, kind="td"):
    return "<tr>" + "".join(f"<{kind}{' class=' + chr(34) + style + chr(34) if style else ''}>{text}</{kind}>"
                            for style, text in cells) + "</tr>"


def figure_text(each):
    if "median" not in each:
        return "–"
    text = f"{number(each['median'])} {each['unit']}"
    return text if each["min"] == each["max"] else \
        f"{text} <small>{number(each['min'])} to {number(each['max'])}</small>"


def target_rows(result):
    measured = result["measurements"]
    path = None
    for each in result["targets"]:
        if each["path"] != path:
            path = each["path"]
            yield f'<tr class="path"><th colspan="6">{html.escape(path)}</th></tr>'
        ratio = "–" if each["ratio"] is None else \
            f"<b>{number(each['ratio'])}</b> <small>{number(each['spread'][0])} to {number(each['spread'][1])}</small>"
        sides = [figure_text(measured.get(each[side], {})) for side in ("ours", "against")]
        sign = "≥" if each["operator"] == ">=" else "≤"
        yield row([("", html.escape(each["name"])), ("number", sides[0]), ("number", sides[1]), ("number", ratio),
                   ("number", f"{sign} {each['factor']:g}"),
                   ("verdict " + each["verdict"].replace(" ", "-"), verdict_cell(each))])


def verdict_cell(each):
    where = f" <small>{each['processors']}</small>" if each["processors"] else ""
    return each["verdict"] + where + "".join(f"<br><small>{html.escape(text)}</small>" for text in asides(each) if text)


def target_table(result):
    head = row([("", "what"), ("number", "ours"), ("number", "against"), ("number", "ratio"),
                ("number", "target"), ("", "")], "th")
    return f"<div class=wide><table><thead>{head}</thead><tbody>{''.join(target_rows(result))}</tbody></table></div>"


def measurement_table(result):
    head = row([("", "name"), ("", "what"), ("number", "median, least and largest of the rounds"), ("", "")], "th")
    rows = [row([("name", html.escape(name)), ("", html.escape(each["title"])), ("number", figure_text(each)),
                 ("", html.escape(each.get("missing") or each.get("failure", "").split("\n")[0]))])
            for name, each in result["measurements"].items()]
    return f"<div class=wide><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"


def machine_text(result):
    facts = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    where = " of a virtual machine" if facts["virtual_machine"] else ""
    return html.escape(
        f"{facts['processor']}, {facts['processors']} processors{where}, "
        f"{facts['memory_gib']} GiB; Linux {facts['kernel']}. Verbena {facts['verbena']}; {versions}. "
        f"Rounds: {result['options']['rounds']}; processors {' and '.join(facts['cores'])}; load at the end "
        f"{facts['load']:.1f}; {facts['time']}. {distance_text(result)}")


def sections(result):
    measured = result["measurements"]
    if result["targets"]:
        yield "Targets", target_table(result)
    for title, plot in plots.all_plots(measured):
        yield title, f"<figure>{plot}</figure>"
    yield "All figures", measurement_table(result)


def as_html(result):
    body = "".join(f"<section><h2>{html.escape(title)}</h2>{text}</section>" for title, text in sections(result))
    summary = f"<p class=summary>{counted(result['targets'])}.</p>" if result["targets"] else ""
    style = (FOLDER / "report.css").read_text()
    return ("<!doctype html>\n<html lang=en><head><meta charset=utf-8><title>Verbena, measured</title>"
            "<meta name=viewport content='width=device-width, initial-scale=1'>"
            f"<style>{style}</style></head><body><main><h1>Verbena, measured</h1>{summary}"
            f"<p class=machine>{machine_text(result)}</p>{body}</main></body></html>\n")
