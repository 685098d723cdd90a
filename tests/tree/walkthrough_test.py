"""Checks that lmdbio/docs/walkthrough.md names existing files and symbols, and short journeys.

    walkthrough_test.py

A section of the page (`## `) is a journey if its title is in JOURNEYS. In its steps, which begin
with `1. `, a span of code that is a path names a file. The spans up to the next file name symbols
that this file must contain; of `Type::Name` both parts. The text before the steps may contain any
code. A journey has at most FILES_MAX files.

In another section a span that is a path names a file, too. A symbol behind it in the same step must
be in this file. All other words of a span must occur in some source file.
"""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "lmdbio/docs/walkthrough.md"
FILES_MAX = 15
JOURNEYS = ("A record", "A gradient")
SOURCES = ("lmdbio", "tests", "bench", "scripts")
SUFFIXES = (".h", ".cc", ".c", ".py", ".toml", ".txt")

_SPAN = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+\.\w+")
_SYMBOL = re.compile(r"~?\w+(?:(?:::|\.)~?\w+)*")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_BLOCK_ENDS = re.compile(r"\n(?=\s*(?:\d+\.|-|\|)\s|\s*\n)")


def holds(text, symbol):
    """Whether every part of `A::b` is a word of the text."""
    return all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text)
               for part in re.split(r"::|\.", symbol))


def text_of(root, span):
    """The text of a file; None if there is none."""
    path = pathlib.Path(root, span)
    return path.read_text(encoding="utf-8") if path.is_file() else None


def words_of_sources(root):
    words = set()
    for folder in SOURCES:
        for path in pathlib.Path(root, folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                words.update(re.findall(r"[\w-]+", path.read_text(encoding="utf-8")))
    return words


def check_journey(root, title, text):
    """The findings about the steps of a journey, and its files."""
    findings, files, current = [], [], None
    for span in _SPAN.findall(text):
        if _FILE.fullmatch(span):
            current = (span, text_of(root, span))
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
    return findings, files


def check_section(root, title, text, words):
    """The findings about a section that is no journey."""
    findings = []
    for block in _BLOCK_ENDS.split(_FENCED.sub("", text)):
        current = None
        for span in _SPAN.findall(block):
            if _FILE.fullmatch(span):
                current = (span, text_of(root, span))
                if current[1] is None:
                    findings.append(f"{title}: there is no file {span}")
            elif current is not None and current[1] is not None and _SYMBOL.fullmatch(span):
                if not holds(current[1], span):
                    findings.append(f"{title}: {current[0]} does not contain {span}")
            elif not words.issuperset(re.findall(r"[\w-]+", span)):
                findings.append(f"{title}: no source contains `{span}`")
    return findings


def check(root, page):
    """The findings about a page, given as text."""
    findings, journeys, words = [], [], words_of_sources(root)
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title not in JOURNEYS:
            findings += check_section(root, title, text, words)
            continue
        journeys.append(title)
        found, files = check_journey(root, title, text.partition("\n1. ")[2])
        findings += found
        if len(files) > FILES_MAX:
            findings.append(f"{title}: {len(files)} files; a journey has at most {FILES_MAX}")
    findings += [f"there is no section '{title}'" for title in JOURNEYS if title not in journeys]
    return findings


class WalkthroughTest(unittest.TestCase):
    def test_the_page_names_what_exists(self):
        page = pathlib.Path(ROOT, PAGE).read_text(encoding="utf-8")
        self.assertEqual(check(ROOT, page), [])


class Canaries(unittest.TestCase):
    PLAIN = ("# Title\n\nNo `span` counts here.\n\n## A record\n\nNor `here()`.\n\n"
             "1. `a/b.h` `Window::AwaitSlot`\n\n## A gradient\n\n"
             "1. `a/c.py` `Loader.next`: text. `a/b.h` `Window`\n\n## A recipe\n\n"
             "Any `max_bytes=1`.\n\n```\n`drawn`\n```\n\n"
             "1. `a/b.h` `Window`: step.\n2. `a/c.py` `next`\n\n"
             "| event | `Window::next` |\n")

    def findings(self, page):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a", "lmdbio"):
                pathlib.Path(folder, name).mkdir()
            pathlib.Path(folder, "a/b.h").write_text("class Window {\n  void AwaitSlot();\n};\n",
                                                     encoding="utf-8")
            pathlib.Path(folder, "a/c.py").write_text("class Loader:\n    def next(self):\n",
                                                      encoding="utf-8")
            pathlib.Path(folder, "lmdbio/d.h").write_text("Window next max_bytes 1\n",
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
        self.expect("1. `a/b.h` `Window::AwaitSlot`", "1. `a/gone.h` `Window::AwaitSlot`",
                    "A record: there is no file a/gone.h")

    def test_a_symbol_without_a_file_is_found(self):
        self.expect("1. `a/b.h` `Window::AwaitSlot`", "1. `Window`, `a/b.h`",
                    "A record: `Window` stands before any file")

    def test_other_spans_are_found(self):
        self.expect("text.", "`a + b`.", "A gradient: `a + b` is neither a file nor a symbol")

    def test_too_many_files_are_found(self):
        many = " ".join(f"`a/f{number}.h`" for number in range(FILES_MAX))
        found = self.findings(self.PLAIN.replace("text.", many))
        self.assertEqual(found[-1], f"A gradient: {FILES_MAX + 2} files; a journey has at most "
                                    f"{FILES_MAX}")

    def test_a_missing_journey_is_found(self):
        self.expect("## A gradient", "### A gradient", "there is no section 'A gradient'")

    def test_a_recipe_may_have_many_files(self):
        self.assertEqual(self.findings(self.PLAIN.replace("step.", "`a/c.py` " * FILES_MAX)), [])

    def test_wrong_names_of_a_recipe_are_found(self):
        self.expect("`a/b.h` `Window`: step.", "`a/e.h` `Window`: step.",
                    "A recipe: there is no file a/e.h")
        self.expect("`a/b.h` `Window`: step.", "`a/b.h` `next`: step.",
                    "A recipe: a/b.h does not contain next")
        self.expect("`Window::next`", "`Window::last`",
                    "A recipe: no source contains `Window::last`")
        self.expect("max_bytes=1", "least_bytes=1", "A recipe: no source contains `least_bytes=1`")


if __name__ == "__main__":
    sys.exit(unittest.main())
