"""The output of scripts/reproduce for each figure of the dissertation: tables, claims and panels,
computed from the results of its passes. This file contains no measured number."""

import statistics

import reproduction_series
import reproduction_series_figures
from reproduction_claims import (COAL, DISSERTATION, MIB, PROV, SERIES, STAG, TOLERANCE, Claim,
                                 Panel, Runs, Section, claim, faster, in_order, name_of, raw_table,
                                 read_time, readers, several, spread)

# Figures that compare read times: their strategies; the last is the new one.
COMPARED = {"3.6": SERIES[:2], "4.6": SERIES[:3], "5.5": SERIES[:4], "5.7": SERIES[:5],
            "5.8": SERIES[:6], "5.9": SERIES[:7]}
ORDERED = (PROV, COAL, STAG, "auto")
# The pass of each figure, and its strategies.
NEEDS = {"3.6": ("runs", SERIES[:2]), "3.7": ("runs", ("lmm",)), "3.8": ("runs", SERIES[:2]),
         "4.2": ("storage", SERIES), "4.6": ("runs", SERIES[:3]), "4.10": ("guesses", ("lmm-dm",)),
         "4.11": ("runs", ("lmm-dm",)), "5.2": ("storage", ORDERED), "5.5": ("runs", SERIES[:4]),
         "5.6": ("runs", ("lmm-dio",)), "5.7": ("runs", SERIES[:5]), "5.8": ("runs", SERIES[:6]),
         "5.9": ("runs", SERIES[:7]), "all": ("runs", SERIES)}
NAMES = (*NEEDS, *reproduction_series_figures.BUILDERS)  # of figures, then of series


def strategies_for(kind, figures, known):
    """The strategies that a pass runs for these figures, in the order of the series."""
    wanted = {name for figure in figures if figure in NEEDS and NEEDS[figure][0] == kind
              for name in NEEDS[figure][1]}
    return [name for name in SERIES if name in wanted and name in known]


class Data(Runs):
    """Results by strategy and (hosts, ranks of each), and those of the storage and of guesses."""

    def __init__(self, results):
        super().__init__(results["runs"])
        self.results = results
        self.shapes.sort(key=lambda shape: (shape[1], shape[0]))
        self.storage = {(one["strategy"], one["hosts"]): one for one in results["storage"]}
        self.watched_hosts = sorted({hosts for _, hosts in self.storage})


# --- Read time ---

PARTS = (("seek_s", "seek"), ("io_s", "I/O"), ("skew_s", "skew"))


def add_breakdown(section, data, name):
    head = ["hosts", "ranks each", "read time s"]
    for _, word in PARTS:
        head += [f"{word} mean s", f"{word} max s"]
    head.append("turn mean s")
    rows = []
    for shape in data.shapes:
        row = [*shape, f"{data.seconds(name, shape):.3f}"]
        for key, _ in PARTS:
            row += [f"{data.part(name, shape, key, over):.3f}" for over in (statistics.mean, max)]
        rows.append([*row, f"{data.part(name, shape, 'turn_s', statistics.mean):.3f}"])
    section.tables.append((f"Breakdown of `{name}`, over its readers", head, rows))
    shapes = [shape for shape in data.shapes if shape[1] == data.per_hosts()[0]]
    section.panels.append(Panel(
        "bars", f"{name}, mean of readers", "hosts", "s", [hosts for hosts, _ in shapes],
        [(word, [data.part(name, shape, key, statistics.mean) for shape in shapes])
         for key, word in PARTS]))


def figure_3_6(data):
    section = read_time(data, COMPARED["3.6"], "lmm")
    section.title = "Figure 3.6: `lmm` beside `lmdb`"
    add_breakdown(section, data, "lmm")
    section.claims = [
        faster("3.6/speed", data, "lmm", ["lmdb"],
               "one reader per host is faster than all ranks reading, by up to 43.8 times; only at "
               "the largest counts is it a little slower (3.4.1)", data.shapes),
        claim("3.6/parts", "seek and skew together take more time than I/O (3.4.1)",
              "mean of seek + skew divided by mean of I/O is above 1", several(data.shapes),
              lambda shape: (data.part("lmm", shape, "seek_s", statistics.mean)
                             + data.part("lmm", shape, "skew_s", statistics.mean))
              / data.part("lmm", shape, "io_s", statistics.mean), lambda ratio: ratio > 1)]
    return section


