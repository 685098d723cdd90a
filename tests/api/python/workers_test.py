"""lmdbio.torch with workers that hand their batches over in shared memory.

The oracle is mdb_dump's pass over the database, or the values that the test itself made. A tensor
that PyTorch copied to the trainer is_shared(); one that was handed over is not. Exits with 77
without torch.
"""

import contextlib
import gc
import importlib.util
import mmap
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import textwrap
import time
import unittest

import numpy as np

from support import COUNT, HAS_ASAN, START, STARTS, Databases, run_unless

if importlib.util.find_spec("torch"):
    import torch
    from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

    import lmdbio.torch
    from lmdbio._inbox import _inboxes, receive
    from lmdbio._outbox import TICKETS_MAX, Outbox

BATCH = 32
ROW = 3000
SECONDS_MAX = 100  # of one wait; only a hang takes so long


def as_tuple(batch):
    return torch.from_numpy(batch.array(copy=True)), torch.from_numpy(batch.positions.astype(int))


def as_dict(batch):
    return {"rows": batch.array(copy=True), "keys": batch.keys(), "sizes": batch.sizes.astype(int)}


def in_place(batch):
    rows = lmdbio.torch.empty((len(batch), ROW + 1))
    batch.array(out=rows.numpy())
    return rows[:, :ROW]  # a view with gaps


def of_many_sizes(batch):
    """Rows whose width changes from batch to batch, up and down."""
    width = 200 + 2800 * (int(batch.positions[0]) % 10) // 9  # the batches begin at multiples of 7
    return torch.from_numpy(batch.array(copy=True))[:, :width]


def die_at_the_third(batch):
    if batch.number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return lmdbio.torch.values_as_tensor(batch)


def value_and_size(record):
    value = torch.frombuffer(bytearray(record.value), dtype=torch.uint8)
    return {"value": value, "size": (len(record.value), record.key)}


def odd_values(_batch):
    """Values that only some of the ways to the trainer can carry."""
    base = torch.arange(6000, dtype=torch.float32)
    return [
        base.view(10, 20, 30).permute(2, 0, 1),
        torch.zeros(2, 3, 40, 50).contiguous(memory_format=torch.channels_last) + 1,
        base.to(torch.bfloat16), base > 7, base.to(torch.complex64), torch.tensor(7.5),
        torch.empty(0, 5), base[:3], base[::2], torch.ones(1).expand(5000),
        base.clone().requires_grad_(), base.clone().share_memory_(), (base, base),
        torch.nn.Parameter(base.clone()), "text", None, {"list": [base, 3]}]


def odd_arrays(values):
    """NumPy's arrays, which default_convert would make tensors of."""
    base = np.arange(6000.0)
    table = np.zeros(900, [("name", "S8"), ("number", np.int32)])
    table["number"] = np.arange(900)
    return [base, base.reshape(60, 100).T, base.reshape(60, 100)[:, ::3], table,
            np.array([None, "a"] * 700, object), base[:4], np.empty((0, 4)),
            np.broadcast_to(base[:1], (3000,)), base.astype("M8[s]"), np.float64(4)]


@contextlib.contextmanager
def nothing_left_behind(test):
    """Checks that no file in /dev/shm, no descriptor and no map of a worker's memory remain."""
    def left():
        gc.collect()
        multiprocessing.active_children()  # collects workers that ended after DataLoader's patience
        files = [name for name in os.listdir("/dev/shm") if "lmdbio" in name]  # others use it, too
        return files, len(os.listdir("/proc/self/fd")), len(_inboxes)
    before = left()
    yield
    deadline = time.monotonic() + SECONDS_MAX
    while any(map(operator.gt, left(), before)) and time.monotonic() < deadline:
        time.sleep(0.01)  # until the thread that waits for the end of the workers has run
    for now, then in zip(left(), before):
        test.assertLessEqual(now, then)

PAGES = (mmap.PAGESIZE, 65536)  # of this machine, and the largest of any


class WorkersTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = b"".join(value for _, value in cls.records(cls, cls.even))
        for start in {START, *STARTS}:  # opens what multiprocessing keeps
            dataset = lmdbio.torch.IterableDataset(cls.even, hand_over_bytes=0)
            list(DataLoader(dataset, batch_size=None, num_workers=1,
                            multiprocessing_context=start))

    def loader(self, batch_size=BATCH, workers=2, start=START, persistent=False, **options):
        dataset = lmdbio.torch.IterableDataset(self.even, batch_size, **options)
        if workers == 0:
            return DataLoader(dataset, batch_size=None)
        return DataLoader(dataset, batch_size=None, num_workers=workers, timeout=SECONDS_MAX,
                          multiprocessing_context=start, persistent_workers=persistent)

    def check(self, batches):
        self.assertEqual(b"".join(rows.numpy().tobytes() for rows in batches), self.expected)

    def assert_handed_over(self, values):
        self.assertEqual([value.is_shared() for value in values], [False] * len(values))

    def test_every_record_by_both_ways_and_both_starts(self):
        with nothing_left_behind(self):
            for start, size in [(STARTS[0], 0), *((start, 1 << 30) for start in STARTS)]:
                batches = list(self.loader(start=start, hand_over_bytes=size))
                self.check(batches)
                self.assertEqual([batch.is_shared() for batch in batches],
                                 [size == 0] * len(batches), (start, size))
                self.assertEqual(len(batches[-1]), COUNT % BATCH)
                del batches

    def test_decoders_that_return_several_values(self):
        rows, positions = zip(*self.loader(decode=as_tuple))
        self.check(rows)
        self.assert_handed_over(rows)
        self.assertEqual(torch.cat(positions).tolist(), list(range(COUNT)))
        batches = list(self.loader(decode=as_dict))
        self.check([batch["rows"] for batch in batches])
        self.assert_handed_over([batch["rows"] for batch in batches])
        self.assertEqual([key for batch in batches for key in batch["keys"]],
                         [key for key, _ in self.records(self.even)])
        self.check(self.loader(decode=in_place))

    def test_memory_is_used_again_but_not_while_a_view_is_left(self):
        addresses, corners = set(), []
        with nothing_left_behind(self):
            for rows in self.loader(batch_size=3, workers=1, decode=in_place):
                addresses.add(rows.data_ptr())
                del rows
            self.assertLess(len(addresses), COUNT // 3 // 4)
            for rows in self.loader(batch_size=3, workers=1, decode=in_place):
                corners.append((rows[1:2].numpy()[:, 5:ROW], rows[2, 7:].view(-1)[3:9]))
            for index, (middle, end) in enumerate(corners):
                first = (3 * index + 1) * ROW
                self.assertEqual(middle.tobytes(), self.expected[first + 5:first + ROW])
                self.assertEqual(bytes(end), self.expected[first + ROW + 10:first + ROW + 16])
            del rows, corners, middle, end

    def test_a_trainer_may_keep_all_batches(self):
        for start in STARTS:
            room = 3 * BATCH * ROW
            with nothing_left_behind(self):
                batches = list(self.loader(start=start, hand_over_bytes=room))
                self.check(batches)
                ways = [batch.is_shared() for batch in batches]
                self.assertIn(True, ways)  # there was no more room
                self.assertIn(False, ways)
                del batches

    def test_batches_whose_size_changes(self):
        for room in (1 << 30, 4 * BATCH * ROW):
            with nothing_left_behind(self):
                alone = list(self.loader(workers=0, decode=of_many_sizes, batch_size=7))
                found = list(self.loader(decode=of_many_sizes, batch_size=7, hand_over_bytes=room))
                self.assertEqual([rows.shape for rows in found], [rows.shape for rows in alone])
                self.assertTrue(all(map(torch.equal, found, alone)))
                self.assertGreater(len({rows.shape[1] for rows in found}), 5)
                del found

    def test_the_trainer_may_write(self):
        for rows in self.loader():
            rows += 1
        self.check(self.loader())

    def test_a_forked_child_frees_nothing(self):
        loader = self.loader(batch_size=3, workers=1)
        found = iter(loader)
        kept = next(found)
        child = os.fork()
        if child == 0:
            del kept  # not the iterator, whose end would stop the worker
            gc.collect()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.check([kept, *found])

    def test_two_loaders_at_once_and_one_that_starts_later(self):
        first, second = iter(self.loader(persistent=True)), iter(self.loader(workers=1))
        batches = ([], [], [])
        for _ in range(4):
            batches[0].append(next(first))
            batches[1].append(next(second))
        third = iter(self.loader())
        for target, source in zip(batches, (first, second, third)):
            target.extend(source)
        for each in batches:
            self.check(each)
            self.assert_handed_over(each)

    def test_loops_that_are_left_early(self):
        for persistent in (False, True):
            with nothing_left_behind(self):
                loader = self.loader(persistent=persistent)
                for _ in range(3):
                    rows = next(iter(loader))
                    self.assertEqual(rows.numpy().tobytes(), self.expected[:BATCH * ROW])
                self.check(loader)
                del loader, rows

    def test_a_killed_worker(self):
        for start in STARTS:
            kept = []
            with nothing_left_behind(self):
                with self.assertRaisesRegex(RuntimeError, "worker.*(killed|exited)"):
                    for rows in self.loader(start=start, decode=die_at_the_third):
                        kept.append(rows)
                for index, rows in enumerate(kept):
                    self.assertEqual(rows.numpy().tobytes(),
                                     self.expected[index * BATCH * ROW:][:BATCH * ROW])
                del kept, rows

    def test_values_of_all_kinds(self):
        for size in (1 << 30, 0):
            found = next(iter(self.loader(decode=odd_values, hand_over_bytes=size)))
            for got, made in zip(found, odd_values(None)):
                self.assertIs(type(got), type(made) if type(made) is not tuple else list)
                if isinstance(made, torch.Tensor):
                    self.assertEqual((got.dtype, got.shape, got.layout, got.requires_grad),
                                     (made.dtype, made.shape, made.layout, made.requires_grad))
                    self.assertTrue(torch.equal(got, made))
            self.assertEqual(found[1].stride(), odd_values(None)[1].stride())
            self.assertTrue(torch.equal(found[-1]["list"][0], found[0].permute(1, 2, 0).flatten()))
            self.assertEqual(found[-3:-1], ["text", None])
            self.assertEqual([value.is_shared() for value in found[:5]], [size == 0] * 5)
            self.assertTrue(found[11].is_shared())  # as it was in the worker
            found[8].detach_()  # refused for views
            found[-5][0].zero_()

    def test_arrays_of_all_kinds(self):
        dataset = lmdbio.torch.IterableDataset(self.even, decode=len)
        loader = DataLoader(dataset, batch_size=None, num_workers=1, collate_fn=odd_arrays,
                            multiprocessing_context=START)
        for got, made in zip(next(iter(loader)), odd_arrays(None)):
            self.assertEqual((type(got), got.dtype, got.shape),
                             (type(made), made.dtype, made.shape))
            self.assertEqual(got.tolist(), made.tolist())
            self.assertEqual(got.flags.fnc, made.flags.fnc) if made.base is None else None

    def test_map_style_with_collate(self):
        dataset = lmdbio.torch.MapDataset(self.even, value_and_size)
        plain = list(DataLoader(dataset, batch_size=BATCH))
        found = list(DataLoader(dataset, batch_size=BATCH, num_workers=2,
                                collate_fn=lmdbio.torch.collate,
                                multiprocessing_context=START))
        self.check([batch["value"] for batch in found])
        self.assert_handed_over([batch["value"] for batch in found])
        for got, made in zip(found, plain):
            self.assertTrue(torch.equal(got["size"][0], made["size"][0]))
            self.assertEqual(got["size"][1], made["size"][1])
        sampler = BatchSampler(SequentialSampler(dataset), BATCH, drop_last=False)
        found = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=2,
                           multiprocessing_context=START)
        self.check([batch["value"] for batch in found])

    def test_arrays_are_collated_in_memory_that_is_handed_over(self):
        dataset = lmdbio.torch.MapDataset(self.even, lambda record: np.frombuffer(
            record.value, np.uint8).copy())
        found = list(DataLoader(dataset, batch_size=BATCH, num_workers=2,
                                collate_fn=lmdbio.torch.collate,
                                multiprocessing_context="fork"))
        self.check(found)
        self.assert_handed_over(found)

    def test_no_samples_are_refused(self):
        with self.assertRaisesRegex(lmdbio.InvalidArgumentError, "at least one sample"):
            lmdbio.torch.collate([])

    def test_collate_is_default_collate(self):
        pair = torch.ones(2, 3), torch.zeros(2, 3)
        for samples in ([1, 2], [1.5, 2.5], ["a", "b"], [pair, pair], [list(pair), list(pair)],
                        [{"a": 1, "b": pair}] * 3, [np.ones(3)] * 2, [torch.tensor(4)] * 2):
            self.assertEqual(str(lmdbio.torch.collate(samples)),
                             str(torch.utils.data.default_collate(samples)))
        for samples in ([pair[0], pair[0][0]], [pair, pair[:1]], [{"a": 1}, {"b": 1}]):
            with self.assertRaises((RuntimeError, KeyError)):
                lmdbio.torch.collate(samples)

    def test_sizes_that_are_refused(self):
        for size, error in ((-1, ValueError), (1 << 64, ValueError), ("1", TypeError)):
            for kind in (lmdbio.torch.IterableDataset, lmdbio.torch.MapDataset):
                with self.assertRaises(error):
                    kind(self.even, hand_over_bytes=size)

    def run_program(self, text):
        text = "import lmdbio.torch, torch, sys\nif __name__ == '__main__':\n" + textwrap.indent(
            textwrap.dedent(text), "    ")
        program = self.folder / "program.py"
        program.write_text(text, encoding="utf-8")
        return subprocess.run([sys.executable, program, self.even, STARTS[0]], capture_output=True,
                              text=True, timeout=SECONDS_MAX)

    def test_memory_that_the_system_refuses(self):
        ended = self.run_program("""
            dataset = lmdbio.torch.IterableDataset(sys.argv[1], 32, hand_over_bytes=1 << 62)
            loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1,
                                                 multiprocessing_context=sys.argv[2])
            print(sum(len(rows) for rows in loader if rows.is_shared()))
        """)
        self.assertEqual(ended.stdout, f"{COUNT}\n", ended.stderr)
        self.assertRegex(ended.stderr, "batches of worker process .* are copied.*hand_over_bytes")

    def test_a_program_that_ends_with_batches(self):
        ended = self.run_program("""
            dataset = lmdbio.torch.IterableDataset(sys.argv[1], 32)
            loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2,
                                                 multiprocessing_context=sys.argv[2])
            batches = iter(loader)
            sys.kept = [next(batches), next(batches)]
            sys.view = sys.kept[0].numpy()[3]
            print("ended")
        """)
        self.assertEqual((ended.stdout, ended.stderr, ended.returncode), ("ended\n", "", 0))


