"""A View gives the samples that the readers of well-known sets find, in their order.

Each family has a writer, which puts the keys, records beside the samples and encodings of values
that its programs put; and a reader, which reads them with py-lmdb by the rules of its programs.
"""

import json
import pathlib
import pickle
import random
import struct
import tempfile
import unittest
import warnings
import zlib

import numpy as np
from support import run_unless

import lmdbio
from lmdbio import views

try:
    import lmdb
except ImportError:
    lmdb = None

MAP_BYTES = 1 << 28


def put_all(path, records, subdir=False, database=None):
    with lmdb.open(str(path), map_size=MAP_BYTES, subdir=subdir, max_dbs=4) as environment:
        handle = None if database is None else environment.open_db(database)
        with environment.begin(write=True, db=handle) as transaction:
            for key, value in records:
                transaction.put(key, value)


def open_read(path, **options):
    return lmdb.open(str(path), readonly=True, lock=False, subdir=pathlib.Path(path).is_dir(),
                     **options)


def get_all(path, keys):
    """[keys] the values, by py-lmdb; None for an absent key."""
    with open_read(path) as environment, environment.begin() as transaction:
        return [transaction.get(key) for key in keys]


def msgpack(value):
    """The msgpack encoding of small dicts, lists, texts, bytes and numbers."""
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(
            msgpack(key) + msgpack(one) for key, one in value.items())
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(msgpack, value))
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value.encode())]) + value.encode()
    if isinstance(value, bytes):
        return b"\xc5" + struct.pack(">H", len(value)) + value
    return b"\xcf" + struct.pack(">Q", value)


def arrays_of(seed, count, shape):
    return np.random.default_rng(seed).random((count, *shape), np.float32)


class Family:
    """A set of one family: its writer, the view of it, and its reader.

    write()   makes the files
    view()    the preset
    read()    the samples: [samples] values, or dicts of values by field
    """

    count = 137

    def __init__(self, folder):
        self.path = folder / f"{type(self).__name__}.lmdb"


class Fairchem(Family):
    def write(self):
        put_all(self.path, [(f"{i}".encode("ascii"), pickle.dumps({"pos": [i] * (i % 7)}, -1))
                            for i in range(self.count)])
        put_all(self.path, [(b"length", pickle.dumps(self.count, -1))])

    def view(self):
        return views.fairchem(self.path)

    def read(self):
        length = pickle.loads(get_all(self.path, [b"length"])[0])
        return get_all(self.path, [f"{i}".encode("ascii") for i in range(length)])


class FairchemWithoutLength(Fairchem):
    def write(self):
        put_all(self.path, [(f"{i}".encode("ascii"), pickle.dumps(i, -1))
                            for i in range(self.count)])

    def read(self):
        with open_read(self.path) as environment:
            length = environment.stat()["entries"]
        return get_all(self.path, [f"{i}".encode("ascii") for i in range(length)])


class AseLmdb(Family):
    def write(self):
        def pack(value):
            return zlib.compress(json.dumps(value, separators=(",", ":")).encode())

        deleted = [3, 40, self.count]
        put_all(self.path, [(f"{i}".encode("ascii"), pack({"numbers": [i] * (i % 9), "id": i}))
                            for i in range(1, self.count + 1)])
        with lmdb.open(str(self.path), map_size=MAP_BYTES, subdir=False) as environment:
            with environment.begin(write=True) as transaction:
                for i in deleted:
                    transaction.delete(f"{i}".encode("ascii"))
                transaction.put(b"deleted_ids", pack(deleted))
                transaction.put(b"nextid", pack(self.count + 1))
                transaction.put(b"metadata", pack({"about": "test"}))

    def view(self):
        return views.aselmdb(self.path)

    def read(self):
        def unpack(value):
            return json.loads(zlib.decompress(value))

        next_id, deleted = map(unpack, get_all(self.path, [b"nextid", b"deleted_ids"]))
        return get_all(self.path, [f"{i}".encode("ascii") for i in range(1, next_id)
                                   if i not in set(deleted)])


