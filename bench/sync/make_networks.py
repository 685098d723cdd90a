#!/usr/bin/env python3
"""Writes the gradient tensors of published networks to bench/sync/networks/NAME.json.

    bench/sync/make_networks.py [--check] [--folder FOLDER]

The architectures are spelled out from the papers; what comes out is, for each layer in forward
order, its tensors with their shapes, the layers that it needs, and its multiply-adds for one image.
A layer without tensors (pooling, addition, joining) is there for the edges. A network whose totals
are not the published ones is refused. --check writes nothing and fails if a file is not what would
be written.
"""

import argparse
import json
import math
import pathlib
import sys
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parent / "networks"


class Totals(NamedTuple):
    """Published totals of a network, for one image. None: not published."""
    tensors: int | None
    parameters: float
    giga_madds: float | None  # thousand millions of multiply-adds
    parameters_within: float = 0  # half of the last published digit


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

    def batch_norm(self, name, value, has_scale=True):
        _, channels, height, width = value
        parts = ["weight", "bias"] if has_scale else ["bias"]
        self.add(name, [value], 2 * channels * height * width,
                 [(part, (channels,)) for part in parts])
        return name, channels, height, width

    def conv_bn(self, name, value, *shape, **options):
        value = self.convolution(f"{name}.conv", value, *shape, **options)
        return self.batch_norm(f"{name}.bn", value)

    def transposed_convolution(self, name, value, out, kernel, stride):
        """`stride` times the height and the width."""
        _, channels, height, width = value
        shape = (channels, out, kernel, kernel)
        self.add(name, [value], math.prod(shape) * height * width,
                 [("weight", shape), ("bias", (out,))])
        return name, out, height * stride, width * stride

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

    def totals(self):
        tensors = [shape for layer in self.layers for _, shape in layer["tensors"]]
        return Totals(len(tensors), sum(map(math.prod, tensors)),
                      sum(layer["madds"] for layer in self.layers) / 1e9)

    def to_text(self):
        totals = self.totals()
        head = dict(name=self.name, source=self.source, image_size=self.image_size,
                    tensor_count=totals.tensors, parameter_count=totals.parameters,
                    madds=sum(layer["madds"] for layer in self.layers))
        lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        layers = ",\n".join("  " + json.dumps(layer) for layer in self.layers)
        return "{\n" + "\n".join(lines) + "\n \"layers\": [\n" + layers + "\n ]\n}\n"


def resnet(name, source, block_counts, has_bottlenecks):
    net = Network(name, source, 224)
    value = net.conv_bn("conv1", net.image, 64, 7, stride=2, padding=3)
    value = net.pool("pool1", value, 3, 2, 1)
    for stage, (width, count) in enumerate(zip((64, 128, 256, 512), block_counts), 2):
        for block in range(count):
            name, stride = f"conv{stage}_{block + 1}", 2 if block == 0 and stage > 2 else 1
            if has_bottlenecks:
                branch = net.conv_bn(f"{name}.a", value, width, 1)
                branch = net.conv_bn(f"{name}.b", branch, width, 3, stride=stride, padding=1)
                branch = net.conv_bn(f"{name}.c", branch, 4 * width, 1)
            else:
                branch = net.conv_bn(f"{name}.a", value, width, 3, stride=stride, padding=1)
                branch = net.conv_bn(f"{name}.b", branch, width, 3, padding=1)
            if branch[1:] != value[1:]:
                value = net.conv_bn(f"{name}.shortcut", value, branch[1], 1, stride=stride)
            value = net.sum(f"{name}.sum", branch, value)
    net.linear("fc", net.global_pool("pool5", value), 1000)
    return net


def resnet18():
    return resnet("resnet18", "He et al., Deep Residual Learning, 2015, table 1; a convolution as "
                  "shortcut where shapes change", (2, 2, 2, 2), has_bottlenecks=False)


def resnet34():
    return resnet("resnet34", "He et al., Deep Residual Learning, 2015, table 1; a convolution as "
                  "shortcut where shapes change", (3, 4, 6, 3), has_bottlenecks=False)


def resnet50():
    return resnet("resnet50", "He et al., Deep Residual Learning, 2015, table 1; stride in the 3x3 "
                  "convolution (torchvision's resnet50 has the same shapes)", (3, 4, 6, 3),
                  has_bottlenecks=True)


def resnet101():
    return resnet("resnet101", "He et al., Deep Residual Learning, 2015, table 1; stride in the "
                  "3x3 convolution", (3, 4, 23, 3), has_bottlenecks=True)


def resnet152():
    return resnet("resnet152", "He et al., Deep Residual Learning, 2015, table 1; stride in the "
                  "3x3 convolution", (3, 8, 36, 3), has_bottlenecks=True)