def figure_4_6(data):
    section = read_time(data, COMPARED["4.6"], "lmm-dm")
    section.title = "Figure 4.6: `lmm-dm` beside `lmdb` and `lmm`"
    add_breakdown(section, data, "lmm-dm")
    alone = [shape for shape in data.shapes if shape[0] == 1]
    section.claims = [
        claim("4.6/one-host",
              "on one host it gains nothing over `lmm`; guesses cost a little (4.3.1)",
              f"read time of `lmm` divided by that of `lmm-dm` is at most {TOLERANCE}", alone,
              lambda shape: data.seconds("lmm", shape) / data.seconds("lmm-dm", shape),
              lambda ratio: ratio <= TOLERANCE),
        faster("4.6/speed", data, "lmm-dm", ["lmdb", "lmm"],
               "on several hosts it is faster than both, up to 6.7 times as fast as `lmdb` (4.3.1)",
               several(data.shapes)),
        claim("4.6/seek-share",
              "seek takes below 1 % of the read time; with `lmm` it takes up to 60 % (4.3.1)",
              "mean seek of `lmm-dm` is below 1 % of its read time", several(data.shapes),
              lambda shape: 100 * data.share("lmm-dm", shape, "seek_s"),
              lambda percent: percent < 1, "{:.1f} %"),
        claim("4.6/seek-ratio", "seek is up to 1,741 times shorter than that of `lmm` (4.3.1)",
              "mean seek of `lmm` divided by that of `lmm-dm` is above 1", several(data.shapes),
              lambda shape: data.part("lmm", shape, "seek_s", statistics.mean)
              / max(data.part("lmm-dm", shape, "seek_s", statistics.mean), 1e-9),
              lambda ratio: ratio > 1, "{:.1f}")]
    return section


def figure_5_5(data):
    section = read_time(data, COMPARED["5.5"], "lmm-dio")
    section.title = "Figure 5.5: `lmm-dio` beside the strategies that map the file"
    add_breakdown(section, data, "lmm-dio")
    section.claims = [
        faster("5.5/speed", data, "lmm-dio", SERIES[:3],
               "explicit reads are nearly always faster than maps (`lmm-dm` is sometimes ahead), "
               "up to 17.2 times as fast as `lmdb` (5.3.1)", data.shapes),
        claim("5.5/seek-share", "seek still takes nearly 20 % of the read time (5.3.1)",
              "seek of the slowest reader is 10 to 30 % of the read time", data.shapes,
              lambda shape: 100 * data.share("lmm-dio", shape, "seek_s", max),
              lambda percent: 10 <= percent <= 30, "{:.0f} %")]
    return section


def figure_5_7(data):
    section = read_time(data, COMPARED["5.7"], PROV)
    section.title = f"Figure 5.7: `{PROV}` beside the strategies that seek"
    add_breakdown(section, data, PROV)
    section.claims = [
        faster("5.7/speed", data, PROV, SERIES[:4],
               "it is the fastest so far at every scale, up to 19.4 times as fast as `lmdb` "
               "(5.3.1)",
               data.shapes),
        claim("5.7/seek-share", "provenance removes the seek (5.3.1)",
              "seek of the slowest reader is below 5 % of the read time", data.shapes,
              lambda shape: 100 * data.share(PROV, shape, "seek_s", max),
              lambda percent: percent < 5, "{:.1f} %"),
        claim("5.7/skew",
              "skew takes a considerable part of the time, because the requests of all readers "
              "arrive unordered (5.3.1)", "mean skew is at least 10 % of the read time",
              several(data.shapes), lambda shape: 100 * data.share(PROV, shape, "skew_s"),
              lambda percent: percent >= 10, "{:.0f} %")]
    return section