class DeepMd(Family):
    def write(self):
        frames = arrays_of(1, self.count, (5, 3))
        put_all(self.path, [
            (format(i, "012d").encode(), msgpack({"coords": {"data": frame.tobytes(),
                                                             "shape": [5, 3]}}))
            for i, frame in enumerate(frames)], subdir=True)
        put_all(self.path, [(b"__metadata__", msgpack(
            {"nframes": self.count, "frame_nlocs": [5] * self.count}))], subdir=True)

    def view(self):
        return views.deepmd(self.path)

    def read(self):
        metadata = get_all(self.path, [b"__metadata__"])[0]
        at = metadata.index(b"nframes") + len(b"nframes")
        count = struct.unpack(">Q", metadata[at + 1:at + 9])[0]
        return get_all(self.path, [format(i, "012d").encode() for i in range(count)])


class UniMol(Family):
    def write(self):
        put_all(self.path, [(f"{i}".encode("ascii"), pickle.dumps({"smi": "C" * i}, -1))
                            for i in range(self.count)])

    def view(self):
        return views.unimol(self.path)

    def read(self):
        with open_read(self.path) as environment, environment.begin() as transaction:
            count = len(list(transaction.cursor().iternext(values=False)))
            return [transaction.get(f"{i}".encode("ascii")) for i in range(count)]


class UniCore(UniMol):
    """The same file by Uni-Core's own reader, which counts in key order."""

    def view(self):
        return lmdbio.View(self.path)

    def read(self):
        with open_read(self.path) as environment, environment.begin() as transaction:
            keys = list(transaction.cursor().iternext(values=False))
            return [transaction.get(key) for key in keys]


class Tape(Family):
    def write(self):
        put_all(self.path, [(str(i).encode(), pickle.dumps({"primary": "MK" * i, "id": i}))
                            for i in range(self.count)], subdir=True)
        put_all(self.path, [(b"num_examples", pickle.dumps(self.count))], subdir=True)

    def view(self):
        return views.tape(self.path)

    def read(self):
        count = pickle.loads(get_all(self.path, [b"num_examples"])[0])
        return get_all(self.path, [str(i).encode() for i in range(count)])


class Atom3d(Tape):
    def write(self):
        import gzip

        put_all(self.path, [(str(i).encode(), gzip.compress(json.dumps({"id": i}).encode()))
                            for i in range(self.count)], subdir=True)
        put_all(self.path, [(b"num_examples", str(self.count).encode()),
                            (b"serialization_format", b"json"),
                            (b"id_to_idx", gzip.compress(b"{}"))], subdir=True)

    def read(self):
        count = int(get_all(self.path, [b"num_examples"])[0])
        return get_all(self.path, [str(i).encode() for i in range(count)])


class Tensorpack(Family):
    key = "{:08d}"

    def write(self):
        keys = [self.key.format(i).encode("ascii") for i in range(self.count)]
        put_all(self.path, [(key, msgpack({"image": key * i, "label": i}))
                            for i, key in enumerate(keys)])
        put_all(self.path, [(b"__keys__", pickle.dumps(keys)),
                            (b"__len__", pickle.dumps(len(keys)))])

    def view(self):
        return views.tensorpack(self.path)

    def read(self):
        return get_all(self.path, pickle.loads(get_all(self.path, [b"__keys__"])[0]))


class EfficientPyTorch(Tensorpack):
    key = "{}"


class Ocr(Family):
    def write(self):
        put_all(self.path, [
            record for i in range(1, self.count + 1) for record in (
                (b"image-%09d" % i, b"\xff\xd8" + bytes([i]) * (50 * i)),
                (b"label-%09d" % i, f"word \u00e4 {i}".encode()))], subdir=True)
        put_all(self.path, [(b"num-samples", str(self.count).encode())], subdir=True)

    def view(self):
        return views.ocr(self.path)

    def read(self):
        count = int(get_all(self.path, [b"num-samples"])[0])
        return [dict(zip(("image", "label"), get_all(
            self.path, [b"image-%09d" % i, b"label-%09d" % i]))) for i in range(1, count + 1)]