def resnet_v2_152():
    net = Network("resnet_v2_152", "He et al., Identity Mappings in Deep Residual Networks, 2016: "
                  "152 layers as Hashemi et al. list them: batch normalisation with shift and "
                  "without scale, biases in the convolutions without normalisation, the stride in "
                  "the last block of a stage", 224)

    def normalise(name, value):
        return net.batch_norm(name, value, has_scale=False)

    def conv_bn(name, value, *shape, **options):
        return normalise(f"{name}.bn", net.convolution(f"{name}.conv", value, *shape, **options))

    value = net.convolution("conv1", net.image, 64, 7, stride=2, padding=3, bias=True)
    value = net.pool("pool1", value, 3, 2, 1)
    for stage, (width, count) in enumerate([(64, 3), (128, 8), (256, 36), (512, 3)], 2):
        for block in range(count):
            name, stride = f"conv{stage}_{block + 1}", 2 if block == count - 1 and stage < 5 else 1
            before = normalise(f"{name}.bn", value)
            branch = conv_bn(f"{name}.a", before, width, 1)
            branch = conv_bn(f"{name}.b", branch, width, 3, stride=stride, padding=1)
            branch = net.convolution(f"{name}.c", branch, 4 * width, 1, bias=True)
            if value[1] != branch[1]:
                value = net.convolution(f"{name}.shortcut", before, branch[1], 1, stride=stride,
                                        bias=True)
            elif stride > 1:
                value = net.pool(f"{name}.shortcut", value, 1, stride)
            value = net.sum(f"{name}.sum", branch, value)
    value = net.global_pool("pool5", normalise("bn", value))
    net.linear("fc", value, 1000)
    return net


def vgg(name, source, conv_counts):
    net = Network(name, source, 224)
    value = net.image
    for stage, (width, count) in enumerate(zip((64, 128, 256, 512, 512), conv_counts), 1):
        for block in range(count):
            value = net.convolution(f"conv{stage}_{block + 1}", value, width, 3, padding=1,
                                    bias=True)
        value = net.pool(f"pool{stage}", value, 2, 2)
    for number, width in ((6, 4096), (7, 4096), (8, 1000)):
        value = net.linear(f"fc{number}", value, width)
    return net


def vgg16():
    return vgg("vgg16", "Simonyan, Zisserman, Very Deep Convolutional Networks, 2014, table 1, "
               "configuration D", (2, 2, 3, 3, 3))


def vgg19():
    return vgg("vgg19", "Simonyan, Zisserman, Very Deep Convolutional Networks, 2014, table 1, "
               "configuration E", (2, 2, 4, 4, 4))


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


def alexnet_v2():
    net = Network("alexnet_v2", "Krizhevsky, One weird trick, 2014, as Hashemi et al. list it: "
                  "no padding at the first convolution, so the last pooling leaves 5 x 5 values",
                  224)
    value = net.convolution("conv1", net.image, 64, 11, stride=4, bias=True)
    value = net.pool("pool1", value, 3, 2)
    value = net.convolution("conv2", value, 192, 5, padding=2, bias=True)
    value = net.pool("pool2", value, 3, 2)
    for number, width in ((3, 384), (4, 384), (5, 256)):
        value = net.convolution(f"conv{number}", value, width, 3, padding=1, bias=True)
    value = net.pool("pool5", value, 3, 2)
    value = net.convolution("fc6", value, 4096, 5, bias=True)
    value = net.convolution("fc7", value, 4096, 1, bias=True)
    net.convolution("fc8", value, 1000, 1, bias=True)
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


def mobilenet():
    net = Network("mobilenet", "Howard et al., MobileNets, 2017, table 1; stride 1 in the last "
                  "depthwise convolution, which the shapes of the table need", 224)
    value = net.conv_bn("conv1", net.image, 32, 3, stride=2, padding=1)
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5,
              (1024, 2), (1024, 1))
    for number, (out, stride) in enumerate(blocks, 2):
        value = net.conv_bn(f"conv{number}.depthwise", value, value[1], 3, stride=stride,
                            padding=1, groups=value[1])
        value = net.conv_bn(f"conv{number}.pointwise", value, out, 1)
    net.linear("fc", net.global_pool("pool", value), 1000)
    return net


