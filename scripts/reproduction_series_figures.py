"""The output of scripts/reproduce for its series: tables, claims and panels. This file contains no
measured number."""

import statistics

import reproduction_series
from reproduction_claims import (COAL, DISSERTATION, MIB, PROV, STAG, TOLERANCE, Claim, Panel, Runs,
                                 Section, claim, comparison, faster, in_order, in_order_at, name_of,
                                 raw_table, read_time, spread)

STAG_OVER_COAL = 1.5   # on storage with a cost of seeking, at the largest shape
SWITCHES_GROWTH = 10   # from one rank of a host to two; 48 in the dissertation
ASLEEP_PERCENT = 90    # of reading, with the most ranks of a host; 99 in the dissertation
EVEN_RATES = 1.25      # rates within this factor do not depend on the size of a block
BLOCK_GAIN = 10        # of explicit reads, from the smallest blocks to the largest
PREAD_OVER_MAP = 1.5   # with blocks of a page; 2.4 in the dissertation
LIKE_EACH_OTHER = 1.25  # read times within this factor are alike


def place_of(run):
    return tuple(run["variant"]) if isinstance(run["variant"], list) else run["variant"]


def runs_of(results, series):
    return Runs(results["series"].get(series, []), key=place_of)


def conditions(results, series):
    """The state of caches, the wait mode of MPI and the memory of plain reads in a series."""
    found = results["conditions"].get(series)
    if not found:
        return ""
    words = ["The page caches of the hosts are empty when a run opens the file, and that of the "
             f"storage server is warm. MPI wait mode: {found['mpi_wait_mode']}."]
    if found.get("raw_memory"):
        words.append(f"Reads go into {found['raw_memory']}.")
    return " ".join(words)


def bars(title, data, y_label, names, value):
    return Panel("bars", title, "", y_label, [name_of(shape) for shape in data.shapes],
                 [(name, [value(name, shape) if data.has(name, shape) else 0
                          for shape in data.shapes]) for name in names])


# --- One host ---

def switches_per_gb(run):
    return run["context_switches"] / (run["bytes_useful"] / 1e9)


def asleep_percent(run):
    ranks = run["by_rank"]
    return 100 * sum(rank["asleep_s"] for rank in ranks) / sum(rank["next_s"] for rank in ranks)


def figure_3_4(results):
    data = runs_of(results, "one-host")
    first = data.shapes[0]
    base = data.median("lmdb", first, switches_per_gb)
    rows = [[shape[1], spread(data.each("lmdb", shape, switches_per_gb), 0),
             f"{data.median('lmdb', shape, switches_per_gb) / max(base, 1e-9):.2f}",
             spread(data.each("lmdb", shape, asleep_percent), 0)] for shape in data.shapes]
    ticks = [shape[1] for shape in data.shapes]
    return Section(
        "Figure 3.4: context switches and sleep of `lmdb`, by ranks of one host",
        text="Switches are those of all ranks per GB of needed pages, without those of the barrier "
             "of the benchmark. Asleep is the share of the time in the loader, over all ranks; "
             "waits for a core do not count. " + conditions(results, "one-host"),
        tables=[("Switches and sleep", ["ranks", "switches per GB", "of one rank's",
                                        "asleep % of reading"], rows)],
        claims=[
            claim("3.4/switches",
                  "context switches grow by a factor of 48 from one process to two, and of 18,000 "
                  "to 9,216 (3.1.3)",
                  f"switches of two ranks divided by those of one are at least {SWITCHES_GROWTH}",
                  [shape for shape in data.shapes if shape[1] == 2],
                  lambda shape: data.median("lmdb", shape, switches_per_gb) / max(base, 1e-9),
                  lambda ratio: ratio >= SWITCHES_GROWTH),
            claim("3.4/asleep", "processes sleep for 99 % of the reading time at scale (3.1.3)",
                  f"ranks sleep for at least {ASLEEP_PERCENT} % of it with the most ranks",
                  [max(data.shapes)], lambda shape: data.median("lmdb", shape, asleep_percent),
                  lambda percent: percent >= ASLEEP_PERCENT, "{:.0f} %")],
        panels=[Panel("lines", "context switches of lmdb", "ranks of the host", "for each GB",
                      ticks, [("lmdb", [data.median("lmdb", shape, switches_per_gb)
                                        for shape in data.shapes])]),
                Panel("lines", "asleep", "ranks of the host", "% of reading", ticks,
                      [("lmdb", [data.median("lmdb", shape, asleep_percent)
                                 for shape in data.shapes])])])


