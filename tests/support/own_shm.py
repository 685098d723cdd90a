"""Runs a test in its own mount namespace with its own /dev/shm, where no other job has files.

    if __name__ == "__main__":
        own_shm.enter(own_shm.DOCKER_BYTES)
        unittest.main(argv=sys.argv[:1])
"""

import os
import shutil
import subprocess
import sys

DOCKER_BYTES = 64 << 20  # without --shm-size
SKIPPED = 77
_INSIDE = "LMDBIO_TEST_OWN_SHM"
_UNSHARE = ("unshare", "--mount", "--propagation", "private")


def _can(command):
    return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def _skip(reason):
    print(f"{os.path.basename(sys.argv[0])}: skipped: {reason}")
    sys.exit(SKIPPED)


def enter(size_bytes):
    """Restarts this program in a new namespace; in the namespace it mounts the new /dev/shm.
    Exits with 77 if neither root nor a user namespace may do so."""
    if os.environ.get(_INSIDE) == "1":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", "/dev/shm"]
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
