#!/usr/bin/env python3
"""Checks the rules of this tree that no compiler checks. Prints nothing when all hold.

    scripts/check_tree.py [--root DIRECTORY] [--release]

A line begins with `check_tree: warning:` if the reproduced figures are older than the sources that
they depend on (report_age.py). Measuring takes half an hour, so this fails with --release only.

A finding reads `path:line: what is wrong; what to do instead [rule]`. Where a rule would make the
code worse, break it in the open: put `check-tree: rule (reason)` in a comment on that line or on
the line above. Each rule has its canary in tests/tree/check_tree_test.py.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import cpp_outline
import report_age

# The rooms of the library and the rooms that each may include. A room is DISTRICT/ROOM, or a
# district without rooms. The CMake targets link the same way (lmdbio/CMakeLists.txt).
MAY_INCLUDE = {
    "base": [],
    "file/format": ["base"],
    "file/layout": ["base", "file/format"],
    "file/provenance": ["base", "file/format", "file/layout"],
    "file/keys": ["base", "file/format", "file/layout", "file/provenance"],
    "file/io": ["base"],
    "file/map": ["base"],
    "file/output": ["base"],
    "file/blocks": ["base", "file/io", "file/map"],
    "file/source": ["base", "file/io", "file/map", "file/output"],
    "file/writer": [
        "base", "file/layout", "file/provenance", "file/io", "file/output", "file/source"],
    "ranks/shm": ["base"],
    "ranks/group": ["base", "ranks/shm"],
    "ranks/net": ["base", "ranks/shm", "ranks/group"],
    "ranks/health": ["base", "ranks/shm", "ranks/group", "ranks/net"],
    "ranks/linked": ["base", "ranks/shm", "ranks/group", "ranks/net", "ranks/health"],
    "ranks/launcher": ["base", "ranks/shm", "ranks/group", "ranks/net", "ranks/linked"],
    "ranks/mpi": ["base", "ranks/shm", "ranks/group", "ranks/net", "ranks/health", "ranks/linked"],
    "load/order": ["base"],
    "load/plan": ["base", "file/format", "file/layout", "file/blocks", "load/order"],
    "load/locate": [
        "base", "file/format", "file/layout", "file/provenance", "file/io", "file/blocks",
        "file/source", "ranks/shm", "ranks/group", "ranks/net", "load/order"],
    "load/kept": [
        "base", "file/layout", "file/keys", "file/provenance", "file/output", "file/source",
        "load/locate"],
    "load/turns": ["ranks/group", "ranks/net"],
    "load/baseline": ["base", "file/layout", "file/source", "load/order", "load/plan"],
    "load/files": [
        "base", "file/layout", "file/provenance", "file/io", "file/blocks", "file/source",
        "ranks/group", "load/order", "load/plan", "load/locate", "load/baseline"],
    "load/slots": [
        "base", "file/format", "file/layout", "file/map", "file/source", "ranks/shm",
        "ranks/group", "load/order", "load/plan", "load/locate"],
    "load/reader": [
        "base", "file/blocks", "file/source", "ranks/shm", "load/plan", "load/locate",
        "load/turns", "load/files", "load/slots"],
    "load/view": ["base", "file/format", "file/layout", "load/locate", "load/files"],
    "load/records": [
        "base", "file/format", "file/layout", "file/keys", "file/io", "file/blocks", "file/source",
        "ranks/shm", "load/plan", "load/locate", "load/kept", "load/files", "load/slots",
        "load/view"],
    "load/exchange": ["base", "file/blocks", "ranks/shm", "ranks/group", "ranks/net"],
    "load/loader": [
        "base", "file/layout", "file/provenance", "file/io", "file/map", "file/blocks",
        "file/source", "ranks/shm", "ranks/group", "load/order", "load/plan", "load/locate",
        "load/kept",
        "load/turns", "load/baseline", "load/files", "load/slots", "load/reader", "load/view",
        "load/exchange"],
    "trace": ["base", "file/output"],
    "device": ["base"],
    "sync/reduce": ["base"],
    "kernels": ["base", "device", "sync/reduce"],
    "feed": ["base", "device", "kernels", "load/loader"],
    "sync/collective": ["base", "sync/reduce"],
    "sync/over_memory": [
        "base", "ranks/shm", "ranks/group", "ranks/health", "sync/reduce", "sync/collective"],
    "sync/over_device": [
        "base", "ranks/shm", "ranks/group", "ranks/health", "device", "kernels", "sync/reduce",
        "sync/collective"],
    "sync/over_nccl": [
        "base", "ranks/group", "device", "kernels", "sync/reduce", "sync/collective",
        "sync/over_device"],
    "sync/over_library": [
        "base", "ranks/group", "ranks/health", "device", "kernels", "sync/reduce",
        "sync/collective", "sync/over_device"],
    "sync/over_wire": [
        "base", "ranks/group", "ranks/net", "ranks/health", "sync/reduce", "sync/collective"],
    "sync/over_device_wire": [
        "base", "ranks/group", "device", "kernels", "sync/reduce", "sync/collective",
        "sync/over_wire", "sync/over_device"],
    "sync/tiers": [
        "base", "ranks/group", "ranks/health", "sync/collective", "sync/over_memory",
        "sync/over_wire", "sync/schedule"],
    "sync/request": ["base", "sync/reduce"],
    "sync/on_device": [
        "base", "ranks/group", "ranks/health", "device", "kernels", "sync/reduce",
        "sync/collective", "sync/over_device", "sync/over_nccl", "sync/over_library",
        "sync/over_wire", "sync/over_device_wire", "sync/request"],
    "sync/schedule": ["base"],
    "sync/graph": ["base", "sync/request", "sync/schedule"],
    "sync/control": ["base", "sync/request"],
    "sync/transport": [
        "base", "ranks/shm", "ranks/group", "ranks/net", "ranks/health", "sync/control"],
    "sync/rounds": [
        "base", "ranks/health", "sync/request", "sync/graph", "sync/control", "sync/transport"],
    "sync/engine": [
        "base", "ranks/shm", "ranks/group", "ranks/health", "trace", "device", "sync/reduce",
        "sync/collective", "sync/over_device", "sync/over_library", "sync/over_wire",
        "sync/tiers", "sync/request",
        "sync/on_device", "sync/schedule", "sync/graph", "sync/control", "sync/transport",
        "sync/rounds"],
    "sync/over_mpi": [
        "base", "ranks/health", "ranks/mpi", "device", "sync/reduce", "sync/collective",
        "sync/over_library", "sync/over_wire", "sync/transport"],
    "api/c": [
        "base", "ranks/group", "ranks/linked", "ranks/launcher", "ranks/mpi", "load/plan",
        "load/view", "load/records", "load/loader", "device", "feed", "sync/schedule",
        "sync/graph", "sync/engine", "sync/over_mpi"],
}

# The folders or files that may include a foreign header, as prefixes of the path.
MAY_INCLUDE_FOREIGN = {
    "mpi.h": ["lmdbio/ranks/mpi/", "lmdbio/sync/over_mpi/", "lmdbio/api/c/lmdbio_mpi.h", "tools/",
              "tests/", "bench/", "examples/"],
    "hwloc.h": ["lmdbio/base/topology.cc"],
    "liburing.h": ["lmdbio/file/io/"],
    "catch2/catch.hpp": ["tests/support/catch.h"],
    "catch2/catch_all.hpp": ["tests/support/catch.h"],
    # In the library: the files that LMDBIO_WITH_LMDB=OFF leaves out.
    "lmdb.h": ["lmdbio/load/baseline/", "lmdbio/file/writer/database_writer.cc", "tools/", "tests/",
               "bench/", "examples/"],
}

# Calls that library code must not make, with their replacements. Only check.cc may end the process.
BANNED_IN_LIBRARY = [
    (r"\bthrow\b", "`throw`", "return Fail(...), see lmdbio/base/status.h"),
    (r"\babort\s*\(", "`abort(`", "return Fail(...), or LMDBIO_CHECK for an invariant of ours"),
    (r"\b_?(?:quick_)?[eE]xit\s*\(", "`exit(`", "return Fail(...)"),
    (r"\bstd::(?:cout|cerr|clog)\b", "a standard stream", "return a value; programs print"),
    (r"\b(?:v?f?printf|f?puts|putchar|perror|fmt::print)\s*\(", "printing",
     "return a value; programs print"),
    (r"\bv?sn?printf\s*\(", "`snprintf(`", "fmt::format or fmt::format_to_n"),
]
MAY_END_THE_PROCESS = "lmdbio/base/check.cc"

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
LINE_COLUMNS_MAX = 100
FOLDER_HEADERS_MAX = 12
CLASS_MEMBERS_MAX = 15

# Code that only one file may contain: a pattern, the folder of that file, a name for the finding,
# and the call that all other files make instead.
IN_ONE_PLACE = [
    (r"\bSYS_futex\b|\bFUTEX_\w+", "lmdbio/ranks/shm/", "a futex call",
     "wait on an EventCount (lmdbio/ranks/shm)"),
    (r"\bSO_KEEPALIVE\b|\bTCP_KEEP\w+", "lmdbio/ranks/net/", "a keepalive setting",
     "take a connection from lmdbio/ranks/net"),
]

# Types that may share a name: an implementation behind a pointer has the name of its owner.
SHARED_TYPE_NAMES = {"Impl"}

CPP_SUFFIXES = (".h", ".cc", ".c")
CODE_SUFFIXES = CPP_SUFFIXES + (".py", ".cmake", ".proto", "")
TEXT_SUFFIXES = CODE_SUFFIXES + (".md", ".txt", ".json", ".yml", ".yaml", ".toml", ".in")
SKIPPED_FOLDERS = {".git", "build", "corpus", "data", "__pycache__"}
PAPER_MAP = "lmdbio/docs/paper_map.md"

_GUARD = re.compile(r"#ifndef (\w+)\n#define \1\n")
_ESCAPE = re.compile(r"check-tree: ([\w-]+) \(\S[^)]*\)")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_MARKER = re.compile(r"\b(?:FIX" r"ME|TO" r"DO)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.~}>-])/(?:home|root|tmp|work|Users)/")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path from the root, or the name of a test. `NAME_test.cc` and `tests/ROOM/...` are patterns.
_NAMED_PATH = re.compile(
    r"(?<![\w/.{}<*-])(?!\S*[A-Z]{2})"
    r"((?:bench|examples|lmdbio|scripts|tests|tools)/[\w./-]*\w|\w+_test\.(?:cc|c|py))(?![\w*{<])")
_VAGUE_SUBJECT = re.compile(r"(?:Who|Whoever|Whose|Whatever|What)\b(?!')")
_COMMENTED_OUT = re.compile(
    r"^\s*#\s*(?:\w*(?:add|discover|target)_\w+\s*\(\s*[a-z$\"./]"
    r"|[\w./]+\.(?:cc|c|h|py)\s*\)?$|[\w./]+_(?:test|fuzz|bench)\s*\)?$)")


@dataclasses.dataclass
class SourceFile:
    path: str  # from the root of the tree, with slashes
    text: str

    def __post_init__(self):
        self.lines = self.text.splitlines()
        self.name = self.path.rsplit("/", 1)[-1]
        self.suffix = os.path.splitext(self.name)[1]
        self.is_cmake = self.name == "CMakeLists.txt" or self.suffix == ".cmake"
        self.is_code = self.is_cmake or (self.suffix in CODE_SUFFIXES and self.name != "LICENSE")
        self.is_cpp = self.suffix in CPP_SUFFIXES
        self.in_library = self.path.startswith("lmdbio/")
        self.is_library_header = self.in_library and self.suffix == ".h"

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1


class Tree:
    """The files of one tree, and the findings about them."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = [SourceFile(path, text) for path, text in _read_texts(self.root)]
        self.by_path = {file.path: file for file in self.files}
        self.findings = []

    def add(self, file, line, rule, what, instead):
        for text in file.lines[max(0, line - 2) : line]:
            escape = _ESCAPE.search(text)
            if escape and escape[1] == rule:
                return
        self.findings.append((file.path, line, f"{what}; {instead} [{rule}]"))

    def report(self):
        return [f"{path}:{line}: {text}" for path, line, text in sorted(self.findings)]


