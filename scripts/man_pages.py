#!/usr/bin/env python3
"""Writes a man page for each call of the C API, from the comment before its declaration.

    scripts/man_pages.py --version VERSION OUT HEADER...

The comment at the top of each header, its options and its structs become a page with the name of
the header, as lmdbio(3). Only the headers describe the calls.
"""

import argparse
import pathlib
import re
import sys

_CALL = re.compile(r"/\*((?:(?!\*/).)*)\*/\s*LMDBIO_API\s+([^;]+);", re.DOTALL)
_NAME = re.compile(r"(lmdbio_\w+)\s*\(")
_CALLBACKS_AND_STRUCTS = re.compile(r"(?:/\*(?:(?!\*/).)*\*/\s*)?(?:typedef|enum)\s[^;{]*"
                                    r"(?:\{[^}]*\}[^;]*)?;", re.DOTALL)


def escape(text):
    """Text escaped for roff, line by line."""
    lines = []
    for line in text.splitlines():
        line = line.replace("\\", "\\e").replace("-", "\\-")
        lines.append("\\&" + line if line.startswith((".", "'")) else line)
    return "\n".join(lines)


def comment_text(comment):
    """The text of a comment, without stars."""
    lines = [re.sub(r"^\s*\* ?", "", line) for line in comment.strip().splitlines()]
    return "\n".join(line.rstrip() for line in lines).strip()


def page(name, version, summary, sections):
    parts = [f'.TH {name} 3 "" "lmdbio {version}" "lmdbio"', ".SH NAME",
             f"{name} \\- {escape(summary)}"]
    for title, text in sections:
        parts += [f".SH {title}", ".nf", escape(text), ".fi"]
    return "\n".join(parts) + "\n"


def summary_of(text):
    """The first sentence in one line."""
    return re.split(r"[.:](?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def calls_of(path):
    """(name, declaration, comment) of each call in a header."""
    for comment, declaration in _CALL.findall(path.read_text(encoding="utf-8")):
        yield _NAME.search(declaration)[1], " ".join(declaration.split()), comment_text(comment)


def overview(header):
    """(summary, sections) of the page of a whole header."""
    text = header.read_text(encoding="utf-8")
    first = comment_text(text[text.index("/*") + 2:text.index("*/")])
    summary = summary_of(first.removeprefix(f"{header.name} - "))
    types = [found[0] for found in _CALLBACKS_AND_STRUCTS.finditer(text)]
    sections = [("SYNOPSIS", f"#include <{header.name}>"), ("DESCRIPTION", first)]
    return summary, sections + ([("TYPES", "\n\n".join(types))] if types else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("headers", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = {header: [] for header in arguments.headers}

    def write(name, summary, sections):
        (arguments.out / f"{name}.3").write_text(
            page(name, arguments.version, summary, sections), encoding="utf-8")

    for header in arguments.headers:
        for name, declaration, text in calls_of(header):
            names[header].append(name)
            write(name, summary_of(text), [
                ("SYNOPSIS", f"#include <{header.name}>\n\n{declaration};"),
                ("DESCRIPTION", text), ("SEE ALSO", f"{header.stem}(3)")])
    for header in arguments.headers:
        summary, sections = overview(header)
        others = [other.stem for other in arguments.headers if other != header]
        see_also = ", ".join(f"{name}(3)" for name in names[header] + others)
        write(header.stem, summary, [*sections, ("SEE ALSO", see_also)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
