"""MosaicML Streaming: MDS shards in a DataLoader."""

from readers import interface

SHARD_BYTES = 64 << 20


class Reader(interface.Reader):
    """Shuffles by `naive`, its only algorithm that is global."""

    label = "MosaicML Streaming"
    modules = ("streaming", "torch", "xxhash")
    format = "mds"
    promises = interface.Promises(
        shuffle="global: a list of all records", resume="a state of a few numbers, exact",
        record="copy")

    def make(self, task, values):
        import streaming
        with streaming.MDSWriter(out=task.path, columns={"value": "bytes"},
                                 size_limit=SHARD_BYTES) as writer:
            for value in values:
                writer.write({"value": value})

    def batches(self, task):
        import streaming
        import torch.utils.data
        dataset = streaming.StreamingDataset(
            local=task.path, batch_size=task.batch_size, shuffle=task.order == "shuffled",
            shuffle_algo="naive", shuffle_seed=task.positive_seed, num_canonical_nodes=1)
        yield from torch.utils.data.DataLoader(
            dataset, batch_size=task.batch_size, num_workers=task.workers, collate_fn=collate)


def collate(samples):
    return interface.collate([sample["value"] for sample in samples])
