"""lmdbio.Loader and lmdbio.Batch deliver the records that mdb_dump prints."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import unittest
import warnings

import numpy as np
from support import STARTS, Databases, run_unless

import lmdbio


def delivered(loader):
    """Returns (key, value) of each record in the rest of the epoch."""
    return [(key, bytes(value)) for batch in loader for key, value in batch]


def child_reads(loader, queue):
    queue.put(delivered(loader))


class LoaderTest(Databases):
    def test_one_epoch_in_order(self):
        for path in (self.digits, self.even):
            with lmdbio.Loader(path, batch_size=64) as loader:
                expected = self.records(path)
                self.assertEqual(loader.record_count, len(expected))
                self.assertEqual(len(loader), -(-len(expected) // 64))
                self.assertEqual(delivered(loader), expected)
                self.assertEqual(delivered(loader), expected)  # the next epoch

    def test_shuffled_epochs(self):
        with lmdbio.Loader(self.digits, batch_size=64, shuffle=True, seed=3) as loader:
            first, second = delivered(loader), delivered(loader)
            self.assertNotEqual(first, second)
            self.assertEqual(sorted(first), sorted(second))
            self.assertEqual(sorted(first), self.records(self.digits))
            loader.set_epoch(0)
            self.assertEqual(delivered(loader), first)
        with lmdbio.Loader(self.digits, batch_size=64, shuffle=True, seed=3, epoch=1) as loader:
            self.assertEqual(delivered(loader), second)
        for order in ({"shuffle": "block"}, {"order": "chunked"}):
            with lmdbio.Loader(self.digits, batch_size=16, **order) as loader:
                self.assertEqual(sorted(delivered(loader)), self.records(self.digits))

    def test_what_a_batch_tells(self):
        expected = self.records(self.digits)
        with lmdbio.Loader(self.digits, batch_size=100) as loader:
            for number, batch in enumerate(loader):
                part = expected[number * 100:number * 100 + 100]
                self.assertEqual((batch.number, batch.epoch, len(batch)), (number, 0, len(part)))
                self.assertEqual(batch.ends_epoch, number == 17)
                self.assertEqual(batch.keys(), [key for key, _ in part])
                self.assertEqual([bytes(value) for value in batch.values()],
                                 [value for _, value in part])
                memory, offsets, sizes = batch.spans()
                self.assertFalse(memory.flags.writeable)
                self.assertEqual([memory[at:at + size].tobytes()
                                  for at, size in zip(offsets.tolist(), sizes.tolist())],
                                 [value for _, value in part])
                self.assertEqual(batch.sizes.tolist(), [len(value) for _, value in part])
                self.assertEqual(batch.positions[0], number * 100)
                self.assertEqual(batch[3], part[3])
                self.assertTrue(batch.value(0).readonly)

    def test_arrays(self):
        expected = self.records(self.even)
        with lmdbio.Loader(self.even, batch_size=10) as loader:
            batch = loader.next()
            rows = np.frombuffer(b"".join(value for _, value in expected[:10]),
                                 np.uint8).reshape(10, 3000)
            self.assertTrue((batch.array() == rows).all())
            copied = batch.array(copy=True)
            self.assertTrue(copied.flags.owndata and copied.flags.writeable)
            self.assertTrue((copied == rows).all())
            wide = np.full((12, 3010), 255, np.uint8)
            self.assertIs(batch.array(out=wide), wide)
            self.assertTrue((wide[:10, :3000] == rows).all())
            self.assertFalse(wide[10:].any() or wide[:, 3000:].any())
            for bad in (np.zeros((10, 2999), np.uint8), np.zeros((9, 3000), np.uint8),
                        np.zeros((10, 3000)), np.zeros((20, 6000), np.uint8)[::2, ::2],
                        np.broadcast_to(np.zeros(3000, np.uint8), (10, 3000))):
                with self.assertRaises(ValueError):
                    batch.array(out=bad)

    def test_a_view_is_no_copy_where_values_lie_evenly(self):
        with lmdbio.Loader(self.even, batch_size=4) as loader:
            batch = loader.next()
            rows = batch.array(copy=False)
            self.assertFalse(rows.flags.owndata or rows.flags.writeable)
            self.assertTrue((rows == batch.array(copy=True)).all())
        ragged = self.folder / "ragged"
        lmdb_with_values(ragged, [b"a" * 5, b"b" * 3, b""])
        with lmdbio.Loader(ragged, batch_size=3) as loader:
            batch = loader.next()
            with self.assertRaises(ValueError):
                batch.array(copy=False)
            self.assertEqual(batch.array().tolist(), [[97] * 5, [98] * 3 + [0] * 2, [0] * 5])

    def test_a_batch_that_is_gone_says_so(self):
        loader = lmdbio.Loader(self.digits, batch_size=10)
        batch = loader.next()
        view, rows = batch.value(0), batch.array()
        loader.next()
        for look in (lambda: batch.key(0), lambda: batch.value(0), batch.keys, batch.array,
                     lambda: batch.sizes):
            with self.assertRaises(RuntimeError):
                look()
        loader.close()
        with self.assertRaises(ValueError):
            loader.next()
        self.assertEqual(len(bytes(view)) + rows.sum() * 0, len(view))  # no crash
        loader.close()  # twice is fine

    def test_views_outlive_what_made_them(self):
        with lmdbio.Loader(self.even, batch_size=10) as loader:
            views = [loader.next().array()]
            loader.set_epoch(3)
            views.append(loader.next().array())
            loader.load_state_dict(loader.state_dict())
            views.append(loader.next().array())
        del loader
        gc.collect()
        self.assertGreater(sum(int(view.sum()) for view in views), 0)

    def test_views_outlive_a_loader_that_nobody_closed(self):
        for allow_map in (True, False):
            views = []
            for batch in lmdbio.Loader(self.even, batch_size=10, allow_map=allow_map):
                views = [batch.array(), *batch.values()]
                break
            del batch
            gc.collect()
            self.assertGreater(sum(bytes(view).count(0) + 1 for view in views), 0)

    def test_views_stay_read_only(self):
        with lmdbio.Loader(self.even, batch_size=10) as loader:
            batch = loader.next()
            for view in (batch.array(), batch.spans().memory, np.asarray(batch.value(0))):
                with self.assertRaises(ValueError):
                    view.flags.writeable = True

    def test_what_fails_leaves_the_stream_where_it_was(self):
        for held in (False, True):
            loader = lmdbio.Loader(self.digits, 10, shuffle=True, epoch=2)
            loader.next()
            view = loader.next().value(0) if held else loader.next() and None
            for wrong in (lambda: loader.set_epoch(2**63), lambda: loader.set_epoch("x"),
                          lambda: loader.load_state_dict({"epoch": 1})):
                with self.assertRaises((ValueError, TypeError)):
                    wrong()
            batch = loader.next()
            self.assertEqual((batch.epoch, batch.first_position), (2, 2 * 1797 + 20), held)
            del view

    def test_a_batch_that_a_signal_took_away_comes_again(self):
        with lmdbio.Loader(self.digits, 100) as loader:
            loader.next()
            hand_out = loader._hand_out

            def interrupted():
                raise KeyboardInterrupt

            loader._hand_out = interrupted  # as if the handler ran just before it
            with self.assertRaises(KeyboardInterrupt):
                loader.next()
            loader._hand_out = hand_out
            state = loader.state_dict()
            self.assertEqual((state["batch"], state["position"]), (1, 100))
            with lmdbio.Loader(self.digits, 100, state=state) as again:
                self.assertEqual(again.next().number, 1)
            self.assertEqual([batch.number for batch in loader], list(range(1, 18)))

    def test_no_warnings(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batch in lmdbio.Loader(self.digits, 50, shuffle=True, allow_map=False):
                batch.array()
                batch.spans()

    def test_states(self):
        options = {"batch_size": 50, "shuffle": True, "seed": 9}
        with lmdbio.Loader(self.digits, **options) as loader:
            for _ in range(7):
                loader.next()
            state = loader.state_dict()
            rest = delivered(loader)
            loader.load_state_dict(state)
            self.assertEqual(delivered(loader), rest)
        with lmdbio.Loader(self.digits, **options, state=state) as loader:
            self.assertEqual(delivered(loader), rest)
        with self.assertRaisesRegex(ValueError, "seed"):
            lmdbio.Loader(self.digits, 50, shuffle=True, seed=8, state=state)
        with self.assertRaises(lmdbio.StaleError):
            lmdbio.Loader(self.even, 50, shuffle=True, seed=9, state=state)

    def test_shards_and_restore_at_another_number(self):
        whole = delivered(lmdbio.Loader(self.digits, 60, shuffle=True, seed=2))
        shards = [lmdbio.Loader(self.digits, 20, shuffle=True, seed=2, num_shards=3, shard_id=i)
                  for i in range(3)]
        parts = []
        for _ in range(10):
            for shard in shards:
                parts += [(key, bytes(value)) for key, value in shard.next()]
        self.assertEqual(parts, whole[:600])
        state = shards[1].state_dict()
        with lmdbio.Loader(self.digits, 60, shuffle=True, seed=2, state=state) as loader:
            self.assertEqual(delivered(loader), whole[600:])

    def test_tails(self):
        with lmdbio.Loader(self.digits, 100, drop_last=True) as loader:
            self.assertEqual([len(batch) for batch in loader], [100] * 17)
            self.assertEqual(loader.counters()["dropped_count"], 97)
        with lmdbio.Loader(self.digits, 100, tail="wrap", max_batches=20) as loader:
            self.assertEqual([len(batch) for batch in loader], [100] * 18)
            self.assertEqual([len(batch) for batch in loader], [100] * 2)
            self.assertIsNone(loader.next())

    def test_pickles_go_on_where_it_stood(self):
        with lmdbio.Loader(self.digits, 100) as loader:
            loader.next()
            again = pickle.loads(pickle.dumps(loader))
            self.assertEqual(again.state_dict(), loader.state_dict())
            self.assertEqual(delivered(again), delivered(loader))
        closed = pickle.loads(pickle.dumps(loader))
        with self.assertRaises(ValueError):
            closed.next()

    def test_other_processes_go_on_where_it_stood(self):
        for method in STARTS:
            context = multiprocessing.get_context(method)
            with lmdbio.Loader(self.digits, 100) as loader:
                batch = loader.next()
                queue = context.Queue()
                child = context.Process(target=child_reads, args=(loader, queue))
                child.start()
                found = queue.get(timeout=60)
                child.join(60)
                self.assertEqual(child.exitcode, 0)
                self.assertEqual(len(batch.keys()), 100)  # the parent's is untouched
                self.assertEqual(found, delivered(loader))

    def test_interrupted_while_it_waits(self):
        # A fake library takes the place of the real one, and never has a batch.
        with lmdbio.Loader(self.digits, 100) as loader:
            def interrupt(_number, _frame):
                raise KeyboardInterrupt

            before = signal.signal(signal.SIGALRM, interrupt)
            self.addCleanup(signal.signal, signal.SIGALRM, before)
            endless = type("Endless", (), {"lmdbio_fetch":
                                           staticmethod(lambda *_: time.sleep(0.1) or 101)})
            original = lmdbio._capi.library
            lmdbio._capi.library = lambda: endless
            self.addCleanup(setattr, lmdbio._capi, "library", original)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with self.assertRaises(KeyboardInterrupt):
                loader.next()
            lmdbio._capi.library = original

    def test_other_threads_run_while_it_waits(self):
        seen = []
        thread = threading.Thread(target=lambda: seen.append(1))
        with lmdbio.Loader(self.digits, 100) as loader:
            thread.start()
            delivered(loader)
        thread.join()
        self.assertEqual(seen, [1])

    def test_errors_are_exceptions_that_fit(self):
        with self.assertRaisesRegex(FileNotFoundError, "nowhere"):
            lmdbio.Loader(self.folder / "nowhere")
        for wrong in ({"batch_size": 0}, {"shuffle": "well"}, {"num_shards": 2, "shard_id": 2},
                      {"strategy": "fast"}, {"share": "fair"}, {"drop_last": True, "tail": "wrap"},
                      {"queue_depth": 7, "block_bytes": 5}, {"batch_size": 2**64},
                      {"seed": 2**64}, {"seed": -1}, {"epoch": 2**64 + 1}, {"max_batches": -1},
                      {"num_shards": 2**32 + 2, "shard_id": 1}, {"engine": "pread\0"}):
            with self.subTest(wrong), self.assertRaises(ValueError) as raised:
                lmdbio.Loader(self.digits, **wrong)
            self.assertIsInstance(raised.exception, lmdbio.LmdbioError)
            self.assertNotIn("\n", str(raised.exception))
        for wrong in ({"engine": 3}, {"strategy": b"auto"}, {"database_name": 7}, {"seed": 1.5}):
            with self.subTest(wrong), self.assertRaises(TypeError):
                lmdbio.Loader(self.digits, **wrong)
        with self.assertRaises(ValueError):
            lmdbio.Loader(f"{self.digits}\0x")
        damaged = self.folder / "damaged.mdb"
        data = bytearray((self.even / "data.mdb").read_bytes())
        data[2 * 4096:] = b"\x55" * (len(data) - 2 * 4096)
        damaged.write_bytes(data)
        with self.assertRaises(lmdbio.CorruptionError):
            delivered(lmdbio.Loader(damaged))

    def test_the_log_goes_to_logging(self):
        stale = self.folder / "stale"
        os.makedirs(stale)
        (stale / "data.mdb").write_bytes((self.digits / "data.mdb").read_bytes())
        (stale / "data.mdb.prov").write_bytes(b"rubbish")
        with self.assertLogs("lmdbio", "WARNING") as logs, lmdbio.Loader(stale) as loader:
            self.assertEqual(len(delivered(loader)), 1797)
        self.assertEqual(len(logs.output), 1)

    def test_words(self):
        self.assertEqual(lmdbio.version(), lmdbio.__version__)
        with lmdbio.Loader(self.digits, prefetch_batches=2) as loader:
            self.assertGreater(len(loader.describe()), 0)
            self.assertEqual(loader.batch_size, 64)
            self.assertIn("64 records", repr(loader.next()))


def lmdb_with_values(path, values):
    """A database with these values under the keys 0, 1, ..., by mdb_load of LMDB's own tools."""
    import subprocess

    os.makedirs(path)
    lines = ["VERSION=3", "format=bytevalue", "type=btree", "mapsize=1048576", "HEADER=END"]
    for i, value in enumerate(values):
        lines += [f" {i:08x}", f" {value.hex()}"]
    text = "\n".join([*lines, "DATA=END", ""])
    subprocess.run(["mdb_load", path], input=text, text=True, check=True)


if __name__ == "__main__":
    run_unless(None)
