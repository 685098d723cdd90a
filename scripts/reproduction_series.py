"""The series of scripts/reproduce beside its figures: the jobs of each, for given options. A series
reads one database from one kind of storage. The results of its runs get the name of their variant.
"""

import dataclasses

from reproduction_claims import COAL, DISSERTATION, PROV, STAG

WIDE_VALUE_BYTES = 196700  # an image of ImageNet, 256 x 256 in three colours, with its head
RANKS_OF_ONE_HOST = (1, 2, 4, 8)
RANKS_OF_READERS = 4       # ranks of each host that share the reading
READERS_OF_A_HOST = (1, 2, 4)
GROUP_BATCHES = 4          # batches that a reader serves from one chunk
SEEK_STRIPES = 4
SEEK_TOKENS = (1, 2, 4)    # readers that read at a time

# Figure 5.1: the sizes of a read, and the ways to read with the number of reads in flight.
BLOCK_BYTES = tuple(4096 << (4 * step) for step in range(4)) + (256 << 20, 1 << 30)
WAYS = (("map", ("--engine", "mmap", "-q", 1)),
        ("pread", ("--engine", "pread", "-q", 1)),
        ("pread, direct", ("--engine", "pread", "-q", 1, "--direct", "on")),
        ("io_uring, direct", ("--engine", "uring", "-q", 1, "--direct", "on")),
        ("io_uring, direct, 32 deep", ("--engine", "uring", "-q", 32, "--direct", "on")))
# Direct reads of small blocks take long. So a run reads so many blocks, but at least and at most so
# many bytes. A larger block is read once.
BLOCKS_OF_A_RUN = 512
BYTES_OF_A_RUN = {False: (64 << 20, 128 << 20), True: (2 << 20, 512 << 20)}  # by "is direct"
MAPPED_BLOCK_BYTES = 4096  # of 5.1.1: a page


@dataclasses.dataclass(frozen=True)
class Job:
    """One job of lmdbio-bench read."""
    variant: str | tuple  # the name of its runs in tables; (hosts, ranks of each) for shapes
    hosts: int
    per_host: int
    batch: int
    iterations: int
    strategies: tuple
    words: tuple = ()     # more options
    is_timed: bool = True  # otherwise only its requests are watched, if the series does that


@dataclasses.dataclass(frozen=True)
class Series:
    name: str
    jobs: object             # options -> list of Job
    value_bytes: int = 0     # 0: as the figures
    is_seeking: bool = False


def few(hosts):
    """The fewest, some and the most hosts."""
    return sorted({hosts[0], hosts[len(hosts) // 2], hosts[-1]})


def large_batch(options):
    """18,432 records in the dissertation, 4.5 times those of the figures here."""
    return options.batch * 9 // 2


def wide_batch(options):
    """As many bytes as in a batch of the figures."""
    return max(options.batch * options.value_bytes // WIDE_VALUE_BYTES, max(options.hosts))


def records_of(series, options):
    """The records of the database of a series."""
    if not series.value_bytes:
        return options.records
    return max(options.records * options.value_bytes // WIDE_VALUE_BYTES,
               wide_batch(options) * options.iterations)


def _shapes(hosts, batch, iterations, strategies):
    return [Job((count, 1), count, 1, batch, iterations, strategies) for count in hosts]


def one_host(options):
    batch = large_batch(options)
    iterations = max(options.batch * options.iterations // batch, 1)
    ranks = [count for count in RANKS_OF_ONE_HOST if not options.quick or count <= 2]
    return [Job((1, count), 1, count, batch, iterations,
                ("lmdb", "lmm", "lmm-dio", PROV, COAL, "auto")) for count in ranks]


def weak(options):
    """The batch grows with the hosts, and all runs read as many records."""
    most = max(options.hosts)
    share = max(options.batch // most, 1)
    return [Job((count, 1), count, 1, share * count, options.iterations * most // count,
                (*DISSERTATION, "auto")) for count in few(options.hosts)]


def wide(options):
    return _shapes(few(options.hosts), wide_batch(options), options.iterations,
                   (*DISSERTATION, "auto"))


def several_readers(options):
    jobs = []
    for hosts in few(options.hosts)[:2]:
        for readers in READERS_OF_A_HOST:
            names = ("lmm", COAL, STAG, "auto")
            jobs.append(Job(f"{hosts}x{RANKS_OF_READERS} with {readers}", hosts,
                            RANKS_OF_READERS, options.batch, options.iterations,
                            ("lmdb", *names) if readers == 1 else names,
                            ("--readers-per-host", readers)))
    return jobs


def chunked(options):
    orders = {"sequential": (), "chunked": ("--group-batches", GROUP_BATCHES)}
    return [Job(f"{hosts}x1 {order}", hosts, 1, options.batch, options.iterations,
                ("lmdb", COAL, STAG, "auto"), ("--order", order, *words))
            for hosts in few(options.hosts)[-2:] for order, words in orders.items()]


def chunks(hosts, tokens=None):
    """The place of seeking where one chunk of a reader serves all batches."""
    return f"{hosts}x1 chunked" + (f", {tokens} at a time" if tokens else "")


def seeking(options):
    """The most hosts, and one host whose ranks all read. Some hosts are only watched. Coalescing
    joins several iterations (5.2.3), so it is also measured with chunks of all of them; then
    staggering with several numbers of tokens, of which the best one counts (5.2.4)."""
    *some, many = _shapes(few(options.hosts)[-2:], options.batch, options.iterations,
                          (*DISSERTATION, "auto"))
    jobs = [*(dataclasses.replace(job, is_timed=False) for job in some), many]
    words = ("--order", "chunked", "--group-batches", options.iterations)
    jobs.append(dataclasses.replace(many, variant=chunks(many.hosts), words=words,
                                    strategies=("lmdb", PROV, COAL, "auto")))
    for tokens in SEEK_TOKENS:
        if tokens < many.hosts:
            jobs.append(dataclasses.replace(many, variant=chunks(many.hosts, tokens),
                                            words=(*words, "--stagger", tokens),
                                            strategies=(STAG,)))
    alone = Job((1, RANKS_OF_READERS), 1, RANKS_OF_READERS, options.batch, options.iterations,
                ("lmdb", COAL, STAG), ("--readers-per-host", RANKS_OF_READERS))
    return [*jobs, alone]


SERIES_OF = {one.name: one for one in (
    Series("one-host", one_host), Series("weak", weak),
    Series("wide", wide, value_bytes=WIDE_VALUE_BYTES), Series("readers", several_readers),
    Series("chunked", chunked), Series("seeking", seeking, is_seeking=True))}
# The series behind each section; a section without one reads the file as it is.
SERIES_BEHIND = {"3.4": "one-host"} | {name: name for name in SERIES_OF}
PLAIN = ("5.1", "5.1.1")
# Expected minutes of each with the default options, on two cores. 3.4 is a part of one-host.
MINUTES = {"figures": 12, "one-host": 3, "weak": 3, "wide": 3, "readers": 2, "chunked": 2,
           "seeking": 5, "5.1": 3, "5.1.1": 1}


def bytes_of_run(block_bytes, is_direct):
    least, most = BYTES_OF_A_RUN[is_direct]
    return max(min(max(block_bytes * BLOCKS_OF_A_RUN, least), most), block_bytes)