def one_host(results):
    data = runs_of(results, "one-host")
    ticks = [shape[1] for shape in data.shapes]
    batch = results["series"]["one-host"][0]["global_batch_size"]
    return Section(
        "One host: read time by ranks",
        text=f"Batches of {batch:,} records, 4.5 times those of the figures: 18,432 in the "
             f"dissertation. {conditions(results, 'one-host')}",
        tables=[comparison("Read time and its parts", "host x ranks", data)],
        claims=[
            faster("one-host/lmm", data, "lmm", ["lmdb"],
                   "one reader is faster than all ranks reading (3.4.1)", data.shapes),
            faster("one-host/auto", data, "auto", [n for n in data.strategies if n != "auto"],
                   "(no counterpart) `auto` is at least as fast as every other strategy",
                   data.shapes, TOLERANCE)],
        panels=[Panel("lines", "read time", "ranks of the host", "s", ticks,
                      [(name, [data.seconds(name, shape) for shape in data.shapes])
                       for name in data.strategies], is_log=True)])


# --- Scaling ---

def gain(data, name, shape):
    return data.seconds("lmdb", shape) / data.seconds(name, shape)


def weak(results):
    data = runs_of(results, "weak")
    section = read_time(data, (*DISSERTATION, "auto"), STAG)
    section.title = "Weak scaling: the batch grows with the hosts"
    shares = sorted({run["global_batch_size"] // run["hosts"]
                     for run in results["series"]["weak"]})
    section.text = (f"{', '.join(map(str, shares))} records of a batch for each host; all runs "
                    "read as many records. The dissertation trains meanwhile (Figure 5.15), and "
                    f"this series only reads. {conditions(results, 'weak')}")
    section.tables.append(raw_table(data, data.strategies))
    few, many = data.shapes[0], data.shapes[-1]
    section.claims = [
        claim("weak/gain", "the gain over `lmdb` grows with the scale, up to 43 times (5.3.3)",
              f"`lmdb` / `{STAG}` with the most hosts, divided by that with the fewest, is above 1",
              [many] if many != few else [],
              lambda shape: gain(data, STAG, shape) / gain(data, STAG, few),
              lambda ratio: ratio > 1),
        in_order("weak/order", data, many,
                 "the trends are those of strong scaling: each strategy is faster than the one "
                 "before it (5.3.3)")]
    return section


def wide(results):
    data = runs_of(results, "wide")
    section = read_time(data, (*DISSERTATION, "auto"), STAG)
    one = results["series"]["wide"][0]
    section.title = "Large records: 196,700 B, as of ImageNet"
    section.text = (f"Batches of {one['global_batch_size']:,} records of all ranks together. The "
                    "dissertation trains meanwhile (Figures 5.12, 5.16), and this series only "
                    f"reads. {conditions(results, 'wide')}")
    section.tables.append(raw_table(data, data.strategies))
    many = data.shapes[-1]
    small = Runs(results["runs"])
    section.claims = [
        claim("wide/dm",
              "the best strategy and `lmm-dm` read equally fast (5.3.3)",
              f"read time of `lmm-dm` divided by that of `{STAG}` is {1 / LIKE_EACH_OTHER:.2f} to "
              f"{LIKE_EACH_OTHER}", [many],
              lambda shape: data.seconds("lmm-dm", shape) / data.seconds(STAG, shape),
              lambda ratio: 1 / LIKE_EACH_OTHER <= ratio <= LIKE_EACH_OTHER),
        claim("wide/gain",
              "large records gain less than small ones: 1.9 times instead of 43 (5.3.3)",
              f"`lmdb` / `{STAG}` divided by that of the figures at the same shape is below 1",
              [many] if small.has(STAG, many) and small.has("lmdb", many) else [],
              lambda shape: gain(data, STAG, shape) / gain(small, STAG, shape),
              lambda ratio: ratio < 1)]
    return section


