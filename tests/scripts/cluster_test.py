"""Tests of scripts/cluster: resources that hosts share or separate, and complete removal of hosts.

The oracles are the file itself and the kernel's tables of processes, mounts and network devices.
Exits with 77 if hosts cannot be made.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

from box_cluster import SCRIPT, BoxCluster, why_not_here
from remote_mount import assert_crossed, processes_of, run_unless, why_no_seeks

FILE_BYTES = 3 * 1024 * 1024 + 4096

# Prints its port, then the number of bytes that came over one connection.
RECEIVE = """
import socket
with socket.create_server(("0.0.0.0", 0)) as door:
    print(door.getsockname()[1], flush=True)
    with door.accept()[0] as link:
        print(sum(map(len, iter(lambda: link.recv(1 << 16), b""))), flush=True)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as link:
    link.sendall(bytes(int(sys.argv[3])))
"""


def devices():
    return {device["ifname"] for device in json.loads(
        subprocess.run(["ip", "-json", "link"], check=True, capture_output=True).stdout)}


class ClusterTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio cluster ")  # a name to quote
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.database = self.folder / "database"
        self.database.mkdir()
        self.bytes = os.urandom(FILE_BYTES)
        (self.database / "data.mdb").write_bytes(self.bytes)
        self.devices_before = devices()
        self.cluster = BoxCluster(self.folder, self.database)
        self.addCleanup(self.cluster.down)

    def assert_nothing_left(self):
        mounts = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        self.assertNotIn(str(self.folder).replace(" ", "\\040"), mounts)
        self.assertEqual(processes_of(self.folder), {})
        self.assertEqual(devices() - self.devices_before, set())
        self.assertEqual(os.listdir(self.folder), ["database"])

    def fail_with(self, text, cluster, command, *words):
        """Runs a command that must fail with one line that contains `text`."""
        done = cluster.call(command, *words)
        self.assertNotEqual(done.returncode, 0, words)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Ascripts/cluster: [^\n]+\n\Z")
        self.assertIn(text, done.stderr)
        return done.stderr

    def test_hosts_have_their_own_names_memory_and_network(self):
        self.cluster.up(3)
        names = [self.cluster.on(host, "hostname").strip() for host in (1, 2, 3)]
        self.assertEqual(names, [f"{self.cluster.name}-{host}" for host in (1, 2, 3)])
        self.cluster.on(1, "sh", "-c", "echo 1 > /dev/shm/mine")
        self.assertEqual(self.cluster.on(2, "ls", "/dev/shm"), "")
        self.assertFalse(os.path.exists("/dev/shm/mine"))
        addresses = {self.cluster.on(host, "sh", "-c", f"getent hosts {names[0]}")
                     for host in (1, 2, 3)}
        self.assertEqual(len(addresses), 1)  # all hosts have the same address for the first
        routes = json.loads(self.cluster.on(2, "ip", "-json", "route"))
        self.assertEqual([route["dev"] for route in routes], ["eth0"])
        self.cluster.succeed("down")
        self.assert_nothing_left()

    def test_each_host_reads_the_file_through_a_cache_of_its_own(self):
        self.cluster.up(2, "--keep-cache")
        for _ in range(2):
            for host in (1, 2):
                read = subprocess.run(
                    self.cluster.words("exec", host, "cat", self.cluster.mountpoint / "data.mdb"),
                    env=self.cluster.environment, check=True, capture_output=True).stdout
                self.assertEqual(read, self.bytes)
        stats = json.loads(self.cluster.succeed("stats", "--json", "--reset"))
        assert_crossed(self, stats["bytes"], 2 * FILE_BYTES)
        self.cluster.succeed("drop")
        self.cluster.on(1, "cat", self.cluster.mountpoint / "data.mdb")
        crossed = json.loads(self.cluster.succeed("stats", "--json"))["bytes"]
        assert_crossed(self, crossed, FILE_BYTES)

    @unittest.skipIf(why_no_seeks(), "it needs a C compiler and the headers of nbdkit")
    def test_storage_counts_the_seeks_of_all_hosts(self):
        self.cluster.up(2, "--seek-ms", 0, "--stripes", 3, "--stripe-bytes", "64K",
                        "--seek-free-bytes", 0)
        for host in (1, 2):
            self.cluster.on(host, "dd", f"if={self.cluster.mountpoint}/data.mdb", "of=/dev/null",
                            "iflag=direct", "bs=64K", "count=6")
        stats = json.loads(self.cluster.succeed("stats", "--json"))
        self.assertEqual(stats["disks"], [{"pieces": 4, "seeks": 2}] * 3)

    def test_run_fills_host_after_host(self):
        self.cluster.up(3)
        said = self.cluster.succeed("run", "-n", 5, "--per-host", 2, "-x", "FRUIT=a pear", "sh",
                                    "-c", 'echo "$OMPI_COMM_WORLD_RANK $(hostname) $FRUIT"')
        expected = [f"{rank} {self.cluster.name}-{rank // 2 + 1} a pear" for rank in range(5)]
        self.assertEqual(sorted(said.splitlines()), expected)
        said = self.cluster.succeed("run", "-n", 1, "--per-host", 1, "pwd")
        self.assertEqual(said.strip(), os.getcwd())
        self.assertEqual(self.cluster.call("run", "-n", 2, "--per-host", 1, "sh", "-c",
                                           "exit 7").returncode, 7)

    def test_bandwidth_is_limited_each_way(self):
        self.cluster.up(2, "--bandwidth", "2G")
        for host in (1, 2):
            (inner,) = json.loads(self.cluster.on(host, "tc", "-json", "qdisc", "show", "dev",
                                                  "eth0"))
            self.assertEqual((inner["kind"], inner["options"]["rate"]), ("tbf", 2 * 10**9 // 8))
        outer = json.loads(subprocess.run(["tc", "-json", "qdisc"], check=True,
                                          capture_output=True).stdout)
        limited = [disc for disc in outer
                   if disc["kind"] == "tbf" and disc["dev"] not in self.devices_before]
        self.assertEqual(len(limited), 2)

    def disc(self, device, host=None):
        """The kernel's counters of the token bucket of a device, on a host or outside."""
        words = ("tc", "-s", "-json", "qdisc", "show", "dev", device)
        said = (self.cluster.on(host, *words) if host else
                subprocess.run(words, check=True, capture_output=True).stdout)
        (disc,) = json.loads(said)
        return disc

    def test_bytes_between_hosts_pass_through_the_limit(self):
        self.cluster.up(2, "--bandwidth", "100Mbit")
        address = self.cluster.on(1, "getent", "hosts", f"{self.cluster.name}-1").split()[0]
        receiver = subprocess.Popen(self.cluster.words("exec", 1, sys.executable, "-c", RECEIVE),
                                    env=self.cluster.environment, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, text=True)
        self.addCleanup(receiver.stdout.close)
        self.addCleanup(receiver.kill)
        port = receiver.stdout.readline().strip()
        self.cluster.on(2, sys.executable, "-c", SEND, address, port, str(FILE_BYTES))
        self.assertEqual(receiver.stdout.readline().strip(), str(FILE_BYTES))
        receiver.wait(timeout=30)
        ways = {device for device in devices() - self.devices_before if device.startswith("lmv")}
        self.assertEqual(len(ways), 2)
        into_first = next(device for device in ways if device.endswith("1"))
        # Out of the sender and into the receiver. A sender of 3 MiB is always faster than this
        # network, so the limit has held packets back.
        for disc in (self.disc("eth0", host=2), self.disc(into_first)):
            self.assertGreater(disc["bytes"], FILE_BYTES)
        self.assertGreater(self.disc("eth0", host=2)["overlimits"], 0)

    def up_with(self, tools, *words):
        """`up` with `tools` ({name: text of a program, or None: missing}) in place of others."""
        folder = self.folder / "tools"
        folder.mkdir()
        for directory in os.environ["PATH"].split(":"):
            for program in pathlib.Path(directory).glob("*"):
                if program.name not in tools and not (folder / program.name).exists():
                    (folder / program.name).symlink_to(program)
        for name, text in tools.items():
            if text is not None:
                (folder / name).write_text(text)
                (folder / name).chmod(0o755)
        self.cluster.environment["PATH"] = str(folder)
        try:
            return self.fail_with("", self.cluster, "up", 2, self.database,
                                  self.cluster.mountpoint, "--delay-ms", 0, *words)
        finally:
            self.cluster.environment["PATH"] = os.environ["PATH"]
            shutil.rmtree(folder)

    def test_says_why_a_bandwidth_cannot_be_set(self):
        unknown = "#!/bin/sh\necho 'Error: Specified qdisc kind is unknown.' >&2; exit 2\n"
        self.assertRegex(self.up_with({"tc": unknown}, "--bandwidth", "1G"),
                         r"--bandwidth: tc cannot limit lmv\w+ to 1000000000 bit/s: "
                         r"Specified qdisc kind is unknown\.; the kernel needs sch_tbf\n")
        # A tool that reports success and sets nothing.
        idle = "#!/bin/sh\n[ \"$1\" = -json ] && echo '[{\"kind\":\"noqueue\"}]'; exit 0\n"
        self.assertIn("has a rate of [] bytes/s after tc; expected 125000000",
                      self.up_with({"tc": idle}, "--bandwidth", "1G"))
        self.assertEqual(self.up_with({"tc": None}, "--bandwidth", "1G"),
                         "scripts/cluster: tc is not installed; run scripts/setup\n")
        self.assert_nothing_left()

    def test_two_clusters_live_side_by_side(self):
        other_folder = self.folder / "other"
        other_folder.mkdir()
        other = BoxCluster(other_folder, self.database, "other")
        other.environment["LMDBIO_CLUSTER_DIR"] = self.cluster.environment["LMDBIO_CLUSTER_DIR"]
        self.addCleanup(other.down)
        self.cluster.up(2)
        other.up(2)
        routes = {json.loads(cluster.on(1, "ip", "-json", "route"))[0]["dst"]
                  for cluster in (self.cluster, other)}
        self.assertEqual(len(routes), 2)
        self.cluster.succeed("down")
        said = other.succeed("run", "-n", 2, "--per-host", 1, "hostname")
        self.assertEqual(sorted(said.split()), [f"{other.name}-1", f"{other.name}-2"])
        other.succeed("down")
        other_folder.rmdir()
        self.assert_nothing_left()

    def test_down_ends_what_runs_on_hosts(self):
        self.cluster.up(2)
        process = subprocess.Popen(self.cluster.words("exec", 2, "sleep", "1000"),
                                   env=self.cluster.environment, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        time.sleep(0.2)
        self.cluster.succeed("down")
        self.assertEqual(process.wait(timeout=10), -signal.SIGTERM)
        self.assert_nothing_left()

    def test_says_what_is_wrong(self):
        cluster = self.cluster
        for command in (("run", "-n", 1, "--per-host", 1, "true"), ("exec", 1, "true"), ("stats",),
                        ("drop",), ("down",)):
            self.fail_with("no cluster", cluster, *command)
        self.fail_with("does not exist", cluster, "up", 2, self.folder / "none", self.folder / "m")
        self.assert_nothing_left()
        cluster.up(2)
        self.fail_with("is up already", cluster, "up", 2, self.database, self.folder / "m")
        self.fail_with("need 3 hosts", cluster, "run", "-n", 5, "--per-host", 2, "true")
        self.fail_with("no host 3", cluster, "exec", 3, "true")
        other = BoxCluster(self.folder, self.database, "other")
        self.fail_with("not an empty directory", other, "up", 1, self.database, self.database)
        state = json.loads((self.folder / "clusters" / cluster.name / "state.json").read_text())
        os.kill(state["hosts"][1][0], signal.SIGKILL)
        self.fail_with("host 2 is down", cluster, "run", "-n", 2, "--per-host", 1, "true")
        cluster.succeed("down")
        self.assert_nothing_left()

    def test_takes_root(self):
        as_nobody = ["unshare", "--user"]  # without a map of users
        if subprocess.run([*as_nobody, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("user namespaces are refused")
        for command in (("up", 1, self.database, self.folder / "m"), ("down",), ("stats",)):
            done = subprocess.run([*as_nobody, *self.cluster.words(*command)], text=True,
                                  env=self.cluster.environment, check=False, capture_output=True)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr,
                             "scripts/cluster: needs root, because hosts are namespaces\n")

    def test_misuse_is_told_apart(self):
        for words in (("up", 0, "a", "b"), ("up", 65, "a", "b"), ("up", "two", "a", "b"),
                      ("up", 2, "a"), ("run", "-n", 2, "true"), ("run", "-n", 1, "--per-host", 1),
                      ("up", 2, "a", "b", "--bandwidth", "fast"),
                      ("up", 2, "a", "b", "--bandwidth", "999K"),
                      ("up", 2, "a", "b", "--bandwidth", "1001G"), ("exec", 1), ("sideways",)):
            done = self.cluster.call(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("usage: scripts/cluster", done.stderr)
        self.assertEqual(self.cluster.call("run", "--help").returncode, 0)

    def test_an_interrupted_up_leaves_nothing(self):
        for delay_s in (0.1, 0.2, 0.3, 0.45):
            process = subprocess.Popen(
                self.cluster.words("up", 3, self.database, self.cluster.mountpoint),
                env=self.cluster.environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay_s)
            process.terminate()
            if process.wait(timeout=60) == 0:  # it was faster
                self.cluster.succeed("down")
            give_up = time.monotonic() + 10
            while processes_of(self.folder) and time.monotonic() < give_up:
                time.sleep(0.01)
            self.assert_nothing_left()

    def test_up_ignores_signals_after_it_has_reported_success(self):
        for _ in range(3):
            process = subprocess.Popen(
                self.cluster.words("up", 1, self.database, self.cluster.mountpoint),
                env=self.cluster.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            with process.stdout:
                process.stdout.readline()
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)
            self.cluster.succeed("down")
            self.assert_nothing_left()

    def test_a_signal_while_signals_are_held_ends_us_once_and_after(self):
        script = textwrap.dedent("""
            import os, runpy, signal, sys
            signals = runpy.run_path(sys.argv[1])["SIGNALS"]
            signals.listen()
            try:
                with signals.held():
                    os.kill(os.getpid(), signal.SIGTERM)
                    print("begun", flush=True)
                print("never")
            except SystemExit as caught:
                print(caught.code)
            with signals.held():
                pass
            signals.ignore()
            os.kill(os.getpid(), signal.SIGINT)
            print("undone")
            """)
        said = subprocess.run([sys.executable, "-c", script, str(SCRIPT)],
                              check=True, text=True, capture_output=True).stdout
        self.assertEqual(said.split(), ["begun", str(128 + signal.SIGTERM), "undone"])


if __name__ == "__main__":
    assert SCRIPT.exists()
    sys.exit(run_unless(why_not_here()))
