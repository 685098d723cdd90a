"""lmdbio.torch with batches on a GPU: the GPUs are those of tests/emulated_torch.

Exits with 77 without that backend of PyTorch. The oracles are mdb_dump's pass over the database,
and the same loader on the host.
"""

import hashlib
import itertools
import os
import pathlib
import pickle
import subprocess
import sys
import unittest

SKIPPED = 77
PYTHON = pathlib.Path(__file__).resolve().parents[3] / "build" / "trainers" / "bin" / "python"
HAS_BACKEND = bool(os.environ.get("LMDBIO_EMULATED_TORCH")) and PYTHON.exists()
if not HAS_BACKEND:
    print("skipped: run scripts/setup --trainers, and configure again")
    sys.exit(SKIPPED)
if sys.prefix != str(PYTHON.parents[1]):
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

import emulated_torch  # noqa: E402
import torch  # noqa: E402

import lmdbio  # noqa: E402
import lmdbio.torch  # noqa: E402
from support import COUNT, START, Databases, make  # noqa: E402

BATCH = 120
GPU = torch.device("emulated:0")
OPTIONS = {"shuffle": True, "seed": 7, "allow_map": False, "keep_bytes": -1}
# Calls that wait for the device, or may.
SYNCHRONISING = ("cuStreamSynchronize", "cuMemAlloc", "cuMemFree", "cuMemHostRegister",
                 "cuMemHostUnregister", "cuStreamCreateWithPriority", "cuStreamDestroy")
OUT_OF_MEMORY = 2  # of the driver


def keys_and_values(batch):
    return batch.keys(), batch.sizes.tolist(), lmdbio.torch.values_as_tensor(batch)


def on_host(delivered):
    """[digest of keys, sizes and values]; tensors are read on the current stream."""
    return [digest(*each) for each in delivered]


def digest(keys, sizes, values):
    whole = b"".join(keys), sizes, tuple(values.shape), values.cpu().numpy().tobytes()
    return hashlib.sha256(repr(whole).encode()).hexdigest()


def bytes_of(tensor):
    return tensor.cpu().numpy().tobytes()


