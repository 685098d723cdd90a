"""scripts/check_wheel.py accepts a right wheel, and names what is wrong with others.

    check_wheel_test.py C_COMPILER

A wheel here is a zip file with a small library that exports the calls of lmdbio.map.
"""

import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_wheel  # noqa: E402

COMPILER = sys.argv.pop(1)
SKIPPED = 77
MACHINE = platform.machine()
OTHER_MACHINE = next(name for name in check_wheel.MACHINES if name != MACHINE)
TAG = f"py3-none-manylinux_2_28_{MACHINE}"


class CheckWheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-wheel-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def library(self, calls=None, extra="", *flags):
        """Returns the bytes of a library that exports `calls` with a version, and contains
        `extra`. It needs libc only, and of that only what is old, unless `extra` says otherwise."""
        calls = sorted(check_wheel.declared_calls()) if calls is None else calls
        source, script = self.folder / "library.c", self.folder / "library.map"
        source.write_text(extra + "".join(f"int {call}(void) {{ return 0; }}\n" for call in calls))
        script.write_text(f"V {{ global: {' '.join(call + ';' for call in calls)} local: *; }};\n")
        output = self.folder / "library.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", f"-Wl,--version-script={script}", source,
                        "-o", output, *flags], check=True)
        return output.read_bytes()

    def findings(self, changes=None, tag=TAG, inner_tag=None, version=None):
        """Checks a wheel whose files differ by `changes`: contents by name, None without it."""
        version = version or check_wheel.project_version()
        info = f"lmdbio-{version}.dist-info"
        files = {
            "lmdbio/__init__.py": b"",
            "lmdbio/py.typed": b"",
            f"{info}/WHEEL": (f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
                              f"Tag: {inner_tag or tag}\n").encode(),
            f"{info}/METADATA": f"Name: lmdbio\nVersion: {version}\n".encode(),
            f"{info}/licenses/LICENSE": b"",
            **{f"lmdbio-{version}.data/scripts/{name}": b"" for name in check_wheel.PROGRAMS},
            **{f"{info}/licenses/libraries/{name}.txt": b"" for name in check_wheel.LICENCES},
            **(changes or {}),
        }
        if check_wheel.LIBRARY not in files:
            files[check_wheel.LIBRARY] = self.library()
        path = self.folder / f"lmdbio-{version}-{tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                if data is not None:
                    archive.writestr(name, data)
        return list(check_wheel.check_wheel(path))

    def assert_one(self, pattern, findings):
        self.assertEqual(len(findings), 1, findings)
        self.assertRegex(findings[0], pattern)

    def with_library(self, *arguments):
        return self.findings({check_wheel.LIBRARY: self.library(*arguments)})

    def test_a_right_wheel_passes(self):
        self.assertEqual(self.findings(), [])

    def test_tags(self):
        self.assert_one("its tags are not", self.findings(tag="py3-none-linux_x86_64"))
        self.assert_one("its tags are not", self.findings(tag=TAG.replace("py3", "cp311")))
        self.assert_one("the tags in it", self.findings(inner_tag="py3-none-linux_x86_64"))

    def test_size(self):
        size = check_wheel.SIZE_BYTES_MAX
        self.assert_one("at most 5,000,000", self.findings({"lmdbio/big.py": bytes(size)}))

    def test_files(self):
        self.assert_one("there is no lmdbio/py.typed", self.findings({"lmdbio/py.typed": None}))
        script = f"lmdbio-{check_wheel.project_version()}.data/scripts/lmdbio-stat"
        self.assert_one("there is no .*lmdbio-stat", self.findings({script: None}))
        self.assert_one("bin/tool belongs elsewhere", self.findings({"bin/tool": b""}))

    def test_version(self):
        self.assert_one("its version is 9.9.9", self.findings(version="9.9.9"))

    def test_later_glibc(self):
        later = "void* dlopen(const char*, int);\nvoid* v(void) { return dlopen(0, 1); }\n"
        self.assert_one(r"needs glibc 2\.34, which is later than 2\.28",
                        self.with_library(None, later))

    def test_other_libraries(self):
        self.assert_one(r"needs libstdc\+\+\.so\.6: link it statically",
                        self.with_library(None, "", "-Wl,--no-as-needed", "-l:libstdc++.so.6"))
        self.assert_one("looks for libraries in /opt/lib",
                        self.with_library(None, "", "-Wl,-rpath,/opt/lib"))

    def test_calls(self):
        calls = sorted(check_wheel.declared_calls())
        self.assert_one("differ in lmdbio_zzz", self.with_library([*calls, "lmdbio_zzz"]))
        self.assert_one(f"differ in {calls[0]}$", self.with_library(calls[1:]))

    def test_machine(self):
        other = TAG.replace(MACHINE, OTHER_MACHINE)
        self.assert_one(f"is not for {OTHER_MACHINE}", self.findings(tag=other))

    def test_the_tester_of_wheels_names_what_is_not_there(self):
        for words in ([__file__, "no-python"], ["no.whl", sys.executable]):
            with self.subTest(words=words):
                done = subprocess.run([sys.executable, ROOT / "scripts" / "test_wheel.py",
                                       "--make", __file__, *words],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"there is no .*no(-python|\.whl)\n$")


if __name__ == "__main__":
    if not shutil.which("readelf"):
        print("skipped: there is no readelf")
        sys.exit(SKIPPED)
    unittest.main()
