#!/usr/bin/env python3
"""Trains with the MPI launcher of examples/caffe: P ranks with batches of B take the same steps as
one rank with batches of P*B, and jobs end although their ranks prefetch differently.

    caffe_ranks_test.py CAFFE LAYER LAUNCHER MAKE MPIEXEC...

The oracle is the stock binary, which has one rank. One rank gives its losses to the last digit.
Several ranks give them up to rounding, if the transformation draws no random numbers.
"""

import re
import sys
import unittest

import caffe_jobs
from caffe_jobs import JobTest, caffe, launcher

# The largest difference of test losses after 200 iterations if only sums are rounded differently.
# Other records give larger differences: test_another_batch_is_told_apart.
LOSS_DISTANCE_MAX = 1e-3


def loss_distance(job, other):
    losses, other_losses = job.test_numbers()[1::2], other.test_numbers()[1::2]
    assert len(losses) == len(other_losses) > 0, (losses, other_losses)
    return max(abs(a - b) for a, b in zip(losses, other_losses))


class Ranks(JobTest):
    def assert_close(self, job, other):
        self.assertLess(loss_distance(job, other), LOSS_DISTANCE_MAX)

    def ranks(self, rank_count, *arguments, name=None, **net):
        """A job of several ranks. Each rank builds one test net."""
        job = self.run_job(name or f"ranks{rank_count}", launcher(rank_count, *arguments), **net)
        self.assertEqual(job.exit_code, 0, job.log[-3000:])
        self.assertEqual(job.log.count("lmdbio reads "), 2, "the root's; others are silent")
        return job

    def test_one_rank(self):
        stock = self.train("stock", caffe())
        job = self.ranks(1)
        self.assertEqual(job.numbers(), stock.numbers())
        self.assertEqual(job.weights(), stock.weights())

    def test_one_batch_on_several_ranks(self):
        stock = self.train("stock", caffe())
        for rank_count in 2, 4:
            self.assert_close(self.ranks(rank_count, batch=64 // rank_count), stock)

    def test_ranks_that_do_not_divide_the_database(self):
        self.assert_close(self.ranks(3, batch=20), self.train("stock", caffe(), batch=60))

    def test_another_batch_is_told_apart(self):
        stock = self.train("stock", caffe())
        self.assertGreater(loss_distance(self.ranks(2, batch=31), stock), LOSS_DISTANCE_MAX)

    def test_from_the_disk(self):
        stock = self.train("stock", caffe())
        caffe_jobs.drop_from_cache(self.digits / "data.mdb")
        self.assert_close(self.ranks(2, batch=32), stock)

    def test_more_ranks_than_records(self):
        """The batches of a rank wrap around the database several times."""
        images, database = self.folder / "images", self.folder / "few"
        caffe_jobs.write_images(images, 3, lambda i: (12, 12))
        caffe_jobs.make("images", images, database)
        net = {"source": database, "transform": "scale: 0.01", "test_batch": 3}
        self.assert_close(self.ranks(4, batch=5, **net),
                          self.train("stock", caffe(), batch=20, **net))

    def test_prefetched_batches_are_left_over(self):
        """Ranks end with different numbers of prefetched batches, and no rank waits for them."""
        for prefetch in 1, 2, 30:
            self.ranks(2, name=f"prefetch{prefetch}", batch=32, iterations=7, prefetch=prefetch)

    def test_memory_for_one_batch(self):
        """The last batch, which only rank 0 needs, gets memory when all ranks release theirs."""
        images, database = self.folder / "squares", self.folder / "large"
        caffe_jobs.write_images(images, 50, lambda i: (8, 8))
        caffe_jobs.make("images", "--resize", "64x64", images, database)
        caffe_jobs.drop_from_cache(database / "data.mdb")
        command, more = launcher(2)
        more["LMDBIO_CAFFE_MEMORY_BUDGET"] = str(3 * 2**19)  # less than two batches of 80 x 16 kB
        job = self.run_job("tight", (command, more), source=database, batch=40, test_batch=10,
                           iterations=3, prefetch=1)
        self.assertEqual(job.exit_code, 0, job.log[-3000:])
        self.assertIn("Iteration 3, loss", job.log[-3000:])

    def test_goes_on_from_a_snapshot(self):
        first = self.train("stock", caffe(), iterations=60)
        state = first.directory / "snap_iter_60.solverstate"
        stock = self.run_job("stock_further", caffe(f"--snapshot={state}"), iterations=160)
        self.assert_close(self.ranks(2, f"--snapshot={state}", batch=32, iterations=160), stock)
        one = self.ranks(1, f"--snapshot={state}", iterations=160)
        self.assertEqual(one.numbers(), stock.numbers())

    def test_begins_with_weights(self):
        first = self.train("stock", caffe(), iterations=60)
        weights = first.directory / "snap_iter_60.caffemodel"
        stock = self.run_job("stock_further", caffe(f"--weights={weights}"), iterations=100)
        self.assert_close(self.ranks(2, f"--weights={weights}", batch=32, iterations=100), stock)

    def test_one_rank_is_interrupted(self):
        """A signal to one rank ends all ranks after the same iteration."""
        directory = self.folder / self.id() / "interrupted"
        directory.mkdir(parents=True)
        command, more = launcher(2)
        at = command.index(caffe_jobs.LAUNCHER)
        write_pid = 'test $OMPI_COMM_WORLD_RANK = 0 || echo $$ > pid; exec "$0" "$@"'
        command[at:at] = ["sh", "-c", write_pid]
        until = caffe_jobs.interrupt_at(
            20, lambda: int(caffe_jobs.wait_for(directory / "pid")))
        job = self.run_job("interrupted", (command, more), iterations=10**6, batch=32, until=until)
        self.assertEqual(job.exit_code, 0, job.log[-3000:])
        self.assertIn("Optimization stopped early", job.log)
        self.assertEqual(len(list(directory.glob("*.caffemodel"))), 1, "the root's snapshot")

    def test_no_database(self):
        job = self.run_job("missing", launcher(2), source=self.folder / "missing")
        self.assertNotEqual(job.exit_code, 0)
        self.assertTrue(job.fatal_lines())
        for line in job.fatal_lines():
            self.assertIn(str(self.folder / "missing"), line)

    def test_usage(self):
        job = self.run_job("usage", ([caffe_jobs.LAUNCHER], {}))
        self.assertEqual(job.exit_code, 2)
        job = self.run_job("both", launcher(1, "--weights=a", "--snapshot=b"))
        self.assertEqual(job.exit_code, 2)
        self.assertIsNone(re.search("Iteration", job.log))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
