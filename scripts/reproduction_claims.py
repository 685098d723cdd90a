"""The parts of which the sections of scripts/reproduce consist, and the runs behind them.

    Section   one figure or series: tables, claims, panels
    Claim     a finding of the dissertation, a criterion for it, and the places that meet it
    Runs      runs by strategy and place; a place is (hosts, ranks of each) or the name of a variant
"""

import dataclasses
import statistics

SERIES = ("lmdb", "lmm", "lmm-dm", "lmm-dio", "lmm-dio-prov", "lmm-dio-prov-coal",
          "lmm-dio-prov-coal-stag", "scan", "auto")
PROV, COAL, STAG = SERIES[4:7]
DISSERTATION = SERIES[:7]  # in the order of the chapters, each meant to be faster than the last
TOLERANCE = 1.05           # read times within this factor count as equal
MIB = 1 << 20


@dataclasses.dataclass
class Claim:
    key: str        # FIGURE/WORD, by which reasons are found
    paper: str      # the finding, paraphrased, with the section
    criterion: str  # the condition under which the claim holds here
    values: list    # (where: "8x1" or "8", as text, whether it is met)

    def measured(self):
        return ", ".join(f"{text} ({where})" if where else text for where, text, _ in self.values)

    def verdict(self):
        met = [where for where, _, is_met in self.values if is_met]
        missed = [where for where, _, is_met in self.values if not is_met]
        if not self.values:
            return "cannot be decided with these hosts"
        if not missed:
            return "holds"
        if not met:
            return "does not hold"
        return f"holds at {', '.join(met)}; not at {', '.join(missed)}"

    def is_missed(self):
        """Whether the claim does not hold somewhere, so that a reason is due."""
        return any(not is_met for _, _, is_met in self.values)


@dataclasses.dataclass
class Panel:
    kind: str    # "lines", "bars" or "dots"
    title: str
    x_label: str
    y_label: str
    ticks: list  # labels of x; lines and bars are at 0, 1, ...
    series: list  # (name, values) or, for dots, (host, x values, y values)
    is_log: bool = False


@dataclasses.dataclass
class Section:
    title: str
    text: str = ""
    tables: list = dataclasses.field(default_factory=list)  # (caption, head, rows)
    claims: list = dataclasses.field(default_factory=list)
    panels: list = dataclasses.field(default_factory=list)


def spread(values, decimals=3):
    """The median, and the extremes if there are several values."""
    text = f"{statistics.median(values):.{decimals}f}"
    if len(values) == 1:
        return text
    return f"{text} ({min(values):.{decimals}f}..{max(values):.{decimals}f})"


def readers(run):
    """The ranks that read, with their skew: waiting at a barrier or for another host."""
    ranks = [rank | {"skew_s": rank["turn_s"] + rank["meet_s"]} for rank in run["by_rank"]]
    return [rank for rank in ranks if rank["seek_s"] + rank["io_s"] > 0] or ranks


def seconds_of(run):
    return run["seconds"]


class Runs:
    def __init__(self, runs, key=lambda run: (run["hosts"], run["per_host"])):
        self.runs = {}
        places = []
        for run in runs:
            place = key(run)
            places.append(place)
            self.runs.setdefault((run["strategy"], place), []).append(run)
        self.shapes = list(dict.fromkeys(places))
        present = {name for name, _ in self.runs}
        self.strategies = [name for name in SERIES if name in present]

    def has(self, strategy, shape=None):
        if shape is None:
            return strategy in self.strategies
        return (strategy, shape) in self.runs

    def each(self, strategy, shape, figure):
        return [figure(run) for run in self.runs[strategy, shape]]

    def median(self, strategy, shape, figure):
        return statistics.median(self.each(strategy, shape, figure))

    def seconds(self, strategy, shape):
        return self.median(strategy, shape, seconds_of)

    def part(self, strategy, shape, key, over):
        """The median over runs of the mean (or maximum) of a time over readers."""
        return self.median(strategy, shape, lambda run: over([r[key] for r in readers(run)]))

    def share(self, strategy, shape, key, over=statistics.mean):
        """A part of the read time."""
        return self.median(strategy, shape, lambda run: over([r[key] for r in readers(run)])
                           / run["seconds"])

    def raw_share(self, strategy, shape):
        """The rate as percent of the raw rate of the storage, or None if that was not measured."""
        shares = [run["raw_fraction"] for run in self.runs[strategy, shape]]
        return None if None in shares else 100 * statistics.median(shares)

    def raw_rates(self, shape):
        """The raw rates of all runs at a place, in MB/s."""
        return [run["raw_bytes_per_s"] / 1e6 for (_, place), runs in self.runs.items()
                if place == shape for run in runs if run["raw_bytes_per_s"] is not None]

    def per_hosts(self):
        return sorted({per_host for _, per_host in self.shapes})


def name_of(shape):
    return f"{shape[0]}x{shape[1]}" if isinstance(shape, tuple) else str(shape)


