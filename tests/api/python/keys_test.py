"""lmdbio.Dataset finds by key the records that py-lmdb and mdb_dump find."""

import multiprocessing
import pickle
import random
import struct
import threading
import unittest

import numpy as np
from support import COUNT, STARTS, Databases, run_unless

import lmdbio

try:
    import lmdb
except ImportError:
    lmdb = None

ABSENT = [b"", b"absent", b"\xff" * 600, b"\0"]


class KeysTest(Databases):
    def test_a_key(self):
        expected = self.records(self.even)
        key = expected[7][0]
        with lmdbio.Dataset(self.even) as dataset:
            for form in key, key.decode(), bytearray(key), memoryview(key), np.bytes_(key), \
                    np.str_(key.decode()):
                self.assertEqual(dataset[form], expected[7], repr(form))
                self.assertEqual(dataset.get(form), expected[7])
                self.assertEqual(dataset.find(form), 7)
                self.assertEqual(dataset.index(form), 7)
                self.assertEqual(dataset.count(form), 1)
                self.assertIn(form, dataset)
            self.assertIs(type(dataset.find(key)), int)
            self.assertEqual(dataset[7], expected[7])  # a number, as before

    def test_several_keys(self):
        expected = self.records(self.digits)
        numbers = [5, 1700, 5, 0, 1796]
        keys = [expected[i][0] for i in numbers]
        records = [expected[i] for i in numbers]
        with lmdbio.Dataset(self.digits) as dataset:
            for form in (keys, tuple(keys), np.array(keys), np.array(keys, object),
                         [key.decode() for key in keys], np.array([key.decode() for key in keys]),
                         [keys[0], keys[1].decode(), *keys[2:]]):
                self.assertEqual(dataset[form], records, repr(form))
                self.assertEqual(dataset.__getitems__(form), records)
                self.assertEqual(dataset.get(form), records)
                found = dataset.find(form)
                self.assertEqual((found.dtype, found.tolist()), (np.int64, numbers))
                self.assertEqual(dataset.index(form).tolist(), numbers)
                self.assertEqual(dataset.count(form).tolist(), [1] * 5)
            self.assertEqual(dataset.find({keys[1]}).tolist(), [1700])
            self.assertEqual(dataset.get(key for key in keys), records)
            self.assertEqual(dataset[dataset.index(keys)], records)
            for nothing in [], (), np.array([], "S3"), np.array([], int):
                self.assertEqual(dataset[nothing], [])
                self.assertEqual(dataset.get(nothing), [])
                self.assertEqual(dataset.find(nothing).tolist(), [])
                self.assertEqual(dataset.index(nothing).dtype, np.int64)

    def test_absent_keys(self):
        expected = self.records(self.even)
        key = expected[3][0]
        with lmdbio.Dataset(self.even) as dataset:
            for absent in ABSENT:
                self.assertNotIn(absent, dataset)
                self.assertEqual(dataset.find(absent), -1)
                self.assertEqual(dataset.count(absent), 0)
                self.assertIsNone(dataset.get(absent))
                self.assertEqual(dataset.get(absent, 7), 7)
                for ask in dataset.__getitem__, dataset.index:
                    with self.assertRaises(KeyError) as raised:
                        ask(absent)
                    self.assertIsInstance(raised.exception, lmdbio.AbsentKeyError)
                    self.assertRegex(str(raised.exception), r"data\.mdb: has no key b.*|has no key")
            some = [key, b"x", key, b"y"]
            self.assertEqual(dataset.get(some, "none"), [expected[3], "none", expected[3], "none"])
            self.assertEqual(dataset.find(some).tolist(), [3, -1, 3, -1])
            self.assertEqual(dataset.count(some).tolist(), [1, 0, 1, 0])
            for ask in dataset.__getitem__, dataset.__getitems__, dataset.index:
                with self.assertRaisesRegex(KeyError, "no key b'x' at index 1 .and 1 more of 4"):
                    ask(some)
            error = pickle.loads(pickle.dumps(raised.exception))
            self.assertEqual(str(error), str(raised.exception))

    def test_wrong_types_get_one_clear_line(self):
        with lmdbio.Dataset(self.even) as dataset:
            for wrong in 7, 1.0, None, [7], [b"a", 7], np.array([1, 2]), [None], [[b"a"]], object():
                for ask in dataset.get, dataset.find, dataset.index, dataset.count:
                    with self.subTest(wrong=wrong, ask=ask.__name__):
                        with self.assertRaisesRegex(TypeError, r"\Aa key is bytes or a str.*not "
                                                               r"\w+\Z") as raised:
                            ask(wrong)
                        self.assertIsInstance(raised.exception, lmdbio.LmdbioError)
            for wrong in 7, None, (b"a",), 1.5:
                with self.assertRaisesRegex(TypeError, "a key is bytes or a str, not"):
                    wrong in dataset
            for mixed in [b"a", 1], [1, "a"], ("a", None):
                with self.assertRaisesRegex(TypeError, "by number or by key"):
                    dataset[mixed]
            for one in b"a", "a":
                with self.assertRaisesRegex(TypeError, "one key"):
                    dataset.__getitems__(one)
            with self.assertRaisesRegex(ValueError, "no UTF-8 form"):
                dataset["\udc80"]
        for ask in dataset.get, dataset.find, dataset.index, dataset.count:
            with self.assertRaisesRegex(ValueError, "the dataset is closed"):
                ask(b"a")

    def test_all_keys(self):
        expected = [key for key, _ in self.records(self.digits)]
        with lmdbio.Dataset(self.digits) as dataset:
            keys = dataset.keys()
            self.assertEqual(len(keys), len(expected))
            self.assertEqual(list(keys), expected)
            self.assertEqual(list(keys), expected)
            self.assertEqual(next(iter(keys)), expected[0])
            self.assertIn(expected[5], keys)
            self.assertNotIn(b"absent", keys)
            self.assertEqual(dataset.find(keys).tolist(), list(range(len(expected))))
            self.assertEqual(dict(dataset), dict(zip(expected, dataset[:])))

    def test_a_key_index(self):
        expected = self.records(self.digits)
        folder = self.folder / "cache"
        for _ in range(2):  # a new index, and a kept one
            with lmdbio.Dataset(self.digits, layout_cache=str(folder)) as dataset:
                dataset.use_key_index()
                keys = [key for key, _ in expected]
                self.assertEqual(dataset.find(keys).tolist(), list(range(len(keys))))
                self.assertEqual(dataset[keys], expected)
                self.assertEqual(dataset.find(ABSENT).tolist(), [-1] * len(ABSENT))
                self.assertNotIn(b"absent", dataset)
                other = pickle.loads(pickle.dumps(dataset))
                self.assertEqual(other[keys[3]], expected[3])
                other.close()
                with self.assertRaisesRegex(ValueError, "closed"):
                    other.use_key_index()

    def test_processes_and_threads(self):
        expected = self.records(self.digits)
        keys = [key for key, _ in expected]
        dataset = lmdbio.Dataset(self.digits)
        for method in STARTS:
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map(dataset.__getitem__, keys[:8]), expected[:8])
        wrong = []

        def ask(seed):
            numbers = random.Random(seed)
            for _ in range(40):
                some = [numbers.randrange(len(keys)) for _ in range(20)]
                asked = [keys[i] for i in some]
                if dataset[asked] != [expected[i] for i in some]:
                    wrong.append(some)
                if dataset.find(asked).tolist() != some:
                    wrong.append(some)
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    @unittest.skipIf(lmdb is None, "python3-lmdb is not installed")
    def test_every_order_agrees_with_py_lmdb(self):
        path = str(self.folder / "orders")
        numbers = random.Random(1)
        with lmdb.open(path, max_dbs=8, map_size=1 << 26) as environment:
            databases = {
                "plain": environment.open_db(b"plain"),
                "reverse": environment.open_db(b"reverse", reverse_key=True),
                "integer": environment.open_db(b"integer", integerkey=True),
                "duplicates": environment.open_db(b"duplicates", dupsort=True)}
            with environment.begin(write=True) as transaction:
                for i in range(3000):
                    text = b"%d" % numbers.randrange(5000)
                    transaction.put(text, b"value " * (i % 700), db=databases["plain"])
                    transaction.put(text, text, db=databases["reverse"])
                    transaction.put(struct.pack("Q", numbers.randrange(1 << 40)), text,
                                    db=databases["integer"])
                    transaction.put(b"%d" % (i % 40), text, db=databases["duplicates"])
            for name, database in databases.items():
                with environment.begin(db=database) as transaction, \
                        lmdbio.Dataset(path, database_name=name) as dataset, self.subTest(name):
                    pairs = list(transaction.cursor())
                    keys = [key for key, _ in pairs]
                    self.assertEqual(list(dataset.keys()), keys)
                    shuffled = sorted(set(keys), key=lambda _: numbers.random())
                    self.assertEqual([record.value for record in dataset[shuffled]],
                                     [transaction.get(key) for key in shuffled])
                    self.assertEqual(dataset.find(shuffled).tolist(),
                                     [keys.index(key) for key in shuffled])
                    self.assertEqual(dataset.count(shuffled).tolist(),
                                     [keys.count(key) for key in shuffled])
                    if name == "integer":
                        with self.assertRaisesRegex(ValueError, "a key of 4 bytes.*8 bytes"):
                            dataset.find(b"1234")


if __name__ == "__main__":
    run_unless(None)