def _read_texts(root):
    for path in sorted(_list_paths(root)):
        if SKIPPED_FOLDERS.intersection(path.split("/")[:-1]):
            continue
        if os.path.splitext(path)[1] not in TEXT_SUFFIXES or not (root / path).is_file():
            continue
        data = (root / path).read_bytes()
        if b"\0" in data:
            continue
        yield path, data.decode("utf-8", errors="replace")


def _list_paths(root):
    """The files that git tracks or would track; without a repository at `root`, every file."""
    if (root / ".git").exists():
        listing = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], capture_output=True, check=False)
        if listing.returncode == 0:
            return {os.fsdecode(name) for name in listing.stdout.split(b"\0") if name}
    return {path.relative_to(root).as_posix() for path in root.rglob("*")
            if ".git" not in path.parts}


def check_includes(tree):
    """Rooms of the library include downwards only; foreign headers stay in their room."""
    for file in tree.files:
        if not file.is_cpp:
            continue
        for match in _INCLUDE.finditer(cpp_outline.strip_comments(file.text)):
            line, target = file.line_of(match.start(2)), match[2]
            if file.in_library:
                _check_library_include(tree, file, line, match[1], target)
            allowed = MAY_INCLUDE_FOREIGN.get(target)
            if allowed is not None and not file.path.startswith(tuple(allowed)):
                tree.add(file, line, "foreign-include", f"{target} is included here",
                         f"it belongs in {' '.join(allowed)} only: call what that folder offers")


