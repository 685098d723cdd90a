"""Writes what scripts/reproduce has measured: reproduction.md and one SVG for each figure."""

import io
import math
import re

import matplotlib

import reproduction_figures

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # pylint: disable=wrong-import-position

# Text stays text, and the same results give the same bytes.
pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lmdbio", "font.size": 8,
                        "font.family": "sans-serif", "axes.grid": True, "grid.linewidth": 0.4,
                        "grid.color": "#d0d0d0", "path.simplify": False, "axes.axisbelow": True})
COLOURS = dict(zip(reproduction_figures.SERIES, (
    "#c03030", "#e08030", "#b09000", "#4878a8", "#30a0a0", "#409040", "#703090", "#808080",
    "#101010")))
PART_COLOURS = ("#e08030", "#4878a8", "#a0a0a0")
MARKERS = "osv^D<>Px"
PANEL_INCHES = (3.4, 2.8)
COLUMNS_MAX = 3

FOREWORD = """\
# Reproduction

This file is written by a script, and is not to be changed by hand. As root,

    {command}

measures all of it again, in {minutes} min here: the microbenchmark of S. Pumma's dissertation
(3.4.1, 5.3.1: it reads as a trainer would, and does not train) on emulated hosts
([cluster.md](cluster.md)), beside what that document found. There, up to 256 nodes with 36 ranks
each read 9.4 million records of 3 KB in batches of 18,432 from GPFS; here one machine plays all
hosts and the storage. So trends are compared, not numbers: a claim *holds* where the medians of
these runs meet the criterion beside it. Where is written as hosts x ranks of each: 8x2 are 8
hosts with 2 ranks each.

| | |
|---|---|
{machine}

*Read time* is from before the loader opens until the slowest rank has its last batch. Its parts,
of readers: *seek* finds records, *I/O* has at least one read under way (and asleep for guessed
pages), *turn* waits for another host's cursor, places or token, *skew* is turn and the time from
having a batch until the slowest rank has its own. A reader works ahead of its trainer, so parts
overlap and do not add up to the read time. Figures are medians, with (minimum..maximum) of
repeated runs; what is plotted for a breakdown is the fewest ranks of a host.
"""

AFTERWORD = """\
## Not covered

The figures with Caffe (3.1 to 3.4, 3.9 to 3.12, 4.7 to 4.9, 5.10 to 5.16); values of 192 KB (4.2,
4.10 and 4.11 have them besides); Figure 5.1, which is in [one_host.md](one_host.md). What one
machine cannot show: contention of dozens of ranks with cores of their own, and disks that lose
time when requests come in no order.
"""


def machine_rows(results):
    options, machine = results["options"], results["machine"]
    hosts = ", ".join(map(str, options["hosts"]))
    return [
        ("machine", f"{machine.get('processor')}, {machine.get('cores')} cores, Linux "
                    f"{machine.get('kernel')}"),
        ("lmdbio", f"commit {machine.get('commit')}"),
        ("hosts", f"{hosts}, emulated; {', '.join(map(str, options['ranks_per_host']))} rank(s) of "
                  "each; one reader a host"),
        ("MPI", f"waits by {machine.get('mpi_wait_mode')}"),
        ("storage", f"{options['delay']} ms a read, {options['rate']} bits/s of all hosts "
                    "together; its own cache warm"),
        ("hosts' page caches", "empty when a run opens the database"),
        ("database", f"{options['records']:,} records of {options['value_bytes']:,} B in order, a "
                     "commit every 1,000, with provenance"),
        ("a run", f"{options['iterations']} batches of {options['batch']:,}, all ranks together, "
                  "in blocks"),
        ("repeated", f"{options['repeat']} time(s), strategies in turn; Figures 4.2, 4.10 and "
                     "5.2: once"),
    ]


def table(head, rows):
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def text_of(name, section):
    parts = [f"## {section.title}", f"![{section.title.replace('`', '')}]"
                                    f"(reproduction/{file_name(name)})"]
    if section.text:
        parts.append(section.text)
    for caption, head, rows in section.tables:
        parts.append(f"{caption}:\n\n{table(head, rows)}")
    claims = [(one.paper, one.criterion, one.measured(), f"**{one.verdict()}**")
              for one in section.claims]
    parts.append(table(("dissertation", "criterion here", "measured", "so"), claims))
    return "\n\n".join(parts) + "\n"


def file_name(name):
    return f"figure-{name}.svg" if name[0].isdigit() else f"{name}.svg"


def write(results, folder):
    """Writes the report into `folder`, the plots into a folder beside it. Returns the report's
    path."""
    sections, absent = reproduction_figures.sections(results)
    plots = folder / "reproduction"
    plots.mkdir(exist_ok=True)
    for name in reproduction_figures.NAMES:
        (plots / file_name(name)).unlink(missing_ok=True)
    for name, section in sections:
        (plots / file_name(name)).write_text(draw(section.panels), encoding="utf-8")
    machine = "\n".join(f"| {key} | {value} |" for key, value in machine_rows(results))
    minutes = math.ceil(results["measuring_s"] / 60)
    parts = [FOREWORD.format(command=results["command"], minutes=minutes, machine=machine)]
    for name in results["left_out"]:
        parts.append(f"Left out: the `lmdbio-bench` that was used knows no `{name}`.\n")
    parts += [text_of(name, section) for name, section in sections]
    for name, strategy in absent:
        parts.append(f"## Figure {name}\n\nNot measured, for want of `{strategy}`.\n")
    parts.append(AFTERWORD)
    path = folder / "reproduction.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


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
    """Points as short strokes in one path for each host: small, where markers are not."""
    colours = matplotlib.colormaps["tab20"]
    length_s = max(time_s for _, times, _ in panel.series for time_s in times) / 200
    for host, times, offsets in panel.series:
        xs = [x for time_s in times for x in (time_s, time_s + length_s, math.nan)]
        ys = [y for offset in offsets for y in (offset, offset, math.nan)]
        axis.plot(xs, ys, color=colours(host % 20), linewidth=1.8)


def add_legend(axis, panel):
    """Below, for lines go anywhere."""
    if len(panel.series) > 1:
        axis.legend(fontsize=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2),
                    ncol=3, columnspacing=1.0)


def label_ticks(axis, panel):
    axis.set_xticks(range(len(panel.ticks)), [str(tick) for tick in panel.ticks])


_ATTRIBUTE = re.compile(r' (?:d|x|y|transform|points|width|height)="[^"]*"')
_DECIMALS = re.compile(r"(\.\d\d)\d+")


def svg_of(figure):
    """Two decimals of a point are enough for a picture."""
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor="white",
                   metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    pyplot.close(figure)
    short = _ATTRIBUTE.sub(lambda found: _DECIMALS.sub(r"\1", found[0]), text.getvalue())
    return re.sub(r"[ \t]+$", "", short, flags=re.MULTILINE)
