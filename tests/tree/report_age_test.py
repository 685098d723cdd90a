"""Tests scripts/report_age.py, with and without a history."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import report_age  # noqa: E402

SOURCE = "lmdbio/load/plan/strategy.cc"
CODE = '// A strategy.\nint Count() { return 1; }\nconst char* kText = "// no comment";\n'
FOLDERS = "lmdbio/load, lmdbio/file/layout, lmdbio/file/io, lmdbio/file/blocks"


class ReportAge(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "tree"
        self.write(SOURCE, CODE)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def report(self, commit, sources=None):
        sources = report_age.digest(self.root) if sources is None else sources
        self.write(report_age.REPORT, f"# Results\n\n| | |\n|---|---|\n| commit | {commit} |\n"
                                      f"| sources | {sources}, a digest |\n")

    def git(self, *words, root=None):
        return subprocess.run(
            ["git", "-C", root or self.root, "-c", "user.name=a", "-c", "user.email=a@b.example",
             "-c", "protocol.file.allow=always", *words],
            check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject)
        return self.git("rev-parse", "--short=10", "HEAD")

    def test_without_a_report_nothing_is_stale(self):
        self.assertIsNone(report_age.stale(self.root))

    def test_comments_and_layout_do_not_count(self):
        self.report("abcdef0123")
        self.write(SOURCE, "int  Count()\n{ return 1; }  // other words\n"
                           'const char* kText =\n    "// no comment";\n')
        self.assertIsNone(report_age.stale(self.root))

    def test_code_literals_and_new_files_count(self):
        self.report("abcdef0123")
        for path, text in ((SOURCE, CODE.replace("return 1", "return 2")),
                           (SOURCE, CODE.replace("// no", "// one")),
                           ("lmdbio/file/io/more.h", "int a;\n")):
            before = self.root / path
            kept = before.read_text(encoding="utf-8") if before.exists() else None
            self.write(path, text)
            self.assertIn("abcdef0123", report_age.stale(self.root))
            if kept is None:
                before.unlink()
            else:
                self.write(path, kept)
        self.write("lmdbio/base/more.h", "int a;\n")
        self.write("lmdbio/load/README.md", "Text\n")
        self.assertIsNone(report_age.stale(self.root))

    def test_without_a_history_the_number_of_commits_is_unknown(self):
        self.report("abcdef0123", "0" * 16)
        self.assertEqual(
            report_age.stale(self.root),
            f"{report_age.REPORT} shows commit abcdef0123; {FOLDERS} changed since then (the "
            "history here does not tell in how many commits); scripts/reproduce measures again")

    def test_the_history_tells_how_many_commits_changed_the_sources(self):
        self.git("init", "--quiet")
        measured = self.commit("measured")
        self.report(measured)
        self.commit("report")
        self.assertIsNone(report_age.stale(self.root))
        self.write(SOURCE, CODE.replace("1", "2"))
        self.assertIn("changed since then, in no commit yet", report_age.stale(self.root))
        self.commit("first")
        self.assertIn("changed in 1 commit since then", report_age.stale(self.root))
        self.write(SOURCE, CODE.replace("1", "3"))
        self.commit("second")
        self.write("lmdbio/base/more.h", "int a;\n")
        self.commit("elsewhere")
        self.assertIn(f"shows commit {measured}; {FOLDERS} changed in 2 commits since then",
                      report_age.stale(self.root))

    def test_a_shallow_clone_finds_it_too(self):
        self.git("init", "--quiet")
        self.report(self.commit("measured"))
        self.commit("report")
        shallow = self.root.with_name("shallow")
        self.git("clone", "--quiet", "--depth", "1", f"file://{self.root}", shallow)
        self.assertIsNone(report_age.stale(shallow))
        self.write(SOURCE, CODE.replace("1", "2"))
        self.commit("change")
        self.git("fetch", "--quiet", "--depth", "1", root=shallow)
        self.git("reset", "--quiet", "--hard", "FETCH_HEAD", root=shallow)
        self.assertIn("does not tell in how many commits", report_age.stale(shallow))

    def test_a_report_of_uncommitted_sources_is_stale(self):
        self.report("abcdef0123-dirty")
        self.assertIn("with changes that no commit has", report_age.stale(self.root))

    def test_a_report_without_a_commit_or_a_digest_is_stale(self):
        self.write(report_age.REPORT, "# Results\n")
        self.assertIn("names no commit", report_age.stale(self.root))
        self.write(report_age.REPORT, "| commit | abcdef0123 |\n")
        self.assertIn("shows commit abcdef0123", report_age.stale(self.root))

    def test_only_a_release_fails(self):
        self.report("abcdef0123", "0" * 16)
        self.write("lmdbio/CMakeLists.txt", "add_room(load/plan strategy.cc)\n")
        for words, code, kind in (((), 0, "warning"), (("--release",), 1, "error")):
            done = subprocess.run(
                [sys.executable, "-B", ROOT / "scripts" / "check_tree.py", "--root", self.root,
                 *words], capture_output=True, text=True, check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith("check_tree: ")]
            self.assertEqual(len(lines), 1)
            self.assertTrue(lines[0].startswith(f"check_tree: {kind}: {report_age.REPORT}"))
            self.assertEqual(done.returncode, code, done.stdout)


if __name__ == "__main__":
    unittest.main()
