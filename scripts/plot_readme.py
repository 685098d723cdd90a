#!/usr/bin/python3
"""Draws the figure of README.md: records per second of py-lmdb, PyTorch's DataLoader and lmdbio.

    scripts/plot_readme.py [JSON [SVG]]

JSON holds one comparison for each condition (cold, warm, remote), as `bench/peers/compare.py
--condition NAME --json JSON` adds them; bench/peers/README.md has the commands. By default it is
lmdbio/docs/results/peers.json, and the picture is peers.svg beside it. Each condition becomes a
panel. Every number of the picture comes from the file.

Needs matplotlib: `scripts/setup --reproduce` installs it for /usr/bin/python3.
"""

import argparse
import io
import json
import pathlib
import re
import sys
import textwrap

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot  # pylint: disable=wrong-import-position
except ImportError as missing:
    sys.exit(f"plot_readme.py: {missing}; `scripts/setup --reproduce` installs it for "
             "/usr/bin/python3")

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "lmdbio" / "docs" / "results"
ORDERS = (("sequential", "in order"), ("shuffled", "shuffled"))
# (legend, the readers of the file that belong to it, colour). The fastest reader is drawn.
SERIES = (("py-lmdb", re.compile(r"py-lmdb"), "#9aa5b1"),
          ("PyTorch's DataLoader over py-lmdb", re.compile(r"DataLoader, \d+ workers?"), "#e0a458"),
          ("lmdbio in a DataLoader", re.compile(r"lmdbio\.torch, \d+ workers?"), "#2a6f97"))
BAR_WIDTH = 0.27
CAPTION_COLUMNS = 150


class Failure(Exception):
    """An error that ends the program with one line."""


def load_conditions(path):
    """{condition: comparison}, in the order of the file."""
    try:
        conditions = json.loads(path.read_text(encoding="utf-8"))["conditions"]
    except OSError as error:
        raise Failure(f"{error}; bench/peers/README.md has the commands that make it") from error
    except (ValueError, LookupError, TypeError) as error:
        raise Failure(f"{path} is not a file of conditions; make it with bench/peers/compare.py "
                      "--condition") from error
    if not conditions:
        raise Failure(f"{path} holds no condition")
    return conditions


def fastest(condition, comparison, order, series):
    """The row of the summary that is drawn for a series."""
    name, readers, _ = series
    rows = [row for row in comparison["summary"]
            if row["order"] == order and readers.fullmatch(row["reader"])]
    if not rows:
        raise Failure(f"condition '{condition}' has no run of {name}, order {order}; measure it "
                      "again with bench/peers/compare.py")
    return max(rows, key=lambda row: row["records_per_s"])


def rate_text(rate):
    """The rate with three digits: 765k, 1.23M, 774."""
    for unit, suffix in ((1e6, "M"), (1e3, "k")):
        if rate >= unit:
            return f"{float(f'{rate / unit:.3g}'):g}{suffix}"
    return f"{rate:.3g}"


def draw_panel(axis, condition, comparison):
    top = 0
    for index, series in enumerate(SERIES):
        rows = [fastest(condition, comparison, order, series) for order, _ in ORDERS]
        rates = [row["records_per_s"] for row in rows]
        spread = [[rate - row["records_per_s_min"] for rate, row in zip(rates, rows)],
                  [row["records_per_s_max"] - rate for rate, row in zip(rates, rows)]]
        places = [group + (index - 1) * BAR_WIDTH for group in range(len(ORDERS))]
        axis.bar(places, rates, BAR_WIDTH * 0.92, color=series[2], label=series[0], yerr=spread,
                 error_kw={"elinewidth": 0.8, "capsize": 2, "ecolor": "#444444"})
        for place, row in zip(places, rows):
            axis.annotate(rate_text(row["records_per_s"]), (place, row["records_per_s_max"]),
                          xytext=(0, 3), textcoords="offset points", ha="center", va="bottom",
                          fontsize=7)
            top = max(top, row["records_per_s_max"])
    axis.set_title(condition, fontsize=9)
    axis.set_xticks(range(len(ORDERS)), [name for _, name in ORDERS])
    axis.set_ylim(0, top * 1.12)
    axis.yaxis.set_major_formatter(lambda rate, _: rate_text(rate) if rate > 0 else "0")
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(length=0)


def caption(conditions):
    """Data, machine and commands. A fact that all conditions share appears once."""
    settings = {name: comparison["setting"] for name, comparison in conditions.items()}

    def shared(text_of):
        texts = {name: text_of(setting) for name, setting in settings.items()}
        if len(set(texts.values())) == 1:
            return next(iter(texts.values()))
        return "; ".join(f"{name}: {text}" for name, text in texts.items())

    size = next(iter(conditions.values()))["summary"][0]
    record_bytes = round(size["bytes_per_s"] / size["records_per_s"])
    lines = [
        "Medians; lines show minimum and maximum. Each panel has its own scale. Of the runs with "
        "different numbers of workers the fastest is drawn.",
        shared(lambda one: f"{one['records']:,} records of about {record_bytes:,} B, batches of "
                           f"{one['batch_size']}, {one['repeat']} run(s)"),
        shared(lambda one: f"{one['date']}, {one['cores']} cores, {one['memory_gib']} GiB, Linux "
                           f"{one['kernel']}, PyTorch {one['torch']}, py-lmdb {one['py-lmdb']}, "
                           f"commit {one['commit']}"),
        *(f"{name}: {setting['command']}" for name, setting in settings.items())]
    return "\n".join(textwrap.fill(line, CAPTION_COLUMNS) for line in lines)


def svg_of(figure):
    """The SVG without dates and trailing spaces, so that the same file gives the same picture."""
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor="white", bbox_inches="tight",
                   metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    pyplot.close(figure)
    return re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.MULTILINE)


def draw(conditions):
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "lmdbio", "font.size": 8})
    figure, axes = pyplot.subplots(1, len(conditions), figsize=(3.2 * len(conditions), 2.8),
                                   squeeze=False)
    for axis, (condition, comparison) in zip(axes[0], conditions.items()):
        draw_panel(axis, condition, comparison)
    axes[0][0].set_ylabel("records per second")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=len(SERIES), frameon=False,
                  bbox_to_anchor=(0.5, 1.08))
    figure.text(0.02, -0.02, caption(conditions), fontsize=6, color="#444444", va="top")
    return svg_of(figure)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", metavar="JSON", nargs="?", type=pathlib.Path,
                        default=RESULTS / "peers.json",
                        help="default: lmdbio/docs/results/peers.json")
    parser.add_argument("svg", metavar="SVG", nargs="?", type=pathlib.Path,
                        help="default: beside JSON")
    options = parser.parse_args(words)
    try:
        picture = draw(load_conditions(options.json))
        (options.svg or options.json.with_suffix(".svg")).write_text(picture, encoding="utf-8")
    except (Failure, OSError) as error:
        print(f"plot_readme.py: {error}", file=sys.stderr)
        return 1
    except (LookupError, TypeError) as error:
        print(f"plot_readme.py: {options.json} lacks {error}; measure it again with "
              "bench/peers/compare.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