class Arrays(Family):
    def write(self):
        latents = arrays_of(2, self.count, (3, 4, 4))
        put_all(self.path, [(f"latents_{i}_data".encode(), one.tobytes())
                            for i, one in enumerate(latents)], subdir=True)
        put_all(self.path, [(f"prompts_{i}_data".encode(), f"a cat, {i} times".encode())
                            for i in range(self.count)], subdir=True)
        for name, shape in ("latents", latents.shape), ("prompts", (self.count,)):
            put_all(self.path, [(f"{name}_shape".encode(), " ".join(map(str, shape)).encode())],
                    subdir=True)

    def view(self):
        return views.arrays(self.path, "latents", "prompts")

    def read(self):
        shape = tuple(map(int, get_all(self.path, [b"latents_shape"])[0].decode().split()))
        return [dict(zip(("latents", "prompts"), get_all(self.path, [
            f"{name}_{i}_data".encode() for name in ("latents", "prompts")])))
            for i in range(shape[0])]


class BasicSr(Family):
    """Two databases in folders, and meta_info.txt beside data.mdb."""

    def write(self):
        self.gt = self.path.with_suffix(".gt")
        names = [f"{random.Random(i).getrandbits(40):010x}" for i in range(self.count)]
        for path, length in (self.path, 20), (self.gt, 300):
            put_all(path, [(name.encode("ascii"), name.encode() * length) for name in names],
                    subdir=True)
            (path / "meta_info.txt").write_text(
                "".join(f"{name}.png ({length},{length},3) 1\n" for name in names))

    def view(self):
        return views.basicsr(self.path, self.gt)

    def read(self):
        keys = {}
        for path in self.path, self.gt:
            lines = (path / "meta_info.txt").read_text().splitlines()
            keys[path] = {line.split(".")[0] for line in lines}
        assert keys[self.path] == keys[self.gt]
        names = [name.encode() for name in sorted(keys[self.gt])]
        return [{"lq": lq, "gt": gt} for lq, gt in zip(get_all(self.path, names),
                                                      get_all(self.gt, names))]


class Mmagic(BasicSr):
    """The same files by mmagic's reader, in the order of meta_info.txt."""

    def keys(self):
        lines = (self.gt / "meta_info.txt").read_text().splitlines()
        return [line.split(".")[0] for line in lines]

    def view(self):
        return views.basicsr(self.path, self.gt, subset=self.keys())

    def read(self):
        names = [name.encode() for name in self.keys()]
        return [{"lq": lq, "gt": gt} for lq, gt in zip(get_all(self.path, names),
                                                      get_all(self.gt, names))]


class FairchemFiles(Family):
    """data.0000.lmdb, data.0001.lmdb, ...: each counts from 0 and has a record `length`."""

    names = ("data.0000.lmdb", "data.0001.lmdb", "data.0002.lmdb")

    def write(self):
        self.path = self.path.with_suffix(".files")
        self.path.mkdir()
        for file_number, count in enumerate((40, 11, 86)):
            path = self.path / self.names[file_number]
            put_all(path, [(f"{i}".encode("ascii"), pickle.dumps((file_number, i), -1))
                           for i in range(count)])
            put_all(path, [(b"length", pickle.dumps(count, -1))])

    def view(self):
        return views.fairchem(sorted(self.path.glob("*.lmdb")))

    def read(self):
        found = []
        for path in sorted(self.path.glob("*.lmdb")):
            length = pickle.loads(get_all(path, [b"length"])[0])
            found += get_all(path, [f"{i}".encode("ascii") for i in range(length)])
        return found


class FairchemFolder(FairchemFiles):
    """A folder of them: the reader takes them in the order of their names."""

    names = ("2.lmdb", "10.lmdb", "1.lmdb")

    def write(self):
        super().write()
        (self.path / "data_log.0000.txt").write_text("random1,frame0")

    def view(self):
        return views.fairchem(self.path)


class AseLmdbFolder(AseLmdb):
    """A folder of *.aselmdb, and sizes beside them."""

    def write(self):
        self.folder = self.path.with_suffix(".files")
        self.folder.mkdir()
        for name, self.count in ("2.aselmdb", 50), ("10.aselmdb", 87):
            self.path = self.folder / name
            super().write()
        (self.folder / "metadata.npz").touch()

    def view(self):
        return views.aselmdb(str(self.folder))

    def read(self):
        found = []
        for self.path in sorted(self.folder.glob("*.aselmdb")):
            found += super().read()
        return found