class NasnetCells:
    """The two cells of NASNet-A: Zoph et al. 2018, figure 4, appendix A."""

    def __init__(self, net):
        self.net = net

    def separable(self, name, value, out, kernel, stride=1):
        """A depthwise separable convolution, twice; the stride is in the first one."""
        for number, own_stride in ((1, stride), (2, 1)):
            value = self.net.convolution(f"{name}.depthwise{number}", value, value[1], kernel,
                                         stride=own_stride, padding=kernel // 2, groups=value[1])
            value = self.net.conv_bn(f"{name}.pointwise{number}", value, out, 1)
        return value

    def adjust(self, name, value, like, width):
        """The value of the cell before the last one, with the height of `like` and this width."""
        if value is None:
            return like
        if value[2:] != like[2:]:
            halves = [self.net.convolution(f"{name}.half{number}",
                                           self.net.pool(f"{name}.pool{number}", value, 1, 2),
                                           width // 2, 1) for number in (1, 2)]
            return self.net.batch_norm(f"{name}.bn", self.net.join(f"{name}.join", *halves))
        return value if value[1] == width else self.net.conv_bn(name, value, width, 1)

    def normal(self, name, value, earlier, width):
        net = self.net
        p = self.adjust(f"{name}.adjust", earlier, value, width)
        h = net.conv_bn(f"{name}.reduce", value, width, 1)
        pools = [net.pool(f"{name}.pool{i}", p, 3, 1, 1) for i in (1, 2)]
        ends = [net.sum(f"{name}.sum1", self.separable(f"{name}.a", h, width, 5),
                        self.separable(f"{name}.b", p, width, 3)),
                net.sum(f"{name}.sum2", self.separable(f"{name}.c", p, width, 5),
                        self.separable(f"{name}.d", p, width, 3)),
                net.sum(f"{name}.sum3", net.pool(f"{name}.pool3", h, 3, 1, 1), p),
                net.sum(f"{name}.sum4", *pools),
                net.sum(f"{name}.sum5", self.separable(f"{name}.e", h, width, 3), h)]
        return net.join(f"{name}.join", p, *ends)

    def reduction(self, name, value, earlier, width):
        net = self.net
        p = self.adjust(f"{name}.adjust", earlier, value, width)
        h = net.conv_bn(f"{name}.reduce", value, width, 1)
        pools = [net.pool(f"{name}.pool{i}", h, 3, 2, 1) for i in (1, 2, 3)]
        first = net.sum(f"{name}.sum1", self.separable(f"{name}.a", h, width, 5, 2),
                        self.separable(f"{name}.b", p, width, 7, 2))
        second = net.sum(f"{name}.sum2", pools[0], self.separable(f"{name}.c", p, width, 7, 2))
        third = net.sum(f"{name}.sum3", pools[1], self.separable(f"{name}.d", p, width, 5, 2))
        fourth = net.sum(f"{name}.sum4", net.pool(f"{name}.pool4", first, 3, 1, 1), second)
        fifth = net.sum(f"{name}.sum5", self.separable(f"{name}.e", first, width, 3), pools[2])
        return net.join(f"{name}.join", second, third, fourth, fifth)


def nasnet_large():
    """The penultimate layer has 4,032 channels: 24 times the width of the first cells."""
    net = Network("nasnet_large", "Zoph et al., Learning Transferable Architectures, 2018: "
                  "NASNet-A (6 @ 4032), without the auxiliary classifier. A cell after a reduction "
                  "takes the value before the reduction, too", 331)
    cells, width = NasnetCells(net), 168
    value, earlier = net.conv_bn("stem", net.image, 96, 3, stride=2), None
    for number, divisor in ((1, 4), (2, 2)):
        value, earlier = cells.reduction(f"stem{number}", value, earlier, width // divisor), value
    for stage in (1, 2, 3):
        for number in range(1, 7):
            value, earlier = cells.normal(f"cell{stage}_{number}", value, earlier, width), value
        if stage < 3:
            width *= 2
            value = cells.reduction(f"reduction{stage}", value, earlier, width)
    net.linear("fc", net.global_pool("pool", value), 1000)
    return net


def fc_densenet(name, source, growth, class_count):
    """Jegou et al., The One Hundred Layers Tiramisu, 2017, table 2: FC-DenseNet103.

    growth  the channels that each layer adds; 16 in the paper. The first convolution has three
            times as many.
    """
    net = Network(name, source, 224)

    def layer(name, value, out, kernel):
        value = net.batch_norm(f"{name}.bn", value)
        return net.convolution(f"{name}.conv", value, out, kernel, padding=kernel // 2, bias=True)

    def dense_block(name, value, count):
        """Returns what the last layer takes, and the new channels of each layer."""
        new = []
        for number in range(1, count + 1):
            if new:
                value = net.join(f"{name}_{number}.join", value, new[-1])
            new.append(layer(f"{name}_{number}", value, growth, 3))
        return value, new

    value, skips = net.convolution("conv1", net.image, 3 * growth, 3, padding=1, bias=True), []
    for number, count in enumerate((4, 5, 7, 10, 12), 1):
        value, new = dense_block(f"down{number}", value, count)
        skips.append(net.join(f"down{number}.join", value, new[-1]))
        value = layer(f"down{number}.transition", skips[-1], skips[-1][1], 1)
        value = net.pool(f"down{number}.pool", value, 2, 2)
    _, new = dense_block("middle", value, 15)
    for number, count in enumerate((12, 10, 7, 5, 4), 1):
        value = net.join(f"up{number}.new", *new)
        value = net.transposed_convolution(f"up{number}.transition", value, value[1], 3, 2)
        value = net.join(f"up{number}.join", value, skips.pop())
        value, new = dense_block(f"up{number}", value, count)
    value = net.join("join", value, new[-1])
    net.convolution("classes", value, class_count, 1, bias=True)
    return net


def stemdl():
    return fc_densenet("stemdl", "a stand-in. Romero et al. 2.3 state a fully convolutional dense "
                       "network with 220 million parameters, 880 MB, and no layers. These are the "
                       "layers of FC-DenseNet103 (Jegou et al. 2017) with 78 channels a layer in "
                       "place of 16, which comes nearest to that total", 78, 1)


MIB = 2**20 / 4  # parameters of four bytes

# Tensors: counted in the tables of the papers; alexnet_v2, resnet_v2_152: Hashemi et al. 4.
#
# Parameters: torchvision 0.14's documentation of each model's weights (num_params), Inception-v3
# without its auxiliary classifier; GoogLeNet as Caffe's bvlc_googlenet without its auxiliary
# classifiers; mobilenet and nasnet_large: the trainable parameters in Keras's summaries (4.2 M and
# 88.9 M in their papers); alexnet_v2, resnet_v2_152: Hashemi et al. 4; stemdl: Romero et al. 2.3.
#
# Multiply-adds: torchvision's documentation (GFLOPS); googlenet, mobilenet, nasnet_large: their
# papers.
PUBLISHED = {
    "alexnet": Totals(16, 61_100_840, 0.71),
    "alexnet_v2": Totals(16, 191.9 * MIB, None, 0.05 * MIB),
    "efficientnet_b0": Totals(213, 5_288_548, 0.39),
    "googlenet": Totals(116, 6_998_552, 1.5),
    "inception_v3": Totals(284, 23_834_568, 5.71),
    "mobilenet": Totals(83, 4_231_976, 0.569),
    "nasnet_large": Totals(None, 88_753_150, 23.8),
    "resnet101": Totals(314, 44_549_160, 7.80),
    "resnet152": Totals(467, 60_192_808, 11.51),
    "resnet18": Totals(62, 11_689_512, 1.81),
    "resnet34": Totals(110, 21_797_672, 3.66),
    "resnet50": Totals(161, 25_557_032, 4.09),
    "resnet_v2_152": Totals(363, 229.5 * MIB, None, 0.05 * MIB),
    "stemdl": Totals(None, 220e6, None, 1e6),
    "vgg16": Totals(32, 138_357_544, 15.47),
    "vgg19": Totals(38, 143_667_240, 19.63),
}
MADDS_WITHIN = 0.07  # multiply-adds are counted in different ways


def check(net, published):
    """Ends the program if a total of the network is not the published one."""
    found = net.totals()
    if published.tensors not in (None, found.tensors):
        sys.exit(f"make_networks.py: {net.name} has {found.tensors} tensors; expected "
                 f"{published.tensors}")
    if abs(found.parameters - published.parameters) > published.parameters_within:
        sys.exit(f"make_networks.py: {net.name} has {found.parameters} parameters; expected "
                 f"{published.parameters:.0f} within {published.parameters_within:.0f}")
    if (published.giga_madds is not None
            and abs(found.giga_madds / published.giga_madds - 1) > MADDS_WITHIN):
        sys.exit(f"make_networks.py: {net.name} has {found.giga_madds:.2f} G multiply-adds; "
                 f"expected {published.giga_madds} within {MADDS_WITHIN:.0%}")


NETWORKS = (alexnet, alexnet_v2, efficientnet_b0, googlenet, inception_v3, mobilenet, nasnet_large,
            resnet101, resnet152, resnet18, resnet34, resnet50, resnet_v2_152, stemdl, vgg16, vgg19)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    options = parser.parse_args()
    for make in NETWORKS:
        net = make()
        check(net, PUBLISHED[net.name])
        path, text = options.folder / f"{net.name}.json", net.to_text()
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"make_networks.py: {path} differs from the architecture; "
                     "run make_networks.py without --check")
    return 0


if __name__ == "__main__":
    sys.exit(main())
