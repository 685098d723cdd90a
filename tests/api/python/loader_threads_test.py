"""Threads that share a lmdbio.Loader get each batch once, and none of them sees another's."""

import concurrent.futures
import gc
import queue
import threading
import unittest

from support import Databases, run_unless

import lmdbio

THREADS = 8
# So that a batch which is not returned stops the others soon.
SMALL = {"allow_map": False, "memory_budget_bytes": 1 << 20, "keep_bytes": -1}


def run(work, count=THREADS):
    """Runs work(i) in threads; returns their results and raises their first error."""
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(work, i) for i in range(count)]]


class LoaderThreadsTest(Databases):
    def test_threads_share_an_epoch(self):
        expected = self.records(self.even)
        with lmdbio.Loader(self.even, batch_size=3, **SMALL) as loader:
            for epoch in range(3):
                batches, everything = iter(loader), {}

                def take(_i):
                    for batch in batches:
                        self.assertEqual(batch.epoch, epoch)
                        everything.setdefault(batch.number, []).append(
                            [(key, bytes(value)) for key, value in batch])

                run(take)
                self.assertEqual(list(map(len, everything.values())), [1] * len(loader))
                in_order = [record for _, [records] in sorted(everything.items())
                            for record in records]
                self.assertEqual(in_order, expected)

    def test_loops_of_several_threads_end_with_the_epoch(self):
        with lmdbio.Loader(self.digits, batch_size=1) as loader:
            first = threading.Barrier(THREADS)

            def loop(_i):
                numbers = []
                for batch in loader:
                    if not numbers:
                        first.wait(60)  # nobody is late for the epoch
                    numbers.append(batch.number)
                return numbers

            numbers = sum(run(loop), [])
            self.assertEqual(sorted(numbers), list(range(len(loader))))
            self.assertEqual(next(iter(loader)).epoch, 1)

    def test_a_batch_stays_while_others_take_theirs(self):
        expected = self.records(self.even)
        with lmdbio.Loader(self.even, batch_size=4, **SMALL) as loader:
            batch = loader.next()
            values = batch.values()

            def take(_i):
                for _ in range(5):
                    loader.next()

            run(take)
            self.assertEqual(batch.keys(), [key for key, _ in expected[:4]])
            self.assertEqual([bytes(value) for value in values],
                             [value for _, value in expected[:4]])
            self.assertEqual(loader.next().number, 1 + 5 * THREADS)
            with self.assertRaises(RuntimeError):
                batch.keys()

    def test_memory_comes_back_with_the_last_view(self):
        expected = dict(enumerate(value for _, value in self.records(self.even)))
        with lmdbio.Loader(self.even, batch_size=2, **SMALL) as loader:
            for drop in ("nothing is kept", "a view is kept for a while"):
                with self.subTest(drop):
                    kept = []

                    def take(_i):
                        batch = loader.next()
                        first = batch.positions[0] % len(expected)
                        view = batch.value(0)
                        del batch
                        self.assertEqual(bytes(view), expected[first])
                        if drop != "nothing is kept":
                            kept.append(view)
                            if len(kept) > 3:
                                kept.pop(0)

                    # Most threads of a pool are idle, most of the time.
                    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
                        for _ in range(500):
                            pool.submit(take, 0).result()

    def test_memory_of_sleeping_threads_comes_back(self):
        # A free-threaded Python leaves it to the sleeper to free what others have let go.
        wakes = threading.Event()
        views = queue.Queue()

        def take(loader):
            views.put(loader.next().value(0))
            wakes.wait()

        with lmdbio.Loader(self.even, batch_size=100, **SMALL) as loader:
            sleepers = [threading.Thread(target=take, args=(loader,)) for _ in range(20)]
            try:
                for sleeper in sleepers:
                    sleeper.start()
                    views.get(timeout=30)
            finally:
                wakes.set()
                for sleeper in sleepers:
                    if sleeper.ident is not None:
                        sleeper.join()

    def test_batches_are_used_by_other_threads(self):
        expected = {key: value for key, value in self.records(self.even)}
        handed = queue.Queue(2)

        def produce(loader):
            batches = []
            for batch in loader:
                handed.put(batch)
                handed.join()
                batches.append(batch)
            handed.put(None)
            return batches

        with lmdbio.Loader(self.even, batch_size=7, **SMALL) as loader, \
                concurrent.futures.ThreadPoolExecutor(1) as pool:
            made, seen = pool.submit(produce, loader), {}
            while True:
                batch = handed.get(timeout=60)
                if batch is None:
                    break
                rows = batch.array(copy=True)
                for i, key in enumerate(batch.keys()):
                    seen[key] = rows[i].tobytes()
                handed.task_done()
            self.assertEqual(seen, expected)
            old = made.result()[0]
            for look in (old.keys, old.values, lambda: old.array(copy=True)):
                with self.assertRaises(RuntimeError):
                    look()

    def test_going_elsewhere_ends_the_batches_of_all_threads(self):
        expected = self.records(self.even)
        for go in (lambda loader: loader.set_epoch(2),
                   lambda loader: loader.load_state_dict(loader.state_dict()),
                   lambda loader: loader.close()):
            loader = lmdbio.Loader(self.even, batch_size=4, **SMALL)
            has_batch, has_gone = threading.Event(), threading.Event()

            def hold():
                batch = loader.next()
                view = batch.value(1)
                has_batch.set()
                self.assertTrue(has_gone.wait(60))
                with self.assertRaises(RuntimeError):
                    batch.key(0)
                return bytes(view)

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                held = pool.submit(hold)
                self.assertTrue(has_batch.wait(60))
                go(loader)
                has_gone.set()
                self.assertEqual(held.result(60), expected[1][1])
            loader.close()

    def test_closing_ends_the_wait_for_a_batch(self):
        loader = lmdbio.Loader(self.even, batch_size=20, **SMALL)
        held = []

        def wait_for_memory():
            # Views keep the memory, and new threads have no earlier batch to return.
            with self.assertRaises(lmdbio.ClosedError):
                while True:
                    held.append(concurrent.futures.ThreadPoolExecutor(1).submit(
                        lambda: loader.next().array()).result())

        thread = threading.Thread(target=wait_for_memory)
        thread.start()
        thread.join(1)  # so that it waits, mostly
        loader.close()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        self.assertTrue(held)
        self.assertEqual(bytes(held[0][0]), self.records(self.even)[0][1])
        del held[:]
        gc.collect()

    def test_states_count_the_batches_of_all_threads(self):
        with lmdbio.Loader(self.digits, batch_size=10, shuffle=True) as loader:
            states = []

            def take(_i):
                for _ in range(20):
                    loader.next()
                    states.append(loader.state_dict()["batch"])
                    loader.counters()

            run(take)
            self.assertEqual(loader.state_dict()["batch"], 20 * THREADS)
            self.assertEqual(loader.counters()["batch_count"], 20 * THREADS)
            self.assertTrue(all(1 <= batch <= 20 * THREADS for batch in states))


if __name__ == "__main__":
    run_unless(None)
