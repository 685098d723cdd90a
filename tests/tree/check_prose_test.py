"""Tests scripts/check_prose.py: text that counts as prose, ends of sentences, and the limits."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_prose  # noqa: E402


def words_of(count):
    return " ".join(["word"] * count)


class SentenceTest(unittest.TestCase):
    def expect(self, text, *counts):
        """Checks that the sentences of `text` have these numbers of words."""
        page = check_prose.read_page("page.md", text)
        self.assertEqual([check_prose.word_count(one) for one in page.sentences], list(counts))

    def test_a_full_stop_ends_a_sentence(self):
        self.expect("One two three. Four five six seven!\nDoes it end here? It does end.\n",
                    3, 4, 4, 3)

    def test_decimals_and_initials_end_none(self):
        self.expect("It takes 1.5 ms in the work of S. Pumma.\n", 10)

    def test_colons_and_semicolons_end_none(self):
        self.expect("One two: three four; five six.\n", 6)

    def test_paragraphs_and_items_end_sentences(self):
        self.expect("One two three\n\nfour five six\n- seven eight nine\n  ten eleven\n"
                    "1. twelve thirteen fourteen\n", 3, 3, 5, 3)

    def test_headings_and_code_are_no_prose(self):
        self.expect("# A heading of five words\n\n```\none two three four\n```\n\n"
                    "    five six seven eight\n\nnine ten eleven\n", 3)

    def test_a_link_counts_as_its_words_and_code_as_one(self):
        self.expect("See [the other page](a/b.md#c) for `a span of code`.\n"
                    "![A picture that nobody reads](a.svg)\n", 6)

    def test_long_cells_are_prose_and_short_ones_are_labels(self):
        self.expect("| name | what it does |\n|---|---|\n"
                    "| `a \\| b` | It reads all pages of the file. Then it stops at once. |\n",
                    7, 5)

    def test_fragments_are_no_sentences(self):
        self.expect("- one\n- two words\n- three words here\n", 3)


class PageTest(unittest.TestCase):
    def run_on(self, pages, *named):
        """(exit status, output) for a tree with these pages."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in pages.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                status = check_prose.main(["--root", folder, *[str(root / one) for one in named]])
            return status, output.getvalue()

    def test_a_mean_of_18_words_passes_and_more_does_not(self):
        plain = f"{words_of(15)}.\n\n{words_of(21)}.\n"
        self.assertEqual(self.run_on({"README.md": plain})[0], 0)
        status, output = self.run_on({"README.md": plain.replace("word.", "word word.")})
        self.assertEqual(status, 1)
        self.assertIn("README.md: the mean is above 18 words", output)

    def test_prints_mean_and_longest_sentence(self):
        _, output = self.run_on({"README.md": "One two three. Four five six seven eight.\n"})
        self.assertEqual(output, "README.md: 4.0 words per sentence in 2 sentences; the longest "
                                 "has 5: Four five six seven eight.\n")

    def test_long_lines_are_refused_outside_tables_and_code(self):
        cell = "| " + "x" * 120 + " |\n"
        code = "```\n" + "x" * 120 + "\n```\n\n    " + "x" * 120 + "\n"
        self.assertEqual(self.run_on({"README.md": cell + code})[0], 0)
        self.assertEqual(self.run_on({"README.md": "x" * 110 + "\n"})[0], 0)
        status, output = self.run_on({"README.md": "\n" + "x" * 111 + "\n"})
        self.assertEqual(status, 1)
        self.assertIn("README.md:2: more than 110 columns", output)

    def test_reads_all_documents_of_the_tree(self):
        names = ("CONTRIBUTING.md", "README.md", "lmdbio/a/README.md", "lmdbio/docs/b/c.md")
        _, output = self.run_on({name: "One two three.\n" for name in (*names, "bench/d.md")})
        self.assertEqual(sorted(line.split(":")[0] for line in output.splitlines()), list(names))

    def test_reads_only_the_pages_that_are_named(self):
        pages = {"README.md": words_of(30) + "\n", "lmdbio/a.md": "One two three.\n"}
        self.assertEqual(self.run_on(pages, "lmdbio/a.md")[0], 0)
        self.assertEqual(self.run_on(pages, "lmdbio/b.md")[0], 2)

    def test_a_page_without_prose_passes(self):
        self.assertEqual(self.run_on({"README.md": "# Title\n"})[0], 0)


if __name__ == "__main__":
    unittest.main()
