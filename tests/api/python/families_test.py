"""The presets of lmdbio.views, and each family's own reader, agree on the samples and their order.

The fixtures are written by the families' own packages and read by them, too; views_test.py has the
same families by their rules, without packages. It needs the environment of
`scripts/setup --families`, and exits with 77 without it.
"""

import argparse
import contextlib
import gzip
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import pickle
import string
import subprocess
import sys
import tempfile
import types
import unittest
from importlib import metadata
from unittest import mock

import numpy as np
from support import HAS_ASAN, run_unless

import lmdbio
from lmdbio import views

# The packages of scripts/setup --families that write or read, and their modules
PACKAGES = {
    "ase": "ase", "ase-db-backends": "ase_db_backends", "atom3d": "atom3d", "basicsr": "basicsr",
    "deepmd-kit": "deepmd", "dpdata": "dpdata", "fairchem-core": "fairchem",
    "indicphotoocr": "IndicPhotoOCR", "lmdb": "lmdb", "mmagic": "mmagic", "mmocr": "mmocr",
    "openocr-python": "openocr", "tape-proteins": "tape", "tensorpack": "tensorpack",
    "torchfm": "torchfm", "unimol-tools": "unimol_tools"}
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "build" / "families" / "bin" / "python"
FAIRCHEM_STAND_INS = ("matplotlib", "pymatgen", "scipy", "torch_scatter")


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds empty modules in place of some that are not installed. Any name is in them.

    The modules of the families import much that has nothing to do with LMDB. Nothing on the way of
    a record, from the writer to the decoded sample, is a stand-in.
    """

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: mock.MagicMock(name=name)
        return module

    def exec_module(self, module):
        pass


@contextlib.contextmanager
def importing(*packages, without=()):
    """Has stand-ins for the modules `without`, as far as they are not installed.

    The packages, and those that they are in, do not run their __init__.py: these import models.
    """
    for package in packages:
        parts = package.split(".")
        for end in range(1, len(parts) + 1):
            name, parent = ".".join(parts[:end]), ".".join(parts[:end - 1])
            if name not in sys.modules:
                module = types.ModuleType(name)
                module.__path__ = importlib.machinery.PathFinder.find_spec(
                    name, sys.modules[parent].__path__ if parent else None
                ).submodule_search_locations
                sys.modules[name] = module
    finder = StandIns(without)
    sys.meta_path.append(finder)  # the last: what is installed is found before
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if getattr(module, "__loader__", None) is finder:
                del sys.modules[name]


def plain(value):
    """The value with hashes in place of arrays and tensors, so that == compares it."""
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def copied(sample):
    """A sample of a dataset or a batch with values of bytes."""
    if isinstance(sample, dict):
        return {name: copied(record) for name, record in sample.items()}
    return lmdbio.Record(sample.key, bytes(sample.value))


class FamilyCase:
    """The tests of one family.

    write()               makes the fixture, by the writer of the family
    read()                [samples] what the reader of the family returns, in its order
    view()                the preset
    decode(sample)        what the reader makes of a Record, or of a dict of them
    keys_sort_as_numbers  whether the order of keys is that of their numbers, as of padded ones
    """

    count = 137
    keys_sort_as_numbers = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio families ")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.path = cls.folder / f"{cls.__name__}.lmdb"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cls.load()
            cls.write()
            cls.expected = [plain(sample) for sample in cls.read()]

    def check_order(self, samples):
        found = [plain(self.decode(copied(sample))) for sample in samples]
        self.assertEqual(len(found), len(self.expected))
        for i, pair in enumerate(zip(found, self.expected)):
            self.assertEqual(*pair, f"sample {i}")

    def test_the_fixture_can_tell(self):
        self.assertEqual(len(self.expected), self.count)
        self.assertEqual(len(set(map(repr, self.expected))), self.count)
        with lmdbio.Dataset(lmdbio.View(self.view().path)) as dataset:
            keys = [key for key in dataset.keys() if key.isdigit()]
        self.assertEqual(keys == sorted(keys, key=int), self.keys_sort_as_numbers)

    def test_a_dataset_has_the_samples_of_the_reader_in_its_order(self):
        with lmdbio.Dataset(self.view()) as dataset:
            self.assertEqual(len(dataset), self.count)
            self.check_order(dataset[i] for i in range(len(dataset)))

    def test_a_loader_has_them_too(self):
        with lmdbio.Loader(self.view(), batch_size=10) as loader:
            self.check_order(sample for batch in loader for sample in batch)

    def test_a_shuffle_has_each_of_them_once(self):
        with lmdbio.Loader(self.view(), batch_size=10, shuffle=True, seed=2) as loader:
            found = [repr(plain(self.decode(copied(sample)))) for batch in loader
                     for sample in batch]
        expected = list(map(repr, self.expected))
        self.assertTrue(found != expected)
        self.assertEqual(len(found), len(expected))
        self.assertEqual(set(found), set(expected))


class FairchemTest(FamilyCase, unittest.TestCase):
    """fairchem-core 1: its preprocess_ef, which OCP has, too, and its LmdbDataset of a folder."""

    frames = 130  # of each file
    names = ("part.10.lmdb", "part.2.lmdb")  # neither the order of writing nor of numbers counts
    count = 260

    @classmethod
    def load(cls):
        importlib.import_module("torch_geometric")  # it looks for torch_scatter, so it comes before
        with importing("fairchem.core.datasets", without=FAIRCHEM_STAND_INS):
            import ase.build
            import ase.io
            from ase.calculators.singlepoint import SinglePointCalculator
            from fairchem.core.datasets.lmdb_dataset import LmdbDataset, pyg2_data_transform
            from fairchem.core.scripts import preprocess_ef
        cls.ase, cls.calculator = ase, SinglePointCalculator
        cls.writer, cls.dataset = preprocess_ef, LmdbDataset
        cls.transform = staticmethod(pyg2_data_transform)

    @classmethod
    def write(cls):
        source = cls.folder / "source"
        source.mkdir()
        for number in range(2):
            images, log = [], ""
            for i in range(cls.frames):
                atoms = cls.ase.build.molecule("H2O", tags=[0, 1, 1])
                atoms.positions += 0.001 * i + number
                atoms.calc = cls.calculator(atoms, energy=-i, forces=atoms.positions / 7)
                images.append(atoms)
                log += f"random{number},frame{i},{i}.5\n"
            cls.ase.io.write(source / f"{number}.extxyz", images)
            (source / f"{number}.txt").write_text(log)
        written = cls.folder / "train"
        cls.writer.main(argparse.Namespace(
            data_path=str(source), out_path=str(written), num_workers=2, get_edges=False,
            ref_energy=True, test_data=False))
        for i, name in enumerate(cls.names):
            (written / f"data.{i:04d}.lmdb").rename(written / name)
        cls.path = written

    @classmethod
    def view(cls):
        return views.fairchem(cls.path)

    @classmethod
    def read(cls):
        return [cls.reduce(data) for data in cls.dataset({"src": str(cls.path)})]

    @classmethod
    def reduce(cls, data):
        return {key: value for key, value in data.to_dict().items() if key != "id"}

    @classmethod
    def decode(cls, sample):
        return cls.reduce(cls.transform(pickle.loads(sample.value)))


class FairchemFileTest(FairchemTest):
    """The same with one file."""

    count = FairchemTest.frames

    @classmethod
    def write(cls):
        super().write()
        cls.path /= cls.names[0]


class AseLmdbTest(FamilyCase, unittest.TestCase):
    """ase-db-backends: a folder of files with deleted rows, and fairchem's AseDBDataset of it."""

    # Names, numbers of rows, numbers of the rows that are deleted
    files = (("part.2.aselmdb", 130, (4, 41, 130)), ("part.10.aselmdb", 121, (1, 100)))
    count = 246

    @classmethod
    def load(cls):
        with importing("fairchem.core.datasets", without=FAIRCHEM_STAND_INS):
            import ase.build
            import ase.db.row
            from ase_db_backends.aselmdb import decode_bytestream
            from fairchem.core.datasets.ase_datasets import AseDBDataset
        cls.connect, cls.row, cls.unpack = map(staticmethod, (
            ase.db.connect, ase.db.row.AtomsRow, decode_bytestream))
        cls.molecule, cls.dataset = staticmethod(ase.build.molecule), AseDBDataset

    @classmethod
    def write(cls):
        cls.path = cls.folder / "train"
        cls.path.mkdir()
        for name, rows, deleted in cls.files:
            path = cls.path / name
            with cls.connect(path, type="aselmdb") as database:
                database.metadata = {"about": name}
                for i in range(rows):
                    atoms = cls.molecule("H2O")
                    atoms.positions += 0.01 * i + rows
                    database.write(atoms, data={"file": name, "row": i})
            database = cls.connect(path, type="aselmdb")
            database.delete(list(deleted))
            database.close()

    @classmethod
    def view(cls):
        return views.aselmdb(cls.path)

    @classmethod
    def read(cls):
        dataset = cls.dataset({"src": str(cls.path)})
        return [cls.reduce(dataset.get_atoms(i)) for i in range(len(dataset))]

    @classmethod
    def reduce(cls, atoms):
        return {"info": atoms.info, "numbers": atoms.numbers, "positions": atoms.positions}

    @classmethod
    def decode(cls, sample):
        row = cls.row({**cls.unpack(sample.value, json_decode=True), "id": int(sample.key)})
        atoms = row.toatoms()
        atoms.info.update(row.data)
        return cls.reduce(atoms)

    def test_ase_selects_the_same_rows(self):
        found = []
        for path in sorted(self.path.glob("*.aselmdb")):
            with self.connect(path, type="aselmdb", readonly=True) as database:
                found += [row.id for row in database.select()]
        with lmdbio.Dataset(self.view()) as dataset:
            self.assertEqual([int(key) for key in dataset.keys()], found)


