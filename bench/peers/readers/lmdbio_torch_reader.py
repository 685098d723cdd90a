"""lmdbio.torch in a DataLoader."""

import os
import pathlib
import sys

from readers import interface

PACKAGE = interface.ROOT / "lmdbio" / "api" / "python"
SHUFFLES = {"sequential": False, "shuffled": "global", "block": "block"}


def batch_of(batch):
    """Converts a batch of lmdbio to the result of interface.collate."""
    import torch
    rows, sizes = batch.array(copy=True), batch.sizes
    if (sizes == rows.shape[1]).all():
        return torch.from_numpy(rows), sizes.tolist()
    return interface.collate(batch.values())


def as_it_is(batch):
    """Without a collate_fn, a DataLoader looks at each number of the list of sizes."""
    return batch


class Reader(interface.Reader):
    """Without workers the DataLoader only passes the batches on."""

    label = "lmdbio.torch"
    modules = ("torch", "lmdbio.torch")
    orders = tuple(SHUFFLES)
    is_peer = False
    ignores_limit = True
    promises = interface.LMDBIO_PROMISES

    def check_installed(self, task):
        """`check` finds the package in the tree."""
        if not pathlib.Path(task.lmdbio_library).is_file():
            raise interface.Absent("liblmdbio is not built")

    def check(self, task):
        os.environ["LMDBIO_LIBRARY"] = task.lmdbio_library
        sys.path.insert(0, str(PACKAGE))
        super().check(task)

    def batches(self, task):
        import lmdbio.torch
        import torch.utils.data
        dataset = lmdbio.torch.IterableDataset(
            task.path, task.batch_size, shuffle=SHUFFLES[task.order],
            seed=task.seed & interface.MASK, decode=batch_of,
            layout_cache="off")
        yield from torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=task.workers,
                                               collate_fn=as_it_is)
