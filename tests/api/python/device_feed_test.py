"""Batches on a GPU through lmdbio.DeviceFeed. The GPU is that of the stand-in
(tests/emulated_gpu)."""

import ctypes
import gc
import unittest

import numpy as np

import lmdbio
from lmdbio import _dlpack
from device_driver import Driver
from support import COUNT, Databases, make

BATCH = 16
OPTIONS = {"allow_map": False, "keep_bytes": -1, "layout_cache": "off", "order": "shuffle"}


class DeviceFeedTest(Databases):
    def setUp(self):
        self.driver = Driver()

    def loader(self, **options):
        loader = lmdbio.Loader(self.digits, global_batch_size=BATCH,
                               **{**OPTIONS, **options})
        self.addCleanup(loader.close)
        return loader

    def bytes_of(self, array):
        size = int(np.prod(array.shape)) * array.dtype.itemsize
        return self.driver.read(array.address, size).view(array.dtype).reshape(array.shape)

    def check(self, fed, batch):
        self.assertEqual(len(fed), len(batch))
        for name in ("number", "epoch", "first_position", "global_record_count", "skipped_count",
                     "ends_epoch"):
            self.assertEqual(getattr(fed, name), getattr(batch, name), name)
        self.assertEqual(fed.keys(), batch.keys())
        np.testing.assert_array_equal(fed.positions, batch.positions)
        np.testing.assert_array_equal(fed.sizes, batch.sizes)
        rows = self.bytes_of(fed.rows)
        if fed.offsets is None:
            np.testing.assert_array_equal(rows, batch.array(copy=True))
            return
        offsets = self.bytes_of(fed.offsets).tolist()
        self.assertEqual([rows[a:b].tobytes() for a, b in zip(offsets, offsets[1:])],
                         [bytes(value) for value in batch.values()])

    def test_epochs_are_those_of_the_loader(self):
        for packed in False, True:
            plain = self.loader()
            with lmdbio.DeviceFeed(self.loader(), packed=packed, depth=3,
                                   stream=self.driver.stream.value) as feed:
                for _epoch in range(2):
                    count = 0
                    for fed in feed:
                        self.check(fed, plain.next())
                        count += 1
                    self.assertEqual(count, len(plain))
                counters = feed.counters()
                self.assertEqual(counters["batch_count"], 2 * len(plain))
                self.assertGreaterEqual(counters["gathered_count"] + counters["staged_count"],
                                        2 * len(plain))
                self.assertIn("GPU 0", feed.describe())

    def test_the_stream_ends(self):
        feed = lmdbio.DeviceFeed(self.loader(max_batches=2))
        self.assertEqual([fed.number for fed in (feed.next(), feed.next())], [0, 1])
        self.assertIsNone(feed.next())
        self.assertEqual(list(feed), [])

    def test_a_batch_keeps_its_memory_as_long_as_an_array_of_it(self):
        plain, feed = self.loader(), lmdbio.DeviceFeed(self.loader(), depth=1)
        fed = feed.next(self.driver.stream.value)
        first, rows = plain.next(), fed.rows
        expected = first.array(copy=True).copy()
        del fed
        gc.collect()
        for _ in range(8):
            feed.next()
        np.testing.assert_array_equal(self.bytes_of(rows), expected)
        feed.close()
        np.testing.assert_array_equal(self.bytes_of(rows), expected)
        addresses = set()
        feed = lmdbio.DeviceFeed(self.loader(), depth=1)
        for _ in range(20):
            addresses.add(feed.next(self.driver.stream.value).rows.address)
            self.driver.synchronize()
        self.assertLessEqual(len(addresses), 3)  # they serve again

    def test_arrays_for_other_libraries(self):
        plain, feed = self.loader(), lmdbio.DeviceFeed(self.loader())
        fed, batch = feed.next(self.driver.stream.value), plain.next()
        shape = (len(batch), int(batch.sizes.max()))
        self.assertEqual(fed.rows.__cuda_array_interface__, {
            "version": 3, "shape": shape, "typestr": "|u1", "strides": None,
            "data": (fed.rows.address, True), "stream": self.driver.stream.value})
        self.assertEqual(feed.next().rows.__cuda_array_interface__["stream"], 1)
        self.assertEqual(fed.rows.__dlpack_device__(), (2, 0))

    def test_capsules(self):
        feed = lmdbio.DeviceFeed(self.loader(), packed=True)
        fed = feed.next()
        for array, bits in (fed.rows, 8), (fed.offsets, 64):
            for stream in None, -1, 1, 2, self.driver.stream.value:
                if stream == 2:  # the stand-in has no such stream
                    continue
                capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
                pointer = _dlpack._api.PyCapsule_GetPointer(id(capsule), b"dltensor")
                managed = _dlpack.ManagedTensor.from_address(pointer)
                tensor = managed.tensor
                self.assertEqual((tensor.data, tensor.device_type, tensor.device_id),
                                 (array.address, 2, 0))
                self.assertEqual((tensor.code, tensor.bits, tensor.lanes), (1, bits, 1))
                self.assertEqual(tuple(tensor.shape[:tensor.ndim]), array.shape)
                self.assertFalse(tensor.strides)
                self.assertEqual(tensor.byte_offset, 0)
                self.assertIn(pointer, _dlpack._exported)
                del capsule  # nobody took it over
                self.assertNotIn(pointer, _dlpack._exported)
            for stream in 0, -2:
                with self.assertRaises(lmdbio.InvalidArgumentError):
                    array.__dlpack__(stream=stream)
        # A library that takes it over renames it, and calls the deleter later.
        capsule = fed.rows.__dlpack__()
        pointer = _dlpack._api.PyCapsule_GetPointer(id(capsule), b"dltensor")
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        self.assertEqual(rename(capsule, b"used_dltensor"), 0)
        del capsule
        self.assertIn(pointer, _dlpack._exported)
        managed = _dlpack.ManagedTensor.from_address(pointer)
        managed.deleter(ctypes.pointer(managed))
        self.assertNotIn(pointer, _dlpack._exported)

    def test_the_state_is_that_of_the_program(self):
        plain, loader = self.loader(), self.loader()
        feed = lmdbio.DeviceFeed(loader, depth=4)
        for _ in range(3):
            feed.next()
            plain.next()
        self.assertEqual(loader.state_dict(), plain.state_dict())
        state = loader.state_dict()
        self.assertEqual(feed.next().number, 3)
        loader.load_state_dict(state)
        self.assertEqual(feed.next().number, 3)
        loader.set_epoch(1)
        fed = feed.next()
        self.assertEqual((fed.epoch, fed.first_position), (1, loader.record_count))
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "has a feed"):
            loader.next()
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "has a feed"):
            lmdbio.DeviceFeed(loader)
        feed.close()
        loader.next()

    def test_closing(self):
        loader = self.loader()
        feed = lmdbio.DeviceFeed(loader)
        rows = feed.next().rows
        loader.close()
        self.assertFalse(feed.is_open)
        with self.assertRaises(lmdbio.ClosedError):
            feed.next()
        feed.close()
        self.assertGreater(self.bytes_of(rows).size, 0)

    def test_fields(self):
        other = self.folder / "other"
        make("synthetic", other, "--count", COUNT, "--value-size", 100)
        view = lmdbio.View(self.even, fields={"large": None, "small": lmdbio.Field(path=other)})
        plain, loader = (lmdbio.Loader(view, global_batch_size=20, **OPTIONS) for _ in range(2))
        self.addCleanup(plain.close)
        self.addCleanup(loader.close)
        feed = lmdbio.DeviceFeed(loader)
        fed, batch = feed.next(), plain.next()
        self.assertEqual(fed.fields, ("large", "small"))
        for name in fed.fields:
            self.check(fed[name], batch[name])
        with self.assertRaisesRegex(lmdbio.InvalidStateError, "has the fields"):
            fed.rows
        with self.assertRaisesRegex(KeyError, "no field 'x'"):
            fed["x"]
        with self.assertRaisesRegex(KeyError, "no fields"):
            fed["small"]["x"]

    def test_wrong_arguments(self):
        loader = self.loader()
        for depth in 0, 65, -1:
            with self.assertRaises(lmdbio.InvalidArgumentError):
                lmdbio.DeviceFeed(loader, depth=depth)
        with self.assertRaisesRegex(lmdbio.NotFoundError, "GPU 7"):
            lmdbio.DeviceFeed(loader, device=7)
        feed = lmdbio.DeviceFeed(loader, row_bytes_min=5000)
        self.assertEqual(feed.next().rows.shape, (BATCH, 5000))


if __name__ == "__main__":
    unittest.main()
