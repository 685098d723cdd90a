"""Uses an installed lmdbio from a separate project.

    install_test.py BUILD LMDBIO_MAKE FLAGS MPIEXEC...

BUILD is the build folder to install from. FLAGS are additional flags of compilers and linker
(sanitizers). MPIEXEC starts two ranks. The oracle is the report of lmdbio-make.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD, MAKE, FLAGS, *MPIEXEC = sys.argv[1:]
CAPI = HERE.parents[1] / "lmdbio" / "api" / "c"


def declared_in(*headers):
    """The names of the calls in the headers."""
    return {name for header in headers
            for name in re.findall(r"LMDBIO_API[^;(]*?(lmdbio_\w+)\(",
                                   (CAPI / header).read_text(encoding="utf-8"))}


def run(*words, **options):
    """Returns the output of a command. A failure of the command fails the test."""
    words = [str(word) for word in words]
    result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, **options)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(words)}: {result.returncode}\n{result.stdout}"
                             f"{result.stderr}")
    return result.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio install ")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        made = json.loads(run(MAKE, "digits", cls.folder / "digits", "--json"))
        cls.expected = f"{made['records']} records, {made['value_bytes']} bytes\n"

    def library(self, name):
        found = list(self.prefix.glob(f"**/{name}"))
        self.assertEqual(len(found), 1, name)
        return found[0]

    def test_consumers_of_the_cmake_package(self):
        build = self.folder / "consumer"
        run("cmake", "-G", "Ninja", "-S", HERE / "consumer", "-B", build,
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF",
            f"-DCMAKE_C_FLAGS={FLAGS}", f"-DCMAKE_CXX_FLAGS={FLAGS}")
        run("cmake", "--build", build)
        for program in ("in_c", "c_from_cpp", "in_cpp"):
            self.assertEqual(run(build / program, self.folder / "digits"), self.expected)
        no_leaks = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}  # MPI leaks memory
        self.assertEqual(run(*MPIEXEC, build / "with_mpi", self.folder / "digits", env=no_leaks),
                         self.expected)
        self.assertEqual(run(*MPIEXEC, build / "sync_with_mpi", env=no_leaks),
                         "2 ranks, sum 3\n")
        failed = subprocess.run([build / "in_c", "nowhere"], capture_output=True, text=True,
                                check=False)
        self.assertNotEqual(failed.returncode, 0)
        self.assertRegex(failed.stderr, r"\A[^\n]*nowhere[^\n]*\n\Z")

    def test_a_consumer_of_pkg_config(self):
        # pkg-config must quote a path with a blank.
        package = self.library("lmdbio.pc").parent
        environment = os.environ | {"PKG_CONFIG_PATH": str(package)}
        words = shlex.split(run("pkg-config", "--cflags", "--libs", "lmdbio", env=environment))
        program = self.folder / "by_pkg_config"
        run("cc", "-std=c11", *shlex.split(FLAGS), HERE / "consumer" / "in_c.c", *words,
            "-o", program)
        libraries = self.library("liblmdbio.so").parent
        self.assertEqual(run(program, self.folder / "digits",
                             env=os.environ | {"LD_LIBRARY_PATH": str(libraries)}), self.expected)
        run("pkg-config", "--exists", "lmdbio_mpi", env=environment)

    def test_exports_what_the_header_declares_and_nothing_else(self):
        listing = run("nm", "--dynamic", "--defined-only", self.library("liblmdbio.so"))
        symbols = {line.split()[2] for line in listing.splitlines() if " A " not in line}
        private = {symbol for symbol in symbols if symbol.endswith("@@LMDBIO_PRIVATE")}
        names = [re.search(r"Open\w*?InGroup", symbol)[0] for symbol in private]
        # One for a path, one for a list of files, and one for a synchronizer.
        self.assertEqual(sorted(names), ["OpenInGroup", "OpenInGroup", "OpenSyncInGroup"])
        versions = dict(symbol.split("@@") for symbol in symbols - private)  # by call
        self.assertEqual(set(versions), declared_in("lmdbio.h", "lmdbio_feed.h", "lmdbio_sync.h"))
        self.assertLessEqual(set(versions.values()), {"LMDBIO_0.1", "LMDBIO_0.2"})
        self.assertEqual(versions["lmdbio_dataset_read"], "LMDBIO_0.1")  # of old programs
        listing = run("nm", "--dynamic", "--defined-only", self.library("liblmdbio_mpi.so"))
        symbols = {line.split()[2] for line in listing.splitlines() if " A " not in line}
        self.assertEqual(dict(symbol.split("@@") for symbol in symbols),
                         {"lmdbio_open_mpi": "LMDBIO_0.1", "lmdbio_sync_open_mpi": "LMDBIO_0.1",
                          "lmdbio_open_mpi_files": "LMDBIO_0.2"})
        self.assertEqual({symbol.split("@@")[0] for symbol in symbols},
                         declared_in("lmdbio_mpi.h"))

    def test_the_shared_library_has_a_version_and_no_mpi(self):
        listing = run("readelf", "--dynamic", self.library("liblmdbio.so"))
        self.assertIn("Library soname: [liblmdbio.so.0]", listing)
        needed = set(re.findall(r"Shared library: \[([^\]]+)\]", listing))
        self.assertEqual([name for name in needed if "mpi" in name], [])

    @unittest.skipIf("undefined" in FLAGS, "this sanitizer keeps the paths of its reports whole")
    def test_no_library_names_the_folder_it_was_built_from(self):
        libraries = [*self.prefix.rglob("*.a"), *self.prefix.rglob("*.so")]
        self.assertGreater(len(libraries), 10)
        # The second is the first relative to the build folder, as ccache compiles it.
        for path in (f"{HERE.parents[1]}/lmdbio/", "../lmdbio/"):
            found = [library.name for library in libraries if path.encode() in library.read_bytes()]
            self.assertEqual(found, [], path)

    def test_every_call_has_a_man_page(self):
        headers = "lmdbio.h", "lmdbio_feed.h", "lmdbio_sync.h", "lmdbio_mpi.h"
        declared = declared_in(*headers)
        self.assertGreater(len(declared), 35)
        overviews = [pathlib.Path(header).stem for header in headers]
        for name in [*overviews, *declared]:
            page = self.library(f"{name}.3").read_text(encoding="utf-8")
            self.assertIn(".SH DESCRIPTION", page)
            self.assertIn(f"{name} \\- ", page)
        if shutil.which("mandoc"):
            for name in overviews:
                run("mandoc", "-T", "lint", "-W", "error", self.library(f"{name}.3"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