def figure_5_8(data):
    section = read_time(data, COMPARED["5.8"], COAL)
    section.title = f"Figure 5.8: `{COAL}` beside the others"
    add_breakdown(section, data, COAL)
    section.claims = [
        faster("5.8/speed", data, COAL, SERIES[:5],
               "large reads that serve several batches are the fastest so far at every scale, up "
               "to 21.9 times as fast as `lmdb` (5.3.1)", data.shapes),
        claim("5.8/skew", "skew falls to about a quarter of the read time (5.3.1)",
              "mean skew is at most 35 % of the read time", several(data.shapes),
              lambda shape: 100 * data.share(COAL, shape, "skew_s"),
              lambda percent: percent <= 35, "{:.0f} %")]
    return section


def figure_5_9(data):
    section = read_time(data, COMPARED["5.9"], STAG)
    section.title = f"Figure 5.9: `{STAG}` beside the others"
    add_breakdown(section, data, STAG)
    section.claims = [
        faster("5.9/speed", data, STAG, SERIES[:6],
               "staggered readers are at least as fast as every other strategy, up to 81 times as "
               "fast as `lmdb` (5.3.1)", data.shapes, TOLERANCE),
        claim("5.9/skew", "skew is larger than without staggering, by design (5.3.1)",
              f"mean skew divided by that of `{COAL}` is above 1", several(data.shapes),
              lambda shape: data.part(STAG, shape, "skew_s", statistics.mean)
              / max(data.part(COAL, shape, "skew_s", statistics.mean), 1e-9),
              lambda ratio: ratio > 1)]
    return section


# How many times as fast as `lmdb` a strategy is in the dissertation (3.4.1, 4.3.1, 5.3.1), with up
# to 4,608 cores.
PUBLISHED_GAINS = dict(zip(DISSERTATION[1:], (43.77, 6.7, 17.18, 19.44, 21.86, 81.05)))


def gains_table(data):
    rows = []
    for name, published in PUBLISHED_GAINS.items():
        if not data.has(name):
            continue
        gains = {shape: data.seconds("lmdb", shape) / data.seconds(name, shape)
                 for shape in data.shapes}
        best = max(gains, key=gains.get)
        rows.append([f"`{name}`", published, f"{gains[best]:.2f}", name_of(best),
                     f"{gains[max(gains)]:.2f}"])
    return ("Times as fast as `lmdb`",
            ["strategy", "dissertation, best", "best here", "at", "at the largest shape"], rows)


def figure_all(data):
    section = read_time(data, SERIES, "auto")
    section.title = "All strategies"
    section.text = ("`scan` and `auto` have no counterpart in the dissertation. The largest shape "
                    "has the most hosts, and on them the most ranks.")
    section.tables += [raw_table(data, SERIES), gains_table(data)]
    section.claims = [
        in_order("all/order", data, max(data.shapes),
                 "each strategy is faster than the one before it (5.3.1)"),
        faster("all/auto", data, "auto", [name for name in SERIES if name != "auto"],
               "(no counterpart) `auto` is at least as fast as every other strategy", data.shapes,
               TOLERANCE)]
    return section


# --- By rank, switches ---

def by_rank(data, name, key, word):
    """The readers of the most hosts with the fewest ranks, one row each; and their medians."""
    shape = max((shape for shape in data.shapes if shape[1] == data.per_hosts()[0]))
    runs = [readers(run) for run in data.runs[name, shape]]
    rows, medians = [], []
    for index in range(min(map(len, runs))):
        values = [ranks[index][key] for ranks in runs]
        rows.append([runs[0][index]["rank"], spread(values)])
        medians.append(statistics.median(values))
    section = Section("", text=f"{shape[0]} hosts with {shape[1]} rank(s) each.",
                      tables=[(f"{word} of `{name}` by reader", ["rank", f"{word} s"], rows)],
                      panels=[Panel("bars", f"{name}: {word}", "rank of the reader", "s",
                                    [row[0] for row in rows], [(word, medians)])])
    return section, medians


def rank_correlation(values):
    """Spearman's rank correlation of values with their indices; 1 if the values only grow."""
    if len(values) < 3 or len(set(values)) == 1:
        return 0.0
    ranks = [sum(other < value for other in values) + sum(other == value for other in values) / 2
             for value in values]
    return statistics.correlation(ranks, list(range(len(values))))


