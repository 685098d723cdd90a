"""PyTorch's DataLoader over py-lmdb."""

import peer_source
from readers import interface


class LmdbDataset:
    """Records by number, a dataset of PyTorch. Each worker opens the database after the fork."""

    def __init__(self, records):
        self.records = records
        self.transaction = None

    def __len__(self):
        return len(self.records.keys)

    def __getitem__(self, number):
        if self.transaction is None:
            self.transaction = self.records.open().begin(buffers=True)
        return self.transaction.get(self.records.keys[number])


class Reader(interface.Reader):
    """The workers build the batches and pass them through shared memory."""

    label = "DataLoader"
    modules = ("lmdb", "torch", "xxhash")
    is_peer = False
    promises = interface.Promises(
        shuffle="global: a list of all records", resume="by the caller", record="view")

    def prepare(self, task):
        self.records = peer_source.Records(task.path, task.limit, task.readahead)
        self.numbers = peer_source.order_of(len(self.records.keys), task)

    def batches(self, task):
        import torch.utils.data
        yield from torch.utils.data.DataLoader(
            LmdbDataset(self.records), batch_size=task.batch_size, sampler=self.numbers,
            num_workers=task.workers, collate_fn=interface.collate)
