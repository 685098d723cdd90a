"""Tables of run_ladder.py: rows of one cell, gains of all networks side by side, and the window of
dissertation 6.4.2 beside the gain of TOPO."""

import dataclasses
import statistics

from figures import interval, rank_correlation, share_as_correlated

NETWORKS_MIN = 4  # fewer have no rank correlation


@dataclasses.dataclass(frozen=True)
class Row:
    label: str
    variant: str    # of sync_bench, without collective and transport
    transport: str  # of control messages
    against: str    # the label of the row that it is compared with; "": none


BASELINE = "cycle 1 ms"
ROWS = (
    Row(BASELINE, "lmdbio:cache+bucket=64M:cycle", "mpi", ""),
    Row("GS, each cycle", "lmdbio:cache+bucket=64M+gs=1:gs", "mpi", BASELINE),
    Row("GS, each 4th", "lmdbio:cache+bucket=64M+gs=4:gs", "mpi", BASELINE),
    Row("GS, each 10th", "lmdbio:cache+bucket=64M+gs=10:gs", "mpi", BASELINE),
    Row("GS, each 16th", "lmdbio:cache+bucket=64M+gs=16:gs", "mpi", BASELINE),
    Row("NBCS", "lmdbio:cache+bucket=64M:nbcs", "mpi", BASELINE),
    Row("SCP", "lmdbio:cache+bucket=64M+scp:cycle", "mpi", BASELINE),
    Row("cycle 5 ms", "lmdbio:cache+bucket=64M+cycle=5000:cycle", "mpi", BASELINE),
    Row("GS, each cycle of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=1:gs", "mpi",
        "cycle 5 ms"),
    Row("GS, each 4th of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=4:gs", "mpi", "cycle 5 ms"),
    Row("GS, each 10th of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=10:gs", "mpi",
        "cycle 5 ms"),
    Row("GS, each 16th of 5 ms", "lmdbio:cache+bucket=64M+cycle=5000+gs=16:gs", "mpi",
        "cycle 5 ms"),
    Row("NBCS, 5 ms", "lmdbio:cache+bucket=64M+cycle=5000:nbcs", "mpi", "cycle 5 ms"),
    Row("own transport", "lmdbio:cache+bucket=64M:cycle", "own", BASELINE),
    Row("event", "lmdbio:cache+bucket=64M:event", "own", "own transport"),
    Row("TOPO", "lmdbio:topo+bucket=64M:event", "own", "event"),
    Row("SCP-TOPO", "lmdbio:topo+bucket=64M+scp:event", "own", "TOPO"),
    Row("event, own buckets", "lmdbio:cache:event", "own", "event"),
    Row("TOPO, own buckets", "lmdbio:topo:event", "own", "event, own buckets"),
    Row("event, own buckets, placed", "lmdbio:cache+place:event", "own", "event, own buckets"),
    Row("TOPO, own buckets, placed", "lmdbio:topo+place:event", "own",
        "event, own buckets, placed"),
)


def variant_of(row, collective):
    return f"{row.variant}:{collective}:{row.transport}"


def label_of(variant):
    """Returns the label of a row by its variant of any collective."""
    words, _, transport = variant.rsplit(":", 2)
    return {(row.variant, row.transport): row.label for row in ROWS}[words, transport]


@dataclasses.dataclass(frozen=True, order=True)
class Job:
    """One repetition of all rows."""
    network: str
    ranks: int
    wait: str
    input_threads: int
    repetition: int

    @property
    def cell(self):
        return (self.ranks, self.wait, self.input_threads, self.network)

    @property
    def name(self):
        return (f"{self.network}-{self.ranks}-{self.wait}-{self.input_threads}-"
                f"{self.repetition}")


