"""lmdbio.Loader in one process, without a DataLoader."""

from readers import interface, lmdbio_torch_reader


class Reader(lmdbio_torch_reader.Reader):
    """A plain loop over batches, as py-lmdb has one."""

    label = "lmdbio.Loader"
    modules = ("torch", "lmdbio")
    promises = interface.Promises(
        shuffle="global: any record may come anywhere", resume="a state of a few numbers, exact",
        record="view")

    def title(self, workers):
        return self.label

    def workers(self, requested):
        return [None]

    def batches(self, task):
        import lmdbio
        with lmdbio.Loader(task.path, task.batch_size,
                           lmdbio_torch_reader.SHUFFLES[task.order],
                           seed=task.seed & interface.MASK, layout_cache="off") as loader:
            for batch in loader:
                yield lmdbio_torch_reader.batch_of(batch)