class DeepMdTest(FamilyCase, unittest.TestCase):
    """dpdata and DeePMD-kit write; DeePMD-kit's LmdbDataReader reads."""

    keys_sort_as_numbers = True

    @classmethod
    def load(cls):
        import dpdata

        with importing("deepmd.dpmodel.utils",
                       without=("h5py", "ml_dtypes", "array_api_compat", "mendeleev")):
            from deepmd.dpmodel.utils import lmdb_data
        cls.dpdata, cls.lmdb_data = dpdata, lmdb_data

    @classmethod
    def write(cls):
        generator = np.random.default_rng(3)
        parts = []
        for number, frames in enumerate((100, 37)):
            atoms = 3 + number
            shape = (frames, atoms, 3)
            system = cls.dpdata.LabeledSystem(data={
                "atom_names": ["O", "H"], "atom_numbs": [1, atoms - 1],
                "atom_types": np.array([0] + [1] * (atoms - 1)), "orig": np.zeros(3),
                "cells": np.tile(np.eye(3) * 9, (frames, 1, 1)), "coords": generator.random(shape),
                "energies": generator.random(frames), "forces": generator.random(shape)})
            parts.append(str(cls.folder / f"part{number}.lmdb"))
            system.to("deepmd/lmdb", parts[-1])
        cls.lmdb_data.merge_lmdb(parts, str(cls.path))

    @classmethod
    def view(cls):
        return views.deepmd(cls.path)

    @classmethod
    def read(cls):
        cls.reader = cls.lmdb_data.LmdbDataReader(str(cls.path), ["O", "H"])
        # py-lmdb knows open files by their inodes, and those of the next class may get them.
        cls.addClassCleanup(cls.reader.close)
        return [cls.reader[i] for i in range(len(cls.reader))]

    @classmethod
    def decode(cls, sample):
        return cls.lmdb_data.decode_lmdb_frame(sample.value, int(sample.key),
                                               cls.reader.decode_config, copy_arrays=True)

    def test_dpdata_reads_the_same_frames(self):
        path = self.folder / "part0.lmdb"
        expected = self.dpdata.LabeledSystem(str(path), "deepmd/lmdb")["coords"]
        with lmdbio.Dataset(views.deepmd(path)) as dataset:
            found = [self.decode(record)["coord"] for record in dataset[:]]
        np.testing.assert_array_equal(found, expected)