class OutboxTest(unittest.TestCase):
    """The memory itself, between two maps of one process."""

    def sent(self, outbox, data):
        memory = outbox.allocate(len(data))
        memory[:] = np.frombuffer(data, np.uint8)
        return outbox.send(memory.ctypes.data, len(data))

    def test_parcels_of_many_sizes(self):
        outbox, kept = Outbox(1 << 20), {}
        for number in range(3000):
            data = bytes([number % 251]) * (1 + 7919 * number % 50000)
            memory = outbox.allocate(len(data))
            if memory is None:
                break
            memory[:] = np.frombuffer(data, np.uint8)
            kept[number] = data, receive(outbox.send(memory.ctypes.data, len(data)))
            if number % 3:
                kept.pop(number * 5 % 7 + max(0, number - 9), None)
            for old, received in kept.values():
                self.assertEqual(received.tobytes(), old)
        self.assertGreater(number, 50)

    def test_is_full_and_goes_on(self):
        for page in PAGES:
            outbox = Outbox(10 * page, page)
            kept = [outbox.allocate(page) for _ in range(10)]
            self.assertIsNone(outbox.allocate(1))
            del kept[4:6]
            self.assertIsNone(outbox.allocate(2 * page + 1))
            self.assertIsNotNone(outbox.allocate(2 * page))

    def test_a_parcel_with_two_tickets(self):
        outbox = Outbox(4096)
        memory = outbox.allocate(mmap.PAGESIZE)
        first, second = [receive(outbox.send(memory.ctypes.data + at, 9)) for at in (0, 5)]
        del memory, first
        self.assertIsNone(outbox.allocate(1))
        del second
        self.assertIsNotNone(outbox.allocate(1))

    def test_has_a_limit_of_tickets(self):
        outbox = Outbox(4096)
        memory = outbox.allocate(mmap.PAGESIZE)
        tickets = [outbox.send(memory.ctypes.data, 1) for _ in range(TICKETS_MAX)]
        self.assertIsNone(outbox.send(memory.ctypes.data, 1))
        receive(tickets[77])
        self.assertEqual(outbox.send(memory.ctypes.data, 1).flag, tickets[77].flag)
        with self.assertRaises(lmdbio.InvalidArgumentError):
            outbox.send(memory.ctypes.data, mmap.PAGESIZE + 1)

    def test_parcels_and_memory_that_goes_back_begin_at_pages(self):
        for page in PAGES:
            outbox = Outbox(1 << 30, page)
            for size in (1, 5000, 70000, 1 << 20):
                memory = [outbox.allocate(size + 1000 * i) for i in range(9)]
                for one in memory:
                    self.assertEqual((one.ctypes.data - outbox._address) % page, 0)
            del memory, one
            kept = outbox.allocate(300 << 20)
            del kept
            kept = outbox.allocate(5000)
            self.assertLess(outbox._used_end, 100 << 20)  # more has gone back
            self.assertEqual(outbox._used_end % page, 0)

    def test_gives_memory_back(self):
        outbox = Outbox(1 << 30)
        kept = [outbox.allocate(16 << 20) for _ in range(10)]
        for memory in kept:
            memory[:] = 1
        used = os.fstat(outbox._fd).st_blocks * 512
        self.assertGreaterEqual(used, 160 << 20)
        del kept, memory
        small = outbox.allocate(4096)
        self.assertLessEqual(os.fstat(outbox._fd).st_blocks * 512, 66 << 20)
        small[:] = 3

    def test_a_receiver_that_has_not_got_the_descriptor(self):
        outbox = Outbox(1 << 20)
        receive(self.sent(outbox, b"first"))
        ticket = self.sent(outbox, b"second")
        self.assertIsNone(ticket.descriptor)
        _inboxes.clear()  # as in a process that was forked
        self.assertEqual(bytes(receive(ticket)), b"second")
        ended = ticket._replace(outbox=ticket.outbox._replace(stamp=b"12345678"))
        with self.assertRaisesRegex(FileNotFoundError, "worker process .* has ended"):
            receive(ended)
        ended = ended._replace(outbox=ended.outbox._replace(pid=(1 << 22) + 1))  # above all pids
        with self.assertRaisesRegex(FileNotFoundError, "has ended or may not be accessed"):
            receive(ended)


if __name__ == "__main__":
    run_unless(None if importlib.util.find_spec("torch") else "there is no torch")
