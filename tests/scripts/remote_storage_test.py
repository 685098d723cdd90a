"""Tests of scripts/remote-storage: the bytes and counts of a mount, and its complete removal.

The oracles are the file itself, nbdkit's log of all requests, and the kernel's tables of mounts and
processes. Exits with 77 if mounting is not possible.
"""

import os
import re
import signal
import subprocess
import sys
import time

from remote_mount import SCRIPT, assert_crossed, run_unless, why_not_here
from remote_storage_case import FILE_BYTES, RemoteStorageCase, cold_bytes


class RemoteStorageTest(RemoteStorageCase):
    def test_delivers_the_file_and_its_provenance(self):
        self.source.with_name("data.mdb.prov").write_bytes(b"provenance")
        self.up()
        self.assertEqual(sorted(os.listdir(self.mountpoint)), ["data.mdb", "data.mdb.prov"])
        self.assertEqual(cold_bytes(self.mountpoint / "data.mdb"), self.bytes)
        self.assertEqual((self.mountpoint / "data.mdb.prov").read_bytes(), b"provenance")
        with self.assertRaises(OSError):
            os.open(self.mountpoint / "data.mdb", os.O_RDWR)
        self.succeed("down", self.mountpoint)
        self.assert_nothing_left()

    def test_counts_what_crossed_while_the_server_runs(self):
        log = self.folder / "log"
        self.up("--log", log)
        self.assertEqual((self.stats()["bytes"], self.stats()["requests"]), (0, 0))
        cold_bytes(self.mountpoint / "data.mdb")
        stats = self.stats("--reset")
        reads = [line for line in log.read_text(encoding="ascii").splitlines() if " Read " in line]
        self.assertEqual(stats["requests"], len(reads))
        counts = re.findall(r"count=(0x[0-9a-f]+)", "".join(reads))
        crossed = sum(int(count, 16) for count in counts)
        self.assertEqual(stats["bytes"], crossed)
        assert_crossed(self, crossed, FILE_BYTES)
        self.assertEqual((stats["since"], stats["source"]), ("up", str(self.source)))
        stats = self.stats()
        self.assertEqual((stats["bytes"], stats["since"]), (0, "reset"))
        self.assertIn(f"{self.mountpoint}: 0 bytes in 0 ", self.succeed("stats", self.mountpoint))
        final = self.succeed("down", self.mountpoint)
        self.assertIn(f": {crossed} bytes in {len(reads)} requests", final)
        self.assertIn(f"read: {len(reads)} ops", final)  # the count of nbdkit itself
        log.unlink()
        self.assert_nothing_left()

    def test_mounts_share_a_server_but_no_page_cache(self):
        self.up("--mounts", "3", "--keep-cache")
        for _ in range(2):  # the second time each mount has cached the file
            for number in (1, 2, 3):
                path = self.folder / f"mount.{number}" / "data.mdb"
                self.assertEqual(cold_bytes(path), self.bytes)
        assert_crossed(self, self.stats()["bytes"], 3 * FILE_BYTES)
        self.succeed("down", self.mountpoint)
        self.assert_nothing_left()

    def test_serves_every_file_of_a_folder_by_one_server(self):
        (self.database / "index.json").write_bytes(b"{}")
        (self.database / "empty").write_bytes(b"")
        (self.database / "folder").mkdir()
        self.up("--files")
        self.assertEqual(sorted(os.listdir(self.mountpoint)), ["data.mdb", "empty", "index.json"])
        for name in os.listdir(self.mountpoint):
            self.assertEqual(cold_bytes(self.mountpoint / name),
                             (self.database / name).read_bytes(), name)
        assert_crossed(self, self.stats()["bytes"], FILE_BYTES + len(b"{}"))
        self.assertEqual(list(self.pids().values()).count("nbdkit"), 1)
        self.succeed("down", self.mountpoint)
        self.assert_nothing_left()

    def test_refuses_folders_of_files_that_it_cannot_serve(self):
        up = ("up", self.database, self.mountpoint, "--files")
        self.fail_with("exclude each other", *up, "--mounts", "2")
        self.fail_with("exclude each other", *up, "--seek-ms", "1")
        self.fail_with("is not a folder", "up", self.source, self.mountpoint, "--files")
        odd = self.database / "odd name"
        odd.write_bytes(b"")
        self.fail_with("cannot serve 'odd name'", *up)
        odd.unlink()
        self.source.unlink()
        self.fail_with("has no files", *up)
        self.assert_nothing_left()

    def test_reads_fail_while_the_error_file_exists(self):
        error_file = self.folder / "fail"
        self.up("--error-file", error_file)
        with open(self.mountpoint / "data.mdb", "rb", buffering=0) as file:
            error_file.touch()
            with self.assertRaisesRegex(OSError, "Input/output error"):
                file.read(4096)
            failed = self.stats()
            self.assertEqual(failed["bytes"], 0)
            self.assertGreaterEqual(failed["requests"], 1)
            error_file.unlink()
        self.assertEqual(cold_bytes(self.mountpoint / "data.mdb"), self.bytes)
        assert_crossed(self, self.stats()["bytes"], FILE_BYTES)
        self.succeed("down", self.mountpoint)
        self.assert_nothing_left()

    def test_delays_and_fails_by_chance(self):
        self.succeed("up", self.source, self.mountpoint, "--delay-ms", "20", "--rate", "none",
                     "--error-rate", "0%")
        start = time.monotonic()
        with open(self.mountpoint / "data.mdb", "rb", buffering=0) as file:
            file.read(4096)
        self.assertGreaterEqual(time.monotonic() - start, 0.020)  # the delay is guaranteed
        self.succeed("down", self.mountpoint)
        self.assert_nothing_left()

    def test_refuses_what_cannot_be_and_leaves_nothing(self):
        missing = self.folder / "missing"
        self.fail_with(f"{missing} does not exist", "up", missing, self.mountpoint)
        self.fail_with("is not empty", "up", self.source, self.database)
        self.fail_with("cannot make", "up", self.source, self.folder / "no" / "such")
        self.fail_with("--rate takes", "up", self.source, self.mountpoint, "--rate", "fast")
        for count in "0", "129", "many":
            self.fail_with("--connections takes 1 to 128", "up", self.source, self.mountpoint,
                           "--connections", count)
        self.fail_with("cannot write", "up", self.source, self.mountpoint, "--log", missing / "log")
        self.fail_with("is not up", "down", self.mountpoint)
        self.fail_with("is not up", "stats", self.mountpoint)
        self.assert_nothing_left()

    def test_second_up_and_second_down_are_refused(self):
        self.up()
        self.fail_with("is in use", "up", self.source, self.mountpoint)
        self.assertEqual(cold_bytes(self.mountpoint / "data.mdb"), self.bytes)
        self.succeed("down", self.mountpoint)
        self.fail_with("is not up", "down", self.mountpoint)
        self.assert_nothing_left()

    def test_mount_point_in_use_stays_until_forced(self):
        self.mountpoint.mkdir()
        self.up()
        with open(self.mountpoint / "data.mdb", "rb", buffering=0):
            self.fail_with("is in use", "down", self.mountpoint)
            self.assertEqual(self.stats()["bytes"], 0)
            self.succeed("down", self.mountpoint, "--force")
        self.mountpoint.rmdir()  # `down` keeps a directory that existed before `up`
        self.assert_nothing_left()

    def test_dead_server_is_cleaned_up(self):
        self.up()
        os.kill(self.server_pid(), signal.SIGKILL)
        self.fail_with("has died", "stats", self.mountpoint)
        result = self.run_script("down", self.mountpoint)
        self.assertEqual(result.returncode, 0)
        self.assertIn("its server had died", result.stderr)
        self.assert_nothing_left()

    def test_interrupted_up_leaves_nothing(self):
        self.assert_interrupted_up_leaves_nothing((0.01, 0.03, 0.06, 0.1))

    def test_up_ignores_signals_after_it_has_reported_success(self):
        for _ in range(3):
            process = subprocess.Popen([SCRIPT, "up", self.database, self.mountpoint],
                                       env=self.environment(), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE)
            with process.stdout:
                process.stdout.readline()
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)
            self.succeed("down", self.mountpoint)
            self.assert_nothing_left()


if __name__ == "__main__":
    sys.exit(run_unless(why_not_here()))
