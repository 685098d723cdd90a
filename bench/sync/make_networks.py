#!/usr/bin/env python3
"""Writes the gradient tensors of published networks to bench/sync/networks/NAME.json.

    bench/sync/make_networks.py [--check] [--folder FOLDER]

The architectures are spelled out from the papers; what comes out is, for each layer in forward
order, its tensors with their shapes, the layers that it needs, and its multiply-adds for one image.
A layer without tensors (pooling, addition, joining) is there for the edges. --check writes nothing
and fails if a file is not what would be written.
"""

import argparse
import json
import math
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "networks"


class Network:
    """Layers of one network. A value is (layer, channels, height, width)."""

    def __init__(self, name, source, image_size):
        self.name, self.source, self.image_size = name, source, image_size
        self.layers = []
        self.image = (None, 3, image_size, image_size)

    def add(self, name, inputs, madds, tensors=()):
        self.layers.append(dict(name=name, needs=[i[0] for i in inputs if i[0] is not None],
                                madds=int(madds),
                                tensors=[[f"{name}.{part}", list(shape)]
                                         for part, shape in tensors]))
        return name

    def convolution(self, name, value, out, kernel, stride=1, padding=0, groups=1, bias=False):
        kernel_h, kernel_w = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding_h, padding_w = padding if isinstance(padding, tuple) else (padding, padding)
        _, channels, height, width = value
        height = (height + 2 * padding_h - kernel_h) // stride + 1
        width = (width + 2 * padding_w - kernel_w) // stride + 1
        shape = (out, channels // groups, kernel_h, kernel_w)
        tensors = [("weight", shape)] + ([("bias", (out,))] if bias else [])
        self.add(name, [value], math.prod(shape) * height * width, tensors)
        return name, out, height, width

    def batch_norm(self, name, value):
        _, channels, height, width = value
        self.add(name, [value], 2 * channels * height * width,
                 [("weight", (channels,)), ("bias", (channels,))])
        return name, channels, height, width

    def conv_bn(self, name, value, *shape, **options):
        value = self.convolution(f"{name}.conv", value, *shape, **options)
        return self.batch_norm(f"{name}.bn", value)

    def pool(self, name, value, kernel, stride, padding=0, is_ceiled=False):
        _, channels, height, width = value
        divide = (lambda a: -(-a // stride)) if is_ceiled else (lambda a: a // stride)
        height = divide(height + 2 * padding - kernel) + 1
        width = divide(width + 2 * padding - kernel) + 1
        self.add(name, [value], channels * height * width * kernel * kernel)
        return name, channels, height, width

    def global_pool(self, name, value):
        _, channels, height, width = value
        self.add(name, [value], channels * height * width)
        return name, channels, 1, 1

    def linear(self, name, value, out):
        count = math.prod(value[1:])
        self.add(name, [value], out * count, [("weight", (out, count)), ("bias", (out,))])
        return name, out, 1, 1

    def sum(self, name, one, other):
        assert one[1:] == other[1:], (name, one, other)
        self.add(name, [one, other], math.prod(one[1:]))
        return (name, *one[1:])

    def product(self, name, value, gate):
        assert value[1] == gate[1], (name, value, gate)
        self.add(name, [value, gate], math.prod(value[1:]))
        return (name, *value[1:])

    def join(self, name, *values):
        assert len({value[2:] for value in values}) == 1, (name, values)
        self.add(name, values, 0)
        return name, sum(value[1] for value in values), *values[0][2:]

    def to_text(self):
        tensors = [shape for layer in self.layers for _, shape in layer["tensors"]]
        head = dict(name=self.name, source=self.source, image_size=self.image_size,
                    tensor_count=len(tensors), parameter_count=sum(map(math.prod, tensors)),
                    madds=sum(layer["madds"] for layer in self.layers))
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        layers = ",\n".join("  " + json.dumps(layer) for layer in self.layers)
        return "{\n" + "\n".join(lines) + "\n \"layers\": [\n" + layers + "\n ]\n}\n"


def resnet50():
    net = Network("resnet50", "He et al., Deep Residual Learning, 2015, table 1; stride in the 3x3 "
                  "convolution (torchvision's resnet50 has the same shapes)", 224)
    value = net.conv_bn("conv1", net.image, 64, 7, stride=2, padding=3)
    value = net.pool("pool1", value, 3, 2, 1)
    for stage, (width, count) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 2):
        for block in range(count):
            name, stride = f"conv{stage}_{block + 1}", 2 if block == 0 and stage > 2 else 1
            branch = net.conv_bn(f"{name}.a", value, width, 1)
            branch = net.conv_bn(f"{name}.b", branch, width, 3, stride=stride, padding=1)
            branch = net.conv_bn(f"{name}.c", branch, 4 * width, 1)
            if block == 0:
                value = net.conv_bn(f"{name}.shortcut", value, 4 * width, 1, stride=stride)
            value = net.sum(f"{name}.sum", branch, value)
    net.linear("fc", net.global_pool("pool5", value), 1000)
    return net


def vgg16():
    net = Network("vgg16", "Simonyan, Zisserman, Very Deep Convolutional Networks, 2014, table 1, "
                  "configuration D", 224)
    value = net.image
    for stage, (width, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for block in range(count):
            value = net.convolution(f"conv{stage}_{block + 1}", value, width, 3, padding=1,
                                    bias=True)
        value = net.pool(f"pool{stage}", value, 2, 2)
    for number, width in ((6, 4096), (7, 4096), (8, 1000)):
        value = net.linear(f"fc{number}", value, width)
    return net


def alexnet():
    net = Network("alexnet", "Krizhevsky, One weird trick, 2014: one tower, 64 to 256 channels "
                  "(torchvision's alexnet has the same shapes). The network of two towers of 2012 "
                  "has 60,965,224 parameters, and 62,378,344 without its groups", 224)
    value = net.convolution("conv1", net.image, 64, 11, stride=4, padding=2, bias=True)
    value = net.pool("pool1", value, 3, 2)
    value = net.convolution("conv2", value, 192, 5, padding=2, bias=True)
    value = net.pool("pool2", value, 3, 2)
    for number, width in ((3, 384), (4, 256), (5, 256)):
        value = net.convolution(f"conv{number}", value, width, 3, padding=1, bias=True)
    value = net.pool("pool5", value, 3, 2)
    for number, width in ((6, 4096), (7, 4096), (8, 1000)):
        value = net.linear(f"fc{number}", value, width)
    return net


INCEPTION_MODULES = (
    # name, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection; "pool": a pool of stride 2
    ("3a", 64, 96, 128, 16, 32, 32), ("3b", 128, 128, 192, 32, 96, 64), "pool3",
    ("4a", 192, 96, 208, 16, 48, 64), ("4b", 160, 112, 224, 24, 64, 64),
    ("4c", 128, 128, 256, 24, 64, 64), ("4d", 112, 144, 288, 32, 64, 64),
    ("4e", 256, 160, 320, 32, 128, 128), "pool4",
    ("5a", 256, 160, 320, 32, 128, 128), ("5b", 384, 192, 384, 48, 128, 128))


def googlenet():
    net = Network("googlenet", "Szegedy et al., Going Deeper with Convolutions, 2014, table 1: "
                  "with biases, without batch normalisation, without the auxiliary classifiers "
                  "(the shapes of Caffe's bvlc_googlenet)", 224)

    def conv(name, value, out, kernel, **options):
        return net.convolution(name, value, out, kernel, bias=True, **options)

    value = conv("conv1", net.image, 64, 7, stride=2, padding=3)
    value = net.pool("pool1", value, 3, 2, is_ceiled=True)
    value = conv("conv2.reduce", value, 64, 1)
    value = conv("conv2", value, 192, 3, padding=1)
    value = net.pool("pool2", value, 3, 2, is_ceiled=True)
    for module in INCEPTION_MODULES:
        if isinstance(module, str):
            value = net.pool(module, value, 3, 2, is_ceiled=True)
            continue
        name, one, reduce_three, three, reduce_five, five, projection = module
        name = f"inception_{name}"
        first = conv(f"{name}.1x1", value, one, 1)
        second = conv(f"{name}.3x3_reduce", value, reduce_three, 1)
        second = conv(f"{name}.3x3", second, three, 3, padding=1)
        third = conv(f"{name}.5x5_reduce", value, reduce_five, 1)
        third = conv(f"{name}.5x5", third, five, 5, padding=2)
        fourth = net.pool(f"{name}.pool", value, 3, 1, 1)
        fourth = conv(f"{name}.projection", fourth, projection, 1)
        value = net.join(f"{name}.join", first, second, third, fourth)
    net.linear("fc", net.global_pool("pool5", value), 1000)
    return net


def inception_v3():
    net = Network("inception_v3", "Szegedy et al., Rethinking the Inception Architecture, 2015, "
                  "table 1, figures 5 to 7, 10: batch normalisation with scale and shift in each "
                  "convolution, without the auxiliary classifier (the shapes of torchvision's "
                  "inception_v3 without AuxLogits)", 299)
    conv = net.conv_bn

    def branches(name, value, *chains):
        """Each chain is a list of (width, kernel, stride, padding)."""
        ends = []
        for letter, chain in zip("abcd", chains):
            end = value
            for number, (width, kernel, stride, padding) in enumerate(chain, 1):
                end = conv(f"{name}.{letter}{number}", end, width, kernel, stride=stride,
                           padding=padding)
            ends.append(end)
        return ends

    def projection(name, value, width):
        return conv(f"{name}.projection", net.pool(f"{name}.pool", value, 3, 1, 1), width, 1)

    value = conv("stem1", net.image, 32, 3, stride=2)
    value = conv("stem2", value, 32, 3)
    value = conv("stem3", value, 64, 3, padding=1)
    value = net.pool("stem.pool1", value, 3, 2)
    value = conv("stem4", value, 80, 1)
    value = conv("stem5", value, 192, 3)
    value = net.pool("stem.pool2", value, 3, 2)
    for number, width in enumerate((32, 64, 64), 1):
        name = f"mixed5_{number}"
        ends = branches(name, value, [(64, 1, 1, 0)], [(48, 1, 1, 0), (64, 5, 1, 2)],
                        [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 1, 1)])
        value = net.join(f"{name}.join", *ends, projection(name, value, width))
    ends = branches("mixed6_0", value, [(384, 3, 2, 0)],
                    [(64, 1, 1, 0), (96, 3, 1, 1), (96, 3, 2, 0)])
    value = net.join("mixed6_0.join", *ends, net.pool("mixed6_0.pool", value, 3, 2))
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    for number, width in enumerate((128, 160, 160, 192), 1):
        name = f"mixed6_{number}"
        ends = branches(name, value, [(192, 1, 1, 0)],
                        [(width, 1, 1, 0), (width, *row), (192, *column)],
                        [(width, 1, 1, 0), (width, *column), (width, *row), (width, *column),
                         (192, *row)])
        value = net.join(f"{name}.join", *ends, projection(name, value, 192))
    ends = branches("mixed7_0", value, [(192, 1, 1, 0), (320, 3, 2, 0)],
                    [(192, 1, 1, 0), (192, *row), (192, *column), (192, 3, 2, 0)])
    value = net.join("mixed7_0.join", *ends, net.pool("mixed7_0.pool", value, 3, 2))
    for number in (1, 2):
        name = f"mixed7_{number}"
        first, second, third = branches(name, value, [(320, 1, 1, 0)], [(384, 1, 1, 0)],
                                        [(448, 1, 1, 0), (384, 3, 1, 1)])
        split = [conv(f"{name}.{part}", end, 384, kernel, padding=padding)
                 for end, letter in ((second, "b"), (third, "c"))
                 for part, kernel, padding in ((f"{letter}_row", (1, 3), (0, 1)),
                                               (f"{letter}_column", (3, 1), (1, 0)))]
        value = net.join(f"{name}.join", first, *split, projection(name, value, 192))
    net.linear("fc", net.global_pool("pool", value), 1000)
    return net


MOBILE_STAGES = (
    # expansion, channels, blocks, stride, kernel
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))


def efficientnet_b0():
    net = Network("efficientnet_b0", "Tan, Le, EfficientNet, 2019, table 1; squeeze-and-excitation "
                  "to a quarter of a block's input channels", 224)
    value = net.conv_bn("stem", net.image, 32, 3, stride=2, padding=1)
    for stage, (expansion, out, count, stage_stride, kernel) in enumerate(MOBILE_STAGES, 1):
        for block in range(count):
            name, stride = f"stage{stage}_{block + 1}", stage_stride if block == 0 else 1
            before, channels = value, value[1]
            if expansion > 1:
                value = net.conv_bn(f"{name}.expand", value, channels * expansion, 1)
            wide = value[1]
            value = net.conv_bn(f"{name}.depthwise", value, wide, kernel, stride=stride,
                                padding=kernel // 2, groups=wide)
            gate = net.global_pool(f"{name}.squeeze", value)
            gate = net.convolution(f"{name}.reduce", gate, channels // 4, 1, bias=True)
            gate = net.convolution(f"{name}.excite", gate, wide, 1, bias=True)
            value = net.product(f"{name}.scale", value, gate)
            value = net.conv_bn(f"{name}.project", value, out, 1)
            if value[1:] == before[1:]:
                value = net.sum(f"{name}.sum", value, before)
    value = net.conv_bn("head", value, 1280, 1)
    net.linear("fc", net.global_pool("pool", value), 1000)
    return net


NETWORKS = (alexnet, efficientnet_b0, googlenet, inception_v3, resnet50, vgg16)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    options = parser.parse_args()
    for make in NETWORKS:
        net = make()
        path, text = options.folder / f"{net.name}.json", net.to_text()
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"make_networks.py: {path} differs from the architecture; "
                     "run make_networks.py without --check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
