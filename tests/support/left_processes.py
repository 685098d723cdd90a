"""Processes that a test has started, wherever they hang in the tree of processes."""

import pathlib


def processes_with(text):
    """The processes whose environment has this text."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and text.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
