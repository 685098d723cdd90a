"""`pip install lmdbio/api/python` into an empty folder, from a copy of the sources; then a read.

Exits with 77 without pip and setuptools.
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from support import Databases, run_unless

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "lmdbio" / "api" / "python"
READ_ONE = "import lmdbio, sys; print(len(lmdbio.Dataset(sys.argv[1])), lmdbio.__file__)"


class PipTest(Databases):
    def run_python(self, *words, **environment):
        return subprocess.run([sys.executable, *map(str, words)], cwd=self.folder, text=True,
                              capture_output=True, check=False, env=os.environ | environment)

    def test_what_pip_installs_reads(self):
        copy, target = self.folder / "source", self.folder / "target"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        # pip is started by others, too, without the run time of sanitizers.
        installed = self.run_python("-m", "pip", "install", "--no-build-isolation", "--no-deps",
                                    "--no-index", "--target", target, copy, LD_PRELOAD="")
        self.assertEqual(installed.returncode, 0, installed.stderr)
        self.assertTrue((target / "lmdbio" / "py.typed").is_file())
        read = self.run_python("-c", READ_ONE, self.digits, PYTHONPATH=str(target))
        self.assertEqual(read.stderr, "")
        count, place = read.stdout.split(maxsplit=1)
        self.assertEqual(count, "1797")
        self.assertTrue(place.startswith(str(target)))

    def test_without_the_library_it_says_how_to_name_it(self):
        missing = self.run_python("-c", READ_ONE, self.digits, LMDBIO_LIBRARY="/nowhere.so",
                                  LD_PRELOAD="")
        last = missing.stderr.strip().splitlines()[-1]
        self.assertRegex(last, r"\Almdbio\S*\.LibraryNotFoundError: ")
        self.assertIn("set LMDBIO_LIBRARY", last)


if __name__ == "__main__":
    needed = ("pip", "setuptools")
    run_unless(next((f"there is no {name}" for name in needed
                     if not importlib.util.find_spec(name)), None))
