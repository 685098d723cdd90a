"""Whether the reproduced figures are those of the sources at hand.

The report names the commit that was measured, and a digest of the sources on which the figures
depend. The digest needs no history, so it also works in a shallow clone and without .git. Comments,
blanks and line breaks do not count, because they change no figure.
"""

import hashlib
import pathlib
import re
import subprocess

import cpp_outline

REPORT = "lmdbio/docs/results/reproduction.md"
FOLDERS = ("lmdbio/load", "lmdbio/file/layout", "lmdbio/file/io", "lmdbio/file/blocks")
DIGEST_DIGITS = 16
NO_COMMIT = "unknown"

_COMMIT = re.compile(r"^\| commit \| (\w+)((?:-dirty)?) \|", re.MULTILINE)
_SOURCES = re.compile(rf"^\| sources \| ([0-9a-f]{{{DIGEST_DIGITS}}})\b", re.MULTILINE)


def digest(root):
    """The digest of the code in FOLDERS, as 16 digits."""
    total = hashlib.sha256()
    root = pathlib.Path(root)
    paths = sorted(path.relative_to(root).as_posix() for folder in FOLDERS
                   for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc"))
    for path in paths:
        code = cpp_outline.strip_comments((root / path).read_text(encoding="utf-8"))
        total.update(f"{path}\0{' '.join(code.split())}\0".encode())
    return total.hexdigest()[:DIGEST_DIGITS]


def _count_commits(root, commit):
    """The number of commits after `commit` that changed a source, or None if the history here does
    not tell."""
    if not (pathlib.Path(root) / ".git").exists() or commit == NO_COMMIT:
        return None
    done = subprocess.run(["git", "-C", str(root), "rev-list", "--count", f"{commit}..HEAD", "--",
                           *FOLDERS], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else None


def _changes_since(root, commit):
    count = _count_commits(root, commit)
    if count is None:
        return "since then (the history here does not tell in how many commits)"
    if count == 0:
        return "since then, in no commit yet"
    return f"in {count} commit{'s' if count > 1 else ''} since then"


def stale(root):
    """A line that says why the report is stale, or None."""
    path = pathlib.Path(root) / REPORT
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    commit, sources = _COMMIT.search(text), _SOURCES.search(text)
    if commit is None:
        return f"{REPORT} names no commit; scripts/reproduce writes it"
    name, changed = commit[1], ", ".join(FOLDERS)
    if sources is None or sources[1] != digest(root):
        return (f"{REPORT} shows commit {name}; {changed} changed "
                f"{_changes_since(root, name)}; scripts/reproduce measures again")
    if commit[2]:
        return (f"{REPORT} shows commit {name} with changes that no commit has; measure a commit "
                "with scripts/reproduce")
    return None
