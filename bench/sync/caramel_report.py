"""Tables of run_caramel.py: variants at a given ratio of communication and computing, beside the
plan by arrival and the ideal bound (Hashemi et al. 3.1, Figures 9 to 11)."""

import dataclasses
import statistics

from sync_bench_job import medians_of, paired_ratio, ratio_text

COMPUTING = "none"
BASELINE = "lmdbio:topo"
# Of sync_bench; PyTorch does not tell them.
OF_HELPER = ("helper_share", "collectives")
# The figures of sync_bench that only plans by time have.
PREDICTION = ("x_least", "prediction_error", "prediction_error_furthest", "transfer_error",
              "transfer_error_max")


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """All repetitions of all variants on one network, at one ratio."""
    network: str
    hosts: int
    wait: str
    rho: float  # wanted

    @property
    def group(self):
        return (self.network, self.hosts, self.wait)

    @property
    def name(self):
        return f"{self.network}-{self.hosts}-{self.wait}-{self.rho:g}"


def group_name(group):
    network, hosts, wait = group
    return f"{network}, {hosts} hosts, MPI waits: {wait}"


def overlap_of(iteration, computing, alone):
    """Returns (alpha, U) by Hashemi et al. 3.1. All times in the same unit."""
    rho = alone / computing
    shorter = min(rho, 1)
    alpha = (1 + rho - iteration / computing) / shorter
    return alpha, 1 / (1 + rho - alpha * shorter)


class Figures:
    """The figures of a cell. Runs of the same repetition are compared with each other."""

    def __init__(self, told):
        self.told = told
        self.variants = [word for word in told["variants"] if word not in told["absent"]]
        self.errors = {row["variant"]: row["error"] for row in told["networks"][0]["variants"]
                       if "error" in row}
        self.computing = medians_of(told, COMPUTING)
        self.alone = medians_of(told, BASELINE, "alone")
        self.bound = {one: max(self.computing[one], self.alone[one])
                      for one in self.computing.keys() & self.alone.keys()}

    @property
    def rho(self):
        return paired_ratio(self.alone, self.computing)[0]

    def row_of(self, variant):
        """Returns the figures of a variant; only its name and a reason without runs."""
        if variant in self.told["absent"]:
            return dict(variant=variant, absent=self.told["absent"][variant])
        times = medians_of(self.told, variant)
        if not times:
            return dict(variant=variant, error=self.errors.get(variant, "no run"))
        summary = next(row for row in self.told["networks"][0]["variants"]
                       if row["variant"] == variant)
        row = dict(variant=variant, ms=statistics.median(times.values()),
                   ms_min=min(times.values()), ms_max=max(times.values()),
                   runs=summary["runs"], clean_runs=summary["clean_runs"])
        row["x_bound"], row["x_bound_interval"] = paired_ratio(times, self.bound)
        row |= {name: summary[name] for name in (*OF_HELPER, *PREDICTION) if name in summary}
        if variant == COMPUTING:
            return row
        row["x_topo"], row["x_topo_interval"] = paired_ratio(
            times, medians_of(self.told, BASELINE))
        pairs = [overlap_of(times[one], self.computing[one], self.alone[one])
                 for one in times.keys() & self.bound.keys()]
        row["alpha"], row["utilisation"] = (statistics.median(values) for values in zip(*pairs))
        own = medians_of(self.told, variant, "alone")
        shared = times.keys() & self.computing.keys() & own.keys()
        if shared:
            row["alone_ms"] = statistics.median(own.values())
            row["alpha_own"] = statistics.median(
                overlap_of(times[one], self.computing[one], own[one])[0] for one in shared)
        return row

    def rows(self):
        return [self.row_of(variant) for variant in self.told["variants"]]


# --- Tables --------------------------------------------------------------------------------------


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def ratio_of(row, name):
    if name not in row:
        return "-"
    return ratio_text((row[name], row[f"{name}_interval"]), 3)


def share_text(row, name, factor, digits):
    return f"{factor * row[name]:.{digits}f}" if name in row else "-"


def pair_text(row, *names):
    """Two shares in percent, as the columns of sync_bench have them."""
    return ", ".join(share_text(row, name, 100, 1) for name in names if name in row) or "-"


