#!/usr/bin/env python3
"""scripts/device-bundle and its run, on the stand-in for a driver.

    device_bundle_test.py SOURCE BUILD DRIVER KERNELS

BUILD is a folder of this build, of which the bundle takes the programs. DRIVER is the stand-in's
libcuda.so.1. KERNELS is the file of kernels that the library has, or nothing.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from left_processes import processes_with  # noqa: E402

SOURCE, BUILD, DRIVER, KERNELS = sys.argv[1:] if len(sys.argv) > 1 else ("", "", "", "")
SECONDS_MAX = 600  # for one run; all take much less
SIZE_MAX = str(512 << 20)  # programs with sanitizers are ten times as large
PARTS = ["probe", "checks", "checks of PyTorch", "figures", "figures of several ranks",
         "sanitizer memcheck", "sanitizer racecheck"]
NO_PROGRAM = "this bundle has no "


def make_bundle(*words):
    return subprocess.run([f"{SOURCE}/scripts/device-bundle", *words], text=True, check=False,
                          capture_output=True, timeout=SECONDS_MAX)


def write_program(path, text):
    path.unlink(missing_ok=True)  # a link to the bundle
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class DeviceBundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.bundle = pathlib.Path(cls.folder.name) / "a bundle"
        made = make_bundle("--build", BUILD, "--size-max", SIZE_MAX, str(cls.bundle))
        assert made.returncode == 0, made.stderr
        cls.made = made

    def setUp(self):
        """A copy of the bundle whose parts a test replaces, and an empty folder to run in."""
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.copy = self.here / "copy"
        self.empty = self.here / "empty"
        self.empty.mkdir()
        self.copy.mkdir()
        for path in self.bundle.iterdir():
            if path.name != "bin":
                (self.copy / path.name).symlink_to(path)
        (self.copy / "run").unlink()
        shutil.copy2(self.bundle / "run", self.copy / "run")
        shutil.copytree(self.bundle / "bin", self.copy / "bin", copy_function=os.link)

    def run_bundle(self, *words, bundle=None, driver=DRIVER, path="/usr/bin:/bin"):
        report = self.here / "report.json"
        environment = {"PATH": path, "HOME": "/nowhere", "TMPDIR": str(self.here),
                       "ASAN_OPTIONS": "detect_leaks=0",
                       "LMDBIO_EMULATED_GPU": f"{self.here}/devices-%g"}
        if driver:
            environment["LD_LIBRARY_PATH"] = str(pathlib.Path(driver).parent)
        ended = subprocess.run([(bundle or self.copy) / "run", "--quick", "--json", report, *words],
                               text=True, check=False, capture_output=True, env=environment,
                               cwd=self.empty, timeout=SECONDS_MAX)
        self.assertEqual(list(self.empty.iterdir()), [])
        self.assertEqual(processes_with(str(self.here)), [])
        ended.report = json.loads(report.read_text(encoding="utf-8")) if report.exists() else None
        return ended

    def replace(self, program, text):
        write_program(self.copy / "bin" / program, text)

    def shorten(self, program, ids):
        """Lets a program make these rows only, wherever it is told nothing else."""
        real = self.copy / "bin" / f"{program}.real"
        (self.copy / "bin" / program).rename(real)
        self.replace(program, f'case "$*" in *--only*) exec "{real}" "$@" ;; esac\n'
                              f'exec "{real}" --only {",".join(ids)} "$@"')

    def run_part(self, part, *words, **more):
        """The rows of one part."""
        ended = self.run_bundle("--only", part, *words, **more)
        found, = ended.report["parts"]
        self.assertEqual(found["part"], part)
        return ended, found

    # --- the whole ---

    def test_the_size_is_told(self):
        self.assertRegex(self.made.stdout, rf"a bundle: \d+ bytes of at most {SIZE_MAX}\n\Z")

    @unittest.skipUnless(KERNELS, "this build has no kernels")
    def test_all_parts_run_in_an_empty_folder(self):
        # Tests of their own run all checks and figures, so here they are cut short.
        checks, figures = ["C1", "C5"], ["D1", "D2", "D7"]
        self.shorten("lmdbio-device-checks", checks)
        self.shorten("lmdbio-device-figures", figures)
        ended = self.run_bundle()
        self.assertEqual([part["part"] for part in ended.report["parts"]], PARTS)
        ids = [row["id"] for part in ended.report["parts"] for row in part["rows"]]
        expected = [f"Q{n}" for n in range(1, 10)] + checks + ["C7", "C8"] + figures + \
            ["D3", "D4", "D5", "D6", "D9", "D10", "D13"]
        self.assertEqual(sorted(set(ids)), sorted(expected))
        for part in ended.report["parts"]:
            for row in part["rows"]:
                self.assertIn(row["state"], ("passed", "measured", "left out"), row)
                if row["state"] == "left out":
                    self.assertNotEqual(row["note"], "", row)
                self.assertIn(row["name"], ended.stdout)
        # The stand-in has no speed, so only figures may miss their bars.
        late = [row for part in ended.report["parts"] for row in part["rows"]
                if row.get("held") is False]
        self.assertEqual({row["id"][0] for row in late} - {"D"}, set())
        self.assertEqual(ended.report["held"], not late)
        self.assertEqual(ended.returncode, 1 if late else 0, ended.stdout)
        self.assertRegex(ended.stdout.splitlines()[-1],
                         ("NOT HELD" if late else "held") + r": \d+ passed, \d+ measured, "
                         fr"{len(late)} not held, 0 failed, \d+ left out, in \d+ s\Z")

    def test_without_a_driver(self):
        ended = self.run_bundle(driver="")
        self.assertEqual((ended.returncode, ended.stdout, ended.report), (77, "", None))
        self.assertIn("libcuda.so.1", ended.stderr)
        self.assertEqual(len(ended.stderr.splitlines()), 1)

    def test_without_a_gpu(self):
        ended = self.run_bundle("--device", "9")
        self.assertEqual((ended.returncode, ended.stdout), (77, ""))

    def test_a_driver_that_fails(self):
        self.replace("lmdbio-device-checks", "exit 1")
        ended = self.run_bundle()
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertIn("the GPU cannot be used: exit code 1", ended.stderr)

    def test_wrong_options(self):
        for words in (("--only", "nothing"), ("--seconds-max", "0"), ("--device", "9999")):
            self.assertEqual(self.run_bundle(*words).returncode, 2)

    def test_a_machine_that_cannot_run_it(self):
        self.replace("lmdbio-device-run", "exit 127")
        ended = self.run_bundle()
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"\Arun: needs Linux on \S+ and glibc 2\.\d+ or later; ")

    # --- parts that end otherwise ---

    GPU = 'case "$*" in *--gpu*) exit 0;; esac\n'

    def row(self, state, **more):
        return json.dumps({"id": "C1", "name": "one", "state": state, "note": ""} | more)

    def checks(self, text, *words):
        self.replace("lmdbio-device-checks", self.GPU + text)
        return self.run_part("checks", *words)

    def test_rows_that_have_passed(self):
        ended, part = self.checks(f"echo '{self.row('passed')}'; echo text; echo '{{\"seed\": 5}}'")
        self.assertEqual((ended.returncode, part["end"]), (0, "exit code 0"), ended.stdout)
        self.assertEqual([row["name"] for row in part["rows"]], ["one"])
        self.assertEqual(part["facts"], [{"seed": 5}])
        self.assertIn("# seed: 5\n", ended.stdout)

    def test_a_row_that_has_failed(self):
        ended, part = self.checks(f"echo '{self.row('failed', note='a reason')}'; exit 1")
        self.assertEqual((ended.returncode, len(part["rows"])), (1, 1))
        self.assertRegex(ended.stdout, r"not held:\n  C1  one +FAILED  a reason\n\nNOT HELD: ")

    def test_a_bar_that_is_not_held(self):
        row = self.row("measured", value=0.5, low=0.4, high=0.6, unit="ratio", bar=0.9,
                       sense="at least", held=False)
        ended, _ = self.checks(f"echo '{row}'; exit 1")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("0.5 (0.4..0.6) ratio  at least 0.9  NOT HELD", ended.stdout)

    def test_a_part_that_is_killed_keeps_its_rows(self):
        ended, part = self.checks(f"echo '{self.row('passed')}'; kill -9 $$")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual([row["state"] for row in part["rows"]], ["passed", "failed"])
        self.assertIn("ended by signal 9", part["rows"][1]["note"])

    def test_a_part_that_hangs_is_ended_with_all_its_processes(self):
        ended, part = self.checks(
            f"echo '{self.row('passed')}'; setsid sleep 1000 & setsid sleep 1000", "--seconds-max",
            "9")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("not done within", part["end"])
        self.assertEqual([row["state"] for row in part["rows"]], ["passed", "failed"])

    def test_an_exit_code_that_no_row_explains(self):
        for text in (f"echo '{self.row('passed')}'; exit 1", f"echo '{self.row('passed')}'; exit 9",
                     "exit 0", "exit 1"):
            ended, part = self.checks(text)
            self.assertEqual((ended.returncode, part["rows"][-1]["state"]), (1, "failed"), text)

    def test_rows_that_are_all_left_out_hold_nothing(self):
        ended, part = self.checks(f"echo '{self.row('left out', note='why')}'; exit 1")
        self.assertEqual((ended.returncode, len(part["rows"])), (1, 1))

    def test_a_part_without_time_is_left_out(self):
        self.replace("lmdbio-device-probe", "sleep 1000")
        ended = self.run_bundle("--seconds-max", "6")
        self.assertEqual(ended.returncode, 1)
        self.assertEqual([part["rows"][0]["state"] for part in ended.report["parts"]],
                         ["failed"] + ["left out"] * 6)
        self.assertEqual(ended.report["parts"][1]["rows"][0]["note"], "no time was left")

    def test_a_program_that_is_missing_is_told(self):
        (self.copy / "bin" / "lmdbio-device-figures").unlink(missing_ok=True)
        ended, part = self.run_part("figures")
        self.assertEqual({row["note"] for row in part["rows"]},
                         {NO_PROGRAM + "lmdbio-device-figures"})
        self.assertEqual([row["id"] for row in part["rows"]], ["D1", "D2", "D7", "D8", "D11"])

    def test_without_python(self):
        _, part = self.run_part("checks of PyTorch", "--python", "/nowhere/python")
        row, = part["rows"]
        self.assertEqual((row["id"], row["state"]), ("C7", "left out"))
        self.assertIn("/nowhere/python", row["note"])

    def test_without_pytorch(self):
        python = self.here / "python"
        write_program(python, f'exec {sys.executable} -I -S "$@"')
        _, part = self.run_part("checks of PyTorch", "--python", str(python))
        self.assertEqual({row["state"] for row in part["rows"]}, {"left out"})
        self.assertRegex(part["rows"][0]["note"], "has no torch")

    def test_sanitizers_get_the_checks_of_kernels(self):
        folder = self.here / "tools"
        folder.mkdir()
        write_program(folder / "compute-sanitizer",
                      f"echo \"$*\" >>'{self.here}/words'; echo '{self.row('passed')}'")
        self.run_part("sanitizer racecheck", path=f"{folder}:/usr/bin:/bin")
        words = (self.here / "words").read_text(encoding="utf-8")
        self.assertRegex(words, r"--tool racecheck .*--error-exitcode 9 .*/lmdbio-device-checks ")
        self.assertIn("--only C1", words)

    # --- the script ---

    def test_the_script_refuses(self):
        full = self.here / "full"
        full.mkdir()
        (full / "file").touch()
        for words in ((), ("--nothing",), ("--nothing", BUILD, str(self.here / "new")),
                      (str(full),), ("--build", BUILD, str(full)),
                      ("--size-max", "48M", str(self.here / "new")),
                      ("--build", str(self.empty), str(self.here / "new"))):
            made = make_bundle(*words)
            self.assertEqual((made.returncode, made.stdout), (1, ""), words)
            self.assertEqual(len(made.stderr.splitlines()), 1, made.stderr)

    def test_the_script_refuses_what_is_too_large(self):
        build = self.here / "build"
        (build / "bin").mkdir(parents=True)
        programs = [f"bin/{path.name}" for path in (self.bundle / "bin").glob("lmdbio-*")]
        for path in ("lib", *programs):
            (build / path).symlink_to(pathlib.Path(BUILD) / path)
        with open(build / "bin" / "large.py", "wb") as file:
            file.truncate(48 << 20)
        made = make_bundle("--build", str(build), str(self.here / "new"))
        self.assertEqual(made.returncode, 1)
        self.assertIn("at most 50331648 are allowed", made.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main()
