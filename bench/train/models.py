"""The models of run_training.py, their batches and losses. README.md has their sizes.

Every rank makes other batches, so the losses of the ranks differ, and the sums of gradients matter.
"""

import time

import torch
from torch import nn
from torch.nn import functional

BATCH_COUNT = 4  # that a rank uses in turn


class ResidualMlp(nn.Module):
    def __init__(self, depth=50, width=320):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, rows):
        for layer in self.layers:
            rows = rows + 0.1 * functional.relu(layer(rows))
        return rows


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, images):
        kept = images if self.shortcut is None else self.shortcut(images)
        images = functional.relu(self.norm(self.first(images)))
        return functional.relu(kept + self.second_norm(self.second(images)))


class ResNet(nn.Module):
    """3 stages of n blocks of 2 convolutions, and a first and a last layer: 6 n + 2 layers."""

    def __init__(self, depth=32, channels=32, classes=10):
        super().__init__()
        if depth < 8 or (depth - 2) % 6 != 0:
            raise ValueError(f"depth {depth} is invalid; expected 6 n + 2, such as 20, 32 or 56")
        blocks, inner = [], channels
        for stage in range(3):
            for i in range((depth - 2) // 6):
                outer = channels << stage
                blocks.append(ResidualBlock(inner, outer, 2 if stage > 0 and i == 0 else 1))
                inner = outer
        self.first = nn.Conv2d(3, channels, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(inner, classes)

    def forward(self, images):
        images = self.blocks(functional.relu(self.norm(self.first(images))))
        return self.last(images.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, layers=4, width=256, tokens=2000, length=32):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)
        self.last = nn.Linear(width, tokens)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, text):
        return self.last(self.layers(self.embedding(text) + self.position, self.mask))


class AcceleratedLayer(torch.autograd.Function):
    """A layer that an accelerator computes: the thread sleeps, then the gradient is written."""

    FORWARD_SECONDS = 200e-6
    BACKWARD_SECONDS = 400e-6

    @staticmethod
    def forward(ctx, rows, weight):
        time.sleep(AcceleratedLayer.FORWARD_SECONDS)
        ctx.save_for_backward(rows, weight)
        return rows + 0.1 * weight[0]

    @staticmethod
    def backward(ctx, gradient):
        rows, weight = ctx.saved_tensors
        time.sleep(AcceleratedLayer.BACKWARD_SECONDS)
        return gradient, (0.1 * gradient.mean(0) + 1e-3 * rows[0]).expand_as(weight).contiguous()


class Accelerated(nn.Module):
    """The weights of ResidualMlp without its computing."""

    def __init__(self, depth=50, width=320):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(0.1 * torch.randn(width, width))
                                        for _ in range(depth))

    def forward(self, rows):
        for weight in self.weights:
            rows = AcceleratedLayer.apply(rows, weight)
        return rows


class Training:
    """A model, the batches of one rank, and the loss.

    The model is the same on every rank; the batches are not.
    """

    def __init__(self, name, depth, rank):
        torch.manual_seed(1)
        self.name = name
        self.model = {"mlp": ResidualMlp, "resnet": lambda: ResNet(depth),
                      "transformer": Transformer, "accelerated": Accelerated}[name]()
        chance = torch.Generator().manual_seed(1000 + rank)
        self.batches = [self._batch(chance) for _ in range(BATCH_COUNT)]

    def _batch(self, chance):
        def numbers(*shape):
            return torch.randn(*shape, generator=chance)

        def choices(below, *shape):
            return torch.randint(0, below, shape, generator=chance)
        if self.name in ("mlp", "accelerated"):
            return numbers(64, 320), numbers(64, 320)
        if self.name == "resnet":
            return numbers(8, 3, 16, 16), choices(10, 8)
        return choices(2000, 4, 32), choices(2000, 4, 32)

    def loss(self, model, iteration):
        """Returns the loss of one iteration. `model` may wrap self.model."""
        given, wanted = self.batches[iteration % BATCH_COUNT]
        found = model(given)
        if self.name in ("mlp", "accelerated"):
            return functional.mse_loss(found, wanted)
        return functional.cross_entropy(found.flatten(0, -2), wanted.flatten())


MODELS = ("mlp", "resnet", "transformer", "accelerated")
