"""The drivers of benchmarks write complete files, follow the rules for links, and leave nothing
when they are killed.

    output_files_test.py
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import output_files
from mpi_jobs import Failure

HERE = pathlib.Path(__file__).resolve().parent


def run(program, *words):
    """Runs a program of Python that knows the modules of this folder."""
    return subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(program), *map(str, words)],
                          env=os.environ | {"PYTHONPATH": str(HERE)}, capture_output=True,
                          text=True, check=False, timeout=60)


class OutputFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "report.json"

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_a_file_is_made_and_replaced(self):
        for text in ("first", "second", ""):
            output_files.write_text(self.path, text)
            self.assertEqual(self.path.read_text(encoding="utf-8"), text)
            self.assertEqual(self.names(), ["report.json"])

    def test_a_link_stays(self):
        (self.folder / "link").symlink_to("report.json")
        for text in ("first", "second"):
            output_files.write_text(self.folder / "link", text)
            self.assertEqual(self.path.read_text(encoding="utf-8"), text)
            self.assertTrue((self.folder / "link").is_symlink())

    def test_no_link_in_a_folder_for_everybody_is_followed(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        self.path.write_text("precious", encoding="utf-8")
        (shared / "link").symlink_to(self.path)
        (shared / "folder").symlink_to(self.folder)
        for path in (shared / "link", shared / "folder" / "report.json"):
            with self.assertRaisesRegex(Failure, "is a symbolic link in a folder that everybody"):
                output_files.write_text(path, "new")
        self.assertEqual(self.path.read_text(encoding="utf-8"), "precious")
        output_files.write_text(shared / "file", "new")
        self.assertEqual((shared / "file").read_text(encoding="utf-8"), "new")

    def test_standard_output_is_continued(self):
        with open(self.folder / "out", "wb") as out:
            subprocess.run(
                [sys.executable, "-B", "-c",
                 "import output_files\nprint('before')\n"
                 "output_files.write_text('/dev/stdout', 'report\\n')\nprint('after')"],
                env=os.environ | {"PYTHONPATH": str(HERE)}, stdout=out, check=True, timeout=60)
        self.assertEqual((self.folder / "out").read_text(encoding="utf-8"),
                         "before\nreport\nafter\n")

    def test_a_fifo_is_written_and_stays(self):
        os.mkfifo(self.path)
        reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        output_files.write_text(self.path, "text")
        self.assertEqual(os.read(reader, 100), b"text")
        self.assertTrue(self.path.is_fifo())

    def test_impossible_paths_are_one_line(self):
        (self.folder / "folder").mkdir()
        for name, why in (("folder", "Is a directory"), ("none/file", "No such file")):
            with self.assertRaisesRegex(Failure, f"{name}: cannot be written: {why}"):
                output_files.write_text(self.folder / name, "text")
        ended = run("import output_files, sys\noutput_files.write_report(sys.argv[1], '')",
                    self.folder / "folder")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stderr,
                         f"-c: {self.folder}/folder: cannot be written: Is a directory\n")

    def test_a_killed_writer_leaves_a_complete_file_and_the_next_one_nothing_else(self):
        for call in ("fsync", "replace"):
            self.path.write_text("old", encoding="utf-8")
            ended = run("""
                import os, output_files, signal, sys
                setattr(os, sys.argv[2], lambda *words: os.kill(os.getpid(), signal.SIGKILL))
                output_files.write_text(sys.argv[1], "new")
                """, self.path, call)
            self.assertEqual(ended.returncode, -signal.SIGKILL, ended.stderr)
            self.assertEqual(self.path.read_text(encoding="utf-8"), "old")
            self.assertEqual(len(self.names()), 2, call)
            output_files.write_text(self.path, "later")
            self.assertEqual(self.names(), ["report.json"])

    def test_a_failed_writer_leaves_nothing(self):
        self.path.write_text("old", encoding="utf-8")
        ended = run("""
            import output_files, resource, sys
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            output_files.write_report(sys.argv[1], "x" * 5000)
            """, self.path)
        self.assertEqual(ended.stderr, f"-c: {self.path}: cannot be written: File too large\n")
        self.assertEqual(self.path.read_text(encoding="utf-8"), "old")
        self.assertEqual(self.names(), ["report.json"])

    def test_the_next_scratch_folder_removes_one_of_a_killed_process(self):
        ended = run("""
            import os, output_files, pathlib, signal, sys
            with output_files.scratch_folder("test", sys.argv[1]) as folder:
                pathlib.Path(folder, "large").write_bytes(bytes(100000))
                os.kill(os.getpid(), signal.SIGKILL)
            """, self.folder)
        self.assertEqual(ended.returncode, -signal.SIGKILL, ended.stderr)
        left = self.names()
        self.assertEqual(len(left), 1)
        (self.folder / "lmdbio-user").mkdir()
        with output_files.scratch_folder("first", self.folder) as first:
            self.assertNotIn(left[0], self.names())
            with output_files.scratch_folder("second", self.folder) as second:
                self.assertTrue(os.path.isdir(first))
                self.assertTrue(os.path.isdir(second))
        self.assertEqual(self.names(), ["lmdbio-user"])


if __name__ == "__main__":
    unittest.main()