class UniMolTest(FamilyCase, unittest.TestCase):
    """unimol_tools: the writer of its pretraining, and its LMDBDataset."""

    @classmethod
    def load(cls):
        with importing("unimol_tools.pretrain",
                       without=("joblib", "pandas", "rdkit", "scipy", "sklearn")):
            from unimol_tools.pretrain.dataset import LMDBDataset
            from unimol_tools.pretrain.preprocess import write_dicts_to_lmdb
        cls.dataset, cls.writer = LMDBDataset, staticmethod(write_dicts_to_lmdb)

    @classmethod
    def write(cls):
        cls.writer(str(cls.path), (
            {"atoms": ["C"] * (i % 5 + 1), "coordinates": np.full((i % 5 + 1, 3), i, np.float32),
             "smi": "C" * i} for i in range(cls.count)))

    @classmethod
    def view(cls):
        return views.unimol(cls.path)

    @classmethod
    def read(cls):
        dataset = cls.dataset(str(cls.path))
        return [dataset[i] for i in range(len(dataset))]

    @classmethod
    def decode(cls, sample):
        return pickle.loads(sample.value)


class TapeTest(FamilyCase, unittest.TestCase):
    """tape_proteins: its write_lmdb and its LMDBDataset."""

    @classmethod
    def load(cls):
        with importing("tape", without=("boto3", "botocore", "filelock", "scipy")):
            from tape.datasets import LMDBDataset
            from tape.utils import write_lmdb
        cls.dataset, cls.writer = LMDBDataset, staticmethod(write_lmdb)

    @classmethod
    def write(cls):
        cls.writer(str(cls.path), ({"primary": "MK" * i, "id": f"protein {i}"}
                                   for i in range(cls.count)), map_size=1 << 24)

    @classmethod
    def view(cls):
        return views.tape(cls.path)

    @classmethod
    def read(cls):
        return list(cls.dataset(cls.path))

    @classmethod
    def decode(cls, sample):
        return pickle.loads(sample.value)


