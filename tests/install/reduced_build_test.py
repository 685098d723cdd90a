"""Builds, installs and uses the library alone, without the packages that are optional.

    reduced_build_test.py LMDBIO_MAKE CMAKE_OPTION...

CMAKE_OPTION names the compilers. CMake cannot find packages that the reduced library must not need,
and pkg-config finds only its three libraries. The test then checks the linked libraries and the
included headers. The build has no optimisation, because the test measures no time. It compiles the
files of a room as one, as scripts/quickstart does.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
MAKE, *COMPILERS = sys.argv[1:]

OPTIONS = ("LMDBIO_WITH_LMDB", "LMDBIO_WITH_MPI", "LMDBIO_BUILD_TOOLS", "LMDBIO_BUILD_MAKE",
           "LMDBIO_BUILD_TESTS", "LMDBIO_BUILD_BENCH", "LMDBIO_BUILD_EXAMPLES", "LMDBIO_WITH_HWLOC",
           "LMDBIO_CUDA")
NEEDED = OPTIONS[:4]  # by tests and benchmarks
HIDDEN_PACKAGES = "benchmark", "Boost", "Caffe", "Catch2", "Gloo", "MPI", "PNG", "Protobuf", "ZLIB"
PKG_CONFIG_MODULES = "liburing", "libxxhash", "libzstd"
LIBRARIES = (r"(libfmt|liburing|libxxhash|libzstd|libstdc\+\+|libm|libgcc_s|libc|ld-linux[\w-]*)"
             r"\.so\.\d+")
FOREIGN_HEADERS = re.compile(r"/(hwloc|lmdb|mpi|turbojpeg|png|zlib)\.h$|/(boost|google/protobuf)/")
UNSUPPORTED = 6


def run(*words, **options):
    """Returns the output of a command. A failure of the command fails the test."""
    words = [str(word) for word in words]
    result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False, **options)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(words)}: {result.returncode}\n{result.stdout}"
                             f"{result.stderr}")
    return result.stdout


class ReducedBuildTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-reduced-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.build = cls.folder / "build"
        cls.prefix = cls.folder / "prefix"
        cls.environment = os.environ | {"PKG_CONFIG_LIBDIR": str(cls.visible_modules())}
        cls.environment.pop("PKG_CONFIG_PATH", None)
        run("cmake", "-S", SOURCE, "-B", cls.build, *cls.configuration(),
            *(f"-D{option}=OFF" for option in OPTIONS), env=cls.environment)
        run("cmake", "--build", cls.build, "--parallel", "2")
        run("cmake", "--install", cls.build, "--prefix", cls.prefix)

    @classmethod
    def visible_modules(cls):
        """A folder with the pkg-config files of the allowed libraries."""
        modules = cls.folder / "pkgconfig"
        modules.mkdir()
        for module in PKG_CONFIG_MODULES:
            found = run("pkg-config", "--variable=pcfiledir", module).strip()
            (modules / f"{module}.pc").symlink_to(pathlib.Path(found) / f"{module}.pc")
        return modules

    @staticmethod
    def configuration():
        hidden = (f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in HIDDEN_PACKAGES)
        return ("-G", "Ninja", *COMPILERS, *hidden, "-DCMAKE_BUILD_TYPE=None",
                "-DCMAKE_UNITY_BUILD=ON", "--no-warn-unused-cli")

    def test_needs_the_allowed_libraries_only(self):
        listing = run("readelf", "--dynamic", self.build / "lib" / "liblmdbio.so")
        needed = re.findall(r"Shared library: \[([^\]]+)\]", listing)
        self.assertIn("liburing.so.2", needed)
        self.assertEqual([name for name in needed if not re.fullmatch(LIBRARIES, name)], [])

    def test_includes_no_header_of_what_is_left_out(self):
        included = run("ninja", "-C", self.build, "-t", "deps").splitlines()
        self.assertTrue([line for line in included if line.endswith("/liburing.h")])
        self.assertEqual([line for line in included if FOREIGN_HEADERS.search(line)], [])

    def test_installs_nothing_of_what_is_left_out(self):
        names = [path.name for path in self.prefix.rglob("*")]
        self.assertIn("liblmdbio.so", names)
        self.assertIn("lmdbio.pc", names)
        left_out = re.compile(r"mpi|lmdb_call_error|database_writer")
        self.assertEqual([name for name in names if left_out.search(name)], [])

    def test_a_project_uses_it_and_is_refused_what_needs_liblmdb(self):
        database = self.folder / "digits"
        run(MAKE, "digits", database)
        consumer = self.folder / "consumer"
        run("cmake", "-S", HERE / "reduced", "-B", consumer, *self.configuration(),
            f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF",
            env=self.environment)
        run("cmake", "--build", consumer)
        for program in "in_c", "in_cpp":
            self.assertRegex(run(consumer / program, database), r"\A1797 records, \d+ bytes\n\Z")
        refusals = run(consumer / "refusals", database).splitlines()
        self.assertRegex(refusals.pop(), rf"^{UNSUPPORTED}: .*'core:0' needs the topology.*"
                                         r"built without hwloc.*LMDBIO_WITH_HWLOC=ON")
        self.assertEqual(len(refusals), 3)
        for refusal, feature in zip(refusals, ("strategy lmdb", *2 * ["snapshot mode pinned"])):
            self.assertRegex(refusal, rf"^{UNSUPPORTED}: .*digits/data\.mdb: {feature} needs "
                                      r"liblmdb.*-DLMDBIO_WITH_LMDB=ON$")

    def test_a_wheel_has_the_library_as_one_file(self):
        # Only the library is linked again: scikit-build-core, the build backend, sets SKBUILD.
        place = self.folder / "wheel"
        run("cmake", "-S", SOURCE, "-B", self.build, "-DSKBUILD=2", env=self.environment)
        run("cmake", "--build", self.build, "--target", "lmdbio_wheel")
        run("cmake", "--install", self.build, "--prefix", place, "--component", "wheel")
        files = [path.relative_to(place).as_posix() for path in place.rglob("*")
                 if not path.is_dir()]
        self.assertEqual(files, ["lmdbio/liblmdbio.so.0"])
        self.assertFalse((place / files[0]).is_symlink())
        self.assertIn("[liblmdbio.so.0]", run("readelf", "--dynamic", place / files[0]))

    def test_names_all_missing_packages_each_in_a_line(self):
        empty = self.folder / "empty"
        empty.mkdir()
        result = subprocess.run(
            ["cmake", "-S", SOURCE, "-B", self.folder / "lacking", *self.configuration(),
             "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON"],
            env=self.environment | {"PKG_CONFIG_LIBDIR": str(empty)},
            capture_output=True, text=True, check=False)
        self.assertNotEqual(result.returncode, 0)
        lines = [line.strip() for line in result.stderr.splitlines()]
        for package, debian in (("fmt", "libfmt-dev"), ("liburing", "liburing-dev"),
                                ("MPI", "libopenmpi-dev"), ("liblmdb", "liblmdb-dev"),
                                ("hwloc 2.1", "libhwloc-dev"),
                                ("Boost.Program_options", "libboost-program-options-dev"),
                                ("protobuf", "libprotobuf-dev"), ("libpng", "libpng-dev"),
                                ("Google Benchmark", "libbenchmark-dev")):
            found = [line for line in lines if line.startswith(f"{package}: install {debian}")]
            self.assertEqual(len(found), 1, result.stderr)
        switch = "or build without it: -DLMDBIO_WITH_MPI=OFF"
        self.assertTrue([line for line in lines if line.startswith("MPI") and switch in line])

    def test_says_why_it_has_no_kernels_for_gpus(self):
        cases = (("old", "echo release 11.8", r"is version '11\.8'; lmdbio needs 12\.1"),
                 ("broken", "case $1 in --version) echo release 13.0;; --list-gpu-code) ;;"
                            " *) echo no such compiler >&2; exit 1;; esac",
                  r"fails: no such compiler"))
        switches = [f"-D{name}=OFF" for name in OPTIONS if name != "LMDBIO_CUDA"]
        for name, commands, reason in cases:
            nvcc = self.folder / name
            nvcc.write_text(f"#!/bin/sh\n{commands}\n", encoding="utf-8")
            nvcc.chmod(0o755)
            for wish, has_failed in (("AUTO", False), ("ON", True)):
                with self.subTest(f"{name} nvcc, LMDBIO_CUDA={wish}"):
                    result = subprocess.run(
                        ["cmake", "-S", SOURCE, "-B", self.folder / "kernels",
                         *self.configuration(), *switches, f"-DLMDBIO_CUDA={wish}",
                         f"-DLMDBIO_NVCC={nvcc}"],
                        env=self.environment, capture_output=True, text=True, check=False)
                    self.assertEqual(result.returncode != 0, has_failed)
                    text = " ".join((result.stdout + result.stderr).split())
                    self.assertRegex(text, f"LMDBIO_CUDA={wish}: .*{nvcc} {reason}")

    def test_tests_and_benchmarks_say_which_option_they_need(self):
        for option in "LMDBIO_BUILD_TESTS", "LMDBIO_BUILD_BENCH":
            for needed in NEEDED:
                switches = {name: "OFF" for name in OPTIONS} | {option: "ON"}
                switches |= {name: "ON" for name in NEEDED if name != needed}
                result = subprocess.run(
                    ["cmake", "-S", SOURCE, "-B", self.folder / "refused", "-G", "Ninja",
                     *COMPILERS,
                     *(f"-D{name}={value}" for name, value in switches.items())],
                    capture_output=True, text=True, check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(f"{option} needs {needed}: add -D{option}=OFF or -D{needed}=ON",
                              " ".join(result.stderr.split()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