class Recommender(Family):
    """pytorch-fm: keys of 4 bytes, whose order is that of the numbers; `field_dims` beside them."""

    def write(self):
        put_all(self.path, [(struct.pack(">I", i), np.full(23, i, np.uint32).tobytes())
                            for i in range(self.count)], subdir=True)
        put_all(self.path, [(b"field_dims", np.arange(22, dtype=np.uint32).tobytes())], subdir=True)

    def view(self):
        return lmdbio.View(self.path, exclude="field_dims")

    def read(self):
        with open_read(self.path) as environment:
            count = environment.stat()["entries"] - 1
        return get_all(self.path, [struct.pack(">I", i) for i in range(count)])


class NamedDatabases(Family):
    """The same keys in the databases `image` and `label` of one file."""

    def write(self):
        for i in range(self.count):
            put_all(self.path, [(b"%04d" % i, b"image" * i)], subdir=True, database=b"image")
            put_all(self.path, [(b"%04d" % i, b"%d" % i)], subdir=True, database=b"label")

    def view(self):
        return lmdbio.View(self.path, database_name="image", fields={
            "image": None, "label": lmdbio.Field(database_name="label")})

    def read(self):
        with open_read(self.path, max_dbs=4) as environment:
            found = {}
            for name in "image", "label":
                with environment.begin(db=environment.open_db(name.encode())) as transaction:
                    found[name] = [value for _, value in transaction.cursor()]
        return [dict(zip(found, pair)) for pair in zip(*found.values())]


FAMILIES = (Fairchem, FairchemWithoutLength, AseLmdb, DeepMd, UniMol, UniCore, Tape, Atom3d,
            Tensorpack, EfficientPyTorch, Ocr, Arrays, BasicSr, Mmagic, FairchemFiles,
            FairchemFolder, AseLmdbFolder, Recommender, NamedDatabases)


def value_of(sample):
    """The values of a record, or of the records of a dict."""
    if isinstance(sample, dict):
        return {name: bytes(record.value) for name, record in sample.items()}
    return bytes(sample.value)


class ViewsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio views ")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)