class Atom3dTest(FamilyCase, unittest.TestCase):
    """atom3d: its make_lmdb_dataset with JSON, and its LMDBDataset."""

    format = "json"

    @classmethod
    def load(cls):
        with importing(without=("Bio", "pandas")):
            from atom3d.datasets import datasets
        cls.module = datasets

    @classmethod
    def write(cls):
        cls.module.make_lmdb_dataset([{"id": f"protein {i}", "scores": [i] * 3}
                                      for i in range(cls.count)], cls.path,
                                     serialization_format=cls.format)

    @classmethod
    def view(cls):
        return views.tape(cls.path)

    @classmethod
    def read(cls):
        return [cls.reduce(sample) for sample in cls.module.LMDBDataset(cls.path)]

    @classmethod
    def reduce(cls, sample):
        return {key: value for key, value in sample.items() if key != "file_path"}

    @classmethod
    def decode(cls, sample):
        return cls.module.deserialize(gzip.decompress(sample.value), cls.format)


class Atom3dPickleTest(Atom3dTest):
    """The same with pickles."""

    format = "pkl"


class TensorpackTest(FamilyCase, unittest.TestCase):
    """tensorpack: its LMDBSerializer writes and reads."""

    keys_sort_as_numbers = True

    @classmethod
    def load(cls):
        with importing(without=("zmq",)):
            from tensorpack import dataflow
            from tensorpack.utils import serialize
        cls.dataflow, cls.unpack = dataflow, staticmethod(serialize.loads)

    @classmethod
    def write(cls):
        items = [[i, np.full(i % 50, i, np.float32)] for i in range(cls.count)]
        cls.dataflow.LMDBSerializer.save(cls.dataflow.DataFromList(items, shuffle=False),
                                         str(cls.path))

    @classmethod
    def view(cls):
        return views.tensorpack(cls.path)

    @classmethod
    def read(cls):
        flow = cls.dataflow.LMDBSerializer.load(str(cls.path), shuffle=False)
        flow.reset_state()
        return list(flow)

    @classmethod
    def decode(cls, sample):
        return cls.unpack(sample.value)


