"""Tests the networks of bench/sync: published totals, and edges that a training step can follow.

The oracle is the published totals of each network (PUBLISHED in make_networks.py).
"""

import json
import math
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "sync"
sys.path.insert(0, str(FOLDER))

import make_networks  # noqa: E402
from make_networks import PUBLISHED, Network, Totals  # noqa: E402

class NetworksTest(unittest.TestCase):
    def setUp(self):
        self.networks = {path.stem: json.loads(path.read_text(encoding="utf-8"))
                         for path in (FOLDER / "networks").glob("*.json")}

    def test_totals_are_the_published_ones(self):
        self.assertEqual(set(self.networks), set(PUBLISHED))
        for name, published in PUBLISHED.items():
            net = self.networks[name]
            shapes = [shape for layer in net["layers"] for _, shape in layer["tensors"]]
            if published.tensors is not None:
                self.assertEqual(len(shapes), published.tensors, name)
            parameter_count = sum(map(math.prod, shapes))
            self.assertLessEqual(abs(parameter_count - published.parameters),
                                 published.parameters_within, name)
            self.assertEqual((net["tensor_count"], net["parameter_count"]),
                             (len(shapes), parameter_count))
            self.assertEqual(net["madds"], sum(layer["madds"] for layer in net["layers"]))
            if published.giga_madds is not None:
                self.assertLess(abs(net["madds"] / 1e9 / published.giga_madds - 1), 0.07, name)

    def test_other_totals_are_refused(self):
        net = Network("two", "made up", 8)
        net.linear("fc", net.image, 10)  # 3 x 8 x 8 values to 10: 1,930 parameters
        make_networks.check(net, Totals(2, 1930, None))
        make_networks.check(net, Totals(None, 1900, 1920e-9, 50))
        for published, told in ((Totals(3, 1930, None), "has 2 tensors; expected 3"),
                                (Totals(2, 1931, None), "has 1930 parameters; expected 1931"),
                                (Totals(2, 1900, None, 29), "has 1930 parameters; expected 1900"),
                                (Totals(2, 1930, 2100e-9), "multiply-adds")):
            with self.assertRaisesRegex(SystemExit, told):
                make_networks.check(net, published)

    def test_moving_averages_of_nasnet(self):
        """Keras counts 196,668 of them: two for each scale of a batch normalisation."""
        scales = [math.prod(shape) for layer in self.networks["nasnet_large"]["layers"]
                  for tensor, shape in layer["tensors"] if tensor.endswith("bn.weight")]
        self.assertEqual(2 * sum(scales), 196_668)

    def test_the_form_of_stemdl_is_the_published_one(self):
        """With 16 channels a layer and 11 classes it has the 9.4 M parameters of its paper, but for
        one percent."""
        original = make_networks.fc_densenet("original", "", 16, 11).totals()
        self.assertLess(abs(original.parameters / 9.4e6 - 1), 0.01)
        neighbours = [abs(make_networks.fc_densenet("near", "", growth, 1).totals().parameters
                          - 220e6) for growth in (77, 78, 79)]
        self.assertEqual(min(neighbours), neighbours[1])

    def test_layers_come_after_what_they_need(self):
        for name, net in self.networks.items():
            seen, needed = set(), set()
            for place, layer in enumerate(net["layers"]):
                self.assertNotIn(layer["name"], seen, name)
                self.assertLessEqual(set(layer["needs"]), seen, layer["name"])
                self.assertEqual(len(layer["needs"]) == 0, place == 0, layer["name"])
                seen.add(layer["name"])
                needed.update(layer["needs"])
            self.assertEqual(seen - needed, {net["layers"][-1]["name"]}, name)

    def test_names_of_tensors_are_unique(self):
        for name, net in self.networks.items():
            names = [tensor for layer in net["layers"] for tensor, _ in layer["tensors"]]
            self.assertEqual(len(names), len(set(names)), name)

    def test_residual_blocks_join(self):
        layers = {layer["name"]: layer for layer in self.networks["resnet50"]["layers"]}
        self.assertEqual(sum(len(layer["needs"]) == 2 for layer in layers.values()), 16)
        self.assertEqual(layers["conv2_1.sum"]["needs"], ["conv2_1.c.bn", "conv2_1.shortcut.bn"])
        self.assertEqual(layers["fc"]["tensors"],
                         [["fc.weight", [1000, 2048]], ["fc.bias", [1000]]])

    def test_files_are_what_the_generator_writes(self):
        result = subprocess.run([sys.executable, "-B", FOLDER / "make_networks.py", "--check"],
                                capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
