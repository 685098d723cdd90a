#!/usr/bin/env python3
"""Trains a small network on handwritten digits with PyTorch, through lmdbio.torch.

    lmdbio-make digits train.lmdb --part train
    lmdbio-make digits test.lmdb --part test
    train_digits.py train.lmdb test.lmdb --checkpoint digits.pt
    torchrun --nproc_per_node 2 train_digits.py train.lmdb test.lmdb

What is in a batch does not depend on the number of ranks, nor on --workers, so neither does the
loss. With --checkpoint a run that was stopped goes on, with as many ranks as there are then.
"""

import argparse
import os
import sys

import numpy as np
import torch
import torch.distributed
from torch.utils.data import DataLoader

import lmdbio
import lmdbio.torch

PIXELS = 64


def parse_varint(data, at):
    """(number, where it ends) of protobuf's variable-length numbers."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def parse_datum(data):
    """(pixels, label) of Caffe's Datum: of its fields, data is 4 and label 5."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = parse_varint(data, at)
        if tag & 7 == 2:
            size, at = parse_varint(data, at)
            fields[tag >> 3], at = data[at:at + size], at + size
        else:
            fields[tag >> 3], at = parse_varint(data, at)
    if len(fields.get(4, b"")) != PIXELS or not 0 <= fields.get(5, -1) < 10:
        raise ValueError("a record is no digit of 8 x 8 pixels")
    return fields[4], fields[5]


def decode(batch):
    """(images [n, 64], labels [n]); of a last batch that is short, n may be 0."""
    digits = [parse_datum(value) for value in batch.values()]
    pixels = np.frombuffer(b"".join(data for data, _ in digits), np.uint8)
    images = torch.from_numpy(pixels.reshape(-1, PIXELS) / 16.0)
    return images, torch.tensor([label for _, label in digits], dtype=torch.long)


def make_network(seed):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(PIXELS, 64), torch.nn.ReLU(),
                                  torch.nn.Linear(64, 10))
    return network.double()


def sum_over_ranks(tensor):
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(tensor)
    return tensor


def train_epoch(network, optimizer, batches):
    """The mean loss of all records, each at the time of its batch."""
    total = torch.zeros(2, dtype=torch.float64)
    parameters = list(network.parameters())
    for images, labels in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels, reduction="sum")
        loss.backward()
        # One message for each batch: gradients, loss and number of records of all ranks.
        mine = [parameter.grad.flatten() for parameter in parameters]
        sums = sum_over_ranks(torch.cat([*mine, torch.tensor([loss.item(), len(labels)])]))
        gradient = sums[:-2] / sums[-1]
        for parameter, part in zip(parameters, gradient.split([one.numel() for one in mine])):
            parameter.grad.copy_(part.view_as(parameter))
        optimizer.step()
        total += sums[-2:]
    return (total[0] / total[1]).item()


def test_accuracy(network, path, rank, rank_count):
    """The share of records that the network reads rightly; ranks test in turn."""
    with lmdbio.Dataset(path) as dataset:
        digits = [parse_datum(record.value) for record in dataset[rank::rank_count]]
    images = torch.tensor([list(data) for data, _ in digits], dtype=torch.float64) / 16
    labels = torch.tensor([label for _, label in digits])
    with torch.no_grad():
        right = (network(images.reshape(-1, PIXELS)).argmax(1) == labels).sum()
    sums = sum_over_ranks(torch.tensor([right, len(digits)], dtype=torch.float64))
    return (sums[0] / sums[1]).item()


def save(path, network, optimizer, epoch, stream):
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(),
                "epoch": epoch, "stream": stream}, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", metavar="TRAIN")
    parser.add_argument("test", metavar="TEST")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=0, help="processes that decode")
    parser.add_argument("--checkpoint", metavar="FILE", help="where to go on from, and to save")
    parser.add_argument("--stop-after", type=int, metavar="EPOCH", help="as if stopped there")
    return parser.parse_args()


def train(options, rank, rank_count):
    if options.batch_size % rank_count != 0:
        raise ValueError(f"batches of {options.batch_size} do not divide by {rank_count} ranks")
    network = make_network(options.seed)
    optimizer = torch.optim.SGD(network.parameters(), options.learning_rate, momentum=0.9)
    dataset = lmdbio.torch.IterableDataset(
        options.train, options.batch_size // rank_count, shuffle=True, seed=options.seed,
        decode=decode)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["stream"])
        first = saved["epoch"]
    batches = DataLoader(dataset, batch_size=None, num_workers=options.workers)
    for epoch in range(first, min(options.epochs, options.stop_after or options.epochs)):
        if epoch > first:
            dataset.set_epoch(epoch)
        loss = train_epoch(network, optimizer, batches)
        accuracy = test_accuracy(network, options.test, rank, rank_count)
        dataset.set_epoch(epoch + 1)
        if rank == 0:
            if options.checkpoint:
                save(options.checkpoint, network, optimizer, epoch + 1, dataset.state_dict())
            print(f"epoch {epoch + 1}: loss {loss:.9f}, test accuracy {100 * accuracy:.1f} %",
                  flush=True)


def main():
    options = parse_options()
    if "WORLD_SIZE" in os.environ:  # torchrun, or another launcher, has started this
        torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.is_initialized()
    try:
        train(options, torch.distributed.get_rank() if ranks else 0,
              torch.distributed.get_world_size() if ranks else 1)
    except (lmdbio.LmdbioError, ValueError, OSError) as error:
        print(f"train_digits.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
