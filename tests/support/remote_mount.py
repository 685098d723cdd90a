"""A database behind emulated remote storage (scripts/remote-storage), for tests."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "remote-storage"
SKIPPED = 77
CAP_SYS_ADMIN = 1 << 21


def why_not_here():
    """The reason why mounting is not possible, or None."""
    if os.geteuid() != 0:
        return "it needs root"
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:") and not int(line.split()[1], 16) & CAP_SYS_ADMIN:
            return "this root may not mount"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse to open"
    for program in ("nbdkit", "nbdfuse"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return None


def why_no_seeks():
    """The reason why storage with a cost of seeking is not possible, or None."""
    if shutil.which("cc") is None:
        return "there is no C compiler"
    test = subprocess.run(["cc", "-E", "-"], input="#include <nbdkit-filter.h>\n", text=True,
                          capture_output=True, check=False)
    return "nbdkit-filter.h is not installed" if test.returncode != 0 else None


def processes_of(folder):
    """The running processes with a path in `folder` in their command line: {pid: name}."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.name.isdigit() and any(os.fsencode(folder) in word for word in words):
            found[int(entry.name)] = os.fsdecode(words[0])
    return found


def assert_crossed(test, count, least):
    """Checks that at least `least` bytes crossed, and less than 1.2 times as many. The kernel may
    drop cached pages at any time, so a few bytes may cross again."""
    test.assertGreaterEqual(count, least)
    test.assertLess(count, 1.2 * least)


class RemoteMount:
    """`database`, a directory, mounted at folder/mount. Reads fail while folder/errors exists."""

    def __init__(self, folder, database, *options):
        self.mountpoint = folder / "mount"
        self.errors = folder / "errors"
        self.environment = os.environ | {"LMDBIO_REMOTE_STORAGE_DIR": str(folder / "states")}
        self._run("up", database, self.mountpoint, "--rate", "none", "--error-file", self.errors,
                  *options)

    def _run(self, *words):
        return subprocess.run([SCRIPT, *map(str, words)], env=self.environment, check=True,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60).stdout

    def take_stats(self):
        """JSON with the counts since the last call, or since the mount was made."""
        return self._run("stats", self.mountpoint, "--json", "--reset")

    def server_pid(self):
        (file,) = pathlib.Path(self.environment["LMDBIO_REMOTE_STORAGE_DIR"]).glob("*/server.pid")
        return int(file.read_text(encoding="ascii").split()[0])

    def down(self):
        subprocess.run([SCRIPT, "down", str(self.mountpoint), "--force"], env=self.environment,
                       check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)


def run_unless(reason, argv=None):
    """Runs the tests of the calling program, or prints the reason for a skip. Returns the exit
    status."""
    if reason is not None:
        print(f"{pathlib.Path(sys.argv[0]).stem}: skipped: {reason}")
        return SKIPPED
    return 0 if unittest.main(argv=argv, exit=False).result.wasSuccessful() else 1