# --- Readers and orders ---

def readers(results):
    """A place is "HOSTSxRANKS with READERS"; the baseline is that of one reader."""
    data = runs_of(results, "readers")
    first = {}  # the place of one reader, by hosts and ranks
    for shape in data.shapes:
        first.setdefault(shape.split()[0], shape)
    more = [shape for shape in data.shapes if shape not in first.values()]

    def base_of(shape):
        return first[shape.split()[0]]
    return Section(
        "Several readers on a host",
        text="A place is hosts x ranks of each, with the number of ranks of a host that read. "
             + conditions(results, "readers"),
        tables=[comparison("Read time and its parts", "place", data, base_of=base_of)],
        claims=[
            claim("readers/lmm", "a second reader of a host mends the loss of `lmm` (3.4.1)",
                  "read time of `lmm` with one reader divided by that with more is above 1", more,
                  lambda shape: data.seconds("lmm", base_of(shape)) / data.seconds("lmm", shape),
                  lambda ratio: ratio > 1),
            claim("readers/stag",
                  "staggering also serves the readers of a host (5.2.4 names processes, not hosts)",
                  f"read time of `{COAL}` divided by that of `{STAG}` is at least "
                  f"{1 / TOLERANCE:.2f}", more,
                  lambda shape: data.seconds(COAL, shape) / data.seconds(STAG, shape),
                  lambda ratio: ratio * TOLERANCE >= 1)],
        panels=[bars("read time", data, "s", ("lmm", COAL, STAG), data.seconds)])


def bytes_of_request(run):
    return run["bytes_read"] / max(run["read_requests"], 1)


def chunked(results):
    data = runs_of(results, "chunked")
    pairs = {shape.split()[0]: (shape, shape.replace("sequential", "chunked"))
             for shape in data.shapes if shape.endswith("sequential")}
    rows = [[shape, f"`{name}`", f"{data.median(name, shape, bytes_of_request) / 1024:.0f}"]
            for shape in data.shapes for name in (COAL, STAG) if data.has(name, shape)]
    return Section(
        "Order `chunked`: one chunk of a reader serves several batches",
        text="With `sequential` each reader needs a part of each batch. With `chunked` it needs "
             "one range of the file for all batches of a group, so the order of the records "
             f"changes (5.2.3). A group has {reproduction_series.GROUP_BATCHES} batches. "
             f"{conditions(results, 'chunked')}",
        tables=[comparison("Read time and its parts", "place", data),
                ("Size of a request of a reader", ["place", "strategy", "KiB"], rows)],
        claims=[
            claim("chunked/requests",
                  "a reader reads large contiguous chunks for several iterations (5.2.3)",
                  f"bytes of a request of `{COAL}`, chunked divided by sequential, are above 1",
                  [hosts for hosts in pairs if not hosts.startswith("1x")],
                  lambda hosts: data.median(COAL, pairs[hosts][1], bytes_of_request)
                  / data.median(COAL, pairs[hosts][0], bytes_of_request),
                  lambda ratio: ratio > 1),
            claim("chunked/speed", "that makes better use of the storage (5.3.1)",
                  f"read time of `{COAL}`, sequential divided by chunked, is at least "
                  f"{1 / TOLERANCE:.2f}", list(pairs),
                  lambda hosts: data.seconds(COAL, pairs[hosts][0])
                  / data.seconds(COAL, pairs[hosts][1]), lambda ratio: ratio * TOLERANCE >= 1)],
        panels=[bars("read time", data, "s", (COAL, STAG), data.seconds)])


# --- Storage with a cost of seeking ---

def seek_share(one):
    return 100 * one["seeks"] / max(one["pieces"], 1)


