"""Tests scripts/plot_readme.py with an invented file: every bar, error bar and word of the picture
comes from the file, and an incomplete file gives one line.

The oracle reads the SVG as text and the heights of the bars from the paths. Exits with 77 without
matplotlib.
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "plot_readme.py"
SKIPPED = 77
COLOURS = {"py-lmdb": "#9aa5b1", "DataLoader": "#e0a458", "lmdbio": "#2a6f97"}
RATES = {"py-lmdb": 1000.0, "DataLoader, 0 workers": 250.0, "DataLoader, 2 workers": 500.0,
         "lmdbio auto, 1 rank": 9000.0, "lmdbio.torch, 0 workers": 4000.0,
         "lmdbio.torch, 2 workers": 2000.0}


def comparison(scale, **setting):
    """A comparison as compare.py writes it. Shuffled reading has half the rate and a wider spread,
    so bars of the minimum or maximum would have other heights."""
    rows = [{"order": order, "reader": reader, "runs": 3, "records_per_s": rate * scale * part,
             "records_per_s_min": rate * scale * (part - 0.1),
             "records_per_s_max": rate * scale * (part + 0.1),
             "bytes_per_s": rate * scale * part * 100, "first_batch_s": 0.1, "checksums": []}
            for order, part in (("sequential", 1), ("shuffled", 0.5), ("block", 0.7))
            for reader, rate in RATES.items() if order != "block" or reader.startswith("lmdbio")]
    return {"setting": {"date": "2001-02-03", "commit": "abc1234", "cores": 7, "memory_gib": 5.0,
                        "command": "bench/peers/compare.py PATH", "records": 1234,
                        "batch_size": 32, "repeat": 3, "kernel": "9.9", "torch": "1.2",
                        "py-lmdb": "3.4"} | setting,
            "summary": rows, "runs": [], "lmdbio": None}


CONDITIONS = {"cold, local": comparison(1), "cold, remote": comparison(0.01, date="2001-02-04"),
              "warm": comparison(1000, command="bench/peers/compare.py PATH --warm-word")}


def bars_of(svg):
    """The heights of the bars, by colour, in the order of the picture."""
    heights = {}
    for path in svg.iter("{http://www.w3.org/2000/svg}path"):
        style = path.get("style", "")
        colour = re.match(r"fill: (#[0-9a-f]{6})", style)
        if not colour or colour[1] not in COLOURS.values() or path.get("clip-path") is None:
            continue
        ys = [float(y) for _, y in re.findall(r"([-\d.]+) ([-\d.]+)", path.get("d"))]
        heights.setdefault(colour[1], []).append(max(ys) - min(ys))
    return heights


class PlotTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def plot(self, content):
        (self.folder / "peers.json").write_text(
            content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-B", SCRIPT, self.folder / "peers.json"], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=120)

    def picture(self):
        result = self.plot({"conditions": CONDITIONS})
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return (self.folder / "peers.svg").read_text(encoding="utf-8")

    def test_bars_have_the_heights_of_the_file(self):
        heights = bars_of(xml.etree.ElementTree.fromstring(self.picture()))
        for condition in range(3):  # six bars each: in order, shuffled
            panel = {name: heights[colour][2 * condition:2 * condition + 2]
                     for name, colour in COLOURS.items()}
            unit = panel["py-lmdb"][0]
            for name, ratio in (("py-lmdb", 1.0), ("DataLoader", 0.5), ("lmdbio", 4.0)):
                self.assertAlmostEqual(panel[name][0] / unit, ratio, places=3)
                self.assertAlmostEqual(panel[name][1] / unit, ratio / 2, places=3)

    def test_labels_and_caption_name_the_numbers(self):
        texts = "\n".join(text.text or "" for text in xml.etree.ElementTree.fromstring(
            self.picture()).iter("{http://www.w3.org/2000/svg}text"))
        for word in ("cold, local", "cold, remote", "warm", "in order", "shuffled", "py-lmdb",
                     "1k", "500", "4k", "2k", "10", "4M", "1,234 records of about 100 B",
                     "cold, local: 2001-02-03", "2001-02-04", "7 cores", "abc1234",
                     "--warm-word"):
            self.assertIn(word, texts)
        self.assertNotIn("9k", texts)  # lmdbio-bench is not drawn

    def test_the_same_file_gives_the_same_picture(self):
        self.assertEqual(self.picture(), self.picture())

    def test_what_is_missing_gives_one_line_and_no_picture(self):
        without = copy.deepcopy(CONDITIONS)
        rows = without["warm"]["summary"]
        without["warm"]["summary"] = [row for row in rows if "torch" not in row["reader"]]
        no_date = copy.deepcopy(CONDITIONS)
        del no_date["warm"]["setting"]["date"]
        for content, words in (({"conditions": without}, "condition 'warm' has no run of lmdbio"),
                               ({"conditions": no_date}, "lacks 'date'"),
                               ({"conditions": {}}, "holds no condition"),
                               ({"summary": []}, "is not a file of conditions"),
                               ("{", "is not a file")):
            result = self.plot(content)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"\Aplot_readme.py: [^\n]+\n\Z")
            self.assertIn(words, result.stderr)
            self.assertFalse((self.folder / "peers.svg").exists())


def main():
    # The script runs with the interpreter and modules of the system.
    probe = subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True,
                           check=False)
    if probe.returncode != 0:
        print(f"plot_readme_test: skipped: {sys.executable} has no module matplotlib")
        return SKIPPED
    return 0 if unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