class OcrTest(FamilyCase, unittest.TestCase):
    """OpenOCR's form of clova's create_lmdb_dataset, and PARSeq's LmdbDataset."""

    keys_sort_as_numbers = True

    @classmethod
    def load(cls):
        with importing("openocr.tools", "IndicPhotoOCR.utils"):
            from IndicPhotoOCR.utils.strhub.data.dataset import LmdbDataset
            from openocr.tools.create_lmdb_dataset import createDataset
        cls.dataset, cls.writer = LmdbDataset, staticmethod(createDataset)

    @classmethod
    def images(cls):
        """Writes the images, and returns their paths and texts."""
        import PIL.Image

        found = []
        for i in range(cls.count):
            path = cls.folder / f"{i}.png"
            PIL.Image.new("RGB", (8 + i, 9), (i, 255 - i, 7)).save(path)
            found.append((str(path), f"word{i}"))
        return found

    @classmethod
    def write(cls):
        cls.writer(cls.images(), str(cls.path))

    @classmethod
    def view(cls):
        return views.ocr(cls.path)

    @classmethod
    def read(cls):
        dataset = cls.dataset(str(cls.path), string.ascii_letters + string.digits, 25)
        return [(np.asarray(image), label) for image, label in map(dataset.__getitem__,
                                                                   range(len(dataset)))]

    @classmethod
    def decode(cls, sample):
        import PIL.Image

        image = PIL.Image.open(io.BytesIO(sample["image"].value)).convert("RGB")
        return np.asarray(image), sample["label"].value.decode()


class MmocrTest(OcrTest):
    """MMOCR: its TextRecogLMDBDumper and its RecogLMDBDataset."""

    @classmethod
    def load(cls):
        with importing("mmocr.datasets.preparers.dumpers", without=("matplotlib", "rich", "yapf")):
            import mmcv
            from mmocr.datasets.preparers.dumpers.lmdb_dumper import TextRecogLMDBDumper
            from mmocr.datasets.recog_lmdb_dataset import RecogLMDBDataset
        cls.dataset, cls.writer, cls.image_of = (RecogLMDBDataset, TextRecogLMDBDumper,
                                                 staticmethod(mmcv.imfrombytes))

    @classmethod
    def write(cls):
        dumper = cls.writer("textrecog", "train", str(cls.folder))
        dumper.dump({"data_list": [{"img_path": path, "instances": [{"text": text}]}
                                   for path, text in cls.images()]})
        cls.path = cls.folder / "textrecog_train.lmdb"

    @classmethod
    def read(cls):
        dataset = cls.dataset(ann_file=str(cls.path))
        return [(sample["img"], sample["instances"][0]["text"]) for sample in dataset]

    @classmethod
    def decode(cls, sample):
        return cls.image_of(sample["image"].value), sample["label"].value.decode("utf-8")


