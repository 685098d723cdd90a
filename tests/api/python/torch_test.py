"""lmdbio.torch in a DataLoader: with workers and without, shuffled, resumed, distributed.

The oracle is mdb_dump's pass over the database. Exits with 77 without torch.
"""

import importlib.util
import os
import pickle
import unittest

from support import COUNT, HAS_ASAN, START, Databases, run_unless

if importlib.util.find_spec("torch"):
    import torch
    import torch.multiprocessing
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    import lmdbio.torch


def workers_of(count):
    return {"num_workers": count, "multiprocessing_context": START if count else None}


def keys_of(batch):
    return batch.keys()


def key_of(record):
    return record.key


def delivered(loader):
    return [key for batch in loader for key in batch]


def distributed_rank(rank, world, path, folder):
    """Writes the keys that a rank receives in two epochs."""
    store = torch.distributed.FileStore(os.path.join(folder, "store"), world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    dataset = lmdbio.torch.IterableDataset(path, 20, shuffle=True, seed=4, decode=keys_of)
    batches = [list(batch) for epoch in range(2) for batch in DataLoader(dataset, batch_size=None)]
    torch.distributed.destroy_process_group()
    torch.save(batches, os.path.join(folder, str(rank)))


class TorchTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = [key for key, _ in cls.records(cls, cls.digits)]

    def dataset(self, batch_size=64, **options):
        return lmdbio.torch.IterableDataset(self.digits, batch_size, decode=keys_of, **options)

    def test_values_as_tensors(self):
        dataset = lmdbio.torch.IterableDataset(self.even, batch_size=32)
        batches = list(DataLoader(dataset, batch_size=None))
        self.assertEqual([batch.shape for batch in batches],
                         [(32, 3000)] * (COUNT // 32) + [(COUNT % 32, 3000)])
        whole = torch.cat(batches)
        self.assertEqual(whole.dtype, torch.uint8)
        expected = b"".join(value for _, value in self.records(self.even))
        self.assertEqual(whole.numpy().tobytes(), expected)
        whole[0, 0] = 1  # the tensor belongs to the caller

    def test_workers_change_nothing_in_the_order(self):
        for options in ({}, {"shuffle": True, "drop_last": True}):
            alone = list(DataLoader(self.dataset(**options), batch_size=None))
            self.assertEqual(len(alone), self.dataset(**options).batches_per_epoch())
            for workers in (2,) if HAS_ASAN else (1, 2, 3):
                loader = DataLoader(self.dataset(**options), batch_size=None,
                                    **workers_of(workers))
                self.assertEqual(list(loader), alone, (options, workers))
            expected = 1792 if options else 1797
            self.assertEqual(len({key for batch in alone for key in batch}), expected)

    def test_spawned_workers(self):
        loader = DataLoader(self.dataset(), batch_size=None, num_workers=2,
                            multiprocessing_context="spawn")
        self.assertEqual(delivered(loader), self.keys)

    def test_epochs(self):
        dataset = self.dataset(shuffle=True, seed=6)
        loader = DataLoader(dataset, batch_size=None)
        epochs = [delivered(loader) for _ in range(3)]  # goes on by itself
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)
        dataset.set_epoch(1)
        self.assertEqual(delivered(loader), epochs[1])
        for persistent in (False, True):
            dataset = self.dataset(shuffle=True, seed=6)
            loader = DataLoader(dataset, batch_size=None, persistent_workers=persistent,
                                **workers_of(2))
            for epoch in (2, 0, 1):
                dataset.set_epoch(epoch)
                self.assertEqual(delivered(loader), epochs[epoch], (persistent, epoch))

    def test_a_loop_that_is_left_early_begins_again(self):
        for workers in (0, 2):
            dataset = self.dataset(shuffle=True, seed=6)
            loader = DataLoader(dataset, batch_size=None, persistent_workers=workers > 0,
                                **workers_of(workers))
            first = next(iter(loader))
            epochs = [list(loader), list(loader)]
            self.assertEqual(epochs[0][0], first, workers)
            self.assertNotEqual(epochs[1][0], first, workers)
            self.assertEqual(sorted(key for batch in epochs[1] for key in batch), self.keys)
            dataset.set_epoch(0)
            self.assertEqual(next(iter(loader)), first, workers)

    def test_two_loops_at_once_are_refused(self):
        dataset = self.dataset()
        first = iter(dataset)
        next(first)
        second = iter(dataset)
        next(second)
        with self.assertRaisesRegex(RuntimeError, "another loop"):
            next(first)

    def test_one_dataset_with_and_without_workers(self):
        dataset = self.dataset()
        for workers in (0, 2, 0):
            dataset.set_epoch(0)
            loader = DataLoader(dataset, batch_size=None, **workers_of(workers))
            self.assertEqual(delivered(loader), self.keys)

    def test_states(self):
        dataset = self.dataset(shuffle=True)
        found = iter(DataLoader(dataset, batch_size=None))
        first = [next(found) for _ in range(5)]
        state = dataset.state_dict()
        rest = [key for batch in found for key in batch]
        self.assertEqual(sorted(rest + [key for batch in first for key in batch]), self.keys)
        for workers in (0, 2):
            again = self.dataset(shuffle=True)
            again.load_state_dict(state)
            loader = DataLoader(again, batch_size=None, **workers_of(workers))
            self.assertEqual(delivered(loader), rest)

    def test_states_with_workers(self):
        for options in ({}, {"shuffle": True, "block_records": 7}, {"drop_last": True}):
            alone = delivered(DataLoader(self.dataset(**options), batch_size=None))
            dataset = self.dataset(**options)
            for had in (0, 1, 5, 28):
                again = self.dataset(**options)
                again.load_state_dict(dataset.state_dict(batches=had))
                self.assertEqual(delivered(DataLoader(again, batch_size=None)), alone[64 * had:])
            self.assertEqual(dataset.state_dict(batches=29)["epoch"], 1)

    def test_map_style(self):
        dataset = lmdbio.torch.MapDataset(self.even)
        self.assertEqual(len(dataset), COUNT)
        expected = [torch.frombuffer(bytearray(value), dtype=torch.uint8)
                    for _, value in self.records(self.even)]
        for workers in (0, 2):
            rows = torch.cat(list(DataLoader(dataset, batch_size=32, **workers_of(workers))))
            self.assertTrue((rows == torch.stack(expected)).all())
        sampler = BatchSampler(RandomSampler(dataset), 32, drop_last=False)
        rows = torch.cat(list(DataLoader(dataset, sampler=sampler, batch_size=None)))
        self.assertEqual(sorted(map(bytes, rows.numpy())),
                         sorted(map(bytes, (row.numpy() for row in expected))))
        keys = lmdbio.torch.MapDataset(self.even, decode=key_of)
        self.assertEqual(keys.__getitems__([2, 1]),
                         [self.records(self.even)[i][0] for i in (2, 1)])
        self.assertEqual(len(pickle.loads(pickle.dumps(keys))), COUNT)

    def test_refuses_what_cannot_be(self):
        for options in ({"comm": 1}, {"tail": "wrap"}, {"share": "block"}):
            with self.assertRaises(ValueError):
                self.dataset(**options)
        with self.assertRaises(FileNotFoundError):
            next(iter(lmdbio.torch.IterableDataset(self.folder / "nowhere")))

    @unittest.skipUnless(importlib.util.find_spec("torch") and torch.distributed.is_available(),
                         "this torch has no torch.distributed")
    def test_ranks_of_torch_distributed_are_shards(self):
        whole = self.dataset(60, shuffle=True, seed=4)
        expected = [key for _ in range(2) for key in delivered(DataLoader(whole, batch_size=None))]
        torch.multiprocessing.spawn(distributed_rank, (3, self.digits, self.folder), 3)
        ranks = [torch.load(self.folder / str(rank)) for rank in range(3)]
        found = [key for batches in zip(*ranks) for batch in batches for key in batch]
        self.assertEqual(found, expected)


if __name__ == "__main__":
    run_unless(None if importlib.util.find_spec("torch") else "there is no torch")
