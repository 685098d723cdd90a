"""A test case that runs scripts/remote-storage on a file of random bytes, and removes what is left.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from remote_mount import SCRIPT, processes_of

FILE_BYTES = 5 * 1024 * 1024 + 4096  # ends within a read-ahead window and within a 1 MiB read


def cold_bytes(path):
    """The whole file; a mount reads it again after each open."""
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(1 << 20), b""))


class RemoteStorageCase(unittest.TestCase):
    """`source`, a file of FILE_BYTES random bytes, and what mounts it at `mountpoint`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote storage ")  # a name to quote
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.states = self.folder / "states"
        self.mountpoint = self.folder / "mount"
        self.database = self.folder / "database"
        self.database.mkdir()
        self.source = self.database / "data.mdb"
        self.bytes = os.urandom(FILE_BYTES)
        self.source.write_bytes(self.bytes)
        self.addCleanup(self.run_script, "down", self.mountpoint, "--force")

    def environment(self):
        """The environment of the script, whose files all lie in `folder`."""
        return os.environ | {"LMDBIO_REMOTE_STORAGE_DIR": str(self.states),
                             "TMPDIR": str(self.folder)}

    def run_script(self, *words, **variables):
        return subprocess.run([SCRIPT, *map(str, words)], env=self.environment() | variables,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=60)

    def succeed(self, *words):
        result = self.run_script(*words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def fail_with(self, text, *words, **variables):
        """Runs a command that must fail with one line that contains `text`."""
        result = self.run_script(*words, **variables)
        self.assertNotEqual(result.returncode, 0, words)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Ascripts/remote-storage: [^\n]+\n\Z")
        self.assertIn(text, result.stderr)

    def up(self, *options):
        return self.succeed("up", self.database, self.mountpoint, "--delay-ms", "0", *options)

    def stats(self, *options):
        return json.loads(self.succeed("stats", self.mountpoint, "--json", *options))

    def pids(self):
        return processes_of(self.folder)

    def server_pid(self):
        return next(pid for pid, name in self.pids().items() if name == "nbdkit")

    def assert_interrupted_up_leaves_nothing(self, delays_s, *options):
        """Sends SIGTERM to an `up` after each of these times."""
        for delay_s in delays_s:
            process = subprocess.Popen(
                [SCRIPT, "up", self.database, self.mountpoint, *options], env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay_s)
            process.terminate()
            if process.wait(timeout=60) == 0:  # it was faster
                self.succeed("down", self.mountpoint)
            give_up = time.monotonic() + 10
            while self.pids() and time.monotonic() < give_up:  # a child may be about to end
                time.sleep(0.01)
            self.assert_nothing_left()

    def assert_nothing_left(self):
        mounts = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        self.assertNotIn(str(self.folder).replace(" ", "\\040"), mounts)
        self.assertEqual(self.pids(), {})
        self.assertEqual(os.listdir(self.folder), ["database"])