def figure_3_7(data):
    section, medians = by_rank(data, "lmm", "seek_s", "seek")
    section.title = "Figure 3.7: seek time of `lmm` by reader"
    values = [] if len(medians) < 3 else [rank_correlation(medians)]
    section.claims = [Claim(
        "3.7/rank", "seek grows with the reader's rank (3.4.1)",
        "rank correlation of seek and rank is at least 0.5",
        [("", f"{value:.2f}", value >= 0.5) for value in values])]
    return section


def figure_5_6(data):
    section, medians = by_rank(data, "lmm-dio", "io_s", "I/O")
    section.title = "Figure 5.6: I/O time of `lmm-dio` by reader"
    values = [] if len(medians) < 3 else [rank_correlation(medians)]
    section.claims = [Claim(
        "5.6/rank", "I/O differs between readers, but does not grow with the rank (5.3.1)",
        "rank correlation of I/O and rank is below 0.5",
        [("", f"{value:.2f}", value < 0.5) for value in values])]
    return section


def figure_3_8(data):
    def rate(run):
        return run["context_switches"] / (run["bytes_useful"] / 1e9)
    names = [name for name in COMPARED["3.6"] if data.has(name)]
    rows = [[*shape, *(spread(data.each(name, shape, rate), 0) for name in names),
             f"{ratio_of_switches(data, shape, rate):.2f}"] for shape in data.shapes]
    section = Section(
        "Figure 3.8: context switches of `lmdb` and `lmm`",
        text="Switches of readers and ranks per GB of needed pages, without those of the barrier "
             "of the benchmark.",
        tables=[("Context switches per GB",
                 ["hosts", "ranks each", *(f"`{name}`" for name in names), "`lmdb` / `lmm`"],
                 rows)])
    for per_host in data.per_hosts():
        shapes = [shape for shape in data.shapes if shape[1] == per_host]
        section.panels.append(Panel(
            "lines", f"context switches, {per_host} rank(s) a host", "hosts", "for each GB",
            [hosts for hosts, _ in shapes],
            [(name, [data.median(name, shape, rate) for shape in shapes]) for name in names]))
    section.claims = [claim(
        "3.8/switches", "one reader per host needs up to 83 times fewer switches (3.4.1)",
        "switches of `lmdb` divided by those of `lmm` are above 1", data.shapes,
        lambda shape: ratio_of_switches(data, shape, rate), lambda ratio: ratio > 1)]
    return section


def ratio_of_switches(data, shape, rate):
    return data.median("lmdb", shape, rate) / max(data.median("lmm", shape, rate), 1e-9)


# --- Guesses ---

def figure_4_10(data):
    section = Section("Figure 4.10: pages that `lmm-dm` guesses, by iteration")
    steps = sorted(data.results["guesses"], key=lambda one: one["iterations"])
    rows, middles, redundant, missed = [], [], [], []
    before = {"iterations": 0, "missed_pages": 0, "redundant_pages": 0}
    for now in steps:
        count = now["iterations"] - before["iterations"]
        missed.append((now["missed_pages"] - before["missed_pages"]) / count)
        redundant.append((now["redundant_pages"] - before["redundant_pages"]) / count)
        middles.append(f"{before['iterations'] + 1}-{now['iterations']}" if count > 1
                       else str(now["iterations"]))
        rows.append([middles[-1], now["missed_pages"], f"{missed[-1]:.1f}",
                     now["redundant_pages"], f"{redundant[-1]:.1f}"])
        before = now
    section.text = (f"{steps[0]['hosts']} hosts with one rank each. Each row is a separate job "
                    "that ends with the last iteration of the row. The pages of an iteration are "
                    "the difference between two jobs.")
    section.tables = [("Missed and redundant pages, all hosts together",
                       ["iterations", "missed so far", "missed in each", "redundant so far",
                        "redundant in each"], rows)]
    section.panels = [Panel("lines", "redundant pages of an iteration", "iterations", "pages",
                            middles, [("redundant", redundant)]),
                      Panel("lines", "missed pages of an iteration", "iterations", "pages",
                            middles, [("missed", missed)])]
    growth = redundant[-1] / redundant[-2] if len(rows) > 2 and redundant[-2] > 0 else None
    late = [(where, f"{value:.1f}", value <= 0) for where, value in zip(middles[2:], missed[2:])]
    section.claims = [
        Claim("4.10/redundant",
              "redundant pages of an iteration grow at first and then stay the same (4.3.3)",
              "the last row divided by the row before is 0.75 to 1.25",
              [] if growth is None else [("", f"{growth:.2f}", 0.75 <= growth <= 1.25)]),
        Claim("4.10/missed", "from the third iteration on no page is missed (4.3.3)",
              "missed pages of each later iteration are 0", late)]
    return section


