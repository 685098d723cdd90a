"""Tests the networks of bench/sync: published totals, and edges that a training step can follow.

The oracle is the published totals of each network, from papers and common implementations. The
generator computes them from the layers.
"""

import json
import math
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "sync"

# Parameters: torchvision 0.14's documentation of each model's weights (num_params), Inception-v3
# without its auxiliary classifier; GoogLeNet as Caffe's bvlc_googlenet without its auxiliary
# classifiers. Multiply-adds in thousand millions: the same documentation (GFLOPS); GoogLeNet: 1.5
# in its paper. Tensors: counted in the tables of the papers.
PUBLISHED = {
    "alexnet": (16, 61_100_840, 0.71),
    "efficientnet_b0": (213, 5_288_548, 0.39),
    "googlenet": (116, 6_998_552, 1.5),
    "inception_v3": (284, 23_834_568, 5.71),
    "resnet50": (161, 25_557_032, 4.09),
    "vgg16": (32, 138_357_544, 15.47),
}


class NetworksTest(unittest.TestCase):
    def setUp(self):
        self.networks = {path.stem: json.loads(path.read_text(encoding="utf-8"))
                         for path in (FOLDER / "networks").glob("*.json")}

    def test_totals_are_the_published_ones(self):
        self.assertEqual(set(self.networks), set(PUBLISHED))
        for name, (tensor_count, parameter_count, giga_madds) in PUBLISHED.items():
            net = self.networks[name]
            shapes = [shape for layer in net["layers"] for _, shape in layer["tensors"]]
            self.assertEqual(len(shapes), tensor_count, name)
            self.assertEqual(sum(map(math.prod, shapes)), parameter_count, name)
            self.assertEqual((net["tensor_count"], net["parameter_count"]),
                             (tensor_count, parameter_count))
            self.assertEqual(net["madds"], sum(layer["madds"] for layer in net["layers"]))
            self.assertLess(abs(net["madds"] / 1e9 / giga_madds - 1), 0.07, name)

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
