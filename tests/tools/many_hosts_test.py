"""Loader and lmdbio-bench on several hosts, made by scripts/cluster: the same sequence for any
number of hosts, the bytes that storage sends, and the message when a host fails.

The oracles are a serial pass of liblmdb (--verify), the checksum of one process, and the bytes that
the storage server counts. Exits with 77 if hosts cannot be made.
"""

import collections
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import bench_program
from box_cluster import BoxCluster, why_not_here
from remote_mount import run_unless

HOSTS_MAX = 4
# Hosts, ranks of each, readers of each. Every value occurs with at least two others. A further
# option takes its values in turn, or with LMDBIO_TEST_FULL all of them with each shape.
SHAPES = ((1, 1, 1), (1, 3, 2), (2, 1, 1), (2, 2, 2), (2, 3, 1), (4, 1, 1), (4, 2, 1), (4, 3, 2))
# Without MPI the same code reads; fewer shapes show that the ranks find each other.
if bench_program.IS_LAUNCHED:
    SHAPES = ((1, 3, 2), (2, 2, 2), (4, 1, 1))


def with_shapes(values, first=0):
    """Pairs of a shape and one of `values`, of which the first shape gets number `first`."""
    if os.environ.get("LMDBIO_TEST_FULL"):
        return list(itertools.product(SHAPES, values))
    return list(zip(SHAPES, itertools.islice(itertools.cycle(values), first, None)))


def thinned(shapes, first):
    """Two of three of many shapes, and other ones for each of three values of `first`. All numbers
    of hosts and of readers are among them."""
    if bench_program.IS_WIDE or bench_program.IS_LAUNCHED:
        return shapes
    return [shape for place, shape in enumerate(shapes) if place % 3 != first]


class ManyHosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        bench_program.make("synthetic", "--count", 400, "--value-size-lognormal", "1500:1.2",
                           "--order", "random", cls.folder / "mixed")
        bench_program.make("synthetic", "--count", 10000, "--value-size", 3080,
                           cls.folder / "equal")
        bench_program.make("synthetic", "--count", 2000, "--value-size", 3080,
                           cls.folder / "other")

    def make_cluster(self, database, *options):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        cluster = BoxCluster(pathlib.Path(folder.name), self.folder / database)
        self.addCleanup(cluster.down)
        cluster.up(HOSTS_MAX, *options)
        return cluster

    def words(self, cluster, hosts, per_host, *options):
        return ("-n", hosts * per_host, "--per-host", per_host, "-x",
                "ASAN_OPTIONS=detect_leaks=0", bench_program.BENCH, "read", cluster.mountpoint,
                "--no-raw", "--repeat", 1, *options)

    def read(self, cluster, hosts, per_host, *options):
        """The runs of one job, which must succeed."""
        path = cluster.folder / "report.json"
        cluster.succeed("run", *self.words(cluster, hosts, per_host, "--json", path, *options))
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        for run in runs:
            self.assertEqual((run["hosts"], run["ranks"]), (hosts, hosts * per_host))
        return runs

    def test_one_sequence_however_many_hosts_read_it(self):
        cluster = self.make_cluster("mixed")
        expected = None
        for (hosts, per_host, readers), share in with_shapes(("block", "round-robin")):
            with self.subTest(hosts=hosts, per_host=per_host, readers=readers, share=share):
                runs = self.read(cluster, hosts, per_host, "--strategy", "all", "--verify",
                                 "-b", 50, "--readers-per-host", readers, "--share", share)
                self.assertEqual(len(runs), 9)
                self.assertEqual({run["records"] for run in runs}, {400})
                checksums = {run["checksum"] for run in runs}
                expected = expected or checksums
                self.assertEqual(checksums, expected)
                self.assertEqual(len(checksums), 1)

    def test_chunked_order_is_one_sequence_too(self):
        cluster = self.make_cluster("mixed")
        checksums = set()
        for hosts, per_host, readers in thinned(SHAPES, 0):
            runs = self.read(cluster, hosts, per_host, "--strategy", "all", "--verify", "-b", 24,
                             "--readers-per-host", readers, "--order", "chunked",
                             "--group-batches", 5)
            self.assertEqual({run["records"] for run in runs}, {400})
            checksums.update(run["checksum"] for run in runs)
        self.assertEqual(len(checksums), 1)

    def test_shuffled_order_is_one_sequence_too(self):
        cluster = self.make_cluster("mixed")
        orders = {"global": ("--order", "shuffle"),
                  "block": ("--order", "shuffle", "--shuffle", "block", "--block-records", 7,
                            "--group-batches", 5),
                  "reused": ("--order", "shuffle", "--reuse", 3, "--group-batches", 4,
                             "--reuse-among", "host")}
        for first, (name, order) in enumerate(orders.items()):
            checksums = set()
            keeps = thinned(with_shapes(("never", "auto"), first), first)
            for (hosts, per_host, readers), keep in keeps:
                runs = self.read(cluster, hosts, per_host, "--strategy", "scan,auto",
                                 "--verify", "-b", 24, "--readers-per-host", readers,
                                 "--keep-bytes", keep, "--memory-budget-bytes", "4M", *order)
                checksums.update(run["checksum"] for run in runs)
            self.assertEqual(len(checksums), 1, name)

    def test_each_page_crosses_once_where_provenance_tells_the_places(self):
        cluster = self.make_cluster("equal")
        all_hosts, strategies = (1, 2), ("lmm-dio-prov-coal", "lmm-dio-prov-coal-stag", "auto")
        if bench_program.IS_LAUNCHED and not bench_program.IS_WIDE:
            all_hosts, strategies = (2,), ("auto",)  # the launcher changes no read
        for hosts in all_hosts:
            for strategy in strategies:
                with self.subTest(hosts=hosts, strategy=strategy):
                    share = self.share_crossed(cluster, hosts, strategy)
                    self.assertGreater(share, 0.99)
                    self.assertLess(share, 1.05)

    def test_small_batches_are_read_in_large_requests_by_one_host_each(self):
        cluster = self.make_cluster("equal", "--delay-ms", 1)
        requests, checksums = {}, set()
        for exchange in ("off", "auto"):
            run, = self.read(cluster, 4, 1, "--strategy", "auto", "--verify", "-b", 16,
                             "--exchange", exchange)
            self.assertEqual("exchange of 4 readers" in run["how"], exchange == "auto", run["how"])
            requests[exchange] = run["read_requests"]
            checksums.add(run["checksum"])
            self.assertLess(run["bytes_read"], 1.1 * run["bytes_useful"])
        self.assertEqual(len(checksums), 1)
        self.assertLess(requests["auto"], requests["off"] / 20)
        # Large batches need no help.
        run, = self.read(cluster, 4, 1, "--strategy", "auto", "-b", 4000)
        self.assertNotIn("exchange", run["how"])

    def test_large_blocks_of_a_map_are_read_from_front_to_back(self):
        with tempfile.NamedTemporaryFile(prefix="lmdbio-test-") as log:
            cluster = self.make_cluster("equal", "--log", log.name)
            cluster.succeed("run", "-n", 1, "--per-host", 1, "-x",
                            "ASAN_OPTIONS=detect_leaks=0", bench_program.BENCH, "raw",
                            cluster.mountpoint, "--engine", "mmap", "-t", "1M", "-q", 1, "-i", 1,
                            "-s", "16M")
            text = pathlib.Path(log.name).read_text(encoding="ascii")
        offsets = [int(offset, 16) for offset in re.findall(r" Read id=\d+ offset=(0x\w+)", text)]
        self.assertGreater(len(offsets), 100)
        # The server's threads may note neighbours in either order, but not the halves of a block.
        places = collections.defaultdict(lambda: ([], []))
        for place, offset in enumerate(offsets):
            places[offset >> 20][offset >> 19 & 1].append(place)
        blocks = [halves for halves in places.values() if all(halves)]
        self.assertGreater(len(blocks), 12)
        back = sum(statistics.mean(first) > statistics.mean(second) for first, second in blocks)
        self.assertLess(back, len(blocks) / 4)

    @unittest.skipIf(bench_program.IS_LAUNCHED and not bench_program.IS_WIDE,
                     "its ranks read for themselves, whatever starts them")
    def test_more_crosses_for_lmdb_the_more_hosts_there_are(self):
        cluster = self.make_cluster("equal")
        shares = [self.share_crossed(cluster, hosts, "lmdb") for hosts in (1, 2, 4)]
        self.assertEqual(shares, sorted(shares))
        self.assertGreater(shares[2], 1.5 * shares[0])

    def share_crossed(self, cluster, hosts, strategy):
        """The bytes that storage sent for one epoch, divided by the pages of the records. It is the
        difference between two epochs and one, because the preparation of a job reads, too."""
        crossed = []
        for strategies in (strategy, f"{strategy},{strategy}"):
            cluster.succeed("stats", "--reset")
            runs = self.read(cluster, hosts, 2, "--strategy", strategies, "-b", 1000)
            crossed.append(json.loads(cluster.succeed("stats", "--json"))["bytes"])
        return (crossed[1] - crossed[0]) / runs[0]["bytes_useful"]

    def fail_naming(self, cluster, *words):
        """Runs a job on two hosts that must fail soon with one line that contains all words."""
        done = cluster.call("run", *self.words(cluster, 2, 2, "--strategy", "auto"), timeout_s=60)
        self.assertNotEqual(done.returncode, 0)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lmdbio-bench: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        for word in (*words, f"rank 2 on {cluster.name}-2: "):
            self.assertIn(word, lines[0])

    def test_hosts_that_see_another_file_or_none_are_refused(self):
        cluster = self.make_cluster("equal")
        cluster.on(2, "umount", cluster.mountpoint / "data.mdb")
        self.fail_naming(cluster, "data.mdb: the file is empty")
        cluster.on(2, "mount", "--bind", self.folder / "other", cluster.mountpoint)
        self.fail_naming(cluster, "rank 0 sees")
        cluster.on(2, "mount", "-t", "tmpfs", "tmpfs", cluster.mountpoint)
        self.fail_naming(cluster, "the directory holds no data.mdb")

    def await_end(self, process):
        try:
            return process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the job hangs") from None

    def begin(self, cluster, strategy="lmm-dio-prov-coal", exchange="off"):
        """Starts a slow job on two hosts and returns when it reads."""
        words = self.words(cluster, 2, 2, "--strategy", strategy, "--max-batches",
                           100000, "-b", 100, "--compute-time", 0.02, "--compute-kind", "sleep",
                           "--stagger", 1, "--exchange", exchange)
        process = subprocess.Popen(cluster.words("run", *words), env=cluster.environment,
                                   text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        give_up = time.monotonic() + 30
        while not self.readers(cluster, 2):
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.05)
        time.sleep(1)
        return process

    def readers(self, cluster, host):
        """The processes of lmdbio-bench on a host."""
        network = cluster.on(host, "readlink", "/proc/self/ns/net").strip()
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                program = (entry / "cmdline").read_bytes().split(b"\0")[0]
                if os.fsdecode(program) == bench_program.BENCH and \
                        os.readlink(entry / "ns" / "net") == network:
                    found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def test_a_killed_rank_ends_the_job_on_all_hosts(self):
        cluster = self.make_cluster("equal")
        for strategy, exchange, victim in (
                ("lmm-dio-prov-coal", "off", 0),  # a reader
                ("lmm-dio-prov-coal", "off", 1),  # a rank that does not read
                ("lmm-dio-prov-coal", "on", 0),   # a reader that owes the others bytes
                ("lmm-dm", "off", 0),             # a rank that the others wait for
                ("lmm-dio-prov-coal-stag", "off", 0)):
            process = self.begin(cluster, strategy, exchange)
            os.kill(self.readers(cluster, 2)[victim], signal.SIGKILL)
            self.await_end(process)
            self.assertNotEqual(process.returncode, 0)
            for host in (1, 2):
                self.assertEqual(self.readers(cluster, host), [])

    def test_a_mount_that_disappears_ends_the_job_and_names_the_host(self):
        cluster = self.make_cluster("equal")
        process = self.begin(cluster)
        (file,) = (cluster.folder / "states").glob("*/mount.2.pid")
        os.kill(int(file.read_text(encoding="ascii").split()[0]), signal.SIGKILL)
        _, errors = self.await_end(process)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(f"on {cluster.name}-2: ", errors)
        self.assertIn("data.mdb", errors)


if __name__ == "__main__":
    sys.exit(run_unless(why_not_here(), sys.argv[:1]))