class Cell:
    """All repetitions with the same network, ranks, wait and input threads."""

    def __init__(self, told):
        self.told = told
        job = told[0]["job"]
        self.network, self.ranks, self.wait, self.input_threads = (
            job[name] for name in ("network", "ranks", "wait", "input_threads"))
        self.runs, self.failures = {}, {}  # label -> {repetition: run}; label -> reason
        for one in told:
            for variant, reason in one["absent"].items():
                self.failures[label_of(variant)] = f"absent: {reason}"
            for run in one["networks"][0]["runs"]:
                label = run["variant"] if run["variant"] == "none" else label_of(run["variant"])
                if "error" in run:
                    self.failures[label] = f"failed: {run['error']}"
                else:
                    self.runs.setdefault(label, {})[one["job"]["repetition"]] = run

    @property
    def group(self):
        return (self.ranks, self.wait, self.input_threads)

    def rows(self):
        return [row for row in ROWS if row.label in self.runs or row.label in self.failures]

    def figure(self, label, of_run):
        """Returns the median over the runs of a row that have the figure; None if none has."""
        values = [of_run(run) for run in self.runs.get(label, {}).values()]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def gain(self, label, against):
        """Returns (gain, its interval of 95 % or None): the percent by which a run of a row takes
        less time than the other row's run of the same repetition, the median of all repetitions.
        None without such runs."""
        own, others = self.runs.get(label, {}), self.runs.get(against, {})
        gains = [100 * (1 - iteration_ms(own[i]) / iteration_ms(others[i]))
                 for i in sorted(own.keys() & others.keys())]
        if label == against or not gains:
            return None
        return statistics.median(gains), interval(statistics.median, gains)


def cells_of(runs):
    """runs  of read_runs: what sync_bench saved, by job"""
    told_of = {}
    for job in sorted(runs):
        told_of.setdefault(job.cell, []).append(runs[job])
    return [Cell(told_of[key]) for key in sorted(told_of)]


# --- Figures of one run --------------------------------------------------------------------------


def iteration_ms(run):
    return statistics.median(run["iteration_ms"])


def greatest(of_rank):
    """Returns a figure of a run: the largest value of a rank."""
    return lambda run: max(map(of_rank, run["ranks"]))


def per_iteration(name, factor=1.0):
    """Returns a figure of a run: a count or time of the rank with the most, of an iteration."""
    return lambda run: (factor * max(rank[name] for rank in run["ranks"])
                        / len(run["iteration_ms"]))


def window_percent(run):
    return 100 * statistics.fmean(rank["window_share"] for rank in run["ranks"])


def lateness(name):
    """Returns a figure of a run: of the rank with the latest wake-ups. No thread of `event` sleeps
    for a time, so its runs do not have the figure."""
    return lambda run: max((rank[name] for rank in run["ranks"] if rank["helper_sleeps"]),
                           default=None)


FIGURES = {  # name in JSON: figure of a run
    "ms": iteration_ms,
    "helper_percent": greatest(lambda rank: 100 * rank["helper_cpu_s"] / rank["wall_s"]),
    "helper_run_delay_ms": per_iteration("helper_run_delay_s", 1e3),
    "helper_run_delay_us_a_start": greatest(
        lambda rank: 1e6 * rank["helper_run_delay_s"] / max(1, rank["helper_starts"])),
    "late_p50_us": lateness("late_p50_us"),
    "late_p99_us": lateness("late_p99_us"),
    "computing_switches": per_iteration("computing_switches"),
    "input_switches": per_iteration("input_switches"),
    "helper_switches": per_iteration("helper_switches"),
    "window_percent": window_percent,
    "control_messages": lambda run: (run["ranks"][0]["control_messages"]
                                     / len(run["iteration_ms"])),
}


def figures_of(cell, label):
    """Returns the figures of a row that it has."""
    found = {name: cell.figure(label, of_run) for name, of_run in FIGURES.items()}
    return {name: value for name, value in found.items() if value is not None}


# --- Tables --------------------------------------------------------------------------------------


def gain_text(gain):
    if gain is None:
        return "-"
    bounds = "-" if gain[1] is None else f"{gain[1][0]:+.0f} to {gain[1][1]:+.0f}"
    return f"{gain[0]:+.0f} ({bounds})"


