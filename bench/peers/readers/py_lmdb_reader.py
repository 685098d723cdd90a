"""py-lmdb in one process and one transaction."""

import itertools

import peer_source
from readers import interface


class Reader(interface.Reader):
    """Values are views of the map until the batch copies them."""

    label = "py-lmdb"
    modules = ("lmdb", "torch", "xxhash")
    is_peer = False
    has_workers = False
    promises = interface.Promises(
        shuffle="global: a list of all records", resume="by the caller", record="view")

    def prepare(self, task):
        self.records = peer_source.Records(task.path, task.limit, task.readahead)
        self.numbers = peer_source.order_of(len(self.records.keys), task)

    def batches(self, task):
        keys = self.records.keys
        with self.records.open() as environment, environment.begin(buffers=True) as transaction:
            if task.order == "sequential":
                cursor = transaction.cursor().iternext(keys=False, values=True)
                values = itertools.islice(cursor, len(keys))
            else:
                values = (transaction.get(keys[number]) for number in self.numbers)
            for group in interface.grouped(values, task.batch_size):
                yield interface.collate(group)
