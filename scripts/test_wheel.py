#!/usr/bin/env python3
"""Installs a wheel of lmdbio with some Pythons, each in an empty environment, and runs the tests of
the Python package there. Prints a line for each Python, with the time from `pip install` to the
first batch of a data set in fairchem's format, and ends with 1 if a test failed.

    scripts/test_wheel.py [--make PROGRAM] [--with PACKAGE]... WHEEL PYTHON...

pip finds no compiler, and the tests find neither this tree's package nor its library. They need
lmdbio-make (--make, of a release build), mdb_dump and mdb_load. PyPI gives NumPy and what --with
names: without `--with torch`, the tests of lmdbio.torch are skipped. A Python without the module
venv needs the program uv. Output is in build/wheel/test/VERSION.log.
"""

import argparse
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "api" / "python"
LOGS = ROOT / "build" / "wheel" / "test"
SKIPPED = 77
PROGRAMS = "mdb_dump", "mdb_load"  # the oracle of the tests
# Tests of the package alone. The others need MPI, or this tree.
SUITE = ("loader", "loader_threads", "dataset", "parts", "many_files", "keys", "views", "errors",
         "options", "sync_exit", "torch", "data_loader", "workers", "torch_trainer")
DESCRIBE = """if True:
    import platform, sys, sysconfig
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    print(f"{platform.python_version()}{free} glibc {platform.libc_ver()[1]}")
    """
PLACES = """if True:
    import lmdbio, lmdbio._capi, sys
    library = lmdbio._capi.library()
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(lmdbio.__version__, library._name, "" if gil else "without a GIL")
    """
# The program of a user who wants batches. Decoding is the user's own.
FIRST_BATCH = """if True:
    import pickle
    import lmdbio
    loader = lmdbio.Loader(lmdbio.views.fairchem("data.0000.lmdb"), batch_size=32, shuffle=True)
    batch = next(iter(loader))
    numbers = [pickle.loads(value)["sid"] for value in batch.values()]
    assert len(set(numbers)) == 32 and set(numbers) < set(range(1000)), numbers
    """


def run(words, log, **options):
    words = [str(word) for word in words]
    print("$", *words, file=log, flush=True)
    return subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, check=False,
                          stdin=subprocess.DEVNULL, **options).returncode


def make_environment(python, folder, packages, log):
    """Makes an environment with `packages`, without a compiler in PATH. Returns its Python and the
    seconds that this took."""
    start = time.perf_counter()
    inside = folder / "bin" / "python"
    variables = os.environ | {"PATH": "/nowhere"}
    variables.pop("PYTHONPATH", None)
    uv = shutil.which("uv")
    steps = [[python, "-m", "venv", folder], [inside, "-m", "pip", "install", "-q", *packages]]
    if uv:
        steps = [[uv, "venv", "-q", "--python", python, folder],
                 [uv, "pip", "install", "-q", "--only-binary", ":all:", "--python", inside,
                  *packages]]
    for step in steps:
        if run(step, log, env=variables) != 0:
            raise RuntimeError(f"{step[0]} failed")
    return inside, time.perf_counter() - start


def write_fairchem_set(path):
    """Writes 1,000 pickled samples under the keys "0", "1", ... and their number under "length"."""
    records = {str(i).encode(): pickle.dumps({"sid": i, "pos": [0.5] * 60}, protocol=2)
               for i in range(1000)} | {b"length": pickle.dumps(1000, protocol=2)}
    lines = ["VERSION=3", "format=bytevalue", "type=btree", "mapsize=16777216", "HEADER=END"]
    for key in sorted(records):
        lines += [" " + key.hex(), " " + records[key].hex()]
    subprocess.run(["mdb_load", "-n", path], input="\n".join([*lines, "DATA=END", ""]), text=True,
                   check=True)


def test_python(python, options, log):
    """Runs the suite with one Python. Returns the result of each test by name, and the seconds from
    pip install to the first batch."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="lmdbio-wheel-") as name:
        folder = pathlib.Path(name)
        write_fairchem_set(folder / "data.0000.lmdb")
        inside, seconds = make_environment(python, folder / "first", [options.wheel, "numpy"], log)
        start = time.perf_counter()
        code = run([inside, "-c", FIRST_BATCH], log, cwd=folder,
                   env={"PATH": "/nowhere", "HOME": name})
        seconds += time.perf_counter() - start
        results["first batch"] = "FAILED" if code else "passed"
        inside, _ = make_environment(python, folder / "environment",
                                     [options.wheel, "numpy", *options.packages], log)
        programs = folder / "programs"
        programs.mkdir()
        for program in PROGRAMS:
            (programs / program).symlink_to(shutil.which(program))
        variables = {"PATH": str(programs), "HOME": name, "LMDBIO_CACHE": "off",
                     "LMDBIO_MAKE": str(options.make), "PYTHONPATH": str(TESTS),
                     "PYTHONDONTWRITEBYTECODE": "1"}
        if run([inside, "-c", PLACES], log, env=variables, cwd=folder) != 0:
            return {"import": "FAILED"}, seconds
        for test in SUITE:
            code = run([inside, TESTS / f"{test}_test.py"], log, env=variables, cwd=folder)
            results[test] = {0: "passed", SKIPPED: "skipped"}.get(code, "FAILED")
    return results, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--make", type=pathlib.Path, help="lmdbio-make",
                        default=ROOT / "build" / "release" / "bin" / "lmdbio-make")
    parser.add_argument("--with", dest="packages", action="append", default=[], metavar="PACKAGE")
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("pythons", nargs="+", type=pathlib.Path, metavar="PYTHON")
    options = parser.parse_args()
    options.wheel, options.make = options.wheel.resolve(), options.make.resolve()
    for needed in options.wheel, options.make, *PROGRAMS, *options.pythons:
        if not shutil.which(needed) and not pathlib.Path(needed).exists():
            parser.error(f"there is no {needed}")
    LOGS.mkdir(parents=True, exist_ok=True)
    failed = False
    for python in options.pythons:
        title = subprocess.run([python, "-c", DESCRIBE], capture_output=True, text=True,
                               check=True).stdout.strip()
        path = LOGS / f"{re.sub(r'[^0-9a-z.]+', '-', title)}.log"
        with open(path, "w", encoding="utf-8") as log:
            try:
                results, seconds = test_python(python, options, log)
            except RuntimeError as error:
                results, seconds = {str(error): "FAILED"}, 0.0
        words = " ".join(path.read_text(encoding="utf-8").split())
        count = sum(int(number) for number in re.findall(r"Ran (\d+) tests? in", words))
        by_result = {result: [test for test in results if results[test] == result]
                     for result in ("passed", "skipped", "FAILED")}
        print(f"Python {title}: first batch after {seconds:.1f} s; {count} cases; " + "; ".join(
            f"{result}: {', '.join(tests)}" for result, tests in by_result.items() if tests),
            flush=True)
        failed = failed or bool(by_result["FAILED"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
