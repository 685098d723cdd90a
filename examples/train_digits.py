#!/usr/bin/env python3
"""Trains a small network on handwritten digits with PyTorch, through lmdbio.torch.

    lmdbio-make digits train.lmdb --part train
    lmdbio-make digits test.lmdb --part test
    train_digits.py train.lmdb test.lmdb --checkpoint digits.pt
    torchrun --nproc_per_node 2 train_digits.py train.lmdb test.lmdb
    mpirun -n 2 train_digits.py train.lmdb test.lmdb --sync lmdbio
    torchrun --nproc_per_node 2 train_digits.py train.lmdb test.lmdb --sync lmdbio --device cuda
    mpirun -n 2 train_digits.py train.lmdb test.lmdb --sync lmdbio --late-updates

The content of a batch does not depend on the number of ranks or on --workers, so the loss does not,
either. With --checkpoint a stopped run continues, with any number of ranks.
"""

import argparse
import contextlib
import os
import stat
import sys

import numpy as np
import torch
import torch.distributed
import torch.distributed.nn  # optimizers import it; later, it would keep the process group for ever
from torch.utils.data import DataLoader

import lmdbio
import lmdbio.torch

PIXELS = 64


def parse_varint(data, at):
    """Reads a variable-length number of protobuf. Returns the number and the offset of its end."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def parse_datum(data):
    """(pixels, label) of Caffe's Datum. The field data has number 4, label has number 5."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = parse_varint(data, at)
        if tag & 7 == 2:
            size, at = parse_varint(data, at)
            fields[tag >> 3], at = data[at:at + size], at + size
        else:
            fields[tag >> 3], at = parse_varint(data, at)
    if len(fields.get(4, b"")) != PIXELS or not 0 <= fields.get(5, -1) < 10:
        raise ValueError("a record is not a digit of 8 x 8 pixels")
    return fields[4], fields[5]


def decode(batch):
    """(images [n, 64], labels [n]). In a short last batch n may be 0."""
    digits = [parse_datum(value) for value in batch.values()]
    pixels = np.frombuffer(b"".join(data for data, _ in digits), np.uint8)
    images = torch.from_numpy(pixels.reshape(-1, PIXELS) / 16.0)
    return images, torch.tensor([label for _, label in digits], dtype=torch.long)


def make_network(seed):
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(PIXELS, 64), torch.nn.ReLU(),
                                  torch.nn.Linear(64, 10))
    return network.double()


class TorchRanks:
    """One process, or the ranks of torch.distributed, which add all gradients in one message."""

    def __init__(self, network, optimizer):
        self._parameters, self._optimizer = list(network.parameters()), optimizer
        is_one = not torch.distributed.is_initialized()
        self.rank = 0 if is_one else torch.distributed.get_rank()
        self.count = 1 if is_one else torch.distributed.get_world_size()

    def sum(self, tensor):
        """Of a tensor on the host, or on the device of the network."""
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(tensor)
        return tensor

    def sum_gradients(self, more):
        """Replaces every .grad by its sum over all ranks. Returns `more`, summed as well."""
        mine = [parameter.grad.flatten() for parameter in self._parameters]
        mine.append(more.to(mine[0].device))
        parts = self.sum(torch.cat(mine)).split([part.numel() for part in mine])
        for parameter, part in zip(self._parameters, parts):
            parameter.grad.copy_(part.view_as(parameter))
        return parts[-1].cpu()

    def step(self, loss, record_count):
        """Updates by the mean gradient of all records. Returns the sums of loss and records."""
        loss.backward()
        sums = self.sum_gradients(torch.tensor([loss.item(), record_count], dtype=torch.float64))
        for parameter in self._parameters:
            parameter.grad /= sums[1].item()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return sums

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        # Ends Gloo's threads. One that frees a tensor while Python exits would abort the process.
        if torch.distributed.is_initialized() and kind is None:
            torch.distributed.destroy_process_group()


class LmdbioRanks(TorchRanks):
    """The ranks of torchrun or MPI, which add each gradient as soon as it is computed."""

    def __init__(self, network, optimizer):
        self._parameters, self._optimizer = list(network.parameters()), optimizer
        comm = "env"
        if "RANK" not in os.environ:  # which torchrun and its like set
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        self._gradients = lmdbio.torch.GradientSync(network, comm, average=False,
                                                    **self.options(optimizer))
        self._sync = self._gradients.synchronizer
        self.rank, self.count = self._sync.rank, self._sync.size

    def options(self, _optimizer):
        return {}

    def sum(self, tensor, name="sum"):
        self._sync.allreduce(name, tensor.numpy()).wait()
        return tensor

    def sum_gradients(self, more):
        operation = self._sync.allreduce("loss and records", more.numpy())
        self._gradients.synchronize()
        operation.wait()
        return more

    def __enter__(self):
        return self

    def __exit__(self, *error):
        # After an error it skips the shutdown and informs the others.
        self._gradients.__exit__(*error)


class LateRanks(LmdbioRanks):
    """The same, but each layer waits for its gradients, and is updated, before it computes again.

    Until then nobody has the gradients, so the loss is divided before the backward pass.
    """

    def options(self, optimizer):
        return {"optimizer": optimizer, "coordinator": "caramel"}

    def step(self, loss, record_count):
        sums = self.sum(torch.tensor([loss.item(), record_count], dtype=torch.float64),
                        "loss and records")
        (loss / sums[1].item()).backward()
        self._gradients.step()
        return sums


def device_of(name):
    """The device of this rank: the ranks of a host have its GPUs in turn."""
    if name == "cpu":
        return torch.device(name)
    gpus = getattr(torch, name).device_count()
    if gpus == 0:
        raise ValueError(f"--device {name}: PyTorch finds none")
    rank = os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0))
    return torch.device(name, int(rank) % gpus)


