"""lmdbio.Dataset returns the records that mdb_dump prints."""

import array
import collections
import multiprocessing
import os
import pickle
import random
import signal
import threading
import unittest

import numpy as np
from support import COUNT, STARTS, Databases, run_unless

import lmdbio


class DatasetTest(Databases):
    def test_any_records(self):
        expected = self.records(self.even)
        with lmdbio.Dataset(self.even) as dataset:
            self.assertEqual(len(dataset), COUNT)
            self.assertEqual(dataset[7], expected[7])
            self.assertEqual(dataset[-1], expected[-1])
            self.assertEqual(dataset[[3, 1, 3]], [expected[3], expected[1], expected[3]])
            self.assertEqual(dataset[10:20:3], expected[10:20:3])
            self.assertEqual(dataset.__getitems__(np.array([5, 2])), [expected[5], expected[2]])
            self.assertEqual(dataset[[]], [])
            self.assertEqual(list(dataset), expected)  # the old protocol: until IndexError
            for beyond in (COUNT, -COUNT - 1, [0, COUNT]):
                with self.assertRaises(IndexError):
                    dataset[beyond]
            with self.assertRaises(KeyError):
                dataset["key"]
        with self.assertRaises(ValueError):
            dataset[0]

    def test_other_processes(self):
        expected = self.records(self.even)
        dataset = lmdbio.Dataset(self.even)
        self.assertEqual(pickle.loads(pickle.dumps(dataset))[4], expected[4])
        for method in STARTS:
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                self.assertEqual(pool.map(dataset.__getitem__, range(8)), expected[:8])
            self.assertEqual(dataset[9], expected[9])
        with self.assertRaises(FileNotFoundError):
            lmdbio.Dataset(self.folder / "nowhere")

    def test_another_file_in_its_place_is_noticed(self):
        place = self.folder / "place.mdb"
        place.write_bytes((self.even / "data.mdb").read_bytes())
        pickled = pickle.dumps(lmdbio.Dataset(place))
        place.unlink()
        place.write_bytes((self.digits / "data.mdb").read_bytes())
        with self.assertRaisesRegex(lmdbio.StaleError, "1797"):
            pickle.loads(pickled)[0]

    def test_numbers_of_any_integer_type(self):
        expected = self.records(self.even)
        with lmdbio.Dataset(self.even) as dataset:
            types = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64,
                     np.uint64, ">i4"]
            for one in 7, np.array(7), *(np.dtype(kind).type(7) for kind in types):
                self.assertEqual(dataset[one], expected[7], repr(one))
            some = [expected[5], expected[2], expected[5]]
            for many in ([5, 2, 5], (5, 2, 5), array.array("i", [5, 2, 5]),
                         collections.deque([5, 2, 5]), [np.uint8(5), 2, np.array(5)],
                         *(np.array([5, 2, 5], kind) for kind in types)):
                self.assertEqual(dataset[many], some, repr(many))
                self.assertEqual(dataset.__getitems__(many), some, repr(many))
            self.assertEqual(dataset[range(3, 9, 2)], expected[3:9:2])
            self.assertEqual(dataset[np.array([-1, 0])], [expected[-1], expected[0]])
            self.assertEqual(dataset[np.array([], int)], [])
            for beyond in np.uint64(2**64 - 1), np.array([0, 2**63], np.uint64), np.int16(-400):
                with self.assertRaises(IndexError):
                    dataset[beyond]

    def test_what_is_no_number_is_refused(self):
        mask = np.zeros(COUNT, bool)
        mask[[0, 2]] = True
        with lmdbio.Dataset(self.even) as dataset:
            for wrong, words in (
                    (None, "NoneType"), (1.0, "float"),
                    (True, "bool"), (np.True_, "bool"), ([True, False, True], "bool.*flatnonzero"),
                    (mask, "bool.*flatnonzero"), (np.array([1.0, 2.0]), "float64.*astype"),
                    (np.float32(1), "float32"), (np.array([]), "float64"),
                    (np.array([1, 2], object), "object"),
                    (np.ones((2, 2), int), "2 dimensions"), ([[1], [2]], "sequences of list"),
                    ([1, 2.0], "float"), ([1, b"2"], "bytes"), ({1, 2}, "set"),
                    ({1: 2}, "dict"), ((i for i in (1, 2)), "generator"),
                    (slice("a", "b"), "slice")):
                for ask in dataset.__getitem__, dataset.__getitems__:
                    with self.subTest(wrong=wrong, ask=ask.__name__):
                        with self.assertRaisesRegex(TypeError, words) as raised:
                            ask(wrong)
                        self.assertIsInstance(raised.exception, lmdbio.LmdbioError)
            self.assertEqual(dataset[np.flatnonzero(mask)], dataset[[0, 2]])

    def test_threads_get_what_they_asked_for(self):
        expected = self.records(self.digits)
        wrong, rounds, thread_count = [], 60, 8
        with lmdbio.Dataset(self.digits) as dataset:
            def ask(seed):
                numbers = random.Random(seed)
                for _ in range(rounds):
                    one = numbers.randrange(len(expected))
                    many = [numbers.randrange(len(expected)) for _ in range(numbers.randrange(40))]
                    if dataset[one] != expected[one]:
                        wrong.append(one)
                    if dataset[many] != [expected[i] for i in many]:
                        wrong.append(many)
                done.append(seed)

            done = []
            threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(thread_count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(sorted(done), list(range(thread_count)))

    def test_closing_beside_other_threads(self):
        dataset = lmdbio.Dataset(self.digits)
        begun = threading.Barrier(5)
        raised = []

        def ask():
            begun.wait()
            try:
                while True:
                    dataset[list(range(50))]
            except ValueError as error:
                raised.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        dataset.close()
        for thread in threads:
            thread.join()
        self.assertEqual(raised, ["the dataset is closed"] * 4)

    def test_a_handler_of_signals_may_read(self):
        expected, found = self.records(self.even), []

        def read(*_):  # starts the timer again only at its end, else slow machines nest it deeper
            found.append(dataset[3])
            if len(found) < 20:
                signal.setitimer(signal.ITIMER_REAL, 0.001)

        with lmdbio.Dataset(self.even) as dataset:
            before = signal.signal(signal.SIGALRM, read)
            self.addCleanup(signal.signal, signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            try:
                while len(found) < 20:
                    self.assertEqual(dataset[[5, 1]], [expected[5], expected[1]])
            finally:
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
                signal.setitimer(signal.ITIMER_REAL, 0)
        self.assertEqual(found, [expected[3]] * len(found))

    def test_a_child_does_not_wait_for_a_thread_of_its_parent(self):
        expected = self.records(self.even)
        with lmdbio.Dataset(self.even) as dataset:
            is_inside, may_end = threading.Event(), threading.Event()

            def open_or_close():
                with dataset._lock():
                    is_inside.set()
                    may_end.wait()
            thread = threading.Thread(target=open_or_close)
            thread.start()
            is_inside.wait()
            child = os.fork()
            if child == 0:
                os._exit(0 if dataset[7] == expected[7] else 1)
            _, status = os.waitpid(child, 0)
            may_end.set()
            thread.join()
            self.assertEqual(status, 0)
            self.assertEqual(dataset[8], expected[8])


if __name__ == "__main__":
    run_unless(None)
