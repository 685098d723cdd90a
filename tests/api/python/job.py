"""The ranks of a test: those of MPI, or those that a launcher has started.

$LMDBIO_TEST_COMM is "mpi", "env" or "torch". COMM is what a program passes as `comm`, and also has
the calls of mpi4py that tests need. Without MPI these use files in $LMDBIO_TEST_FOLDER
(tests/support/launch.py), so they are independent of lmdbio.
"""

import os
import pathlib
import pickle
import time

KIND = os.environ.get("LMDBIO_TEST_COMM", "mpi")


class LaunchedComm(str):
    """The word that a program passes as `comm`."""

    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    size = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    _calls = 0

    def allgather(self, value):
        """The values of all ranks."""
        LaunchedComm._calls += 1
        folder = pathlib.Path(os.environ["LMDBIO_TEST_FOLDER"])
        mine = folder / f"{self._calls}.{self.rank}"
        fresh = folder / f"{mine.name}.new"
        fresh.write_bytes(pickle.dumps(value))
        fresh.rename(mine)
        values = []
        for rank in range(self.size):
            path = folder / f"{self._calls}.{rank}"
            while not path.exists():
                time.sleep(0.002)
            values.append(pickle.loads(path.read_bytes()))
        return values

    def bcast(self, value):
        return self.allgather(value)[0]

    def allreduce(self, value):
        return sum(self.allgather(value))

    def barrier(self):
        self.allgather(None)

    Barrier = barrier

    @staticmethod
    def Abort(code):
        os._exit(code)


def communicator():
    """COMM, for the kind of this test."""
    if KIND == "mpi":
        from mpi4py import MPI

        return MPI.COMM_WORLD
    if KIND == "torch":
        from torch import distributed

        distributed.init_process_group("gloo")
    return LaunchedComm(KIND)


def needs():
    """The modules that the kind needs."""
    return {"mpi": ("mpi4py",), "env": (), "torch": ("torch",)}[KIND]
