"""A cluster of emulated hosts (scripts/cluster) with a database, for tests."""

import os
import shutil
import subprocess

import remote_mount

SCRIPT = remote_mount.ROOT / "scripts" / "cluster"
SKIPPED = remote_mount.SKIPPED
PROGRAMS = ("ip", "mpirun", "nsenter", "tc", "unshare")


def why_not_here():
    """The reason why hosts cannot be made, or None."""
    reason = remote_mount.why_not_here()
    if reason is not None:
        return reason
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"{program} is not installed"
    probe = ["unshare", "--net", "--mount", "--uts", "--ipc", "true"]
    if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
        return "namespaces are refused"
    return None


class BoxCluster:
    """`database`, a directory or file, at folder/mount of each host. `up` makes the hosts."""

    def __init__(self, folder, database, name="test"):
        self.folder = folder
        self.database = database
        self.name = f"{name}{os.getpid()}"
        self.mountpoint = folder / "mount"
        self.environment = os.environ | {
            "LMDBIO_CLUSTER_DIR": str(folder / "clusters"),
            "LMDBIO_REMOTE_STORAGE_DIR": str(folder / "states")}

    def words(self, command, *words):
        return [str(word) for word in (SCRIPT, "--name", self.name, command, *words)]

    def call(self, command, *words, timeout_s=120):
        """The finished process of one command."""
        return subprocess.run(self.words(command, *words), env=self.environment, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, timeout=timeout_s)

    def succeed(self, command, *words, **options):
        """The output of a command that must succeed."""
        done = self.call(command, *words, **options)
        if done.returncode != 0:
            raise AssertionError(f"{command} {words}: exit code {done.returncode}: "
                                 f"{done.stdout}{done.stderr}")
        return done.stdout

    def up(self, host_count, *options):
        return self.succeed("up", host_count, self.database, self.mountpoint, "--delay-ms", 0,
                            *options)

    def on(self, host, *words):
        return self.succeed("exec", host, *words)

    def down(self):
        """Takes the cluster down in any state."""
        self.call("down", "--force")