def room_of(path):
    """The room of a file below lmdbio/: DISTRICT/ROOM, or the district if it has no rooms."""
    return "/".join(path.split("/")[1:-1][:2])


def _check_library_include(tree, file, line, quote, target):
    room = room_of(file.path)
    if target.startswith("lmdbio/") and target.count("/") >= 2:
        other = room_of(target)
        if other != room and other not in MAY_INCLUDE.get(room, []):
            allowed = " ".join(MAY_INCLUDE.get(room, [])) or "nothing else of the library"
            tree.add(file, line, "include-edge", f"{room} includes {other}",
                     f"{room} may include: {allowed} (MAY_INCLUDE in scripts/check_tree.py)")
    elif quote == '"':
        tree.add(file, line, "include-path", f'"{target}" is not a path from the repository root',
                 'write "lmdbio/DISTRICT/ROOM/FILE.h", or <...> for a foreign header')


def check_sizes(tree):
    """Functions, files and lines stay short enough to be read at once."""
    for file in tree.files:
        if not file.is_code:
            continue
        if len(file.lines) > FILE_LINES_MAX:
            tree.add(file, FILE_LINES_MAX + 1, "long-file", f"{len(file.lines)} lines",
                     f"split the file: {FILE_LINES_MAX} at most, 250 is the aim")
        for number, text in enumerate(file.lines, 1):
            if len(text) > LINE_COLUMNS_MAX:
                tree.add(file, number, "long-line", f"{len(text)} columns",
                         f"wrap at {LINE_COLUMNS_MAX} (scripts/format does it for C++)")
        for function in cpp_outline.outline(file.text) if file.is_cpp else []:
            length = function.last_line - function.first_line + 1
            if length > FUNCTION_LINES_MAX and function.has_body:
                tree.add(file, function.first_line, "long-function", f"{length} lines",
                         f"make its steps functions: {FUNCTION_LINES_MAX} at most, 30 is the aim")


