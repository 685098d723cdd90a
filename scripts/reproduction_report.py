"""Writes the results of scripts/reproduce: reproduction.md and one SVG for each figure."""

import io
import math
import re
import textwrap

import matplotlib

import reproduction_figures
import report_age
from reproduction_claims import SERIES

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # pylint: disable=wrong-import-position

# SVG keeps text as text, and the same results give the same bytes.
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lmdbio", "font.size": 8,
                        "font.family": "sans-serif", "axes.grid": True, "grid.linewidth": 0.4,
                        "grid.color": "#d0d0d0", "path.simplify": False, "axes.axisbelow": True})
COLOURS = dict(zip(SERIES, (
    "#c03030", "#e08030", "#b09000", "#4878a8", "#30a0a0", "#409040", "#703090", "#808080",
    "#101010")))
PART_COLOURS = ("#e08030", "#4878a8", "#a0a0a0")
MARKERS = "osv^D<>Px"
PANEL_INCHES = (3.4, 2.8)
COLUMNS_MAX = 3
TEXT_COLUMNS = 100

FOREWORD = """\
# Results: reproduction

These are the read times, seek times, context switches, crossed bytes and request orders of all
strategies on emulated hosts. Each figure stands beside the claims of S. Pumma's dissertation. The
page is for readers who compare the two; [reproduction.md](../reproduction.md) has the method, the
meaning of the columns and the verdicts. `scripts/reproduce` writes this page; do not edit it by
hand. The reasons come from a file that people write.

| | |
|---|---|
{machine}
"""

def machine_rows(results):
    options, machine = results["options"], results["machine"]
    hosts = ", ".join(map(str, options["hosts"]))
    minutes = math.ceil(results["measuring_s"] / 60)
    return [
        ("date", results.get("date", "not recorded")),
        ("machine", f"{machine.get('processor')}, {machine.get('cores')} cores, Linux "
                    f"{machine.get('kernel')}"),
        ("commit", machine.get("commit")),
        ("sources", f"{results['sources']}, a digest of {', '.join(report_age.FOLDERS)}"),
        ("command", f"`{results['command']}` as root; it took {minutes} minutes"),
        ("cache state", "page caches of the hosts empty when a run opens the database; the cache "
                        "of the storage server warm"),
        ("MPI wait mode", machine.get("mpi_wait_mode")),
        ("hosts", f"{hosts}, emulated, with {', '.join(map(str, options['ranks_per_host']))} "
                  "rank(s) each; one reader per host, unless a series says otherwise"),
        ("storage", f"{options['delay']} ms per read; {options['rate']} bit/s for all hosts "
                    "together"),
        ("database", f"{options['records']:,} records of {options['value_bytes']:,} B in key "
                     "order, a commit every 1,000, with provenance"),
        ("run", f"{options['iterations']} batches of {options['batch']:,} records of all ranks "
                "together; shares are blocks"),
        ("repetitions", f"{options['repeat']}, strategies in turn; Figures 4.2, 4.10 and 5.2, and "
                        "counts of seeks: one"),
        ("numbers", "medians (minimum..maximum)"),
    ]


def table(head, rows):
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def text_of(name, section, reasons):
    parts = [f"## {section.title}", f"![{section.title.replace('`', '')}]"
                                    f"(reproduction/{file_name(name)})"]
    if section.text:
        parts.append(textwrap.fill(section.text, TEXT_COLUMNS, break_on_hyphens=False))
    for caption, head, rows in section.tables:
        parts.append(f"{caption}:\n\n{table(head, rows)}")
    claims = [(one.paper, one.criterion, one.measured(), f"**{one.verdict()}**",
               reason_of(one, reasons)) for one in section.claims]
    parts.append(table(("dissertation", "criterion", "measured", "verdict", "reason"), claims))
    return "\n\n".join(parts) + "\n"


def reason_of(claim, reasons):
    if not claim.is_missed():
        return "-"
    return reasons.get(claim.key, f"not given yet (`{claim.key}`)")


def summary_of(claims):
    """A table of all verdicts, by the key of the claim."""
    count = sum(bool(one.values) and not one.is_missed() for one in claims)
    rows = [(f"`{one.key}`", one.paper, one.verdict()) for one in claims]
    return (f"## Verdicts\n\n{count} of {len(claims)} claims hold everywhere.\n\n"
            f"{table(('claim', 'dissertation', 'verdict'), rows)}\n")


