"""Grain over ArrayRecord."""

from readers import arrayrecord_reader, interface


class Reader(interface.Reader):
    """A permutation of the numbers that needs no list. Threads of Grain read ahead."""

    label = "Grain"
    modules = ("grain", "array_record.python.array_record_data_source", "torch", "xxhash")
    format = "arrayrecord"
    promises = interface.Promises(
        shuffle="global: any record may come anywhere", resume="a state of a few numbers, exact",
        record="copy")

    def make(self, task, values):
        arrayrecord_reader.make_files(task, values)

    def batches(self, task):
        import grain
        import torch
        source = grain.sources.ArrayRecordDataSource(arrayrecord_reader.paths_of(task))
        records = grain.MapDataset.source(source)
        if task.order == "shuffled":
            records = records.shuffle(task.positive_seed)
        # Whole batches are read ahead, ten times as fast as single records.
        batches = records.batch(task.batch_size, batch_fn=join).to_iter_dataset()
        if task.workers > 0:
            options = grain.MultiprocessingOptions(num_workers=task.workers)
            batches = batches.mp_prefetch(options)
        for data, sizes in batches:
            sizes = sizes.tolist()
            yield interface.tensor_of(data, sizes), sizes


def join(values):
    """Arrays, because Grain's workers pass arrays through shared memory."""
    import numpy
    return (numpy.frombuffer(bytearray().join(values), dtype=numpy.uint8),
            numpy.array([len(value) for value in values]))
