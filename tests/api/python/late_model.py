"""The model and the data of the tests of late updates, and what one has to know of a training."""

import importlib.util
import io
import os
import pathlib
import sys

PYTHON = pathlib.Path(__file__).resolve().parents[3] / "build" / "trainers" / "bin" / "python"
SKIPPED = 77


def choose_python():
    """With $LMDBIO_TEST_PYTHON=trainers the program goes on in the Python of scripts/setup
    --trainers, or ends with a skip."""
    if os.environ.get("LMDBIO_TEST_PYTHON") == "trainers" and sys.prefix != str(PYTHON.parents[1]):
        if not PYTHON.exists():
            print("skipped: there is no environment of scripts/setup --trainers")
            sys.exit(SKIPPED)
        os.execv(PYTHON, [str(PYTHON), *sys.argv])


choose_python()

if importlib.util.find_spec("torch") is None:
    print("skipped: there is no torch")
    sys.exit(SKIPPED)

import torch  # noqa: E402
from torch import nn  # noqa: E402

WORDS = 11
WIDTH = 6
BATCH = 4


class Block(nn.Module):
    """Has parameters in a list, which is never called."""

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(WIDTH)) for _ in range(2)])

    def forward(self, values):
        return values * self.scales[0] + self.scales[1]


class Network(nn.Module):
    """Tied, frozen and unused parameters; a module that runs twice, and one out of order."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.last = nn.Linear(WIDTH, WORDS)
        self.last.weight = self.embedding.weight
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(WIDTH, 2)
        self.twice = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.block = Block()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.sometimes = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, words, runs_all):
        values = self.twice(torch.tanh(self.twice(self.embedding(words))))
        if runs_all:
            values = values + self.sometimes(values)
        values = self.block(self.norm(self.frozen(values)))
        values = values + self.attention(values, values, values, need_weights=False)[0]
        return self.last(values)


def make_network():
    torch.manual_seed(4)
    return Network()


def loss_of(model, step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(WORDS, (BATCH, 3), generator=generator)
    found = model(words, runs_all=step % 3 != 1)
    return nn.functional.cross_entropy(found.flatten(0, 1), words.roll(1).flatten())


def bits_of(value):
    """All tensors and numbers of a nested state, in a comparable form."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.detach().contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {name: bits_of(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits_of(one) for one in value]
    return value


def saved(state):
    """A copy of a state, as a checkpoint has it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)