def claim(key, paper, criterion, shapes, value, test, form="{:.2f}"):
    """A claim with one number for each shape. value: shape -> number; test: number -> bool"""
    values = []
    for shape in shapes:
        number = value(shape)
        values.append((name_of(shape), form.format(number), test(number)))
    return Claim(key, paper, criterion, values)


def faster(key, data, new, others, paper, shapes, tolerance=1.0):
    """The claim that `new` reads faster than each of the others. The number is the time of the
    fastest other strategy divided by that of `new`."""
    others = [name for name in others if data.has(name)] or others[:1]
    words = f"`{others[0]}`" if len(others) == 1 else "the fastest other strategy"
    ratio = f"read time of {words} divided by that of `{new}`"
    criterion = (f"{ratio} is above 1" if tolerance == 1.0 else
                 f"read time of `{new}` is at most {tolerance} times that of {words}; "
                 f"the number is the {ratio}")
    shapes = [shape for shape in shapes if all(data.has(n, shape) for n in (new, *others))]
    return claim(key, paper, criterion, shapes,
                 lambda shape: min(data.seconds(o, shape) for o in others)
                 / data.seconds(new, shape),
                 lambda ratio: ratio > 1 if tolerance == 1.0 else ratio * tolerance >= 1)


def in_order_at(key, data, places, criterion, paper):
    """The claim that each of [(strategy, place)] reads faster than the one before it."""
    places = [(name, place) for name, place in places if data.has(name, place)]
    steps = [(f"`{new[0]}`", data.seconds(*old) / data.seconds(*new))
             for old, new in zip(places, places[1:])]
    names = ", ".join(f"`{name}`" for name, _ in places)
    return Claim(key, paper, f"{criterion}, the read time of each strategy divided by that of the "
                             f"next one is above 1: {names}",
                 [(where, f"{ratio:.2f}", ratio > 1) for where, ratio in steps])


def in_order(key, data, shape, paper):
    """The claim for the strategies of the dissertation, in the order of its chapters."""
    return in_order_at(key, data, [(name, shape) for name in DISSERTATION],
                       f"at {name_of(shape)}", paper)


def several(shapes):
    return [shape for shape in shapes if shape[0] > 1]


def read_time(data, compared, new):
    """Tables and panels of one comparison of `new` with the others."""
    shown = [name for name in compared if data.has(name)]
    others = [name for name in shown if name != new]
    head = ["hosts", "ranks each", *(f"`{name}` s" for name in shown), f"`lmdb` / `{new}`"]
    if len(others) > 1:
        head.append(f"fastest other / `{new}`")
    rows = []
    for shape in data.shapes:
        own = data.seconds(new, shape)
        times = [data.seconds(name, shape) for name in others]
        rows.append([*shape, *(spread(data.each(name, shape, seconds_of))
                               for name in shown), f"{times[0] / own:.2f}"])
        if len(others) > 1:
            rows[-1].append(f"{min(times) / own:.2f}")
    panels = []
    for per_host in data.per_hosts():
        shapes = [shape for shape in data.shapes if shape[1] == per_host]
        panels.append(Panel("lines", f"read time, {per_host} rank(s) a host", "hosts", "s",
                            [hosts for hosts, _ in shapes],
                            [(name, [data.seconds(name, shape) for shape in shapes])
                             for name in shown], is_log=True))
    return Section("", tables=[("Read time", head, rows)], panels=panels)


def raw_text(share):
    return "-" if share is None else f"{share:.0f}"


def raw_table(data, names):
    """The shares of the raw rate, for places with hosts and ranks."""
    names = [name for name in names if data.has(name)]
    rows = []
    for shape in data.shapes:
        rates = data.raw_rates(shape)
        rows.append([*shape, spread(rates, 0) if rates else "-",
                     *(raw_text(data.raw_share(name, shape)) for name in names)])
    return ("Share of the raw rate of the storage, percent",
            ["hosts", "ranks each", "raw MB/s", *(f"`{name}`" for name in names)], rows)


def comparison(caption, word, data, baseline="lmdb", base_of=lambda shape: shape):
    """A table with a row for each place and strategy. word: the meaning of a place; base_of: the
    place where the baseline for another place was measured"""
    rows = []
    for shape in data.shapes:
        for name in data.strategies:
            if not data.has(name, shape):
                continue
            base = base_of(shape)
            ratio = (f"{data.seconds(baseline, base) / data.seconds(name, shape):.2f}"
                     if data.has(baseline, base) else "-")
            requests = data.median(name, shape, lambda run: run["read_requests"])
            rows.append([name_of(shape), f"`{name}`", spread(data.each(name, shape, seconds_of)),
                         ratio, raw_text(data.raw_share(name, shape)),
                         f"{100 * data.share(name, shape, 'seek_s', max):.0f}",
                         f"{100 * data.share(name, shape, 'skew_s'):.0f}", f"{requests:.0f}"])
    return (caption, [word, "strategy", "read time s", f"`{baseline}` / it", "% of raw",
                      "seek max %", "skew mean %", "requests"], rows)