def bar_name(strategy, place):
    short = strategy.removeprefix("lmm-dio-")
    return short if isinstance(place, tuple) else f"{short}, {place.partition(' ')[2]}"


def seeking(results):
    data = runs_of(results, "seeking")
    seeks = {(one["strategy"], place_of(one)): one for one in results["seeks"]}
    rows = [[name_of(shape), f"`{name}`", f"{one['bytes'] / 1e6:.0f}", one["requests"],
             one["seeks"], f"{seek_share(one):.0f}", f"{one['jump_bytes_mean'] / MIB:.2f}"]
            for (name, shape), one in seeks.items()]
    watched = sorted(shape for name, shape in seeks if name == PROV and isinstance(shape, tuple))
    few, many = watched[0], watched[-1]
    chunks = reproduction_series.chunks(many[0])
    turns = [shape for shape in data.shapes if str(shape).startswith(f"{chunks},")]
    best = min(turns, key=lambda shape: data.seconds(STAG, shape), default=chunks)
    shown = [(name, many) for name in data.strategies if data.has(name, many)]
    shown += [(name, shape) for shape in (chunks, *turns) for name in (PROV, COAL, STAG)
              if data.has(name, shape)]
    options = results["options"]
    section = Section(
        "Storage with a cost of seeking",
        text=f"{options['stripes']} disks with stripes of 1 MiB; a seek takes {options['seek_ms']} "
             "ms. The seeks come from a log of the requests in runs of their own, to which the "
             "model of the disks is applied. With several ranks of a host, all of them read. At "
             f"`{chunks}` one chunk of each reader serves all batches, and the words behind name "
             "the readers that read at a time. " + conditions(results, "seeking"),
        tables=[comparison("Read time and its parts", "hosts x ranks", data),
                ("Requests and seeks", ["hosts x ranks", "strategy", "MB crossed", "requests",
                                        "seeks", "seeks % of pieces", "mean jump MiB"], rows)],
        panels=[Panel("bars", f"read time, {name_of(many)}", "", "s",
                      [bar_name(name, shape) for name, shape in shown],
                      [("read time", [data.seconds(*one) for one in shown])])])
    alone = [shape for shape in data.shapes if isinstance(shape, tuple) and shape[1] > 1]
    order = [(name, many) for name in DISSERTATION if name not in (COAL, STAG)]
    section.claims = [
        in_order_at("seeking/order", data, [*order, (COAL, chunks), (STAG, best)],
                    f"at {name_of(many)}, the last two with chunks",
                    "each strategy is faster than the one before it (5.3.1)"),
        claim("seeking/stag", "staggering is 3.7 times as fast as coalescing alone (5.3.1)",
              f"with chunks, the read time of `{COAL}` divided by that of `{STAG}` with the best "
              f"number of tokens is at least {STAG_OVER_COAL}",
              [best] if turns else [],
              lambda shape: data.seconds(COAL, chunks) / data.seconds(STAG, shape),
              lambda ratio: ratio >= STAG_OVER_COAL),
        claim("seeking/one-host", "staggering also serves the readers of one host (5.2.4)",
              f"read time of `{COAL}` divided by that of `{STAG}` is at least "
              f"{1 / TOLERANCE:.2f}", alone,
              lambda shape: data.seconds(COAL, shape) / data.seconds(STAG, shape),
              lambda ratio: ratio * TOLERANCE >= 1),
        claim("seeking/readers", "more readers mean more seeks (5.1.3)",
              f"seeks of `{PROV}` with the most hosts divided by those with the fewest are above "
              "1", [many] if few != many and (PROV, few) in seeks else [],
              lambda shape: seeks[PROV, shape]["seeks"] / max(seeks[PROV, few]["seeks"], 1),
              lambda ratio: ratio > 1),
        claim("seeking/seeks", "staggering takes seeks away (5.2.4)",
              f"seeks of `{COAL}` divided by those of `{STAG}` are at least {STAG_OVER_COAL}",
              [best] if {(COAL, chunks), (STAG, best)} <= seeks.keys() else [],
              lambda shape: seeks[COAL, chunks]["seeks"] / max(seeks[STAG, shape]["seeks"], 1),
              lambda ratio: ratio >= STAG_OVER_COAL),
        claim("seeking/dio", "seek takes nearly 20 % of the read time of `lmm-dio` (5.3.1)",
              "seek of the slowest reader is 10 to 30 % of the read time", [many],
              lambda shape: 100 * data.share("lmm-dio", shape, "seek_s", max),
              lambda percent: 10 <= percent <= 30, "{:.0f} %")]
    return section


