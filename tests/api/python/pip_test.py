"""The source distribution, what pip installs from it without compiling, and where the package then
finds liblmdbio. The compiled wheel is checked by scripts/check_wheel.py and by reduced_build_test.

Exits with 77 without pip and scikit-build-core; `scripts/setup --python` installs them.
"""

import contextlib
import email
import importlib.util
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import unittest

from support import Databases, run_unless

ROOT = pathlib.Path(__file__).resolve().parents[3]
READ_ONE = "import lmdbio, sys; print(len(lmdbio.Dataset(sys.argv[1])), lmdbio.__file__)"
LIBRARY = os.environ["LMDBIO_LIBRARY"]
NOT_IN_SDIST = ".ci/"


def version_in(path, pattern):
    return re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)[1]


class PipTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from scikit_build_core import build

        before = os.getcwd()
        os.chdir(ROOT)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                cls.sdist = cls.folder / build.build_sdist(str(cls.folder))
        finally:
            os.chdir(before)
        cls.target = cls.folder / "target"
        # pip is started by others, too, without the run time of sanitizers.
        cls.installed = cls.run_python(
            "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index",
            "--target", cls.target, "--config-settings", "wheel.cmake=false", cls.sdist,
            LD_PRELOAD="")

    @classmethod
    def run_python(cls, *words, **environment):
        """Runs Python in another folder; a variable that is None is not set."""
        variables = {name: value for name, value in (os.environ | environment).items()
                     if value is not None}
        return subprocess.run([sys.executable, *map(str, words)], cwd=cls.folder, text=True,
                              capture_output=True, check=False, env=variables)

    def read(self, place, **environment):
        return self.run_python("-c", READ_ONE, self.digits, PYTHONPATH=str(place), **environment)

    def assert_reads_from(self, place, result):
        self.assertEqual(result.stderr, "")
        count, file = result.stdout.split(maxsplit=1)
        self.assertEqual(count, "1797")
        self.assertTrue(file.startswith(str(place)), file)

    def test_the_source_distribution_has_every_file(self):
        listing = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, text=True, check=False)
        if listing.returncode != 0:
            self.skipTest("there is no git repository")
        expected = {name for name in listing.stdout.split("\0")
                    if name and (ROOT / name).is_file() and not name.startswith(NOT_IN_SDIST)}
        with tarfile.open(self.sdist) as archive:
            names = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
        self.assertEqual(names ^ expected, {"PKG-INFO"})

    def test_metadata(self):
        with tarfile.open(self.sdist) as archive:
            name = f"{self.sdist.name.removesuffix('.tar.gz')}/PKG-INFO"
            metadata = email.message_from_binary_file(archive.extractfile(name))
        self.assertEqual(metadata["Name"], "lmdbio")
        version = version_in("CMakeLists.txt", r"^project\(lmdbio VERSION (\S+)")
        self.assertEqual(metadata["Version"], version)
        self.assertEqual(version_in("CITATION.cff", r"^version: (\S+)"), version)
        recipe = "scripts/packaging/conda/recipe.yaml"
        self.assertEqual(version_in(recipe, r"^  version: (\S+)"), version)
        self.assertEqual(metadata["License-Expression"], "Apache-2.0")
        self.assertEqual(metadata.get_all("Requires-Dist")[0], "numpy")
        self.assertLessEqual({"torch", "mpi"}, set(metadata.get_all("Provides-Extra")))
        classifiers = "\n".join(metadata.get_all("Classifier"))
        self.assertIn("Python :: Free Threading", classifiers)

    def test_what_pip_installs_reads(self):
        self.assertEqual(self.installed.returncode, 0, self.installed.stderr)
        self.assertTrue((self.target / "lmdbio" / "py.typed").is_file())
        self.assert_reads_from(self.target, self.read(self.target))

    def test_version_is_that_of_the_installed_package(self):
        told = self.run_python("-c", "import lmdbio; print(lmdbio.__version__)",
                               PYTHONPATH=str(self.target), LMDBIO_LIBRARY="/nowhere.so",
                               LD_PRELOAD="")
        self.assertEqual(told.stdout.strip(),
                         version_in("CMakeLists.txt", r"^project\(lmdbio VERSION (\S+)"))

    def with_library_inside(self, name):
        """Returns a folder with the package and, as a wheel has it, liblmdbio in it."""
        place = self.folder / name
        shutil.copytree(self.target, place)
        (place / "lmdbio" / "liblmdbio.so.0").symlink_to(LIBRARY)
        return place

    def test_the_library_in_the_package_is_found(self):
        place = self.with_library_inside("inside")
        self.assert_reads_from(place, self.read(place, LMDBIO_LIBRARY=None))

    def test_the_library_of_the_environment_comes_first(self):
        place = self.with_library_inside("beside")
        missing = self.read(place, LMDBIO_LIBRARY="/nowhere.so", LD_PRELOAD="")
        self.assertIn("/nowhere.so", missing.stderr)
        (place / "lmdbio" / "liblmdbio.so.0").unlink()
        (place / "lmdbio" / "liblmdbio.so.0").write_text("no library")
        self.assert_reads_from(place, self.read(place))

    def test_without_mpi_in_the_package_it_says_how_to_get_it(self):
        place = self.with_library_inside("without_mpi")
        call = "from lmdbio import _capi; _capi._mpi_library()"
        missing = self.run_python("-c", call, PYTHONPATH=str(place), LMDBIO_LIBRARY=None,
                                  LMDBIO_MPI_LIBRARY=None)
        last = missing.stderr.strip().splitlines()[-1]
        self.assertRegex(last, r"\Almdbio\S*\.LibraryNotFoundError: .*without MPI")
        self.assertIn("LMDBIO_WITH_MPI=ON", last)

    def test_without_the_library_it_says_how_to_name_it(self):
        missing = self.run_python("-c", READ_ONE, self.digits, LMDBIO_LIBRARY="/nowhere.so",
                                  LD_PRELOAD="")
        last = missing.stderr.strip().splitlines()[-1]
        self.assertRegex(last, r"\Almdbio\S*\.LibraryNotFoundError: ")
        self.assertIn("set LMDBIO_LIBRARY", last)

    def test_another_library_is_named(self):
        other = self.run_python("-c", READ_ONE, self.digits, LMDBIO_LIBRARY="libc.so.6",
                                LD_PRELOAD="")
        last = other.stderr.strip().splitlines()[-1]
        self.assertRegex(last, r"\Almdbio\S*\.LibraryNotFoundError: libc\.so\.6 is no liblmdbio")


if __name__ == "__main__":
    needed = ("pip", "scikit_build_core")
    run_unless(next((f"there is no {name}" for name in needed
                     if not importlib.util.find_spec(name)), None))
