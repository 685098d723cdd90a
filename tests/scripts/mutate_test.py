"""scripts/mutate tells tests that notice a mutation from tests that do not.

    mutate_test.py SCRIPT
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv[1]).resolve()

FILES = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.25)
project(sums CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
add_executable(sum_test sum_test.cc)
enable_testing()
add_test(NAME sum_test COMMAND sum_test 5)
add_test(NAME sum_test.six COMMAND sum_test 6)
set_tests_properties(sum_test.six PROPERTIES WILL_FAIL ON)
""",
    "sum.h": "inline int Sum(int a, int b) { return a + b; }\n"
             "inline int Unused() { return 7; }\n",
    # As a test that prints wrong bytes, its output is no UTF-8. It needs the argument of CTest.
    "sum_test.cc": '#include <cstdio>\n#include <cstdlib>\n#include "sum.h"\n'
                   'int main(int count, char** words) {\n  std::puts("\\xE2.");\n'
                   '  return count == 2 && Sum(2, 3) == std::atoi(words[1]) ? 0 : 1;\n}\n',
}


def mutation(name, find, replace, test="sum_test", more=""):
    return (f'[[mutation]]\nname = "{name}"\nfile = "sum.h"\nfind = "{find}"\n'
            f'replace = "{replace}"\ntest = "{test}"\n{more}')


class MutateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in FILES.items():
            (self.root / name).write_text(text, encoding="utf-8")
        subprocess.run(["git", "init", "--quiet"], cwd=self.root, check=True)

    def mutate(self, *mutations):
        (self.root / "list.toml").write_text("".join(mutations), encoding="utf-8")
        return subprocess.run([sys.executable, "-B", SCRIPT, "--root", self.root,
                               self.root / "list.toml"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120)

    def test_a_mutation_that_a_test_notices(self):
        result = self.mutate(mutation("minus", "a + b", "a - b"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "killed    sum_test: minus\n1 of 1 mutations were killed\n")

    def test_one_of_the_tests_of_a_target(self):
        result = self.mutate(mutation("six", "a + b", "a * b", "sum_test.six"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines()[0], "killed    sum_test.six: six")

    def test_a_mutation_that_no_test_notices(self):
        result = self.mutate(mutation("minus", "a + b", "a - b"),
                             mutation("other", "return 7", "return 8"),
                             mutation("zero", "a + b", "0"))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [
            "killed    sum_test: minus", "SURVIVED  sum_test: other", "killed    sum_test: zero",
            "2 of 3 mutations were killed"])
        # The tree itself is not touched.
        self.assertEqual((self.root / "sum.h").read_text(encoding="utf-8"), FILES["sum.h"])

    def test_a_mutation_that_needs_kernels(self):
        needs = mutation("minus", "a + b", "a - b", more='needs = "kernels"\n')
        result = self.mutate(mutation("zero", "a + b", "0"), needs)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [
            "killed    sum_test: zero",
            "not run   sum_test: minus (no kernels: there is no nvcc)",
            "1 of 1 mutations were killed"])
        # With kernels the tests are built apart.
        with open(self.root / "CMakeLists.txt", "a", encoding="utf-8") as file:
            file.write('if(LMDBIO_CUDA STREQUAL "AUTO")\n'
                       'file(WRITE ${PROJECT_BINARY_DIR}/lmdbio/device_kernels.fatbin "x")\n'
                       "endif()\n")
        result = self.mutate(mutation("zero", "a + b", "0"), needs,
                             mutation("other", "return 7", "return 8", more='needs = "kernels"\n'))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [
            "killed    sum_test: zero", "killed    sum_test: minus", "SURVIVED  sum_test: other",
            "2 of 3 mutations were killed"])

    def test_mistakes_are_told_in_one_line(self):
        for text, told in (
                (mutation("gone", "a * b", "0"), "has the text to replace 0 times"),
                (mutation("twice", "inline int", ""), "has the text to replace 2 times"),
                (mutation("broken", "a + b", "a +"), "'broken' does not compile"),
                (mutation("no test", "a + b", "0", "other_test"), "cannot build other_test"),
                ('[[mutation]]\nname = "short"\n', "'short' has the fields name"),
                (mutation("luck", "a + b", "0", more='needs = "luck"\n'), "needs = 'kernels'"),
                ("", "there is no such mutation")):
            result = self.mutate(text)
            self.assertEqual(result.returncode, 1)
            self.assertIn(told, result.stderr.splitlines()[0])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
