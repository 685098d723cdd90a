"""lmdbio.Loader with several ranks: all of them together get the records that one gets.

Under mpirun, or a launcher (job.py). Exits with 77 without mpi4py. Each rank runs the same tests in
the same order; a failure ends all.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import job

SKIPPED = 77
HAS_ALL = all(map(importlib.util.find_spec, job.needs()))
if HAS_ALL:
    import lmdbio

    COMM = job.communicator()


class MpiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp() if COMM.rank == 0 else None
        cls.folder = COMM.bcast(folder)
        cls.digits = os.path.join(cls.folder, "digits")
        if COMM.rank == 0:
            subprocess.run([os.environ["LMDBIO_MAKE"], "digits", cls.digits], check=True,
                           capture_output=True)
        COMM.barrier()

    def test_ranks_share_each_batch(self):
        with lmdbio.Loader(self.digits, 20 * COMM.size, shuffle=True, seed=1) as alone:
            expected = [key for batch in alone for key in batch.keys()]
        with lmdbio.Loader(self.digits, 20, shuffle=True, seed=1, comm=COMM) as loader:
            mine = [batch.keys() for batch in loader]
            state = loader.state_dict()
            loader.set_epoch(0)
            self.assertEqual([batch.keys() for batch in loader], mine)
        everyone = COMM.allgather(mine)
        found = [key for batches in zip(*everyone) for keys in batches for key in keys]
        self.assertEqual(found, expected)
        self.assertEqual(set(map(str, COMM.allgather(state))), {str(state)})

    def test_a_view_in_use_is_not_taken_away(self):
        loader = lmdbio.Loader(self.digits, 20, comm=COMM)
        view = loader.next().value(0)
        with self.assertRaises(BufferError):
            loader.close()
        self.assertGreater(len(bytes(view)), 0)
        del view
        loader.close()
        with self.assertRaises(ValueError):
            loader.next()

    def test_one_rank_is_wrong(self):
        path = self.digits if COMM.rank > 0 else "nowhere"
        expected = FileNotFoundError if COMM.rank == 0 else lmdbio.PeerFailedError
        with self.assertRaisesRegex(expected, "nowhere"):
            lmdbio.Loader(path, 20, comm=COMM)

    def test_no_pickles(self):
        import pickle

        with lmdbio.Loader(self.digits, 20, comm=COMM) as loader, self.assertRaises(TypeError):
            pickle.dumps(loader)


if __name__ == "__main__":
    if not HAS_ALL:
        print(f"skipped: there is no {job.needs()}")
        sys.exit(SKIPPED)
    result = unittest.main(exit=False).result
    if not result.wasSuccessful():
        COMM.Abort(1)  # others may be waiting
