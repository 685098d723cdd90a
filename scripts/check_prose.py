#!/usr/bin/env python3
"""Measures the prose of the documents: words per sentence, and columns per line.

    scripts/check_prose.py [--root DIRECTORY] [PAGE...]

Without pages it reads README.md, CONTRIBUTING.md and every lmdbio/**/*.md. For each page it prints
the mean number of words per sentence and the longest sentence. It fails if the mean of a page is
above 18 words, or if a line outside tables and code has more than 110 columns.

Code blocks, headings, pictures, HTML tags and the targets of links are not prose. A span of code
counts as one word. A cell of a table is prose if it has six words or more; a shorter cell is a
label. Every item of a list, every such cell and every paragraph ends a sentence.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

WORDS_MEAN_MAX = 18
LINE_COLUMNS_MAX = 110
CELL_WORDS_MIN = 6      # a shorter cell of a table is a label
SENTENCE_WORDS_MIN = 3  # a shorter fragment is not a sentence
PAGES = ("README.md", "CONTRIBUTING.md")

_FENCE = re.compile(r"\s*(?:```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_ENDS = re.compile(r"(?<!\b[A-Z])[.!?][\"')\]*_]*\s+(?=\S)")
_REPLACED = (
    (re.compile(r"``[^`]+``|`[^`]*`"), "CODE"),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"<[a-z/!][^>]*>"), " "),
    (re.compile(r"https?://\S+"), "LINK"),
)


@dataclasses.dataclass
class Page:
    path: str
    sentences: list  # strings, in order
    long_lines: list  # numbers of lines that are too long

    def words_mean(self):
        if not self.sentences:
            return 0.0
        return sum(map(word_count, self.sentences)) / len(self.sentences)

    def longest(self):
        return max(self.sentences, key=word_count, default="")

    def is_plain(self):
        return self.words_mean() <= WORDS_MEAN_MAX and not self.long_lines


def word_count(text):
    """A word contains a letter or a digit; a dash or an operator is not a word."""
    return sum(any(one.isalnum() for one in word) for word in text.split())


def strip_markup(text):
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def sentences_of(block):
    """The sentences of one paragraph, item or cell."""
    text = strip_markup(" ".join(block.split()))
    found = [part.strip() for part in _ENDS.split(text)]
    return [part for part in found if word_count(part) >= SENTENCE_WORDS_MIN]


def is_table(line):
    return line.lstrip().startswith("|")


def cells_of(line):
    """The prose cells of a table row."""
    text = re.sub(r"`[^`]*`", "CODE", line.replace("\\|", " "))
    return [cell for cell in text.strip().strip("|").split("|")
            if word_count(strip_markup(cell)) >= CELL_WORDS_MIN]


def blocks_of(text):
    """Paragraphs, items and cells with prose, and the numbers of the lines outside tables and
    code."""
    blocks, paragraph, prose_lines = [], [], []
    in_fence, in_list = False, False

    def close():
        if paragraph:
            blocks.append(" ".join(paragraph))
            paragraph.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            in_fence = not in_fence
            close()
        elif in_fence or (line.startswith("    ") and not paragraph and not in_list):
            close()
        elif is_table(line):
            close()
            blocks += cells_of(line)
        else:
            prose_lines.append(number)
            if line.startswith("#") or not line.strip():
                close()
                in_list = in_list and not line.startswith("#")
            elif _ITEM.match(line):
                close()
                in_list = True
                paragraph.append(_ITEM.sub("", line, count=1))
            else:
                in_list = in_list and line.startswith(" ")
                paragraph.append(line)
    close()
    return blocks, prose_lines


def read_page(path, text):
    blocks, prose_lines = blocks_of(text)
    lines = text.splitlines()
    return Page(path, [sentence for block in blocks for sentence in sentences_of(block)],
                [number for number in prose_lines if len(lines[number - 1]) > LINE_COLUMNS_MAX])


def pages_of(root):
    named = [root / name for name in PAGES]
    return [path for path in named if path.is_file()] + sorted(root.glob("lmdbio/**/*.md"))


def report(page):
    yield (f"{page.path}: {page.words_mean():.1f} words per sentence in {len(page.sentences)} "
           f"sentences; the longest has {word_count(page.longest())}: {page.longest()[:160]}")
    if page.words_mean() > WORDS_MEAN_MAX:
        yield (f"{page.path}: the mean is above {WORDS_MEAN_MAX} words; cut the longest sentences "
               "in two")
    for number in page.long_lines:
        yield f"{page.path}:{number}: more than {LINE_COLUMNS_MAX} columns; wrap the line"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("pages", metavar="PAGE", nargs="*", type=pathlib.Path)
    options = parser.parse_args(words)
    is_plain = True
    for path in options.pages or pages_of(options.root):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as failure:
            print(f"check_prose: {path}: {failure}", file=sys.stderr)
            return 2
        inside = path.is_relative_to(options.root)
        page = read_page(str(path.relative_to(options.root)) if inside else str(path), text)
        is_plain = is_plain and page.is_plain()
        print("\n".join(report(page)))
    return 0 if is_plain else 1


if __name__ == "__main__":
    sys.exit(main())