# --- The file as it is ---

def rates_by(results, figure):
    """{(way, bytes of a block): rates in MB/s}"""
    found = {}
    for one in results["plain"]:
        if one["figure"] == figure:
            found.setdefault((one["way"], one["transfer_bytes"]), []).append(
                one["bytes_per_s"] / 1e6)
    return found


def size_text(count):
    for unit, word in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= unit:
            return f"{count // unit} {word}"
    return f"{count // 1024} KiB"


def figure_5_1(results):
    rates = rates_by(results, "5.1")
    medians = {key: statistics.median(values) for key, values in rates.items()}
    ways = list(dict.fromkeys(way for way, _ in rates))
    sizes = sorted({size for _, size in rates})
    rows = [[size_text(size), *(spread(rates[way, size], 1) for way in ways)] for size in sizes]
    least, most = sizes[0], sizes[-1]
    mapped = [medians["map", size] for size in sizes]
    growth = [(way, medians[way, most] / medians[way, least]) for way in ways
              if "direct" in way and "deep" not in way]
    return Section(
        "Figure 5.1: bandwidth by the size of a block",
        text="One rank of one host reads from the front of the file. Buffered reads and the map "
             "go through the page cache, for which the kernel reads ahead; direct reads do not. "
             + conditions(results, "5.1"),
        tables=[("MB/s", ["block", *ways], rows)],
        claims=[
            Claim("5.1/explicit", "the bandwidth of explicit reads grows with the block (5.1.2)",
                  f"rate with {size_text(most)} divided by that with {size_text(least)} is at "
                  f"least {BLOCK_GAIN}",
                  [(way, f"{ratio:.1f}", ratio >= BLOCK_GAIN) for way, ratio in growth]),
            Claim("5.1/map", "the block has no effect on a map (5.1.2)",
                  f"largest rate divided by the smallest is at most {EVEN_RATES}",
                  [("", f"{max(mapped) / min(mapped):.2f}",
                    max(mapped) <= EVEN_RATES * min(mapped))])],
        panels=[Panel("lines", "one rank", "block", "MB/s", [size_text(size) for size in sizes],
                      [(way, [medians[way, size] for size in sizes]) for way in ways],
                      is_log=True)])


def figure_5_1_1(results):
    rates = rates_by(results, "5.1.1")
    rows = [[way, size_text(size), spread(values, 1)] for (way, size), values in rates.items()]
    medians = {way: statistics.median(values) for (way, _), values in rates.items()}
    ratio = medians["pread"] / medians["map"]
    return Section(
        "5.1.1: a map beside explicit reads of one page",
        text="One rank of one host reads the whole file in blocks of a page: by memcpy from a map, "
             "and by a loop of pread. Both go through the page cache. "
             + conditions(results, "5.1.1"),
        tables=[("MB/s", ["way", "block", "MB/s"], rows)],
        claims=[Claim("5.1.1/map", "a map reads 2.4 times slower than explicit reads (5.1.1)",
                      f"rate of pread divided by that of the map is at least {PREAD_OVER_MAP}",
                      [("", f"{ratio:.2f}", ratio >= PREAD_OVER_MAP)])],
        panels=[Panel("bars", "whole file in blocks of a page", "", "MB/s", ["4 KiB"],
                      [(way, [value]) for way, value in medians.items()])])


BUILDERS = {"3.4": figure_3_4, "5.1": figure_5_1, "5.1.1": figure_5_1_1, "one-host": one_host,
            "weak": weak, "wide": wide, "readers": readers, "chunked": chunked,
            "seeking": seeking}
