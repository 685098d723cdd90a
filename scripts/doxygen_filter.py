#!/usr/bin/env python3
"""Prints a header with its comments as Doxygen reads them; the INPUT_FILTER of Doxyfile.in.

    doxygen_filter.py HEADER

The headers have plain comments whose columns matter: parameters, error codes and units stand in
tables. So the filter hands each comment over as preformatted text, with its first sentence as the
summary. A comment belongs to the declaration after it, and a comment behind code to that code.
Comments inside of function bodies stay as they are. The filter adds one line at the top and no
other, so Doxygen's messages name lines that are one too large.
"""

import re
import sys

_BLOCK = re.compile(r"(?m)^(?P<indent>[ \t]*)(?:(?P<cpp>//[^\n]*(?:\n[ \t]*//[^\n]*)*)"
                    r"|(?P<c>/\*(?:(?!\*/).)*\*/)[ \t]*$)", re.DOTALL)
_TRAILING = re.compile(r"(?m)(?P<code>[;,{}][ \t]*)(?P<mark>//|/\*)[ \t]*(?P<text>[^\n]*)$")
_SPECIAL = re.compile(r"([@\\<>#%\"$&])")  # that Doxygen takes for a command, a tag or a link
_BODY_INDENT = 4  # columns; deeper comments stand in function bodies or in private types


def plain(comment):
    """The lines of a comment without its marks."""
    if comment.startswith("/*"):
        lines = comment[2:-2].splitlines()
        return [re.sub(r"^\s*\* ?", "", line).rstrip() for line in lines]
    return [re.sub(r"^\s*// ?", "", line).rstrip() for line in comment.splitlines()]


def summary_of(text):
    """The first sentence of a text, in one line."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0].rstrip(":")


def rewrite_block(match, is_first):
    lines = plain(match["cpp"] or match["c"])
    if len(match["indent"]) >= _BODY_INDENT or lines[0].strip().startswith("---"):
        return match[0]
    text = "\n".join(lines).strip().replace("*/", "* /")
    summary = summary_of(text)
    opening = match["indent"] + ("/** @file\n" if is_first else "/** ")
    brief = "@brief " + _SPECIAL.sub(r"\\\1", summary)
    line_count = match[0].count("\n")
    if " ".join(text.split()) == summary:
        return opening + brief + " " + "\n" * line_count + "*/"
    rest = "\n" * (line_count - text.count("\n"))
    return f"{opening}{brief}  @verbatim {text} @endverbatim {rest}*/"


def rewrite_trailing(match):
    opening = "/**<" if match["mark"] == "/*" else "///<"
    return match["code"] + opening + " " + _SPECIAL.sub(r"\\\1", match["text"])


def rewrite(text):
    first = True
    parts, end = [], 0
    for match in _BLOCK.finditer(text):
        parts.append(_TRAILING.sub(rewrite_trailing, text[end:match.start()]))
        parts.append(rewrite_block(match, first))
        first, end = False, match.end()
    parts.append(_TRAILING.sub(rewrite_trailing, text[end:]))
    return "".join(parts)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(rewrite(header.read()))
