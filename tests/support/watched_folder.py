"""Records the names of all files that are created in a folder, even short-lived ones."""

import ctypes
import os
import struct

_CREATED = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_EVENT = struct.Struct("iIII")  # of inotify: watch, mask, cookie, length of the name behind it


class WatchedFolder:
    """Watches inside a `with`: with WatchedFolder("/dev/shm") as watch: ... watch.created()"""

    def __init__(self, path):
        self._path = path
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._libc.inotify_add_watch(self._fd, os.fsencode(self._path), _CREATED) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")
        return self

    def __exit__(self, *_):
        os.close(self._fd)

    def created(self):
        """The names of files created since the last call."""
        names = []
        while True:
            try:
                events = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return names
            while events:
                *_, length = _EVENT.unpack_from(events)
                name = events[_EVENT.size:_EVENT.size + length]
                names.append(os.fsdecode(name.rstrip(b"\0")))
                events = events[_EVENT.size + length:]
