"""lmdbio.Loader in one process, without a DataLoader."""

from readers import interface, lmdbio_torch_reader


class Reader(lmdbio_torch_reader.Reader):
    """A plain loop over batches, as py-lmdb has one."""

    label = "lmdbio.Loader"
    modules = ("torch", "lmdbio")
    has_workers = False

    def batches(self, task):
        import lmdbio
        with lmdbio.Loader(task.path, task.batch_size,
                           lmdbio_torch_reader.SHUFFLES[task.order],
                           seed=task.seed & interface.MASK, layout_cache="off") as loader:
            for batch in loader:
                yield lmdbio_torch_reader.batch_of(batch)
