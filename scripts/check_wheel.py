#!/usr/bin/env python3
"""Checks wheels of lmdbio before anybody installs them. Prints a line for each; exits with 1 if a
wheel is wrong.

    scripts/check_wheel.py [--auditwheel PROGRAM] WHEEL...

- Its tags are py3-none-manylinux_X_Y_MACHINE: any Python, also a free-threaded one.
- It has at most 5,000,000 bytes; liblmdbio is in the package, the programs are scripts, and the
  licences of the libraries inside are there. The version is that of CMakeLists.txt.
- Each library and program needs libraries of glibc only, of X.Y or earlier, looks for no library
  elsewhere, and is of MACHINE. liblmdbio exports the calls of lmdbio.map and no symbol of libc++.
- `auditwheel show` gives the wheel the same tag (if the option names auditwheel).
"""

import argparse
import email
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE_BYTES_MAX = 5_000_000
TAG = re.compile(r"py3-none-manylinux_(\d+)_(\d+)_(x86_64|aarch64)")
GLIBC = re.compile(r"(lib(c|m|dl|rt|pthread)\.so\.\d|ld-linux-(x86-64|aarch64)\.so\.\d)")
LIBRARY = "lmdbio/liblmdbio.so.0"
PROGRAMS = "lmdbio-dump", "lmdbio-provenance", "lmdbio-stat", "lmdbio-timeline"
LICENCES = "boost", "expected", "fmt", "liburing", "lmdb", "nlohmann_json", "xxhash", "zstd"
PRIVATE = "_ZN6lmdbio3api"  # what liblmdbio_mpi of the same build calls
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}  # as readelf calls them


def project_version():
    """The version in CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"^project\(lmdbio VERSION ([\d.]+)", text, re.MULTILINE)[1]


def declared_calls():
    """The calls in the version map of liblmdbio."""
    text = (ROOT / "lmdbio" / "api" / "c" / "lmdbio.map").read_text(encoding="utf-8")
    return set(re.findall(r"\b(lmdbio_\w+);", text))


def _readelf(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], capture_output=True, text=True,
                          check=True).stdout


def check_binary(path, glibc, machine):
    """Yields what is wrong with a library or program. `glibc` is the latest version allowed."""
    name = path.name
    found = re.search(r"Machine:.*", _readelf(path, "--file-header"))[0]
    if MACHINES[machine] not in found:
        yield f"{name} is not for {machine}: {found}"
    dynamic = _readelf(path, "--dynamic")
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not GLIBC.fullmatch(needed):
            yield f"{name} needs {needed}: link it statically"
    for place in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
        yield f"{name} looks for libraries in {place}"
    for version in sorted(set(re.findall(r"Name: GLIBC_([\d.]+)", _readelf(path, "-V")))):
        if tuple(map(int, version.split(".")[:2])) > glibc:
            yield f"{name} needs glibc {version}, which is later than {glibc[0]}.{glibc[1]}"
    if name == pathlib.PurePath(LIBRARY).name:
        symbols = re.findall(r"^\s*\d+: .* (?:GLOBAL|WEAK) +DEFAULT +(?:\d+) (\w+)@",
                             _readelf(path, "--dyn-syms"), re.MULTILINE)
        calls = {name for name in symbols if not name.startswith(PRIVATE)}
        for symbol in sorted(calls ^ declared_calls()):
            yield f"{name} and lmdbio.map differ in {symbol}"


def _check_members(names, metadata):
    """Yields what is wrong with the list of files and the metadata."""
    info = next(name for name in names if name.endswith(".dist-info/WHEEL")).rpartition("/")[0]
    scripts = f"{info.removesuffix('.dist-info')}.data/scripts"
    for wanted in (LIBRARY, "lmdbio/__init__.py", "lmdbio/py.typed", f"{info}/licenses/LICENSE",
                   *(f"{scripts}/{name}" for name in PROGRAMS),
                   *(f"{info}/licenses/libraries/{name}.txt" for name in LICENCES)):
        if wanted not in names:
            yield f"there is no {wanted}"
    for name in names:
        if not name.startswith(("lmdbio/", f"{info}/", f"{scripts}/")):
            yield f"{name} belongs elsewhere: it would lie beside other packages"
    if metadata["Version"] != project_version():
        yield (f"its version is {metadata['Version']}, "
               f"and that of CMakeLists.txt is {project_version()}")


def check_wheel(path, auditwheel=None):
    """Yields what is wrong with a wheel."""
    tag = TAG.fullmatch("-".join(path.stem.split("-")[2:]))
    if not tag:
        yield f"its tags are not {TAG.pattern}"
        return
    glibc, machine = (int(tag[1]), int(tag[2])), tag[3]
    if path.stat().st_size > SIZE_BYTES_MAX:
        yield f"it has {path.stat().st_size:,} bytes; at most {SIZE_BYTES_MAX:,} are allowed"
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        texts = {kind: email.message_from_bytes(archive.read(name)) for name in names
                 for kind in ("WHEEL", "METADATA") if name.endswith(f".dist-info/{kind}")}
        if texts["WHEEL"].get_all("Tag") != [tag[0]]:
            yield f"the tags in it are {texts['WHEEL'].get_all('Tag')}"
        if texts["WHEEL"]["Root-Is-Purelib"] != "false":
            yield "it says that it is pure Python"
        yield from _check_members(names, texts["METADATA"])
        archive.extractall(folder)
        for name in names:
            member = pathlib.Path(folder) / name
            if member.is_file() and member.read_bytes()[:4] == b"\x7fELF":
                yield from check_binary(member, glibc, machine)
    if auditwheel:
        shown = subprocess.run([auditwheel, "show", path], capture_output=True, text=True,
                               check=False)
        words = " ".join((shown.stdout + shown.stderr).split())
        policy = tag[0].removeprefix("py3-none-")
        if f'consistent with the following platform tag: "{policy}"' not in words:
            yield f"auditwheel does not agree with {policy}: {words}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--auditwheel", help="the program")
    parser.add_argument("wheels", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    wrong = 0
    for path in options.wheels:
        findings = list(check_wheel(path, options.auditwheel))
        wrong += len(findings)
        for finding in findings:
            print(f"{path.name}: {finding}", file=sys.stderr)
        if not findings:
            print(f"{path.name}: {path.stat().st_size:,} bytes, all checks passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