def name_of(group):
    ranks, wait, input_threads = group
    return f"{ranks} ranks, MPI waits: {wait}, input threads a rank: {input_threads}"


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def cell_lines(cell):
    head = ["row", "ms", "compared with", "gain %", "helper, % of a core",
            "run delay of the helper: ms, us a start", "late sleeps of the helper, us: p50, p99",
            "switches: computing, input, helper", "window %", "control messages"]
    rows = []
    for label in ("none", *(row.label for row in cell.rows())):
        if label not in cell.runs:
            reason = cell.failures.get(label, "-")
            rows.append([label, "absent" if reason.startswith("absent") else reason]
                        + ["-"] * (len(head) - 2))
            continue
        told = figures_of(cell, label)
        against = {row.label: row.against for row in ROWS}.get(label, "")
        late = (f"{told['late_p50_us']:.0f}, {told['late_p99_us']:.0f}"
                if "late_p50_us" in told else "-")
        rows.append([
            "computing only" if label == "none" else label, f"{told['ms']:.1f}", against or "-",
            gain_text(cell.gain(label, against)), f"{told['helper_percent']:.0f}",
            f"{told['helper_run_delay_ms']:.1f}, {told['helper_run_delay_us_a_start']:.0f}", late,
            f"{told['computing_switches']:.1f}, {told['input_switches']:.1f}, "
            f"{told['helper_switches']:.1f}", f"{told['window_percent']:.0f}",
            f"{told['control_messages']:.1f}"])
    all_runs = [run for runs in cell.runs.values() for run in runs.values()]
    disturbed = sum(run["is_disturbed"] for run in all_runs)
    return [f"### {cell.network}, {name_of(cell.group)}", "",
            f"{len(cell.told)} repetitions; other processes disturbed {disturbed} of "
            f"{len(all_runs)} runs.", "", *table(head, rows)]


def correlation_of(cells):
    """Returns the rank correlation of window and gain of TOPO over networks, with the share of
    random orders that have as much; None: fewer than NETWORKS_MIN networks, or no window."""
    pairs = [(cell.figure(BASELINE, window_percent), cell.gain("TOPO", BASELINE)[0])
             for cell in cells if cell.gain("TOPO", BASELINE)]
    if len(pairs) < NETWORKS_MIN:
        return None
    windows, gains = zip(*pairs)
    found = rank_correlation(windows, gains)
    if found is None:
        return None
    return dict(rank_correlation=found, networks=len(pairs),
                share_of_random_orders=share_as_correlated(windows, gains))


def gains_across(cells, label, against):
    """The gain of a row over another one in each cell, or why a cell has none."""
    return [gain_text(cell.gain(label, against)) if label in cell.runs else
            cell.failures.get(label, "-").partition(":")[0] for cell in cells]


def compared_rows(cells):
    return [row for row in ROWS[1:] if any(row in cell.rows() for cell in cells)]


def change_lines(group, cells):
    """The gain of each row over the row that it is compared with: networks across."""
    rows = [[row.label, row.against, *gains_across(cells, row.label, row.against)]
            for row in compared_rows(cells)]
    return [f"## Gain of each change in %: {name_of(group)}", "",
            *table(["row", "compared with", *(cell.network for cell in cells)], rows)]


def group_lines(group, cells):
    """The gains of all rows over the baseline, and the window: networks across."""
    rows = [["ms of the baseline",
             *(f"{cell.figure(BASELINE, iteration_ms):.1f}" if BASELINE in cell.runs else "-"
               for cell in cells)]]
    rows += [[row.label, *gains_across(cells, row.label, BASELINE)]
             for row in compared_rows(cells)]
    rows.append(["window, % of an iteration of the baseline",
                 *(f"{cell.figure(BASELINE, window_percent):.0f}" if BASELINE in cell.runs else "-"
                   for cell in cells)])
    lines = [f"## Gain over `{BASELINE}` in %: {name_of(group)}", "",
             *table(["row", *(cell.network for cell in cells)], rows)]
    reasons = {f"`{label}` {'is ' if reason.startswith('absent') else ''}{reason}"
               for cell in cells for label, reason in cell.failures.items()}
    for reason in sorted(reasons):
        lines += [f"{reason}.", ""]
    found = correlation_of(cells)
    if found:
        lines += [f"Rank correlation (Spearman) of the window and the gain of TOPO over "
                  f"`{BASELINE}` (three changes: own transport, event, plan): "
                  f"{found['rank_correlation']:.2f} over {found['networks']} networks; "
                  f"{100 * found['share_of_random_orders']:.0f} % of random orders are as far "
                  "from 0.", ""]
    return lines