def variant_cells(row):
    if "ms" not in row:
        why = "absent" if "absent" in row else f"failed: {row['error']}"
        return [row["variant"], why] + ["-"] * 12
    return [row["variant"], f"{row['ms']:.1f} ({row['ms_min']:.1f} to {row['ms_max']:.1f})",
            ratio_of(row, "x_topo"), ratio_of(row, "x_bound"), share_text(row, "x_least", 1, 3),
            pair_text(row, "prediction_error", "prediction_error_furthest"),
            pair_text(row, "transfer_error", "transfer_error_max"),
            share_text(row, "alone_ms", 1, 1), share_text(row, "alpha_own", 1, 2),
            share_text(row, "alpha", 1, 2),
            share_text(row, "utilisation", 100, 0), share_text(row, "helper_share", 100, 0),
            share_text(row, "collectives", 1, 1), f"{row['clean_runs']}/{row['runs']}"]


def by_group(cells):
    groups = {}
    for cell in sorted(cells):
        groups.setdefault(cell.group, {})[cell.rho] = cells[cell]
    return groups


def group_lines(group, figures):
    """The rates of a group, and the figures of all its variants."""
    lines = [f"## {group_name(group)}", ""]
    rows = [[f"{rho:g}", f"{told['rate'] / 1e6:.1f}", f"{told['rate_rho']:.3f}",
             f"{one.rho:.3f}", f"{statistics.median(one.alone.values()):.1f}",
             f"{statistics.median(one.computing.values()):.1f}"]
            for rho, one in figures.items() for told in [one.told]]
    lines += table(["wanted rho", "rate, Mbit/s", "rho when the rate was chosen", "rho of the runs",
                    f"`{BASELINE}` alone, ms", "computing alone, ms"], rows)
    rows = [[f"{rho:g}", *variant_cells(row)] for rho, one in figures.items()
            for row in one.rows()]
    return lines + table(["rho", "variant", "ms: median (least to most)", f"/ {BASELINE} (95 %)",
                          "/ bound (95 %)", "/ least", "prediction error, %: p50, furthest",
                          "transfer error, %: p50, max", "alone, ms", "alpha of that", "alpha",
                          "U, %",
                          "helper, % of a core", "calls", "clean runs"], rows)


def summary_lines(groups, name, title):
    """One ratio of all groups: variants down, ratios of communication across."""
    wanted = sorted({rho for figures in groups.values() for rho in figures})
    rows = []
    for group, figures in groups.items():
        found = {rho: {row["variant"]: row for row in one.rows()} for rho, one in figures.items()}
        variants = list(dict.fromkeys(variant for rows_of in found.values() for variant in rows_of))
        for variant in variants:
            cells = [ratio_of(found.get(rho, {}).get(variant, {}), name) for rho in wanted]
            if set(cells) != {"-"}:
                rows.append([group_name(group), variant, *cells])
    return [f"## {title}", "",
            *table(["cell", "variant", *(f"rho {rho:g}" for rho in wanted)], rows)]


def origin_lines(cells):
    told = [one.told for one in cells.values()]
    seen = {name: ", ".join(sorted({str(one["environment"][name]) for one in told}))
            for name in ("cores", "mpi", "commit")}
    settings = [one["networks"][0]["settings"] for one in told]
    computes = {True: "an accelerator computes", False: "cores of this machine compute"}
    how = " and ".join(sorted({computes[one["has_accelerator"]] for one in settings}))
    runs = [run for one in told for run in one["networks"][0]["runs"]]
    disturbed = sum(run.get("is_disturbed", False) for run in runs)
    absent = sorted({f"`{name}` is absent: {why}." for one in told
                     for name, why in one["absent"].items()})
    return [f"One rank on each emulated host; {how}. {seen['cores']} cores, {seen['mpi']}, commit "
            f"{seen['commit']}. Repetitions: "
            f"{', '.join(sorted({str(one['repetitions']) for one in settings}))}. Other processes "
            f"disturbed {disturbed} of {len(runs)} runs. A ratio is the median of those to the run "
            "of the same repetition, with its interval of 95 %. The bound is the longer one of "
            f"`{COMPUTING}` and of `{BASELINE}` alone. rho and alpha of all rows are those with "
            f"the communication of `{BASELINE}`.", "",
            *(line for why in absent for line in (why, ""))]


def report(cells):
    """cells  {Cell: Figures}"""
    groups = by_group(cells)
    lines = origin_lines(cells)
    lines += summary_lines(groups, "x_topo", f"Iteration / that of `{BASELINE}`")
    lines += summary_lines(groups, "x_bound", "Iteration / bound")
    for group, figures in groups.items():
        lines += group_lines(group, figures)
    return lines[:-1]


def json_of(cells):
    return [dict(dataclasses.asdict(cell), rate_bits=one.told["rate"], rho_reached=one.rho,
                 computing_ms=statistics.median(one.computing.values()),
                 alone_ms=statistics.median(one.alone.values()), rows=one.rows())
            for cell, one in sorted(cells.items())]