class BasicSrTest(FamilyCase, unittest.TestCase):
    """BasicSR: its make_lmdb_from_imgs and its PairedImageDataset."""

    @classmethod
    def load(cls):
        with importing("basicsr.data", without=("torchvision",)):
            from basicsr.data.paired_image_dataset import PairedImageDataset
            from basicsr.utils import img2tensor, imfrombytes
            from basicsr.utils.lmdb_util import make_lmdb_from_imgs
        cls.dataset, cls.writer = PairedImageDataset, staticmethod(make_lmdb_from_imgs)
        cls.image_of = staticmethod(lambda value: img2tensor(imfrombytes(value, float32=True)))

    @classmethod
    def write(cls):
        import cv2

        cls.gt = cls.folder / "gt.lmdb"
        for path, size in (cls.path, 6), (cls.gt, 12):
            source = path.with_suffix(".images")
            source.mkdir()
            names = [f"{i}" for i in range(cls.count)]
            for i, name in enumerate(names):
                cv2.imwrite(str(source / f"{name}.png"), np.full((size, size, 3), i, np.uint8))
            cls.writer(str(source), str(path), [f"{name}.png" for name in names], names)

    @classmethod
    def view(cls):
        return views.basicsr(cls.path, cls.gt)

    @classmethod
    def read(cls):
        dataset = cls.dataset({"dataroot_gt": str(cls.gt), "dataroot_lq": str(cls.path),
                               "io_backend": {"type": "lmdb"}, "phase": "val", "scale": 2})
        return [{name: sample[name] for name in ("lq", "gt")} for sample in
                map(dataset.__getitem__, range(len(dataset)))]

    @classmethod
    def decode(cls, sample):
        return {name: cls.image_of(record.value) for name, record in sample.items()}


class MmagicTest(BasicSrTest):
    """mmagic: make_lmdb of its converters, and its BasicImageDataset, in the order of the list."""

    @classmethod
    def load(cls):
        with importing("mmagic.datasets.transforms",
                       without=("click", "matplotlib", "rich", "torchvision", "yapf")):
            import mmcv
            from mmagic.datasets.basic_image_dataset import BasicImageDataset
            from mmagic.datasets.transforms.loading import LoadImageFromFile
            path = next(path for path in metadata.files("mmagic")
                        if path.name == "preprocess_df2k_ost_dataset.py").locate()
            spec = importlib.util.spec_from_file_location("mmagic_converter", path)
            converter = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(converter)
        cls.dataset, cls.load_image = BasicImageDataset, LoadImageFromFile
        cls.writer, cls.image_of = map(staticmethod, (converter.make_lmdb, mmcv.imfrombytes))

    @classmethod
    def keys(cls):
        lines = (cls.gt / "meta_info.txt").read_text().splitlines()
        return [line.split(".")[0] for line in lines]

    @classmethod
    def view(cls):
        return views.basicsr(cls.path, cls.gt, subset=cls.keys())

    @classmethod
    def read(cls):
        paths = {"lq": cls.path, "gt": cls.gt}
        pipeline = [cls.load_image(name, backend_args={"backend": "lmdb", "db_path": str(path)})
                    for name, path in paths.items()]
        dataset = cls.dataset(ann_file=str(cls.gt / "meta_info.txt"), data_root=str(cls.folder),
                              data_prefix=dict.fromkeys(paths, ""), pipeline=pipeline)
        return [{name: sample[name] for name in paths} for sample in dataset]


def arrays_source():
    """Returns the folder of a clone, or fails with a visible skip."""
    folder = os.environ.get("LMDBIO_ARRAYS_SOURCE")
    if not folder:
        raise unittest.SkipTest("the family of `arrays` has no package: clone one of its "
                                "repositories and set LMDBIO_ARRAYS_SOURCE to the folder")
    return pathlib.Path(folder)