def check_folders(tree):
    """A folder holds no more headers than a reader keeps apart."""
    headers = collections.Counter(
        file.path.rsplit("/", 1)[0] for file in tree.files if file.suffix == ".h")
    for file in tree.files:
        folder, _, name = file.path.rpartition("/")
        if file.suffix == ".h" and headers[folder] > FOLDER_HEADERS_MAX:
            tree.add(file, 1, "crowded-folder", f"{headers[folder]} headers in {folder}",
                     f"make two folders of it: {FOLDER_HEADERS_MAX} at most")
            headers[folder] = 0  # said once


def check_tests(tree):
    """The test of a header lies in the folder of its room."""
    rooms = {}
    for file in tree.files:
        if file.is_library_header:
            rooms.setdefault(file.name[:-2], []).append(room_of(file.path))
    for file in tree.files:
        folder, _, name = file.path.rpartition("/")
        homes = rooms.get(name.removesuffix("_test.cc"), [])
        if not folder.startswith("tests/") or not name.endswith("_test.cc") or len(homes) != 1:
            continue
        if folder != f"tests/{homes[0]}":
            tree.add(file, 1, "test-place", f"{homes[0]} has the header of this test",
                     f"move the test to tests/{homes[0]}")


def check_guards(tree):
    """The include guard of a header is its path."""
    for file in tree.files:
        if file.suffix != ".h" or not (found := _GUARD.search(file.text)):
            continue
        words = file.path if file.in_library else f"lmdbio/{file.path}"
        guard = re.sub(r"[^A-Za-z0-9]", "_", words).upper() + "_"
        if found[1] != guard:
            tree.add(file, file.line_of(found.start()), "guard", f"the guard is {found[1]}",
                     f"call it {guard}, by the path")


