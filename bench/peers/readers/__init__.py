"""The readers of bench/peers/compare.py."""

import importlib
import importlib.util
import pathlib

# In the order of the table. Each is a module of this folder with a class `Reader`.
NAMES = ("py_lmdb", "dataloader", "lmdbio_bench", "lmdbio_loader", "lmdbio_torch", "dali", "mosaic",
         "webdataset", "litdata", "grain", "arrayrecord")
MODULES = {name: f"readers.{name}_reader" for name in NAMES}


def find(name):
    """The reader of a name, or of the path of a Python file.

    Errors: whatever the import of the file raises.
    """
    if name in MODULES:
        return importlib.import_module(MODULES[name]).Reader()
    spec = importlib.util.spec_from_file_location(pathlib.Path(name).stem, name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Reader()