class FamiliesTest(ViewsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.families = [kind(cls.folder) for kind in FAMILIES]
        for family in cls.families:
            family.write()

    def each(self):
        for family in self.families:
            with self.subTest(family=type(family).__name__):
                yield family, family.read()

    def test_a_dataset_has_the_samples_of_the_reader(self):
        for family, expected in self.each():
            with lmdbio.Dataset(family.view()) as dataset:
                self.assertEqual(len(dataset), len(expected))
                for i in range(len(expected)):
                    self.assertEqual(value_of(dataset[i]), expected[i], i)
                numbers = list(range(len(expected)))
                random.Random(4).shuffle(numbers)
                self.assertEqual([value_of(sample) for sample in dataset[numbers]],
                                 [expected[i] for i in numbers])
                keys = list(dataset.keys())
                self.assertEqual(len(keys), len(expected))
                if dataset._names is None and len(set(keys)) == len(keys):
                    self.assertEqual(dataset.find(keys).tolist(), list(range(len(expected))))
                    self.assertEqual([record.key for record in dataset[:]], keys)

    def test_a_loader_delivers_them_in_order_and_shuffled(self):
        for family, expected in self.each():
            with lmdbio.Loader(family.view(), batch_size=10) as loader:
                self.assertEqual(loader.record_count, len(expected))
                self.assertEqual([value_of(sample) for batch in loader for sample in batch],
                                 expected)
            with lmdbio.Loader(family.view(), batch_size=10, shuffle=True, seed=2) as loader:
                found = [value_of(sample) for batch in loader for sample in batch]
                self.assertNotEqual(found, expected)
                self.assertEqual(sorted(map(repr, found)), sorted(map(repr, expected)))

    def test_three_lines_to_the_first_batch(self):
        path = self.families[0].path
        loader = lmdbio.Loader(lmdbio.views.fairchem(path), batch_size=32, shuffle=True)
        batch = next(iter(loader))
        self.assertEqual(len([pickle.loads(value) for value in batch.values()]), 32)

    def test_records_beside_the_samples_are_found_by_key(self):
        with lmdbio.Dataset(views.fairchem(self.folder / "Fairchem.lmdb")) as dataset:
            self.assertEqual(pickle.loads(dataset["length"].value), Family.count)
            self.assertIn("length", dataset)
            self.assertEqual(dataset.find("length"), -1)
            with self.assertRaises(KeyError):
                dataset.index("length")
        with lmdbio.Dataset(views.arrays(self.folder / "Arrays.lmdb", "latents")) as dataset:
            self.assertEqual(dataset["latents_shape"].value, b"137 3 4 4")
            keys = ["latents_20_data", "prompts_20_data"]
            self.assertEqual(dataset.find(keys).tolist(), [20, -1])


class FieldsTest(ViewsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ocr = Ocr(cls.folder)
        cls.ocr.write()
        cls.samples = cls.ocr.read()

    def test_a_batch_has_fields(self):
        with lmdbio.Loader(views.ocr(self.ocr.path), batch_size=16) as loader:
            batch = next(iter(loader))
            self.assertEqual(batch.fields, ("image", "label"))
            self.assertEqual(len(batch), 16)
            self.assertEqual(repr(batch), "<lmdbio.Batch 0 of epoch 0: 16 samples of image, label>")
            labels = batch["label"]
            expected = [sample["label"] for sample in self.samples[:16]]
            self.assertEqual(len(labels), 16)
            self.assertEqual([bytes(value) for value in labels.values()], expected)
            self.assertEqual(labels.keys(), [b"label-%09d" % i for i in range(1, 17)])
            self.assertEqual(bytes(labels.value(3)), expected[3])
            self.assertEqual(labels[3], lmdbio.Record(b"label-000000004", expected[3]))
            self.assertEqual(labels.sizes.tolist(), list(map(len, expected)))
            self.assertEqual(labels.positions.tolist(), list(range(16)))
            self.assertEqual(batch.positions.tolist(), list(range(16)))
            self.assertEqual((labels.number, labels.epoch, labels.ends_epoch), (0, 0, False))
            for rows in labels.array(), labels.array(copy=True), labels.array(
                    out=np.full((18, 30), 9, np.uint8)):
                for row, text in zip(rows, expected):
                    self.assertEqual(row.tobytes().rstrip(b"\0"), text)
            spans = labels.spans()
            self.assertEqual(
                [spans.memory[at:at + size].tobytes()
                 for at, size in zip(spans.offsets.astype(int), spans.sizes.astype(int))], expected)
            self.assertEqual(value_of(batch[5]), self.samples[5])
            self.assertEqual([value_of(sample) for sample in batch], self.samples[:16])
            for call in batch.keys, batch.values, batch.array, batch.spans:
                with self.assertRaisesRegex(lmdbio.InvalidStateError,
                                            r"fields 'image', 'label': choose one.*batch\['image'"):
                    call()
            with self.assertRaisesRegex(KeyError, "no field 'mask'; it has the fields 'image'"):
                batch["mask"]
            loader.next()
            with self.assertRaisesRegex(RuntimeError, "no longer valid"):
                labels.values()

    def test_a_batch_without_fields_has_none(self):
        with lmdbio.Loader(self.ocr.path, batch_size=16) as loader:
            batch = next(iter(loader))
            self.assertIsNone(batch.fields)
            with self.assertRaisesRegex(KeyError, "no field 'label'; it has no fields"):
                batch["label"]

    def test_a_state_continues_with_its_view_only(self):
        view = views.ocr(self.ocr.path)
        with lmdbio.Loader(view, batch_size=10, shuffle=True, seed=7) as loader:
            whole = [value_of(sample) for batch in loader for sample in batch]
        with lmdbio.Loader(view, batch_size=10, shuffle=True, seed=7) as loader:
            part = [value_of(sample) for _ in range(4) for sample in loader.next()]
            state = loader.state_dict()
        self.assertEqual(part, whole[:40])
        self.assertRegex(state["dataset"]["view"], r"\A[0-9a-f]{16}\Z")
        with lmdbio.Loader(view, batch_size=7, shuffle=True, seed=7, state=state) as loader:
            self.assertEqual([value_of(sample) for batch in loader for sample in batch], whole[40:])
        for other in views.ocr(self.ocr.path, subset=list(range(100))), self.ocr.path:
            with self.assertRaisesRegex(lmdbio.StaleError, r"\A.*saved with view \w+, but") as one:
                lmdbio.Loader(other, batch_size=10, shuffle=True, seed=7, state=state)
            self.assertNotIn("\n", str(one.exception))

    def test_views_loaders_and_datasets_are_pickled(self):
        view = views.ocr(self.ocr.path, subset=[3, 1, 100])
        expected = [self.samples[i] for i in (3, 1, 100)]
        for one in view, pickle.loads(pickle.dumps(view)):
            with lmdbio.Dataset(one) as dataset:
                self.assertEqual([value_of(sample) for sample in dataset[:]], expected)
                again = pickle.loads(pickle.dumps(dataset))
                self.assertEqual([value_of(sample) for sample in again[:]], expected)
            with lmdbio.Loader(one, batch_size=2) as loader:
                again = pickle.loads(pickle.dumps(loader))
                self.assertEqual([value_of(sample) for batch in again for sample in batch],
                                 expected)
        self.assertRegex(repr(view), r"lmdbio.View\(.*start=1, count='num-samples', "
                                     r"subset=<3 samples>\)")

    def test_shards_have_parts_of_the_samples(self):
        found = []
        for shard in range(3):
            with lmdbio.Loader(views.ocr(self.ocr.path), batch_size=5, num_shards=3,
                               shard_id=shard) as loader:
                found += [value_of(sample)["label"] for batch in loader for sample in batch]
        self.assertEqual(sorted(found), sorted(sample["label"] for sample in self.samples))

    def test_torch_takes_views(self):
        try:
            import torch

            import lmdbio.torch
        except ImportError:
            self.skipTest("no PyTorch")
        view = views.ocr(self.ocr.path)
        loader = lmdbio.torch.DataLoader(view, batch_size=20)
        labels = [bytes(row.tolist()).rstrip(b"\0") for batch in loader for row in batch["label"]]
        self.assertEqual(labels, [sample["label"] for sample in self.samples])
        dataset = lmdbio.torch.MapDataset(view)
        self.assertEqual(bytes(dataset[9]["label"].tolist()), self.samples[9]["label"])
        batches = torch.utils.data.DataLoader(
            lmdbio.torch.MapDataset(view, decode=lambda sample: len(sample["image"].value)),
            batch_size=50)
        self.assertEqual([size for batch in batches for size in batch.tolist()],
                         [len(sample["image"]) for sample in self.samples])


class SubsetTest(ViewsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = cls.folder / "stems"
        cls.stems = [f"s{i}" for i in range(40)]
        put_all(cls.path, [(stem.encode(), stem.encode() * 3) for stem in cls.stems])

    def keys_of(self, **arguments):
        with lmdbio.Dataset(lmdbio.View(self.path, **arguments)) as dataset:
            return [key.decode() for key in dataset.keys()]

    def test_numbers_keys_and_files_choose_samples(self):
        in_order = sorted(self.stems)
        self.assertEqual(self.keys_of(), in_order)
        for subset in [3, 0, 3], (3, 0, 3), np.array([3, 0, 3]), np.array([3, 0, 3], np.int8):
            self.assertEqual(self.keys_of(subset=subset), [in_order[i] for i in (3, 0, 3)])
        self.assertEqual(self.keys_of(subset=range(5)), in_order[:5])
        for subset in ["s7", b"s30"], ("s7", "s30"), np.array(["s7", "s30"]), iter(["s7", "s30"]):
            self.assertEqual(self.keys_of(subset=subset), ["s7", "s30"])
        for nothing in [], (), np.array([], int):
            self.assertEqual(self.keys_of(subset=nothing), [])
        split = self.folder / "split.txt"
        split.write_text("s12\n\ns3  \r\ns1")
        for subset in split, str(split):
            self.assertEqual(self.keys_of(subset=subset), ["s12", "s3", "s1"])

    def test_wrong_subsets_get_one_clear_line(self):
        for wrong in 7, 1.5, b"s1", object(), [1.5], [None], [[1, 2]], [1, "s1"], [True], np.eye(2):
            with self.assertRaisesRegex(TypeError, r"\Aa subset is .*\Z"):
                lmdbio.View(self.path, subset=wrong)
        with self.assertRaisesRegex(TypeError, "numpy.flatnonzero"):
            lmdbio.View(self.path, subset=np.array([True, False]))
        with self.assertRaisesRegex(ValueError, r"subset\[1\] is -1; expected 0 or more"):
            lmdbio.View(self.path, subset=[0, -1])
        with self.assertRaisesRegex(FileNotFoundError, "none.txt: the subset"):
            lmdbio.View(self.path, subset="none.txt")
        for open_it in lmdbio.Dataset, lmdbio.Loader:
            with self.assertRaisesRegex(ValueError, r"subset\[2\] is 40, but there are 40 samples"):
                open_it(lmdbio.View(self.path, subset=[0, 1, 40]))
            with self.assertRaisesRegex(FileNotFoundError, r'subset\[1\]: no sample.*key "s99"'):
                open_it(lmdbio.View(self.path, subset=["s1", "s99"]))


class ErrorsTest(ViewsCase):
    def check(self, kind, words, **arguments):
        with self.assertRaisesRegex(kind, words) as raised:
            lmdbio.View(self.folder / "any", **arguments)
        self.assertIsInstance(raised.exception, lmdbio.LmdbioError)
        self.assertNotIn("\n", str(raised.exception))

    def test_wrong_descriptions_get_one_clear_line(self):
        template = {"image": "image-{:09d}"}
        self.check(TypeError, "fields maps names", fields=["image-{}"])
        self.check(TypeError, "name of a field is a str, not int", fields={1: "image-{}"})
        self.check(TypeError, "field 'image' is a key template, a path.*int", fields={"image": 7})
        self.check(TypeError, "key is a str or bytes, not int", fields={"a": lmdbio.Field(key=7)})
        self.check(TypeError, "path is a str or os.PathLike", fields={"a": lmdbio.Field(path=7)})
        self.check(ValueError, "fields is empty", fields={})
        self.check(ValueError, "'label' is no file or folder, and no key template.*label-{:09d}",
                   fields={"label": "label"})
        self.check(ValueError, "order 'size' is unknown; expected one of key", order="size")
        self.check(TypeError, "a key is bytes or a str", exclude=[7])
        self.check(TypeError, "a key is bytes or a str", exclude=7)
        self.check(TypeError, "count must be an integer, not float", fields=template, count=1.5)
        self.check(ValueError, "count -1 is out of range", fields=template, count=-1)
        self.check(TypeError, "start must be an integer", fields=template, start="1")
        self.check(ValueError, "contains a zero byte", fields={"a": "a\0{}"})
        self.check(TypeError, "database_name must be a str", database_name=7)
        with self.assertRaisesRegex(TypeError, "not another view"):
            lmdbio.View(lmdbio.View("a"))
        with self.assertRaisesRegex(ValueError, "names of the arrays"):
            views.arrays("a")

    def test_what_the_database_lacks_is_named(self):
        ocr = Ocr(self.folder)
        ocr.write()
        with lmdb.open(str(ocr.path), map_size=MAP_BYTES) as environment:
            with environment.begin(write=True) as transaction:
                transaction.delete(b"label-000000007")
        for open_it in lmdbio.Dataset, lmdbio.Loader:
            with self.assertRaisesRegex(
                    FileNotFoundError,
                    r'\A.*data.mdb: field "label" lacks the key "label-000000007" of sample 6\Z'):
                open_it(views.ocr(ocr.path))
            with self.assertRaisesRegex(FileNotFoundError, 'no count record "many"'):
                open_it(views.ocr(ocr.path, count="many"))
            with self.assertRaisesRegex(ValueError, 'the key "image-0+1" is no decimal number'):
                open_it(lmdbio.View(ocr.path, order="numeric"))
            with self.assertRaisesRegex(ValueError, "start and count need fields"):
                open_it(lmdbio.View(ocr.path, count=7))
            with self.assertRaisesRegex(ValueError, "several places"):
                open_it(lmdbio.View(ocr.path, fields={"a": "{}{}"}))
            with self.assertRaisesRegex(ValueError, "by the view and by an argument"):
                open_it(lmdbio.View(ocr.path, database_name="a"), database_name="b")
        with self.assertRaisesRegex(ValueError, "cannot serve a view"):
            lmdbio.Loader(views.ocr(ocr.path, count=6), strategy="lmm")
        with self.assertRaisesRegex(ValueError, "the view has no samples"):
            lmdbio.Loader(views.ocr(ocr.path, count=0))
        with lmdbio.Dataset(views.ocr(ocr.path, count=0)) as dataset:
            self.assertEqual((len(dataset), dataset[:], list(dataset.keys())), (0, [], []))
            with self.assertRaises(IndexError):
                dataset[0]
        with lmdbio.Dataset(views.ocr(ocr.path, count=6)) as dataset:
            with self.assertRaisesRegex(IndexError, "sample 6 is out of range; the dataset has 6"):
                dataset[6]

    def test_files_of_a_field_are_as_many_as_those_of_the_view(self):
        paths = [self.folder / f"part {i}" for i in range(3)]
        for path in paths:
            put_all(path, [(b"a", str(path).encode()), (b"b", b"v")])
        for open_it in lmdbio.Dataset, lmdbio.Loader:
            with self.assertRaisesRegex(ValueError, "part 2: has 1 files, but the view has 2, "):
                open_it(lmdbio.View(paths[:2], fields={"x": None, "y": paths[2]}))
        # A file of a view may be a file of its field, too.
        with lmdbio.Loader(lmdbio.View(paths[0], fields={"x": None, "y": paths[0]})) as loader:
            self.assertEqual([value_of(sample) for batch in loader for sample in batch],
                             [dict.fromkeys("xy", str(paths[0]).encode()),
                              dict.fromkeys("xy", b"v")])

    def test_a_loader_of_a_changed_dataset_is_refused(self):
        path = self.folder / "changing"
        put_all(path, [(b"%d" % i, b"v") for i in range(20)])
        dataset = lmdbio.Dataset(lmdbio.View(path, order="numeric"))
        pickled = pickle.dumps(dataset)
        put_all(path, [(b"20", b"v")])
        with self.assertRaisesRegex(lmdbio.StaleError, "has 21 samples, but had 20"):
            pickle.loads(pickled)[0]


class KeyOrderTest(ViewsCase):
    def write(self, name, keys):
        path = self.folder / name
        put_all(path, [(key, b"v") for key in keys])
        return path

    def warnings_of(self, path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with lmdbio.Dataset(path) as dataset:
                for i in 7, 8, -1:
                    dataset[i]
                dataset[[1, 2]]
        return caught

    def test_unpadded_numbers_warn_once(self):
        path = self.write("plain", [b"%d" % i for i in range(200)])
        caught = self.warnings_of(path)
        self.assertEqual(len(caught), 1)
        self.assertIs(caught[0].category, lmdbio.KeyOrderWarning)
        self.assertEqual(caught[0].filename, __file__)
        text = str(caught[0].message)
        self.assertIn("record 2 has the key b'10'", text)
        self.assertIn('lmdbio.View(path, order="numeric")', text)
        length = self.write("length", [b"length", *(b"%d" % i for i in range(200))])
        self.assertIn("exclude=[b'length']", str(self.warnings_of(length)[0].message))
        from_one = self.write("from one", [b"%d" % i for i in range(1, 30)])
        self.assertEqual(len(self.warnings_of(from_one)), 1)
        self.assertEqual(self.warnings_of(lmdbio.View(path, order="numeric")), [])
        self.assertEqual(self.warnings_of(lmdbio.View(path)), [])

    def test_other_keys_do_not(self):
        for name, keys in (("padded", [b"%05d" % i for i in range(200)]),
                           ("few", [b"%d" % i for i in range(10)]),
                           ("equal", [b"%d" % i for i in range(100, 300)]),
                           ("text", [b"image-%d" % i for i in range(200)]),
                           ("bytes", [struct.pack(">I", i) for i in range(200)])):
            with self.subTest(name=name):
                self.assertEqual(self.warnings_of(self.write(name, keys)), [])


if __name__ == "__main__":
    run_unless(None if lmdb is not None else "no py-lmdb (apt: python3-lmdb)")