class ArraysTest(FamilyCase, unittest.TestCase):
    """Self-Forcing and others: a script and a dataset that their repositories share. The script
    reads files that a network has written."""

    keys_sort_as_numbers = True
    script = "create_lmdb_iterative.py"
    shape = 1, 3, 4, 5, 6

    @classmethod
    def load(cls):
        source = arrays_source()
        sys.path.insert(0, str(source))
        cls.addClassCleanup(sys.path.remove, str(source))
        cls.writer = source / "scripts" / cls.script
        spec = importlib.util.spec_from_file_location("arrays_dataset",
                                                      source / "utils" / "dataset.py")
        cls.reader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.reader)

    @classmethod
    def write_outputs(cls, folder):
        """Writes a prompt and its video to each file, as the networks do."""
        import torch

        folder.mkdir(parents=True)
        for i in range(cls.count):
            video = torch.full(cls.shape, i / 4)
            torch.save({f"a cat, {i} times \u00e4": video}, folder / f"{i:05d}.pt")

    @classmethod
    def run_writer(cls, outputs, *arguments):
        subprocess.run([sys.executable, cls.writer, "--data_path", outputs, "--lmdb_path", cls.path,
                        *arguments], env={**os.environ, "PYTHONPATH": str(cls.writer.parents[1])},
                       check=True, capture_output=True)

    @classmethod
    def write(cls):
        cls.write_outputs(cls.folder / "outputs")
        cls.run_writer(cls.folder / "outputs")

    @classmethod
    def view(cls):
        return views.arrays(cls.path, "latents", "prompts")

    @classmethod
    def read(cls):
        dataset = cls.reader.ODERegressionLMDBDataset(str(cls.path))
        return [dataset[i] for i in range(len(dataset))]

    @classmethod
    def decode(cls, sample):
        latents = np.frombuffer(sample["latents"].value, np.float16).reshape(cls.shape[1:])
        return {"prompts": sample["prompts"].value.decode(),
                "ode_latent": latents[None].astype(np.float32)}


class ArraysShardsTest(ArraysTest):
    """The same in several files: create_lmdb_14b_shards.py, which takes videos of one shape."""

    count = 23
    script = "create_lmdb_14b_shards.py"
    shape = 1, 21, 16, 60, 104

    @classmethod
    def write(cls):
        cls.write_outputs(cls.folder / "outputs" / "part")
        cls.run_writer(cls.folder / "outputs", "--num_shards", "11")

    @classmethod
    def view(cls):
        return views.arrays(sorted(map(str, cls.path.iterdir())), "latents", "prompts")

    @classmethod
    def read(cls):
        dataset = cls.reader.ShardingLMDBDataset(str(cls.path))
        return [dataset[i] for i in range(len(dataset))]


class RecommenderTest(FamilyCase, unittest.TestCase):
    """pytorch-fm: its AvazuDataset writes and reads. There is no preset: a view is enough."""

    keys_sort_as_numbers = True

    @classmethod
    def load(cls):
        from torchfm.dataset.avazu import AvazuDataset

        cls.dataset = AvazuDataset

    @classmethod
    def write(cls):
        source = cls.folder / "train.csv"
        rows = [[i, i % 2, *((i * j) % (j + 3) for j in range(19)), i % 11, i // 11 % 11,
                 i // 121] for i in range(cls.count)]
        source.write_text("".join(",".join(map(str, row)) + "\n" for row in [["id"] * 24, *rows]))
        cls.dataset(str(source), str(cls.path), min_threshold=1)

    @classmethod
    def view(cls):
        return lmdbio.View(cls.path, exclude="field_dims")

    @classmethod
    def read(cls):
        dataset = cls.dataset(cache_path=str(cls.path))
        # NumPy has had no `long` from 1.24 until 2.0.
        with mock.patch.object(np, "long", np.int64, create=True):
            return [dataset[i] for i in range(len(dataset))]

    @classmethod
    def decode(cls, sample):
        row = np.frombuffer(sample.value, np.uint32).astype(np.int64)
        return row[1:], row[0]


def why_not():
    """Returns why the tests cannot run here; may go on with the Python of scripts/setup."""
    if HAS_ASAN:
        return "the packages of the families run without sanitizers"
    missing = [name for name, module in PACKAGES.items() if not importlib.util.find_spec(module)]
    if missing and PYTHON.exists() and sys.prefix != str(PYTHON.parents[1]):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    if missing:
        return f"there is no {', '.join(missing)}: run scripts/setup --families"
    print("with", ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES), flush=True)
    return None


if __name__ == "__main__":
    run_unless(why_not())
