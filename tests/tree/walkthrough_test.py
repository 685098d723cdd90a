"""Checks that lmdbio/docs/walkthrough.md names existing files and symbols in short paths.

    walkthrough_test.py

A section of the page (`## `) is a path. In its steps, which begin with `1. `, a span of code that
is a path names a file. The spans up to the next file name symbols that this file must contain; of
`Type::Name` both parts. The text before the steps may contain any code.
"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "lmdbio/docs/walkthrough.md"
FILES_MAX = 15
PATHS = 2  # a record, a gradient

_SPAN = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.\w+")
_SYMBOL = re.compile(r"~?\w+(?:(?:::|\.)~?\w+)*")


def holds(text, symbol):
    """Whether every part of `A::b` is a word of the text."""
    return all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text)
               for part in re.split(r"::|\.", symbol))


def check(root, page):
    """The findings about a page, given as text."""
    findings, paths = [], 0
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        files, current = [], None
        for span in _SPAN.findall(text.partition("\n1. ")[2]):
            if _FILE.fullmatch(span):
                path = pathlib.Path(root, span)
                current = (span, path.read_text(encoding="utf-8") if path.is_file() else None)
                if current[1] is None:
                    findings.append(f"{title}: there is no file {span}")
                if span not in files:
                    files.append(span)
            elif not _SYMBOL.fullmatch(span):
                findings.append(f"{title}: `{span}` is neither a file nor a symbol")
            elif current is None:
                findings.append(f"{title}: `{span}` stands before any file")
            elif current[1] is not None and not holds(current[1], span):
                findings.append(f"{title}: {current[0]} does not contain {span}")
        if files:
            paths += 1
        if len(files) > FILES_MAX:
            findings.append(f"{title}: {len(files)} files; a path has at most {FILES_MAX}")
    if paths != PATHS:
        findings.append(f"{paths} paths; the page has {PATHS}")
    return findings


class WalkthroughTest(unittest.TestCase):
    def test_the_page_names_what_exists(self):
        page = pathlib.Path(ROOT, PAGE).read_text(encoding="utf-8")
        self.assertEqual(check(ROOT, page), [])


class Canaries(unittest.TestCase):
    PLAIN = ("# Title\n\nNo `span` counts here.\n\n## A record\n\nNor `here()`.\n\n"
             "1. `a/b.h` `Window::AwaitSlot`\n\n## A gradient\n\n"
             "1. `a/c.py` `Loader.next`: text. `a/b.h` `Window`\n")

    def findings(self, page):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a").mkdir()
            pathlib.Path(folder, "a/b.h").write_text("class Window {\n  void AwaitSlot();\n};\n",
                                                     encoding="utf-8")
            pathlib.Path(folder, "a/c.py").write_text("class Loader:\n    def next(self):\n",
                                                      encoding="utf-8")
            return check(folder, page)

    def expect(self, old, new, *expected):
        self.assertIn(old, self.PLAIN)
        self.assertEqual(self.findings(self.PLAIN.replace(old, new)), list(expected))

    def test_a_plain_page_passes(self):
        self.assertEqual(self.findings(self.PLAIN), [])

    def test_a_missing_symbol_is_found(self):
        self.expect("AwaitSlot", "AwaitSlots",
                    "A record: a/b.h does not contain Window::AwaitSlots")
        self.expect("Loader.next", "Loader.nex", "A gradient: a/c.py does not contain Loader.nex")
        # A wrong class is found, as is a wrong method.
        self.expect("Window::AwaitSlot", "Door::AwaitSlot",
                    "A record: a/b.h does not contain Door::AwaitSlot")

    def test_a_missing_file_is_found(self):
        self.expect("1. `a/b.h`", "1. `a/gone.h`", "A record: there is no file a/gone.h")

    def test_a_symbol_without_a_file_is_found(self):
        self.expect("1. `a/b.h` `Window::AwaitSlot`", "1. `Window`, `a/b.h`",
                    "A record: `Window` stands before any file")

    def test_other_spans_are_found(self):
        self.expect("text.", "`a + b`.", "A gradient: `a + b` is neither a file nor a symbol")

    def test_too_many_files_are_found(self):
        many = " ".join(f"`a/f{number}.h`" for number in range(FILES_MAX))
        found = self.findings(self.PLAIN.replace("text.", many))
        self.assertEqual(found[-1], f"A gradient: {FILES_MAX + 2} files; a path has at most "
                                    f"{FILES_MAX}")

    def test_a_missing_path_is_found(self):
        self.expect("## A gradient", "### A gradient", "1 paths; the page has 2")


if __name__ == "__main__":
    sys.exit(unittest.main())
