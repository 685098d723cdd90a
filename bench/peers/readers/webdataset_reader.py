"""WebDataset: tar files in a DataLoader."""

import io
import pathlib
import tarfile

from readers import interface

SHARD_RECORDS_MAX = 10_000
SHARDS_MIN = 8  # a worker reads whole shards
BUFFER_RECORDS = 5_000


class Reader(interface.Reader):
    """In order means the order of a shard: several workers take turns with theirs."""

    label = "WebDataset"
    modules = ("webdataset", "torch", "xxhash")
    format = "webdataset"
    promises = interface.Promises(
        shuffle=f"shards, then a buffer of {BUFFER_RECORDS:,} records", resume="none",
        record="copy")

    def make(self, task, values):
        size = max(1, min(SHARD_RECORDS_MAX, task.records // SHARDS_MIN))
        for shard, group in enumerate(interface.grouped(values, size)):
            with tarfile.open(pathlib.Path(task.path, f"{shard:06d}.tar"), "w") as tar:
                for number, value in enumerate(group):
                    entry = tarfile.TarInfo(f"{shard * size + number:010d}.bin")
                    entry.size = len(value)
                    tar.addfile(entry, io.BytesIO(value))

    def batches(self, task):
        import torch.utils.data
        import webdataset
        shards = sorted(map(str, pathlib.Path(task.path).glob("*.tar")))
        is_shuffled = task.order == "shuffled"
        dataset = webdataset.WebDataset(
            shards, shardshuffle=len(shards) if is_shuffled else False, seed=task.positive_seed,
            empty_check=False)
        if is_shuffled:
            dataset = dataset.shuffle(BUFFER_RECORDS, seed=task.positive_seed)
        dataset = dataset.batched(task.batch_size, collation_fn=collate)
        yield from torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=task.workers)


def collate(samples):
    return interface.collate([sample["bin"] for sample in samples])