def switches(cell, label):
    """Returns the involuntary switches of an iteration of the threads that compute or prepare
    input, of the rank with the most; None without runs."""
    return cell.figure(label, lambda run: max(
        rank["computing_switches"] + rank["input_switches"] for rank in run["ranks"])
        / len(run["iteration_ms"]))


def times_text(one, other):
    return f"{one / other:.1f}" if one is not None and other else "-"


def switch_lines(cells):
    """Input threads beside the baseline, and TOPO in its place (dissertation 6.2.5, 6.4.1)."""
    alone = {(cell.network, cell.ranks, cell.wait): switches(cell, BASELINE)
             for cell in cells if cell.input_threads == 0}
    rows = []
    for cell in cells:
        with_input, topo = switches(cell, BASELINE), switches(cell, "TOPO")
        without = alone.get((cell.network, cell.ranks, cell.wait))
        if cell.input_threads == 0 or with_input is None or without is None:
            continue
        rows.append([cell.network, str(cell.ranks), cell.wait, str(cell.input_threads),
                     f"{without:.1f}", f"{with_input:.1f}", times_text(with_input, without),
                     "-" if topo is None else f"{topo:.1f}", times_text(with_input, topo)])
    if not rows:
        return []
    return ["## Involuntary switches of computing and input threads in an iteration: medians of "
            "the runs, not paired", "",
            *table(["network", "ranks", "MPI waits", "input threads", f"`{BASELINE}` without input",
                    "with input", "with / without", "TOPO with input", f"`{BASELINE}` / TOPO"],
                   rows)]


def groups_of(cells):
    groups = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return groups


def closing_line(cells):
    told = [one for cell in cells for one in cell.told]
    seen = {name: ", ".join(sorted({str(one["environment"][name]) for one in told}))
            for name in ("cores", "mpi", "commit")}
    settings = [one["networks"][0]["settings"] for one in told]
    scales = ", ".join(sorted({f"{one['scale']:g}" for one in settings}))
    return (f"Scale {scales}, {seen['cores']} cores, {seen['mpi']}, commit {seen['commit']}. A "
            "gain is the median of the repetitions: the percent by which a run takes less time "
            "than the other row's run of the same repetition, with its interval of 95 %.")


def report(cells):
    lines = []
    for group, members in groups_of(cells).items():
        lines += change_lines(group, members) + group_lines(group, members)
    lines += switch_lines(cells)
    for cell in cells:
        lines += cell_lines(cell)
    return [*lines, closing_line(cells)]


def json_of(cells):
    """The figures of the tables. The times of all iterations are in OUT/runs."""
    found = []
    for cell in cells:
        rows = []
        for label in ("none", *(row.label for row in cell.rows())):
            row = dict(row=label, **figures_of(cell, label))
            if label in cell.failures:
                row["failure"] = cell.failures[label]
            for name, against in (("gain", {one.label: one.against for one in ROWS}.get(label)),
                                  ("gain_over_baseline", BASELINE)):
                gain = cell.gain(label, against) if label != "none" else None
                if gain:
                    row |= {f"{name}_percent": gain[0], f"{name}_interval_percent": gain[1]}
            rows.append(row)
        found.append(dict(network=cell.network, ranks=cell.ranks, wait=cell.wait,
                          input_threads=cell.input_threads, repetitions=len(cell.told),
                          rows=rows))
    correlations = [dict(zip(("ranks", "wait", "input_threads"), group))
                    | (correlation_of(members) or {})
                    for group, members in groups_of(cells).items()]
    return dict(cells=found, correlations=correlations)