def figure_4_11(data):
    names = ("missed_pages", "redundant_pages")
    rows = []
    for shape in data.shapes:
        runs = data.runs["lmm-dm", shape]
        missed, redundant = ([run[name] for run in runs] for name in names)
        rows.append([*shape, spread(missed, 0), f"{statistics.median(missed) / shape[0]:.1f}",
                     spread(redundant, 0), runs[0]["bytes_useful"] // 4096])
    shapes = [shape for shape in data.shapes if shape[1] == data.per_hosts()[0]]
    medians = [data.median("lmm-dm", shape, lambda run: run["missed_pages"]) for shape in shapes]
    growth = [(f"{a[0]} to {b[0]}", f"{now / max(before, 1):.2f}", now > before)
              for a, b, before, now in zip(shapes, shapes[1:], medians, medians[1:])]
    most = max(medians) / max(data.runs["lmm-dm", shapes[-1]][0]["bytes_useful"] // 4096, 1)
    return Section(
        "Figure 4.11: pages that `lmm-dm` misses, by hosts",
        tables=[("Pages of whole runs", ["hosts", "ranks each", "missed", "missed on each host",
                                         "redundant", "needed"], rows)],
        claims=[Claim("4.11/growth", "missed pages grow with the readers (4.3.3)",
                      "more pages are missed than with the next smaller number of hosts", growth),
                Claim("4.11/few", "missed pages are very few (4.3.3)",
                      "the largest count is below 1 % of the needed pages",
                      [("", f"{100 * most:.2f} %", most < 0.01)])],
        panels=[Panel("lines", "missed pages", "hosts", "pages", [s[0] for s in shapes],
                      [("missed", medians)])])


# --- Storage ---

def figure_4_2(data):
    names = [name for name in SERIES if (name, data.watched_hosts[0]) in data.storage]
    crossed = {key: one["bytes"] / one["needed_bytes"] for key, one in data.storage.items()}
    rows = [[hosts, *(f"{crossed[name, hosts]:.3f}" for name in names)]
            for hosts in data.watched_hosts]
    extra = [(hosts, data.storage["lmm", hosts]["bytes"]
              - data.storage["lmm", hosts]["needed_bytes"]) for hosts in data.watched_hosts]
    growth = [(f"{a} to {b}", f"{(now - before) / MIB:.0f} MiB more", now > before)
              for (a, before), (b, now) in zip(extra, extra[1:])]
    rates = [(f"{a} to {b}", f"{(now - before) / MIB / (b - a):.1f}")
             for (a, before), (b, now) in zip(extra, extra[1:])]
    rises = [float(text) for _, text in rates]
    is_even = len(rises) > 1 and min(rises) > 0 and max(rises) <= 2 * min(rises)
    return Section(
        "Figure 4.2: bytes that crossed the storage",
        text="A ratio of 1 means that every page that holds records crossed once for all hosts "
             "together; bytes above that are extra. One rank per host. The bytes come from the "
             "log of the storage, without the preparations of the benchmark.",
        tables=[("Bytes that crossed, divided by needed bytes",
                 ["hosts", *(f"`{name}`" for name in names)], rows)],
        claims=[Claim("4.2/growth", "extra bytes of `lmm` grow with the readers (4.1.1)",
                      "there are more than with the next smaller number of hosts", growth),
                Claim("4.2/even", "they grow almost in proportion to the readers (4.1.1)",
                      "MiB per additional host differ by at most a factor of 2",
                      [("", ", ".join(f"{text} ({where})" for where, text in rates), is_even)]
                      if len(rises) > 1 else [])],
        panels=[Panel("lines", "bytes that crossed, of needed", "hosts", "times",
                      data.watched_hosts,
                      [(name, [crossed[name, hosts] for hosts in data.watched_hosts])
                       for name in names], is_log=True)])


def figure_5_2(data):
    few, many = data.watched_hosts[0], data.watched_hosts[-1]
    names = [name for name in ORDERED if (name, many) in data.storage]
    shown = sorted({few, many})
    rows, panels = [], []
    for name in names:
        for hosts in shown:
            one = data.storage[name, hosts]
            steps = max(one["requests"] - 1, 1)
            rows.append([f"`{name}`", hosts, one["requests"],
                         f"{one['bytes'] / one['requests'] / 1024:.0f}",
                         f"{100 * one['followed'] / steps:.1f}",
                         f"{100 * one['went_back'] / steps:.1f}",
                         f"{one['jump_bytes_mean'] / MIB:.2f}"])
            series = [(host, [r[0] for r in one["sample"] if r[1] == host],
                       [r[2] / MIB for r in one["sample"] if r[1] == host])
                      for host in range(hosts)]
            panels.append(Panel("dots", f"{name}, {hosts} host(s)", "s", "offset MiB", [],
                                [one for one in series if one[1]]))
    claims = [claim(
        f"5.2/jump-{name.removeprefix('lmm-dio-')}",
        "more readers mean less order among their requests (5.1.3)",
        f"mean jump of `{name}` with {many} hosts divided by that with {few} is above 1",
        [many] if many > few else [],
        lambda hosts, name=name: data.storage[name, hosts]["jump_bytes_mean"]
        / max(data.storage[name, few]["jump_bytes_mean"], 1), lambda ratio: ratio > 1)
        for name in names[:2]]
    if STAG in names and COAL in names:
        claims.append(claim(
            "5.2/stag", "staggering restores the order (5.2.4)",
            f"mean jump of `{STAG}` divided by that of `{COAL}` is below 1",
            [many] if many > 1 else [],
            lambda hosts: data.storage[STAG, hosts]["jump_bytes_mean"]
            / max(data.storage[COAL, hosts]["jump_bytes_mean"], 1),
            lambda ratio: ratio < 1))
    return Section(
        "Figure 5.2: order of the requests at the storage",
        text="One rank per host. A dot is the arrival of a request, and its colour is the host. A "
             "plot shows at most 300 requests of a run, evenly spaced. A request *follows* if it "
             "begins at the end of the request before it. It *goes back* if it begins before the "
             "beginning of that request. A *jump* is the distance from the end of one request to "
             "the beginning of the next.",
        tables=[("Order of arrival", ["strategy", "hosts", "requests", "KiB each",
                                      "follow %", "go back %", "mean jump MiB"], rows)],
        claims=claims, panels=panels)


BUILDERS = {"3.6": figure_3_6, "3.7": figure_3_7, "3.8": figure_3_8, "4.2": figure_4_2,
            "4.6": figure_4_6, "4.10": figure_4_10, "4.11": figure_4_11, "5.2": figure_5_2,
            "5.5": figure_5_5, "5.6": figure_5_6, "5.7": figure_5_7, "5.8": figure_5_8,
            "5.9": figure_5_9, "all": figure_all}


def is_measured(results, name):
    if name in NEEDS:
        return bool(results[NEEDS[name][0]])
    if name in reproduction_series.PLAIN:
        return any(one["figure"] == name for one in results["plain"])
    return reproduction_series.SERIES_BEHIND[name] in results["series"]


def sections(results):
    """(name, Section) of each requested figure, and (name, reason) of those without results."""
    data = Data(results)
    built, absent = [], []
    for name in NAMES:
        if name not in results["options"]["figures"]:
            continue
        new = COMPARED[name][-1] if name in COMPARED else None
        if new in results["left_out"]:
            absent.append((name, f"`{new}` was left out"))
        elif not is_measured(results, name):
            absent.append((name, "the measurement ended before"))
        elif name in BUILDERS:
            built.append((name, BUILDERS[name](data)))
        else:
            built.append((name, reproduction_series_figures.BUILDERS[name](results)))
    return built, absent