def train_epoch(network, batches, ranks, device):
    """The mean loss of all records, each computed with the weights before its batch."""
    total = torch.zeros(2, dtype=torch.float64)
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        loss = torch.nn.functional.cross_entropy(network(images), labels, reduction="sum")
        total += ranks.step(loss, len(labels))
    return (total[0] / total[1]).item()


def test_accuracy(network, path, ranks, device):
    """The share of records with a correct label. Each rank tests its part of the records."""
    with lmdbio.Dataset(path) as dataset:
        digits = [parse_datum(record.value) for record in dataset[ranks.rank::ranks.count]]
    images = torch.tensor([list(data) for data, _ in digits], dtype=torch.float64) / 16
    labels = torch.tensor([label for _, label in digits])
    with torch.no_grad():
        found = network(images.reshape(-1, PIXELS).to(device)).argmax(1).cpu()
        right = (found == labels).sum()
    sums = ranks.sum(torch.tensor([right, len(digits)], dtype=torch.float64))
    return (sums[0] / sums[1]).item()


def save(path, network, optimizer, epoch, stream):
    path = os.path.realpath(path)  # a link stays, and the file at its end is replaced
    fresh = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh)  # of a run that was killed
    try:
        with open(fresh, "xb") as file:  # x: another user may have made a link of this name
            torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(),
                        "epoch": epoch, "stream": stream}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        raise


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", metavar="TRAIN")
    parser.add_argument("test", metavar="TEST")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="records for all ranks together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=0, help="number of decoding processes")
    parser.add_argument("--checkpoint", metavar="FILE",
                        help="write FILE after each epoch; continue from it if it exists")
    parser.add_argument("--sync", choices=("torch", "lmdbio"), default="torch",
                        help="sum gradients with torch.distributed, or with lmdbio, which mpirun "
                             "can start, too")
    parser.add_argument("--late-updates", action="store_true",
                        help="with --sync lmdbio: update each layer just before it computes again")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda for the GPUs of this host")
    parser.add_argument("--stop-after", type=int, metavar="EPOCH", help="end after this epoch")
    options = parser.parse_args()
    checkpoint = options.checkpoint
    if checkpoint and os.path.exists(checkpoint) and not os.path.isfile(checkpoint):
        parser.error(f"--checkpoint {checkpoint}: is not a regular file")
    if checkpoint and os.path.islink(checkpoint):
        folder = os.path.dirname(os.path.abspath(checkpoint))
        if os.stat(folder).st_mode & stat.S_IWOTH:
            parser.error(f"--checkpoint {checkpoint}: is a symbolic link in a folder that "
                         "everybody may write to; name the file itself")
    if options.late_updates and options.sync != "lmdbio":
        parser.error("--late-updates needs --sync lmdbio")
    return options


def train(options, network, optimizer, ranks, device):
    if options.batch_size % ranks.count != 0:
        raise ValueError(f"--batch-size {options.batch_size} is not a multiple of the "
                         f"{ranks.count} ranks")
    dataset = lmdbio.torch.IterableDataset(
        options.train, options.batch_size // ranks.count, shuffle=True, seed=options.seed,
        decode=decode, num_shards=ranks.count, shard_id=ranks.rank)
    first = 0
    if options.checkpoint and os.path.exists(options.checkpoint):
        saved = torch.load(options.checkpoint, map_location=device)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        dataset.load_state_dict(saved["stream"])
        first = saved["epoch"]
    batches = DataLoader(dataset, batch_size=None, num_workers=options.workers)
    for epoch in range(first, min(options.epochs, options.stop_after or options.epochs)):
        if epoch > first:
            dataset.set_epoch(epoch)
        loss = train_epoch(network, batches, ranks, device)
        accuracy = test_accuracy(network, options.test, ranks, device)
        dataset.set_epoch(epoch + 1)
        if ranks.rank == 0:
            if options.checkpoint:
                save(options.checkpoint, network, optimizer, epoch + 1, dataset.state_dict())
            print(f"epoch {epoch + 1}: loss {loss:.9f}, test accuracy {100 * accuracy:.1f} %",
                  flush=True)


def check_launcher(options):
    """Refuses a launch in which every rank would train its own network."""
    world_size = os.environ.get("WORLD_SIZE")  # set by torchrun and its like
    if options.sync == "torch":
        if world_size is None and int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1)) > 1:
            raise ValueError("under mpirun, ranks find each other with --sync lmdbio only")
    elif world_size is not None and "RANK" not in os.environ:
        from mpi4py import MPI

        if MPI.COMM_WORLD.size != int(world_size):
            raise ValueError(f"WORLD_SIZE is {world_size}, but MPI has {MPI.COMM_WORLD.size} "
                             "ranks; start --sync lmdbio with torchrun or mpirun")


def main():
    options = parse_options()
    try:
        check_launcher(options)
        # torchrun or another launcher may have started this process.
        if options.sync == "torch" and "WORLD_SIZE" in os.environ:
            torch.distributed.init_process_group("gloo")  # also sums tensors of CUDA
        device = device_of(options.device)
        network = make_network(options.seed).to(device)
        optimizer = torch.optim.SGD(network.parameters(), options.learning_rate, momentum=0.9)
        kind = LmdbioRanks if options.sync == "lmdbio" else TorchRanks
        with (LateRanks if options.late_updates else kind)(network, optimizer) as ranks:
            train(options, network, optimizer, ranks, device)
    except (lmdbio.LmdbioError, ValueError, OSError) as error:
        print(f"train_digits.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
