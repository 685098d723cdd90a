"""Files and folders of the drivers of benchmarks, by the rules of lmdbio/docs/outputs.md."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile

from mpi_jobs import Failure

LINKS_MAX = 40
NAMES = 8
SCRATCH_BEGIN = "lmdbio-scratch-"
# Elsewhere a lock may hold on one host only (lmdbio/file/output/file_owner.h).
OF_ONE_HOST = {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "ramfs",
               "overlay"}


def _refuse(path, why):
    raise Failure(f"{path}: cannot be written: {why}")


def _check_link(path, link, folder):
    mode, owner = os.stat(folder).st_mode, os.lstat(link).st_uid
    if mode & stat.S_IWOTH:
        _refuse(path, f"{link} is a symbolic link in a folder that everybody may write to; name "
                      "the file itself")
    if owner not in (os.geteuid(), 0, os.stat(folder).st_uid):
        _refuse(path, f"{link} is a symbolic link of user {owner} in a folder of another user; "
                      "name the file itself")


def target_of(path):
    """Returns the path behind all links of `path`. Links in /proc, to open files, are not followed.

    Errors: Failure  a link must not be followed
    """
    parts = list(reversed(os.path.join(os.getcwd(), path).split("/")))
    here, links = "/", 0
    while parts:
        name = parts.pop()
        if name in ("", os.curdir):
            continue
        place = os.path.dirname(here) if name == os.pardir else os.path.join(here, name)
        if name == os.pardir or not os.path.islink(place):
            here = place
            continue
        if here.startswith("/proc/"):
            return os.path.join(place, *reversed(parts))
        links += 1
        if links > LINKS_MAX:
            _refuse(path, os.strerror(errno.ELOOP))
        _check_link(path, place, here)
        link = os.readlink(place)
        parts.extend(reversed(link.split("/")))
        if os.path.isabs(link):
            here = "/"
    return here


def _lock(file):
    """Returns whether no other process has locked `file`. Without locks it is locked by nobody."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _mounts():
    """Yields (folder, kind of the file system), outer mounts first."""
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            _, folder, kind, *_ = line.split()
            yield folder.replace("\\040", " "), kind


def _is_of_one_host(path):
    """Whether only this host writes to the file system of `path`."""
    place, length, found = os.path.realpath(path), -1, None
    for folder, kind in _mounts():
        if f"{place}/".startswith(folder.rstrip("/") + "/") and len(folder) >= length:
            length, found = len(folder), kind
    return found in OF_ONE_HOST


def _remove_abandoned(path):
    """Removes an unfinished file of this user whose process has ended."""
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_of_one_host(path) and os.path.samestat(found, os.lstat(path)):
                os.unlink(path)
        finally:
            os.close(file)


def _new_file(target):
    """Returns a new file beside `target`, locked, and its path."""
    names = [f"{target}.lmdbio-{number}.tmp" for number in range(NAMES)]
    for name in names:
        _remove_abandoned(name)
    for name in names:
        try:
            file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        if _lock(file) and os.fstat(file).st_nlink > 0:
            return file, name
        os.close(file)
    raise OSError(errno.EEXIST, "other processes write it, too")


def _replace(target, data):
    file, name = _new_file(target)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.write(data)
        os.fsync(file)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    finally:
        os.close(file)


def _open_stream(target):
    """Returns an open device, FIFO or open file. One of this process is continued where it is."""
    if os.path.islink(target) and os.path.samefile(os.path.dirname(target), "/proc/self/fd"):
        sys.stdout.flush()
        return open(os.dup(int(os.path.basename(target))), "wb")
    return open(target, "wb")


def write_text(path, text):
    """Makes `text` the content of the file at `path`, which then exists as a whole or not at all.
    A link stays, and the file at its end is replaced. A device, a FIFO or an open file (as
    /dev/stdout) is written.

    Errors: Failure  names the path and the reason
    """
    target = target_of(path)
    try:
        mode = os.stat(target).st_mode if os.path.exists(target) else stat.S_IFREG
        if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
            _refuse(path, "it is a socket or a block device; name a file")
        if stat.S_ISREG(mode) and not os.path.islink(target):
            _replace(target, text.encode())
        else:
            with _open_stream(target) as stream:
                stream.write(text.encode())
    except OSError as error:
        _refuse(path, error.strerror)


def _remove_abandoned_folder(path):
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            has_mounts = any(mount.startswith(f"{path}/") for mount, _ in _mounts())
            if os.fstat(folder).st_uid != os.geteuid() or has_mounts or not _is_of_one_host(path):
                return
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(folder), os.lstat(path)):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(folder)


def write_report(path, text):
    """The same for a report at the end of a program: a failure ends it with one line."""
    try:
        write_text(path, text)
    except Failure as failure:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {failure}")


@contextlib.contextmanager
def scratch_folder(name, parent=None):
    """A folder for temporary files, removed at the end: its path, as text. If this process is
    killed, the next call with the same parent removes it.

    parent  default: the folder of the system for temporary files
    """
    parent = os.fspath(parent or tempfile.gettempdir())
    for old in os.listdir(parent):
        if old.startswith(SCRATCH_BEGIN):
            _remove_abandoned_folder(os.path.join(parent, old))
    while True:
        path = tempfile.mkdtemp(prefix=f"{SCRATCH_BEGIN}{name}-", dir=parent)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Until it is locked, another process may take it for an abandoned one.
        if _lock(folder) and os.path.isdir(path):
            break
        os.close(folder)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(folder)