def check_types(tree):
    """A class holds no more state than a reader keeps in mind; a type name means one type."""
    by_name = {}
    for file in tree.files:
        for one in cpp_outline.types(file.text) if file.is_cpp else []:
            if one.members > CLASS_MEMBERS_MAX:
                tree.add(file, one.first_line, "large-class",
                         f"{one.name} has {one.members} data members",
                         f"split it by responsibility: {CLASS_MEMBERS_MAX} at most")
            if not one.name or one.name in SHARED_TYPE_NAMES:
                continue
            first = by_name.setdefault(one.name, file)
            if first is not file:
                tree.add(file, one.first_line, "same-type",
                         f"{first.path} has a type {one.name}, too", "rename one of them")


def check_places(tree):
    """What one file does for all is done nowhere else."""
    homes = {}
    for file in tree.files:
        if not (file.in_library and file.is_cpp):
            continue
        code = cpp_outline.strip_literals(file.text)
        for pattern, folder, what, instead in IN_ONE_PLACE:
            for match in re.finditer(pattern, code):
                is_inside = file.path.startswith(folder)
                if not is_inside or homes.setdefault(pattern, file) is not file:
                    tree.add(file, file.line_of(match.start()), "one-place", what, instead)


def check_comments(tree):
    """A comment names its subject."""
    for file in tree.files:
        if not file.is_code:
            continue
        previous = (-1, True)  # the line of the last comment, and whether it stands alone
        for line, is_alone, words in _comments_of(file):
            continues = previous == (line - 1, is_alone)
            if not continues and (match := _VAGUE_SUBJECT.match(words)):
                tree.add(file, line, "vague-comment", f"a comment begins with `{match[0]}`",
                         "begin with a noun: the reader, rank 2, the cache")
            previous = (line, is_alone)


def _comments_of(file):
    """(line, whether nothing stands before it, words) of each comment, in order."""
    if file.is_cpp:
        found = [(start, words) for start, words in cpp_outline.comments(file.text)]
    else:
        found = [(match.start(1), match[2])
                 for match in re.finditer(r"(?m)(?:^|[ \t])(#)+!?[ \t]*(.*)$", file.text)]
    for start, words in found:
        line = file.line_of(start)
        before = file.text[file.text.rfind("\n", 0, start) + 1 : start]
        yield line, not before.strip(), words


def check_interfaces(tree):
    """Public calls take no bool, and their comments name their errors."""
    for file in tree.files:
        if not file.is_library_header:
            continue
        for function in cpp_outline.outline(file.text):
            parameters = function.parameters() if function.is_public else None
            for line, text in parameters or []:
                if re.fullmatch(r"(?:const )?bool(?: const)?(?: \w+)?(?: ?=.*)?", text):
                    tree.add(file, line, "bool-parameter", f"parameter `{text}` of a public call",
                             "take an enum class, or a field of an options struct")
            if parameters is not None and _returns_status(function.head):
                if not any(_has_errors_line(file, line)
                           for line in (function.first_line, function.scope_line)):
                    tree.add(file, function.first_line, "no-errors-line",
                             "a call that can fail does not say how",
                             "add `Errors: kCode  cause` to its comment or its class's")


def _returns_status(head):
    head = cpp_outline.without_template(head)
    head = re.sub(r"^(?:(?:static|virtual|inline|constexpr|friend)\s+)+", "", head)
    is_result = re.match(r"(?:lmdbio::)?(?:Status\s|Result\s*<)", head)
    return is_result is not None and not re.search(r"\boverride\b", head)


