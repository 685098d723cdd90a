"""ArrayRecord in PyTorch's DataLoader, which asks for the records of a batch in one call."""

import pathlib

from readers import interface

OPTIONS = "group_size:1,uncompressed"  # random access to single records
FILE_BYTES = 256 << 20


def make_files(task, values):
    from array_record.python import array_record_module
    writer, byte_count, number = None, 0, 0
    for value in values:
        if writer is None:
            name = str(pathlib.Path(task.path, f"{number:06d}.array_record"))
            writer = array_record_module.ArrayRecordWriter(name, OPTIONS)
            byte_count, number = 0, number + 1
        writer.write(value)
        byte_count += len(value)
        if byte_count >= FILE_BYTES:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


def paths_of(task):
    return sorted(map(str, pathlib.Path(task.path).glob("*.array_record")))


class Reader(interface.Reader):
    """Shuffles with PyTorch's sampler."""

    label = "ArrayRecord"
    modules = ("array_record.python.array_record_data_source", "torch", "xxhash")
    format = "arrayrecord"
    promises = interface.Promises(
        shuffle="global: a list of all records", resume="by the caller", record="copy")

    def make(self, task, values):
        make_files(task, values)

    def batches(self, task):
        import torch.utils.data
        from array_record.python import array_record_data_source
        with array_record_data_source.ArrayRecordDataSource(paths_of(task)) as records:
            generator = torch.Generator().manual_seed(task.positive_seed)
            yield from torch.utils.data.DataLoader(
                records, batch_size=task.batch_size, shuffle=task.order == "shuffled",
                generator=generator, num_workers=task.workers, collate_fn=interface.collate)