def remarks_on(claims, reasons, names):
    """Lines about reasons that are due, or that no claim needs."""
    missing = [one.key for one in claims if one.is_missed() and one.key not in reasons]
    if missing:
        yield f"claims without a reason: {', '.join(missing)}"
    missed = {one.key for one in claims if one.is_missed()}
    needless = [key for key in reasons if key.split("/")[0] in names and key not in missed]
    if needless:
        yield f"reasons for claims that hold, or that do not exist: {', '.join(needless)}"


def file_name(name):
    return f"figure-{name}.svg" if name[0].isdigit() else f"{name}.svg"


def write(results, reasons, folder):
    """Writes the report into `folder` and the plots into a folder beside it. Returns the path of
    the report, and remarks about reasons."""
    sections, absent = reproduction_figures.sections(results)
    plots = folder / "reproduction"
    plots.mkdir(exist_ok=True)
    for name in reproduction_figures.NAMES:
        (plots / file_name(name)).unlink(missing_ok=True)
    for name, section in sections:
        (plots / file_name(name)).write_text(draw(section.panels), encoding="utf-8")
    claims = [claim for _, section in sections for claim in section.claims]
    machine = "\n".join(f"| {key} | {value} |" for key, value in machine_rows(results))
    parts = [FOREWORD.format(machine=machine)]
    for name in results["left_out"]:
        parts.append(f"Left out: the `lmdbio-bench` of this run knows no `{name}`.\n")
    parts.append(summary_of(claims))
    parts += [text_of(name, section, reasons) for name, section in sections]
    for name, reason in absent:
        parts.append(f"## {name}\n\nNot measured: {reason}.\n")
    path = folder / "reproduction.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path, list(remarks_on(claims, reasons, [name for name, _ in sections]))


# --- Plots ---

def draw(panels):
    """The panels side by side, as the text of an SVG."""
    columns = min(len(panels), COLUMNS_MAX)
    if panels and panels[0].kind == "dots":
        columns = 2
    rows = math.ceil(len(panels) / columns)
    size = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    axes = grid.flatten().tolist()
    for axis, panel in zip(axes, panels):
        {"lines": draw_lines, "bars": draw_bars, "dots": draw_dots}[panel.kind](axis, panel)
        axis.set_title(panel.title, fontsize=8)
        axis.set_xlabel(panel.x_label)
        axis.set_ylabel(panel.y_label)
    for axis in axes[len(panels):]:
        axis.set_visible(False)
    return svg_of(figure)


def draw_lines(axis, panel):
    for index, (name, values) in enumerate(panel.series):
        axis.plot(values, label=name, color=COLOURS.get(name, "#4878a8"), linewidth=1.2,
                  marker=MARKERS[index % len(MARKERS)], markersize=3)
    label_ticks(axis, panel)
    if panel.is_log:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}" if spans_little(panel) else "")
    else:
        axis.set_ylim(bottom=0)
    add_legend(axis, panel)


def spans_little(panel):
    values = [value for _, series in panel.series for value in series]
    return max(values) < 2 * max(min(values), 1e-9)


def draw_bars(axis, panel):
    width = 0.8 / len(panel.series)
    for index, (name, values) in enumerate(panel.series):
        places = [place + (index - (len(panel.series) - 1) / 2) * width
                  for place in range(len(values))]
        axis.bar(places, values, width, label=name, color=PART_COLOURS[index])
    label_ticks(axis, panel)
    add_legend(axis, panel)


def draw_dots(axis, panel):
    """Draws points as short strokes in one path for each host, which is smaller than markers."""
    colours = matplotlib.colormaps["tab20"]
    length_s = max(time_s for _, times, _ in panel.series for time_s in times) / 200
    for host, times, offsets in panel.series:
        xs = [x for time_s in times for x in (time_s, time_s + length_s, math.nan)]
        ys = [y for offset in offsets for y in (offset, offset, math.nan)]
        axis.plot(xs, ys, color=colours(host % 20), linewidth=1.8)


def add_legend(axis, panel):
    """Places the legend below the panels, because lines may cross any part of a panel."""
    if len(panel.series) > 1:
        axis.legend(fontsize=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2),
                    ncol=3, columnspacing=1.0)


def label_ticks(axis, panel):
    axis.set_xticks(range(len(panel.ticks)), [str(tick) for tick in panel.ticks])


_ATTRIBUTE = re.compile(r' (?:d|x|y|transform|points|width|height)="[^"]*"')
_DECIMALS = re.compile(r"(\.\d\d)\d+")


def svg_of(figure):
    """Rounds coordinates to two decimals of a point, which is enough for a picture."""
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor="white",
                   metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    pyplot.close(figure)
    short = _ATTRIBUTE.sub(lambda found: _DECIMALS.sub(r"\1", found[0]), text.getvalue())
    return re.sub(r"[ \t]+$", "", short, flags=re.MULTILINE)