def _has_errors_line(file, line):
    """Searches the lines above, up to a blank line, because neighbours may share a comment."""
    for text in reversed(file.lines[: line - 1]):
        if not text.strip():
            return False
        if re.search(r"(?://|\*).*\bErrors\b[\w, ]*:", text):
            return True
    return False


def check_calls(tree):
    """The library returns values: it does not throw, print or end the process."""
    for file in tree.files:
        if not (file.in_library and file.is_cpp) or file.path == MAY_END_THE_PROCESS:
            continue
        code = cpp_outline.strip_literals(file.text)
        for pattern, what, instead in BANNED_IN_LIBRARY:
            for match in re.finditer(pattern, code):
                tree.add(file, file.line_of(match.start()), "banned-call", what, instead)


def check_words(tree):
    """The tree has no markers of unfinished work and no paths of one machine."""
    for file in tree.files:
        for number, text in enumerate(file.lines, 1):
            if marker := _MARKER.search(text):
                tree.add(file, number, "marker", f"`{marker[0]}`",
                         "do it now, or open an issue and name the limit in the contract")
            if path := _MACHINE_PATH.search(text):
                if not (file.path.startswith("scripts/") and "mktemp" in text):
                    tree.add(file, number, "machine-path", f"`{path[0]}` is a path of one machine",
                             "take a relative path, a parameter or a temporary directory")


def check_registration(tree):
    """CMake builds every source file, and no comment disables a target."""
    cmake_texts = {}
    for file in tree.files:
        if file.is_cmake:
            cmake_texts[file.path] = _strip_cmake_comments(file.text)
            for number, text in enumerate(file.lines, 1):
                if _COMMENTED_OUT.search(text):
                    tree.add(file, number, "commented-out", "a registration that is a comment",
                             "build it or delete it with its file")
    for file in tree.files:
        stem = os.path.splitext(file.name)[0]
        is_program = stem.endswith(("_test", "_fuzz", "_bench")) and file.suffix == ".py"
        if file.suffix in (".cc", ".c") or is_program:
            pattern = rf"(?<![\w-]){re.escape(stem)}(?![\w-])"
        elif file.is_library_header:
            pattern = rf"(?<![\w-]){re.escape(file.name)}(?!\w)"
        else:
            continue
        if not any(re.search(pattern, cmake_texts.get(path, ""))
                   for path in _cmake_paths_for(file.path)):
            tree.add(file, 1, "not-registered", f"no CMakeLists.txt builds {file.name}",
                     "list it in the CMakeLists.txt of its folder or of a parent")


def _strip_cmake_comments(text):
    text = re.sub(r"#\[(=*)\[.*?\]\1\]", "", text, flags=re.DOTALL)
    return re.sub(r"(?m)#.*$", "", text)


def _cmake_paths_for(path):
    folders = path.split("/")[:-1]
    for depth in range(len(folders), -1, -1):
        yield "/".join(folders[:depth] + ["CMakeLists.txt"])


def check_names(tree):
    """A file name identifies one file."""
    by_name = collections.defaultdict(list)
    for file in tree.files:
        if file.suffix in CPP_SUFFIXES + (".py", ".proto") and file.name != "__init__.py":
            by_name[file.name.lower()].append(file)
    for files in by_name.values():
        for file in files[1:]:
            tree.add(file, 1, "same-name", f"{files[0].path} has the same name",
                     "rename one of them")


def check_sources(tree):
    """A `Source:` tag names a document that exists, or its file has a row in the paper map.

    Parts of a tag are separated by `;`. A part that names docs/X.md needs that file. Any other part
    names a paper, and the paper map must then list the file by its path.
    """
    paper_map = tree.by_path.get(PAPER_MAP)
    for file in tree.files:
        if not (file.is_cpp or file.suffix == ".py"):
            continue
        for line, tag in _source_tags(file):
            for part in filter(None, (part.strip(" .") for part in tag.split(";"))):
                _check_source(tree, paper_map, file, line, part)


