"""Tensors on a GPU through lmdbio.sync. The GPU is that of the stand-in (tests/emulated_gpu)."""

import unittest

import numpy as np

import lmdbio
import lmdbio.sync
from device_driver import Driver

COUNT = 1000
FILLED = np.frombuffer(b"\x3F" * 4 * COUNT, np.float32)


class DeviceSyncTest(unittest.TestCase):
    def setUp(self):
        self.driver = Driver()

    def allocate(self):
        return self.driver.allocate(4 * COUNT, 0x3F)

    def read(self, address):
        return self.driver.read(address, 4 * COUNT).view(np.float32)

    def test_sums_and_counters(self):
        with lmdbio.sync.Synchronizer(device=1, device_collective="staged") as sync:
            for memory in ("device", "ask"):
                address = self.allocate()
                operation = sync.submit("a", address, (COUNT,), "float32", None, postscale=2.0,
                                        memory=memory, stream=self.driver.stream.value)
                self.assertIs(operation.wait_on(self.driver.stream.value), operation)
                np.testing.assert_array_equal(self.read(address), 2 * FILLED)
                self.assertTrue(operation.wait().is_done())
            counters = sync.counters()
            self.assertEqual({name: counters[name] for name in (
                "device_tensor_count", "device_out_bytes", "device_in_bytes",
                "device_copy_count")}, {
                    "device_tensor_count": 2, "device_out_bytes": 8 * COUNT,
                    "device_in_bytes": 8 * COUNT, "device_copy_count": 4})
            self.assertGreater(counters["device_wait_ns"], 0)
            values = np.ones(5, np.float32)
            sync.allreduce("h", values, postscale=3.0).wait_on(None)
            np.testing.assert_array_equal(values, np.full(5, 3, np.float32))

    def test_sums_in_the_memory_of_the_gpu(self):
        with lmdbio.sync.Synchronizer(device=1, device_buffer_bytes=4 * COUNT) as sync:
            address = self.allocate()
            sync.submit("a", address, (COUNT,), "float32", None, postscale=2.0, memory="device",
                        stream=self.driver.stream.value).wait_on(self.driver.stream.value)
            np.testing.assert_array_equal(self.read(address), 2 * FILLED)
            counters = sync.counters()
        # A library without kernels copies the values to the host.
        reduced = counters["device_reduced_count"]
        self.assertEqual(reduced + counters["device_tensor_count"], 1)
        self.assertEqual(counters["device_reduced_bytes"], reduced * 4 * COUNT)

    def test_sums_in_placed_memory(self):
        sync = lmdbio.sync.Synchronizer(device=1, device_gradient_bytes=8 * COUNT)
        place = sync.place_on_device(4 * COUNT)
        self.assertEqual(place.__cuda_array_interface__, {
            "shape": (4 * COUNT,), "typestr": "|u1", "data": (place.address, False),
            "strides": None, "version": 3})
        self.driver.fill(place.address, 4 * COUNT, 0x3F)
        sync.submit("a", place.address, (COUNT,), "float32", None, postscale=2.0, memory="device",
                    stream=self.driver.stream.value).wait_on(self.driver.stream.value)
        np.testing.assert_array_equal(self.read(place.address), 2 * FILLED)
        counters = sync.counters()
        # A library without kernels copies the values to the host.
        self.assertEqual(counters["device_copy_count"], 2 * counters["device_tensor_count"])
        self.assertEqual(sync.place_on_device(0).__cuda_array_interface__["data"], (0, False))
        with self.assertRaisesRegex(MemoryError, "device_gradient_bytes"):
            sync.place_on_device(4 * COUNT + 1)
        sync.shutdown()
        with self.assertRaisesRegex(BufferError, "placed memory"):
            sync.close()
        del place
        sync.close()
        with lmdbio.sync.Synchronizer() as without:
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "option device"):
                without.place_on_device(8)

    def test_results_are_on_the_host(self):
        with lmdbio.sync.Synchronizer(device=1, device_buffer_bytes=4 * COUNT) as sync:
            operation = sync.submit("a", self.allocate(), (COUNT,), "float32", None,
                                    operation="allgather", memory="device",
                                    stream=self.driver.stream.value)
            np.testing.assert_array_equal(operation.wait().result(), FILLED)

    def test_wrong_memory(self):
        address = self.allocate()
        with lmdbio.sync.Synchronizer() as sync:
            with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "option device"):
                sync.submit("a", address, (COUNT,), "float32", None, memory="device")
            with self.assertRaisesRegex(ValueError, "memory"):
                sync.submit("a", address, (COUNT,), "float32", None, memory="disk")
        with self.assertRaisesRegex(FileNotFoundError, "GPU 6"):
            lmdbio.sync.Synchronizer(device=7)


if __name__ == "__main__":
    unittest.main()
