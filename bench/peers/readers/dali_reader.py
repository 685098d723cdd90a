"""DALI's reader of Caffe databases, on the processor."""

import peer_source
from readers import interface

BUFFER_RECORDS = 1_024  # the default of `initial_fill`
PREFETCH_BATCHES = 2


class Reader(interface.Reader):
    """Reads an LMDB database of Datum records. Its threads are DALI's, its one reader too."""

    label = "DALI"
    modules = ("nvidia.dali", "nvidia.dali.fn", "torch", "xxhash")
    format = "datum"
    promises = interface.Promises(
        shuffle=f"buffer of {BUFFER_RECORDS:,} records", resume="a checkpoint, by reading on",
        record="copy")

    def title(self, workers):
        return f"{self.label}, {max(workers, 1)} thread{'s' * (workers > 1)}"

    def make(self, task, values):
        import lmdb
        source_bytes = peer_source.data_file(task.source).stat().st_size
        map_size = 2 * source_bytes + (1 << 30)
        with lmdb.open(task.path, map_size=map_size, lock=False) as environment:
            for start, group in enumerate(interface.grouped(values, 1_000)):
                with environment.begin(write=True) as transaction:
                    for number, value in enumerate(group):
                        key = b"%010d" % (start * 1_000 + number)
                        transaction.put(key, datum(value), append=True)

    def batches(self, task):
        from nvidia.dali import fn, pipeline_def

        @pipeline_def(batch_size=task.batch_size, num_threads=max(task.workers, 1),
                      device_id=None, seed=task.positive_seed,
                      prefetch_queue_depth=PREFETCH_BATCHES)
        def records():
            return fn.readers.caffe(
                path=task.path, label_available=False, name="reader",
                random_shuffle=task.order == "shuffled", initial_fill=BUFFER_RECORDS)

        pipeline = records()
        pipeline.build()
        left = pipeline.epoch_size("reader")
        while left > 0:
            (values,) = pipeline.run()
            yield batch_of(values, min(left, task.batch_size))
            left -= task.batch_size


def batch_of(values, count):
    """Copies the first `count` values, because DALI reuses their memory."""
    import numpy
    import torch
    if values.is_dense_tensor():
        rows = torch.from_numpy(numpy.array(values.as_tensor())[:count])
        return rows, [rows.shape[1]] * count
    return interface.collate([memoryview(numpy.array(values.at(i))) for i in range(count)])


def datum(value):
    """The bytes of Caffe's record with `value` as an encoded image: fields 4 and 7."""
    return b"\x22" + varint(len(value)) + value + b"\x38\x01"


def varint(number):
    """The bytes of a number in protobuf: 7 bits each, the lowest first."""
    text = bytearray()
    while number > 0x7F:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(text + bytes([number]))
