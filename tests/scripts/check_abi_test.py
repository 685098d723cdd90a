"""scripts/check_abi accepts what rule 7 of lmdbio.h allows, and nothing else.

    check_abi_test.py C_COMPILER

Each case changes a small library in one way and compares it with the recorded one.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK_ABI = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_abi"
COMPILER = sys.argv.pop(1)
SKIPPED = 77

HEADER = """
#include <stddef.h>
enum lmdbio_status { LMDBIO_OK = 0, LMDBIO_IO = 4 };
typedef struct lmdbio_options { size_t struct_size; int order; long seed; } lmdbio_options;
typedef struct lmdbio_record { const void* key; const void* value; } lmdbio_record;
int lmdbio_open(const char* path, const lmdbio_options* options);
int lmdbio_read(lmdbio_record* records, size_t count);
"""
SOURCE = """
#include "lmdbio.h"
int lmdbio_open(const char* path, const lmdbio_options* options) { return !path || !options; }
int lmdbio_read(lmdbio_record* records, size_t count) { return !records || !count; }
"""


class CheckAbi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        library = cls.build(HEADER, SOURCE)
        cls.call("--record", library)

    @classmethod
    def build(cls, header, source):
        (cls.folder / "lmdbio.h").write_text(header, encoding="utf-8")
        for name in "lmdbio_feed.h", "lmdbio_sync.h":
            (cls.folder / name).write_text("", encoding="utf-8")
        (cls.folder / "lmdbio.c").write_text(source, encoding="utf-8")
        library = cls.folder / "liblmdbio.so"
        subprocess.run([COMPILER, "-g", "-shared", "-fPIC", cls.folder / "lmdbio.c", "-o", library],
                       check=True)
        return library

    @classmethod
    def call(cls, *arguments):
        return subprocess.run([sys.executable, "-B", CHECK_ABI, "--headers", cls.folder,
                               "--recorded", cls.folder, *arguments], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def expect(self, status, old="", new="", source=SOURCE):
        """The exit status after one replacement in the header."""
        self.assertIn(old, HEADER)
        result = self.call(self.build(HEADER.replace(old, new), source))
        self.assertEqual(result.returncode, status, result.stdout)

    def test_accepts_the_recorded_interface(self):
        self.expect(0)

    def test_accepts_a_new_call(self):
        self.expect(0, source=SOURCE + "int lmdbio_count(void) { return 1; }\n")

    def test_accepts_a_new_constant(self):
        self.expect(0, "LMDBIO_IO = 4", "LMDBIO_IO = 4, LMDBIO_STALE = 7")

    def test_accepts_another_number_only_with_a_reason(self):
        allowed = self.folder / "changed_constants.txt"
        self.addCleanup(allowed.unlink)
        for line, status in (("LMDBIO_IO was 4 and is 5  # versioned", 0),
                             ("LMDBIO_IO was 4 and is 5", 1), ("LMDBIO_IO was 4 and is 6  # x", 1)):
            allowed.write_text(line + "\n", encoding="utf-8")
            self.expect(status, "LMDBIO_IO = 4", "LMDBIO_IO = 5")

    def test_accepts_another_field_at_the_end_of_options(self):
        self.expect(0, "long seed;", "long seed; long epoch;")

    def test_accepts_another_name_of_a_field(self):
        self.expect(0, "int order;", "int order_kind;")

    def test_refuses_a_call_that_is_gone(self):
        hidden = '__attribute__((visibility("hidden"))) int lmdbio_read'
        self.expect(1, source=SOURCE.replace("int lmdbio_read", hidden))

    def test_refuses_other_parameters(self):
        self.expect(1, "size_t count", "int count",
                    source=SOURCE.replace("size_t count", "int count"))

    def test_refuses_a_constant_with_another_number(self):
        self.expect(1, "LMDBIO_IO = 4", "LMDBIO_IO = 5")

    def test_refuses_a_constant_that_is_gone(self):
        self.expect(1, ", LMDBIO_IO = 4", "")

    def test_refuses_a_field_of_another_type(self):
        self.expect(1, "long seed;", "int seed;")

    def test_refuses_a_field_in_the_middle(self):
        self.expect(1, "long seed;", "long epoch; long seed;")

    def test_refuses_a_field_that_is_gone(self):
        self.expect(1, " long seed;", "")

    def test_refuses_a_larger_record(self):
        self.expect(1, "const void* value;", "const void* value; long position;")

    def test_skips_a_library_without_debug_information(self):
        library = self.build(HEADER, SOURCE)
        subprocess.run(["strip", "--strip-debug", library], check=True)
        self.assertEqual(self.call(library).returncode, SKIPPED)


if __name__ == "__main__":
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print("abidw or abidiff is missing (scripts/setup installs both)")
        sys.exit(SKIPPED)
    unittest.main()