def _check_source(tree, paper_map, file, line, part):
    document = re.search(r"\bdocs/[\w./-]+\.md", part)
    if document and "lmdbio/" + document[0] not in tree.by_path:
        tree.add(file, line, "source-tag", f"lmdbio/{document[0]} does not exist",
                 "name the document that describes this")
    if document and "lmdbio/" + document[0] != PAPER_MAP:
        return
    stem = os.path.splitext(file.path)[0]
    if not re.search(rf"(?<!\w){re.escape(stem)}(?!\w)", paper_map.text if paper_map else ""):
        tree.add(file, line, "source-tag", f"{PAPER_MAP} does not list {file.path}",
                 "add it to the row of the paper that it implements")


def _source_tags(file):
    """(line, text) of each tag; a tag runs to the end of its comment paragraph."""
    number = 0
    while number < len(file.lines):
        start = re.match(r"^\s*(?://|\*|/\*|#)\s*Source:\s*(.*)", file.lines[number])
        number += 1
        if not start:
            continue
        line, words = number, [start[1]]
        while number < len(file.lines):
            more = re.match(r"^\s*(?://|\*(?!/)|#)\s+(?!\w+:)(\S.*)", file.lines[number])
            if not more:
                break
            words.append(more[1])
            number += 1
        yield line, " ".join(words)


def check_links(tree):
    """Relative links of the documents lead to files that exist."""
    for file in tree.files:
        if file.suffix != ".md":
            continue
        in_code = False
        for number, text in enumerate(file.lines, 1):
            if text.lstrip().startswith("```"):
                in_code = not in_code
            for target in [] if in_code else _LINK.findall(re.sub(r"`[^`]*`", "", text)):
                path = target.split("#")[0]
                if re.match(r"[a-z]+:", target) or not path:
                    continue
                if not (tree.root / file.path).parent.joinpath(path).exists():
                    tree.add(file, number, "dead-link", f"{target} does not exist",
                             "link to a file of this tree, relative to this document")


def check_named_paths(tree):
    """Files and folders that documents name exist. A program has the name of its source file."""
    programs = {file.path.rsplit(".", 1)[0] for file in tree.files}
    known = programs | {file.name for file in tree.files}
    for file in tree.files:
        if file.suffix != ".md":
            continue
        for number, text in enumerate(file.lines, 1):
            for path in _NAMED_PATH.findall(text):
                if path not in known and not (tree.root / path).exists():
                    tree.add(file, number, "dead-path", f"{path} does not exist",
                             "name a file or folder of this tree")


def check_readmes(tree):
    """The README of a room says what it may include, as MAY_INCLUDE does."""
    for file in tree.files:
        room = room_of(file.path)
        if file.name != "README.md" or not file.in_library or room not in MAY_INCLUDE:
            continue
        match = re.search(r"^\*\*May include\*\*(.*?)(?:\n\n|\Z)", file.text,
                          re.MULTILINE | re.DOTALL)
        named = sorted(re.findall(r"`([\w/]+)`", match[1])) if match else []
        if named != sorted(MAY_INCLUDE[room]):
            wanted = ", ".join(f"`{other}`" for other in MAY_INCLUDE[room]) or "nothing"
            tree.add(file, file.line_of(match.start()) if match else 1, "readme-includes",
                     "`May include` and MAY_INCLUDE differ", f"write: {wanted}")


CHECKS = (check_includes, check_sizes, check_folders, check_tests, check_guards, check_types,
          check_places, check_comments, check_interfaces, check_calls, check_words,
          check_registration, check_names, check_sources, check_links, check_named_paths,
          check_readmes)


def check(root):
    """Every finding about the tree at `root`, as lines of text in order of path and line."""
    tree = Tree(root)
    for run in CHECKS:
        run(tree)
    return tree.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--release", action="store_true",
                        help="fail if the reproduced figures are older than the sources")
    options = parser.parse_args()
    findings = check(options.root)
    for line in findings:
        print(line)
    if findings:
        print(f"check_tree: {len(findings)} findings", file=sys.stderr)
    stale = report_age.stale(options.root)
    if stale:
        print(f"check_tree: {'error' if options.release else 'warning'}: {stale}")
    return 1 if findings or (stale and options.release) else 0


if __name__ == "__main__":
    sys.exit(main())
