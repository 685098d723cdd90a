"""lmdbio.torch.DataLoader, and IterableDataset in trainers. Exits with 77 without torch.

The oracles are mdb_dump's pass over the database, and the order of lmdbio.Loader in one process.
trainers_test.py has the trainers themselves.
"""

import contextlib
import copy
import importlib.util
import itertools
import os
import pickle
import unittest
import warnings
from unittest import mock

import lmdbio

from support import HAS_ASAN, START, STARTS, Databases, make, run_unless

if importlib.util.find_spec("torch"):
    import torch
    import torch.multiprocessing
    from torch.utils.data._utils import worker as torch_worker

    import lmdbio.torch

BATCH = 120
EPOCHS = 3


def keys_of(batch):
    return batch.keys()


def process_with_spawned_workers(rank, world, path, folder):
    """Writes the keys that a rank receives from one spawned worker, by both loaders."""
    os.environ["WORLD_SIZE"] = str(world)
    store = torch.distributed.FileStore(os.path.join(folder, "spawned"), world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    dataset = lmdbio.torch.IterableDataset(path, 600, decode=keys_of)
    batches = list(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1,
                                               multiprocessing_context="spawn"))
    torch.distributed.destroy_process_group()
    torch.save(batches, os.path.join(folder, f"spawned {rank}"))


@contextlib.contextmanager
def as_worker(number, of):
    """Makes this process a worker of a DataLoader, as far as a dataset can tell."""
    info = torch_worker.WorkerInfo(id=number, num_workers=of, seed=0, dataset=None)
    with mock.patch.object(torch_worker, "_worker_info", info):
        yield


class DataLoaderTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys = [key for key, _ in cls.records(cls, cls.digits)]
        cls.streams = {}
        for drop_last in (False, True):
            with lmdbio.Loader(cls.digits, BATCH, shuffle=True, seed=7,
                               drop_last=drop_last) as loader:
                cls.streams[drop_last] = [[batch.keys() for batch in loader]
                                          for _ in range(EPOCHS)]

    def test_a_list_of_files(self):
        """The file comes twice. Workers and a state work as with one file."""
        twice = [self.digits, (self.digits, None)]
        options = {"shuffle": True, "seed": 7, "decode": keys_of, "hand_over_bytes": 0}
        with lmdbio.Loader(twice, BATCH, shuffle=True, seed=7) as loader:
            expected = [batch.keys() for batch in loader]
        self.assertEqual(sorted(itertools.chain(*expected)), sorted(2 * self.keys))
        loader = lmdbio.torch.DataLoader(twice, BATCH, **options)
        self.assertEqual(len(loader), len(expected))
        self.assertEqual(list(itertools.islice(loader, 5)), expected[:5])
        state = loader.state_dict()
        for workers in 0, 2:
            more = {"multiprocessing_context": START} if workers else {}
            other = lmdbio.torch.DataLoader(twice, BATCH, num_workers=workers, **more, **options)
            other.load_state_dict(state)
            self.assertEqual(list(other), expected[5:], workers)
        self.assertEqual(len(lmdbio.torch.MapDataset(twice)), len(2 * self.keys))

    def loader(self, batch_size=BATCH, **options):
        options = {"shuffle": True, "seed": 7, "decode": keys_of, "hand_over_bytes": 0, **options}
        if options.get("num_workers"):
            options.setdefault("multiprocessing_context", START)
        return lmdbio.torch.DataLoader(self.digits, batch_size, **options)

    def dataset(self, batch_size=BATCH, **options):
        return lmdbio.torch.IterableDataset(self.digits, batch_size, shuffle=True, seed=7,
                                            decode=keys_of, hand_over_bytes=0, **options)

    def torch_loader(self, dataset, workers=0, **options):
        return torch.utils.data.DataLoader(
            dataset, batch_size=None, num_workers=workers,
            multiprocessing_context=START if workers else None, **options)

    # --- DataLoader -----------------------------------------------------------------------------

    def test_each_loop_is_an_epoch(self):
        for workers, drop_last, persistent in ((0, False, False), (2, True, False),
                                               (2, False, True)):
            loader = self.loader(num_workers=workers, drop_last=drop_last,
                                 persistent_workers=persistent)
            self.assertEqual(len(loader), len(self.streams[drop_last][0]))
            self.assertEqual([list(loader) for _ in range(2)], self.streams[drop_last][:2])
            loader.set_epoch(0)
            next(iter(loader))  # left early
            self.assertEqual(list(loader), self.streams[drop_last][1])

    def test_a_device_of_the_host_and_a_gpu_that_is_not_there(self):
        self.assertEqual(list(self.loader(device="cpu")), self.streams[False][0])
        loader = self.loader(device="cuda")
        self.assertEqual(len(loader), len(self.streams[False][0]))
        if not torch.cuda.is_available():
            with self.assertRaisesRegex(FileNotFoundError, "device cuda: PyTorch finds no GPUs"):
                next(iter(loader))
        with self.assertRaisesRegex(ValueError, "num_workers 1 .* device cuda"):
            self.loader(device="cuda", num_workers=1)
        dataset = lmdbio.torch.IterableDataset(self.digits, BATCH, device="cuda")
        with as_worker(0, 1), self.assertRaisesRegex(RuntimeError, "num_workers=0"):
            next(iter(dataset))

    def test_pytorch_pins(self):
        with mock.patch.object(torch.utils.data, "DataLoader",
                               wraps=torch.utils.data.DataLoader) as made, \
                warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer PyTorch misses a GPU
            self.assertEqual(list(self.loader(pin_memory=True)), self.streams[False][0])
        self.assertTrue(made.call_args.kwargs["pin_memory"])

    def test_trainers_that_know_the_length_go_on(self):
        for workers in (0, 2):
            loader, dataset = self.loader(num_workers=workers), self.dataset()
            theirs = self.torch_loader(dataset, workers)
            for expected in self.streams[False][:2]:
                kept = iter(loader), iter(theirs)
                for each in kept:
                    self.assertEqual(list(itertools.islice(each, len(loader))), expected)

    def test_states_at_each_batch(self):
        for drop_last in (False, True):
            stream = sum(self.streams[drop_last], [])
            count = len(self.streams[drop_last][0])
            states, loader = [], self.loader(drop_last=drop_last)
            states.append(loader.state_dict())
            for _ in range(2):
                for _batch in loader:
                    states.append(loader.state_dict())
            self.assertEqual(loader.state_dict(), states[-1])
            for had in (0, 1, count - 1, count, count + 4):
                again = self.loader(drop_last=drop_last, state=states[had])
                self.assertEqual(again.state_dict(), states[had])
                rest = list(again)
                end = (had // count + 1) * count
                self.assertEqual(rest, stream[had:end], (drop_last, had))
                self.assertEqual(again.state_dict()["epoch"], had // count + 1)
                self.assertEqual(list(again), stream[end:end + count])

    def test_states_with_other_workers_ranks_and_batches(self):
        stream = self.streams[False][0]
        loader = self.loader(num_workers=2)
        kept = iter(loader)
        first = [next(kept) for _ in range(5)]
        self.assertEqual(first, stream[:5])
        state = loader.state_dict()
        del kept
        for workers in (0, 1):
            self.assertEqual(list(self.loader(num_workers=workers, state=state)), stream[5:])
        ranks = [list(self.loader(BATCH // 3, data_parallel=(rank, 3), state=state))
                 for rank in range(3)]
        self.assertEqual([sum(parts, []) for parts in zip(*ranks)], stream[5:])
        small = self.loader(50, state=state, num_workers=2 if not HAS_ASAN else 0)
        self.assertEqual(sum(small, []), sum(stream[5:], []))
        self.assertEqual(small.state_dict()["epoch"], 1)

    def test_set_epoch_after_a_state(self):
        stream = self.streams[False]
        loader = self.loader()
        kept = iter(loader)
        for _ in range(4):
            next(kept)
        middle = loader.state_dict()
        end = dict(self.loader(epoch=1).state_dict())
        for load in (self.loader, self.dataset):
            for state, epoch, expected in ((middle, 0, stream[0][4:]), (middle, 1, stream[1]),
                                           (end, 0, []), (end, 1, stream[1]), (end, 2, stream[2])):
                again = load()
                again.load_state_dict(state)
                again.set_epoch(epoch)
                found = again if load == self.loader else self.torch_loader(again)
                self.assertEqual(list(found), expected)
                if epoch < 2:
                    self.assertEqual(list(found), stream[epoch + 1])

    def test_states_of_persistent_workers(self):
        loader = self.loader(num_workers=2, persistent_workers=True)
        state = self.loader(epoch=2).state_dict()
        next(iter(loader))
        loader.load_state_dict(state)
        self.assertEqual(list(loader), self.streams[False][2])
        dataset = self.dataset()
        theirs = self.torch_loader(dataset, 1, persistent_workers=True)
        next(iter(theirs))
        dataset.load_state_dict(state)
        with self.assertRaisesRegex(RuntimeError, "make a new DataLoader"):
            next(iter(theirs))

    def test_orders_of_groups(self):
        for options in ({"shuffle": "block"}, {"shuffle": False, "order": "chunked"},
                        {"shuffle": False, "reuse": 2}):
            options = {"group_batches": 4, **options}
            whole = list(self.loader(**options))
            self.assertEqual(len(self.loader(**options)), len(whole))
            loader = self.loader(**options)
            for had, _ in enumerate(loader, 1):
                if had in (5, len(whole) - 1):
                    again = self.loader(**options, state=loader.state_dict(),
                                        num_workers=had % 2)
                    self.assertEqual(list(again), whole[had:])
            with self.assertRaisesRegex(ValueError, "num_workers 2 would change the order"):
                self.loader(**options, num_workers=2)

    def test_a_second_loop_and_a_new_position_end_the_first(self):
        loader = self.loader()
        for change in (lambda: next(iter(loader)), lambda: loader.set_epoch(0)):
            first = iter(loader)
            next(first)
            change()
            with self.assertRaisesRegex(RuntimeError, "another loop"):
                next(first)

    def test_pickled(self):
        loader = self.loader()
        next(iter(loader))
        for again in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
            self.assertEqual(again.state_dict(), loader.state_dict())
            self.assertEqual(list(again), self.streams[False][1])

    # --- Ranks ----------------------------------------------------------------------------------

    def test_refuses_what_cannot_be(self):
        mesh = mock.Mock(ndim=2, mesh_dim_names=("dp", "tp"))
        for options, message in (
                ({"mesh": mesh}, r"2 dimensions \(dp, tp\)"),
                ({"mesh": mesh, "data_parallel": (0, 1)}, "mesh and data_parallel exclude"),
                ({"data_parallel": (2, 2)}, "rank below size"),
                ({"data_parallel": 2}, r"expected \(rank, size\)"),
                ({"data_parallel": (-1, 2)}, "data_parallel"),
                ({"num_shards": 2}, "data_parallel"), ({"max_batches": 2}, "a break"),
                ({"num_workers": -1}, "num_workers -1"), ({"tail": "wrap"}, "tail='wrap'")):
            with self.assertRaisesRegex((ValueError, TypeError), message):
                self.loader(**options)
        state = self.loader().state_dict()
        for options, message in (({"num_shards": 2}, "belong together"),
                                 ({"shard_id": 1}, "belong together"),
                                 ({"epoch": 1, "state": state}, "exclude each other")):
            with self.assertRaisesRegex(ValueError, message):
                self.dataset(**options)
        with self.assertRaisesRegex(TypeError, "max_batches"):
            len(self.dataset(max_batches=2))

    def test_a_mesh_of_one_dimension(self):
        mesh = mock.Mock(ndim=1)
        mesh.size.return_value, mesh.get_local_rank.return_value = 3, 1
        self.assertEqual(list(self.loader(BATCH // 3, mesh=mesh)),
                         [batch[40:80] for batch in self.streams[False][0][:-1]]
                         + [self.streams[False][0][-1][39:78]])
        mesh.get_coordinate.return_value = None
        with self.assertRaisesRegex(ValueError, "not in the mesh"):
            self.loader(mesh=mesh)

    def test_ranks_that_nobody_knows_are_refused(self):
        with mock.patch.dict(os.environ, {"WORLD_SIZE": "2"}):
            for loader in (self.loader(), self.torch_loader(self.dataset())):
                with self.assertRaisesRegex(RuntimeError, "2 ranks.*init_process_group"):
                    next(iter(loader))
            self.assertEqual(list(self.loader(data_parallel=(0, 1))), self.streams[False][0])

    @unittest.skipUnless(importlib.util.find_spec("torch") and torch.distributed.is_available(),
                         "this torch has no torch.distributed")
    def test_spawned_workers_know_the_ranks(self):
        torch.multiprocessing.spawn(process_with_spawned_workers, (2, self.digits, self.folder), 2)
        ranks = [torch.load(self.folder / f"spawned {rank}") for rank in range(2)]
        self.assertEqual([key for parts in zip(*ranks) for part in parts for key in part],
                         self.keys)

    # --- IterableDataset ------------------------------------------------------------------------

    def test_epochs_advance_with_workers(self):
        for persistent in (False, True):
            loader = self.torch_loader(self.dataset(), 2, persistent_workers=persistent)
            self.assertEqual(len(loader), len(self.streams[False][0]))
            self.assertEqual([list(loader) for _ in range(EPOCHS)], self.streams[False])

    def test_persistent_workers_agree_after_a_loop_that_was_left_early(self):
        # When the first batch arrives, the next four are in the queue: of six, worker 0 has all of
        # its own there, and worker 1 has not.
        for batches, epoch in ((3, 1), (6, 0)):
            size = -(-len(self.keys) // batches)
            with lmdbio.Loader(self.digits, size, shuffle=True, seed=7, epoch=epoch) as loader:
                expected = [batch.keys() for batch in loader]
            loader = self.torch_loader(self.dataset(size), 2, persistent_workers=True)
            next(iter(loader))
            self.assertEqual(list(loader), expected)

    def test_epochs_advance_after_a_state(self):
        dataset = self.dataset()
        dataset.load_state_dict(self.dataset(epoch=1).state_dict())
        loader = self.torch_loader(dataset, 2)
        self.assertEqual([list(loader) for _ in range(2)], self.streams[False][1:])
        with self.assertRaisesRegex(RuntimeError, "set_epoch before each loop"):
            dataset.state_dict(batches=1)

    def test_a_pickled_dataset_hears_of_epochs(self):
        dataset = pickle.loads(pickle.dumps(self.dataset()))
        loader = self.torch_loader(dataset, 1, persistent_workers=True)
        for epoch in (2, 0):
            dataset.set_epoch(epoch)
            self.assertEqual(list(loader), self.streams[False][epoch])

    def test_states_of_workers(self):
        """As StatefulDataLoader asks for them: of each worker, at the start, between and at the
        end; then the rest comes from the same worker."""
        stream = self.streams[False][0]
        for worker in range(2):
            mine = stream[worker::2]
            for had in (0, 1, len(mine) - 1, len(mine)):
                with as_worker(worker, 2):
                    dataset = self.dataset()
                    start = dataset.state_dict()
                    found = iter(dataset)
                    self.assertEqual([next(found) for _ in range(had)], mine[:had])
                    state = dataset.state_dict() if had > 0 else start
                    again = self.dataset()
                    again.load_state_dict(state)
                    self.assertEqual(again.state_dict(), state)
                    self.assertEqual(list(again), mine[had:], (worker, had))
                for number, of in ((1 - worker, 2), (worker, 3)):
                    with as_worker(number, of), self.assertRaisesRegex(
                            ValueError, f"worker {worker} of 2, but this is worker {number}"):
                        self.dataset().load_state_dict(state)
                with as_worker(worker, 2), self.assertRaisesRegex(ValueError, "lost or repeated"):
                    self.dataset(BATCH // 2).load_state_dict(state)
                with self.assertRaisesRegex(ValueError, "this is worker 0 of 1"):
                    self.dataset().load_state_dict(state)

    def test_accelerate_would_shard_again(self):
        """Classes with the names and modules of Accelerate's, which trainers_test.py runs."""
        names = {"__name__": "accelerate.data_loader"}
        exec("class IterableDatasetShard:\n"
             "    def read(self, loader):\n"
             "        return next(iter(loader))\n"
             "class DataLoaderShard(IterableDatasetShard):\n"
             "    pass\n", names)
        for start in (None, *STARTS):
            loader = torch.utils.data.DataLoader(
                self.dataset(num_shards=2, shard_id=0), batch_size=None,
                num_workers=0 if start is None else 1, multiprocessing_context=start)
            with self.assertRaisesRegex(RuntimeError, "Accelerate.*accelerate#3547"):
                names["IterableDatasetShard"]().read(loader)
        names["IterableDatasetShard"]().read(self.dataset(num_shards=1, shard_id=0))
        names["DataLoaderShard"]().read(self.dataset(num_shards=2, shard_id=0))

    def test_empty_values(self):
        path = self.folder / "empty"
        make("synthetic", path, "--count", 3, "--value-size", 0)
        self.assertEqual([row.shape for row in lmdbio.torch.MapDataset(path)], [(0,)] * 3)
        rows = list(lmdbio.torch.DataLoader(path, 2))
        self.assertEqual([batch.shape for batch in rows], [(2, 0), (1, 0)])


if __name__ == "__main__":
    run_unless(None if importlib.util.find_spec("torch") else "there is no torch")
