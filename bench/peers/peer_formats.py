"""The data sets in the formats of the peers, and the storage they are read from."""

import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import peer_source
from readers import interface

REMOTE_STORAGE = interface.ROOT / "scripts" / "remote-storage"
STRETCH_BYTES = 1 << 20


def make(reader, task):
    """Makes the data set of a reader in task.path, unless it is there. An interrupted attempt
    leaves a folder with another name, which the next attempt replaces."""
    folder = pathlib.Path(task.path)
    if folder.is_dir():
        return
    partial = folder.with_name(folder.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    values = peer_source.Records(task.source, task.limit, task.readahead).values()
    task.path = str(partial)
    reader.make(task, values)
    partial.rename(folder)


def files_of(path):
    """The files of a data set or of a database."""
    if os.path.isdir(path):
        return sorted(file for file in pathlib.Path(path).iterdir()
                      if file.is_file() and file.name != "lock.mdb")
    return [pathlib.Path(path)]


def settle(task):
    """Puts the caches into the state that the task names, right before the time runs."""
    if task.cache in ("cold", "partial"):
        subprocess.run([REMOTE_STORAGE, "drop"], check=True, stdin=subprocess.DEVNULL)
    if task.cache == "partial":
        fill_part(task.path, task.cached_percent)
    elif task.cache == "warm":
        for path in files_of(task.path):
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass


def fill_part(path, percent):
    """Reads the same random stretches of the files at every call, and no others."""
    stretches = [(file, at) for file in files_of(path)
                 for at in range(0, file.stat().st_size, STRETCH_BYTES)]
    random.Random(1).shuffle(stretches)
    for file, at in stretches[:len(stretches) * percent // 100]:
        with open(file, "rb", buffering=0) as data:
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
            os.pread(data.fileno(), STRETCH_BYTES, at)


@contextlib.contextmanager
def remote(path, options):
    """The path of a data set on emulated remote storage. Every file of a folder is served."""
    with tempfile.TemporaryDirectory() as parent:
        mountpoint = os.path.join(parent, "mount")
        words = ["--files"] if os.path.isdir(path) and not is_database(path) else []
        call_remote_storage("up", path, mountpoint, *words, *options)
        try:
            yield mountpoint
        finally:
            call_remote_storage("down", mountpoint, "--force")


def is_database(path):
    return os.path.exists(os.path.join(path, "data.mdb"))


def call_remote_storage(*words):
    result = subprocess.run([REMOTE_STORAGE, *words], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines() or ["remote-storage failed"]
        raise peer_source.Failure(lines[-1])