class TorchFeedTest(Databases):
    def loader(self, device=GPU, **options):
        return lmdbio.torch.DataLoader(self.digits, **{
            "batch_size": BATCH, "device": device, "decode": keys_and_values, **OPTIONS,
            **options})

    def dataset(self, device=GPU, **options):
        return lmdbio.torch.IterableDataset(self.digits, **{
            "batch_size": BATCH, "device": device, "decode": keys_and_values, **OPTIONS,
            **options})

    # --- Records --------------------------------------------------------------------------------

    def test_each_record_once_and_on_the_gpu(self):
        expected = dict(self.records(self.digits))
        for options in {}, {"allow_map": True}, {"feed_options": {"depth": 5}}:
            found = {}
            for keys, sizes, rows in self.loader(**options):
                self.assertEqual((rows.device, rows.dtype), (GPU, torch.uint8))
                self.assertEqual(rows.shape, (len(keys), max(sizes)))
                for key, size, row in zip(keys, sizes, rows.cpu().numpy()):
                    self.assertNotIn(key, found)
                    found[key] = row[:size].tobytes()
                    self.assertFalse(row[size:].any())
            self.assertEqual(found, expected)

    def test_the_gpu_reads_values_where_the_loader_has_read_them(self):
        def counters(**options):
            dataset = lmdbio.torch.IterableDataset(self.digits, BATCH, device=GPU, keep_bytes=-1,
                                                   decode=keys_and_values, **options)
            self.assertEqual(sum(len(keys) for keys, _, _ in dataset),
                             len(self.records(self.digits)))
            return dataset._feed._feed.counters()

        mapped = counters(allow_map=True)
        self.assertEqual(mapped["gathered_count"], 0)
        self.assertGreater(mapped["staged_count"], 0)
        if counters(allow_map=False)["gathered_count"] == 0:
            self.skipTest("this build has no kernels")
        self.assertEqual(counters()["staged_count"], 0)

    def test_epochs_are_those_of_the_host(self):
        for drop_last in False, True:
            loader, plain = (self.loader(device, drop_last=drop_last) for device in (GPU, None))
            dataset = self.dataset(drop_last=drop_last)
            theirs = torch.utils.data.DataLoader(dataset, batch_size=None)
            self.assertEqual(len(loader), len(plain))
            for _epoch in range(3):
                expected = on_host(plain)
                self.assertEqual(len(expected), len(plain))
                self.assertEqual(on_host(loader), expected)
                self.assertEqual(on_host(theirs), expected)

    def test_a_loop_that_ends_early_and_set_epoch(self):
        loader, plain = self.loader(), self.loader(None)
        epochs = [on_host(plain) for _ in range(3)]
        self.assertEqual(on_host(itertools.islice(loader, 2)), epochs[0][:2])
        self.assertEqual(on_host(loader), epochs[1])
        loader.set_epoch(0)
        self.assertEqual(on_host(itertools.islice(loader, len(loader))), epochs[0])
        loader.set_epoch(2)
        self.assertEqual(on_host(loader), epochs[2])
        first, second = iter(loader), iter(loader)
        next(first)
        next(second)
        with self.assertRaisesRegex(RuntimeError, "another loop"):
            next(first)

    def test_ranks_share_batches(self):
        for rank in range(2):
            share = {"data_parallel": (rank, 2), "batch_size": None, "global_batch_size": BATCH}
            self.assertEqual(on_host(self.loader(**share)), on_host(self.loader(None, **share)))

    def test_states_with_and_without_a_device(self):
        loader, plain = self.loader(), self.loader(None)
        stream, states = [], [loader.state_dict()]
        for _epoch in range(3):
            for delivered, expected in zip(loader, plain, strict=True):
                states.append(loader.state_dict())
                self.assertEqual(states[-1], plain.state_dict())
                stream += on_host([delivered])
                self.assertEqual(stream[-1], on_host([expected])[0])
        count = len(loader)
        for had in 0, 1, count - 1, count, count + 4:
            end = (had // count + 1) * count
            for device in GPU, "cpu":
                again = self.loader(device, state=states[had])
                self.assertEqual(on_host(again), stream[had:end])
                self.assertEqual(on_host(again), stream[end:end + count])
            loader.load_state_dict(states[had])  # while a feed is ahead
            self.assertEqual(on_host(loader), stream[had:end])
        dataset = self.dataset()
        loop = iter(dataset)
        self.assertEqual(on_host(itertools.islice(loop, 3)), stream[:3])  # the loop goes on
        self.assertEqual({**dataset.state_dict(), "batch": 0}, {**states[3], "batch": 0})

    def test_the_end_of_the_stream(self):
        dataset, plain = (self.dataset(device, max_batches=2) for device in (GPU, None))
        self.assertEqual(on_host(dataset), on_host(plain))

    # --- Streams and memory ---------------------------------------------------------------------

    def test_batches_arrive_for_the_current_stream(self):
        """The stand-in runs streams in any order: without waits, rows would be old or unwritten."""
        plain = self.loader(None)
        expected = [bytes_of(rows) for _, _, rows in itertools.chain(plain, plain)]
        for seed in range(3):
            streams = [emulated_torch.Stream(GPU) for _ in range(2)]
            loader = self.loader(feed_options={"depth": 1 + seed})
            loops, copies = itertools.chain(loader, loader), []
            for i in range(len(expected)):
                with emulated_torch.stream(streams[i % 2]):
                    # The memory serves again behind this copy, which has not begun yet.
                    _, _, values = next(loops)
                    copies.append(values.clone())
                    del values
            for i, copy in enumerate(copies):
                with emulated_torch.stream(streams[i % 2]):
                    self.assertTrue(bytes_of(copy) == expected[i], i)

    def test_a_batch_on_another_stream(self):
        first, second = emulated_torch.Stream(GPU), emulated_torch.Stream(GPU)
        expected, copies = [bytes_of(rows) for _, _, rows in self.loader(None)], []
        with emulated_torch.stream(first):
            for batch in self.dataset(decode=lambda batch: batch, feed_options={"depth": 1}):
                with emulated_torch.stream(second):
                    copies.append(batch.to(GPU).clone())
        with emulated_torch.stream(second):
            self.assertTrue([bytes_of(copy) for copy in copies] == expected)

    def test_tensors_are_kept_as_long_as_the_program_wants(self):
        loader = self.loader()
        kept = list(loader)
        del loader
        self.assertEqual(on_host(kept), on_host(self.loader(None)))

    def test_nothing_waits_for_the_gpu_and_memory_does_not_grow(self):
        loader, counts = self.loader(), []
        for _epoch in range(3):
            for _, _, values in loader:
                del values
                emulated_torch.synchronize(GPU)
            counts.append([emulated_torch.control.call_count(name.encode())
                           for name in SYNCHRONISING[1:]])
        self.assertEqual(dict(zip(SYNCHRONISING[1:], counts[1])),
                         dict(zip(SYNCHRONISING[1:], counts[2])))
        before = emulated_torch.control.call_count(b"cuStreamSynchronize")
        for _, _, values in loader:
            pass
        self.assertEqual(emulated_torch.control.call_count(b"cuStreamSynchronize"), before)

    def test_a_program_may_end_with_tensors(self):
        program = "import sys, emulated_torch, lmdbio.torch\n" \
                  "loader = lmdbio.torch.DataLoader(sys.argv[1], 64, device='emulated')\n" \
                  "loop = iter(loader)\n" \
                  "kept = [next(loop) for _ in range(3)]\n" \
                  "kept.append(kept)\n" \
                  "print(kept[2].device)"
        ended = subprocess.run([PYTHON, "-c", program, self.digits], capture_output=True, text=True)
        self.assertEqual((ended.returncode, ended.stdout), (0, "emulated:0\n"), ended.stderr)

    # --- batch.to -------------------------------------------------------------------------------

    def test_batches_of_the_host_go_to_a_device(self):
        with lmdbio.Loader(self.digits, BATCH, **OPTIONS) as loader:
            for batch in itertools.islice(loader, 3):
                rows = torch.from_numpy(batch.array(copy=True))
                for device in torch.device("emulated"), "emulated:1", "cpu":
                    values = batch.to(device)
                    self.assertEqual(values.device.type, torch.device(device).type)
                    self.assertTrue(torch.equal(values.cpu(), rows))
                    last = values, rows
            loader.next()
            self.assertTrue(torch.equal(last[0].cpu(), last[1]))  # a copy

    def test_batches_of_a_gpu_go_to_a_device(self):
        dataset = self.dataset(decode=lambda batch: batch)
        for batch, (_, _, rows) in zip(dataset, self.loader(None), strict=True):
            here = batch.to(GPU, non_blocking=True)
            self.assertEqual((here.device, here.data_ptr()), (GPU, batch.rows.address))
            for device in "cpu", "emulated:1":
                there = batch.to(device)
                self.assertEqual(there.device, torch.device(device))
                self.assertTrue(torch.equal(there.cpu(), rows))

    def test_packed_values(self):
        dataset = self.dataset(feed_options={"packed": True})
        for (keys, _, values), (same, sizes, rows) in zip(dataset, self.dataset(None), strict=True):
            values, offsets = (one.cpu() for one in values)
            self.assertEqual((values.dtype, offsets.dtype), (torch.uint8, torch.int64))
            self.assertEqual(keys, same)
            offsets = offsets.tolist()
            self.assertEqual([values[a:b].tolist() for a, b in zip(offsets, offsets[1:])],
                             [row[:size].tolist() for row, size in zip(rows, sizes)])

    def test_fields(self):
        other = self.folder / "other"
        make("synthetic", other, "--count", COUNT, "--value-size", 100)
        view = lmdbio.View(self.even, fields={"large": None, "small": lmdbio.Field(path=other)})
        loaders = [lmdbio.torch.DataLoader(view, 64, device=device, **OPTIONS)
                   for device in (GPU, "cpu")]
        for found, expected in zip(*loaders, strict=True):
            self.assertEqual(set(found), {"large", "small"})
            for name, rows in found.items():
                self.assertEqual(rows.device, GPU)
                self.assertTrue(torch.equal(rows.cpu(), expected[name]), name)

    def test_options_of_the_feed(self):
        loader = self.loader(feed_options={"row_bytes_min": 5000})
        self.assertEqual(next(iter(loader))[2].shape, (BATCH, 5000))

    # --- Failures -------------------------------------------------------------------------------

    def assert_refused(self, cause, error, call):
        with self.assertRaisesRegex(error, cause) as refused:
            call()
        self.assertIsInstance(refused.exception, lmdbio.LmdbioError)
        self.assertEqual(str(refused.exception).count("\n"), 0)

    def test_devices_that_are_refused(self):
        for name in "gpu", "emulated:x", {}:
            self.assert_refused("device .* is unknown", ValueError, lambda: self.loader(name))
        self.assert_refused("device meta is no GPU of CUDA", ValueError,
                            lambda: self.dataset("meta"))
        self.assert_refused("device emulated:9: PyTorch finds 3 GPUs; .* device='cpu'",
                            FileNotFoundError, lambda: next(iter(self.loader("emulated:9"))))
        self.assert_refused("device cuda: PyTorch finds no GPUs", FileNotFoundError,
                            lambda: next(iter(self.loader("cuda"))))

    def test_options_that_are_refused(self):
        self.assert_refused("num_workers 2 .* device emulated:0, .* num_workers=0", ValueError,
                            lambda: self.loader(num_workers=2))
        self.assert_refused("pin_memory .* emulated:0", ValueError,
                            lambda: self.loader(pin_memory=True))
        self.assert_refused("feed_options have no 'stream'", ValueError,
                            lambda: self.loader(feed_options={"stream": 1}))
        self.assert_refused("feed_options need a device", ValueError,
                            lambda: self.loader("cpu", feed_options={"depth": 3}))
        self.assert_refused("depth 65", ValueError,
                            lambda: next(iter(self.loader(feed_options={"depth": 65}))))
        self.loader("cpu", num_workers=2, pin_memory=True)

    def test_workers_of_pytorch_are_refused(self):
        dataset = self.dataset(decode=lmdbio.torch.values_as_tensor)
        theirs = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1,
                                             multiprocessing_context=START)
        with self.assertRaisesRegex(RuntimeError, "device emulated:0 is fed by the trainer's"):
            next(iter(theirs))
        self.assertEqual(len(list(dataset)), len(dataset))

    def test_a_gpu_without_memory(self):
        for calls in 1, 2, 3:
            loader = self.loader()
            emulated_torch.control.fail_call(b"cuMemAlloc", calls, OUT_OF_MEMORY)
            try:
                found = on_host(loader)
            except MemoryError as error:
                self.assertIn("GPU 0", str(error))
                self.assertNotIn("\n", str(error))
                found = on_host(loader)  # the same epoch
            self.assertEqual(emulated_torch.control.faults_left(), 0)
            self.assertEqual(found, on_host(self.loader(None)), calls)

    def test_a_captured_stream(self):
        captured, loader = emulated_torch.Stream(GPU), self.loader()
        expected = on_host(self.loader(None))
        emulated_torch.control.begin_capture(captured.cuda_stream)
        with emulated_torch.stream(captured):
            self.assert_refused("captured", ValueError, lambda: next(iter(loader)))
        captured.destroy()
        self.assertEqual(on_host(loader), expected)

    def test_another_process_opens_its_own(self):
        dataset = self.dataset(decode=lmdbio.torch.values_as_tensor)
        expected = [rows.cpu().tolist() for rows in dataset]
        again = pickle.loads(pickle.dumps(dataset))
        again.set_epoch(0)
        self.assertEqual([rows.cpu().tolist() for rows in again], expected)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
