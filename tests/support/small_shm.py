"""Runs a test in its own mount namespace with a /dev/shm as small as in a container.

    if __name__ == "__main__":
        small_shm.enter()
        unittest.main(argv=sys.argv[:1])
"""

import os
import shutil
import subprocess
import sys

SIZE_BYTES = 64 << 20  # docker's size without --shm-size
SKIPPED = 77
_INSIDE = "LMDBIO_TEST_SMALL_SHM"
_UNSHARE = ("unshare", "--mount", "--propagation", "private")


def _can(command):
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def _skip(reason):
    print(f"{os.path.basename(sys.argv[0])}: skipped: {reason}")
    sys.exit(SKIPPED)


def enter():
    """Restarts this program in a new namespace; in the namespace it mounts the small /dev/shm.
    Exits with 77 if neither root nor a user namespace may do so."""
    if os.environ.get(_INSIDE) == "1":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", "/dev/shm"]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            _skip(done.stderr.strip())
        return
    if shutil.which("unshare") is None:
        _skip("there is no unshare")
    for command in (_UNSHARE, (*_UNSHARE, "--map-root-user")):
        if _can(command):
            os.environ[_INSIDE] = "1"
            os.execvp(command[0], [*command, sys.executable, "-B", *sys.argv])
    _skip("mounting is not permitted, neither to root nor in a user namespace")
