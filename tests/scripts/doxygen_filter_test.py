"""scripts/doxygen_filter.py marks comments, and leaves code and lines where they are."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import doxygen_filter  # pylint: disable=wrong-import-position

HEADER = """// a.h - sums.
//
// Long text.
#ifndef A_H_
// Adds. Not for NaN.
// x  in <metres>
int Add(int x);  // fast
struct Pair {
  // Of *both*.
  int first;
  int second;  // 0: none
};
/* --- Rest --- */
/* Ends.
 * rc  a status
 */
void End(int rc);
int f() {
    // A note in a body.
    return 1;
}
"""
EXPECTED = """/** @file
@brief a.h - sums.  @verbatim a.h - sums.

Long text. @endverbatim */
#ifndef A_H_
/** @brief Adds.  @verbatim Adds. Not for NaN.
x  in <metres> @endverbatim */
int Add(int x);  ///< fast
struct Pair {
  /** @brief Of *both*. */
  int first;
  int second;  ///< 0: none
};
/* --- Rest --- */
/** @brief Ends.  @verbatim Ends.
rc  a status @endverbatim 
*/
void End(int rc);
int f() {
    // A note in a body.
    return 1;
}
"""
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def code_of(text):
    return "".join(COMMENT.sub("", text).split())


class DoxygenFilter(unittest.TestCase):
    def test_marks_each_kind_of_comment(self):
        self.assertEqual(doxygen_filter.rewrite(HEADER), EXPECTED)

    def test_keeps_code_and_lines_of_every_header(self):
        headers = sorted((ROOT / "lmdbio").rglob("*.h"))
        self.assertGreater(len(headers), 100)
        for header in headers:
            with self.subTest(header=header.name):
                text = header.read_text(encoding="utf-8")
                marked = doxygen_filter.rewrite(text)
                self.assertEqual(code_of(marked), code_of(text))
                self.assertEqual(marked.count("\n"), text.count("\n") + 1)

    def test_marks_each_c_call(self):
        header = ROOT / "lmdbio" / "api" / "c" / "lmdbio.h"
        text = doxygen_filter.rewrite(header.read_text(encoding="utf-8"))
        calls = re.findall(r"^LMDBIO_API", text, re.MULTILINE)
        self.assertGreater(len(calls), 15)
        described = re.findall(r"@brief (?:(?!/\*\*).)*\*/\nLMDBIO_API", text, re.DOTALL)
        self.assertEqual(len(described), len(calls))


if __name__ == "__main__":
    unittest.main()
