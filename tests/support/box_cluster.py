"""A cluster of emulated hosts (scripts/cluster) with a database, for tests."""

import argparse
import ipaddress
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import remote_mount

SCRIPT = remote_mount.ROOT / "scripts" / "cluster"
SKIPPED = remote_mount.SKIPPED
# Whether tests/support/launch.py starts the ranks of a test, in place of mpirun.
IS_LAUNCHED = any(word.endswith("launch.py") for word in sys.argv)
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
        if command == "run" and IS_LAUNCHED:
            return self.launch_words(words)
        return [str(word) for word in (SCRIPT, "--name", self.name, command, *words)]

    def launch_words(self, words):
        """As `scripts/cluster run`, but with the variables of torchrun in place of mpirun."""
        parser = argparse.ArgumentParser()
        parser.add_argument("-n", type=int)
        parser.add_argument("--per-host", type=int)
        parser.add_argument("-x", action="append", default=[])
        parser.add_argument("program", nargs=argparse.REMAINDER)
        options = parser.parse_args([str(word) for word in words])
        hosts = [shlex.join(self.words("exec", number, "env", *options.x))
                 for number in range(1, -(-options.n // options.per_host) + 1)]
        state = json.loads((self.folder / "clusters" / self.name / "state.json").read_text("utf-8"))
        first = ipaddress.ip_network(state["network"])[1]
        launch = pathlib.Path(__file__).resolve().parent / "launch.py"
        return ["env", f"LMDBIO_TEST_MASTER={first}", sys.executable, "-B", str(launch), "--hosts",
                ";".join(hosts), "-n", str(options.n), *options.program]

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
