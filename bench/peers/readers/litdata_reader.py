"""LitData: chunks in its StreamingDataLoader."""

from readers import interface

CHUNK_BYTES = 64 << 20


class Reader(interface.Reader):
    """The chunks come in random order; the records of a chunk are shuffled among themselves."""

    label = "LitData"
    modules = ("litdata", "torch", "xxhash")
    format = "litdata"
    promises = interface.Promises(
        shuffle="chunks of 64 MiB, and records within each",
        resume="a state of a few numbers, exact", record="copy")

    def make(self, task, values):
        from litdata.streaming import Cache
        cache = Cache(task.path, chunk_bytes=CHUNK_BYTES)
        for number, value in enumerate(values):
            cache[number] = value
        cache.done()
        cache.merge()

    def batches(self, task):
        import litdata
        dataset = litdata.StreamingDataset(
            task.path, shuffle=task.order == "shuffled", seed=task.positive_seed, drop_last=False)
        yield from litdata.StreamingDataLoader(
            dataset, batch_size=task.batch_size, num_workers=task.workers,
            collate_fn=interface.collate)
