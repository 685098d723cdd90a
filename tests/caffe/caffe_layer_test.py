#!/usr/bin/env python3
"""Trains with Caffe's Data layer and with lmdbio's: all losses are equal to the last digit, and
every job ends by itself.

    caffe_layer_test.py CAFFE LAYER LAUNCHER MAKE MPIEXEC...

The oracle is the stock binary on the same database with the same seed. The programs of Caffe are
beside CAFFE.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import caffe_jobs
from caffe_jobs import JobTest, caffe, caffe_with_layer

MIRRORED_CROPS = "mirror: true crop_size: 6 mean_value: 3 scale: 0.1"
# Iterations 0 to 199 have two lines each. One line follows the last. The TEST phase has 5 times
# two.
LINES_OF_200 = 200 * 2 + 1 + 5 * 2


class Layer(JobTest):
    def assert_same_training(self, line_count=LINES_OF_200, **net):
        stock = self.train("stock", caffe(), **net)
        own_type = self.train("own_type", caffe_with_layer(take_over="0"),
                              **net | {"type": "LmdbioData"})
        taken_over = self.train("taken_over", caffe_with_layer(), **net)
        self.assertEqual(len(stock.numbers()), line_count)
        self.assertEqual(own_type.numbers(), stock.numbers())
        self.assertEqual(taken_over.numbers(), stock.numbers())
        self.assertEqual(taken_over.weights(), stock.weights())
        return stock

    def test_plain_records(self):
        stock = self.assert_same_training()
        self.assertGreater(stock.test_numbers()[-2], 0.5, "nothing is learnt: a poor oracle")

    def test_from_the_disk(self):
        stock = self.train("stock", caffe())
        caffe_jobs.drop_from_cache(self.digits / "data.mdb")
        self.assertEqual(self.train("cold", caffe_with_layer()).numbers(), stock.numbers())

    def test_mirrored_crops_and_mean_values(self):
        stock = self.assert_same_training(transform=MIRRORED_CROPS)
        plain = self.train("plain", caffe_with_layer(), transform="mean_value: 3 scale: 0.1")
        self.assertNotEqual(plain.numbers(), stock.numbers(), "crops make no difference")

    def test_mean_file(self):
        program = pathlib.Path(caffe_jobs.CAFFE).with_name("compute_image_mean")
        mean = self.folder / "mean.binaryproto"
        subprocess.run([program, "--backend=lmdb", self.digits, mean], check=True,
                       capture_output=True)
        self.assert_same_training(transform=f'mean_file: "{mean}" mirror: true crop_size: 6')

    def make_images(self, count, size_of, *options):
        root, database = self.folder / self.id() / "images", self.folder / self.id() / "database"
        caffe_jobs.write_images(root, count, size_of)
        caffe_jobs.make("images", *options, root, database)
        return database

    def skip_without_opencv(self, **net):
        if "requires OpenCV" in self.run_job("probe", caffe(), iterations=1, **net).log:
            self.skipTest("this Caffe decodes no images")

    def test_encoded_images(self):
        database = self.make_images(50, lambda i: (30 + i % 7, 28 + i % 5), "--encoded")
        net = {"source": database, "batch": 16, "test_batch": 4,
               "transform": "mirror: true crop_size: 24 scale: 0.01"}
        self.skip_without_opencv(**net)
        self.assert_same_training(**net)

    def test_images_of_many_sizes_one_a_batch(self):
        database = self.make_images(20, lambda i: (10 + i % 7, 12 + i % 5), "--encoded")
        net = {"source": database, "batch": 1, "test_batch": 1, "transform": "scale: 0.01",
               "pooling": "global_pooling: true"}
        self.skip_without_opencv(**net)
        self.assert_same_training(**net)

    def test_batches_larger_than_the_database(self):
        database = self.make_images(5, lambda i: (12, 12))
        self.assert_same_training(source=database, batch=23, test_batch=7,
                                  transform="mirror: true scale: 0.01")

    def test_one_batch_prefetched(self):
        self.assert_same_training(prefetch=1, batch=7)

    def test_not_asked(self):
        """The library is loaded, but neither the prototxt nor the environment selects its types."""
        job = self.run_job("not_asked", caffe_with_layer(take_over="0"))
        self.assertEqual(job.log.count("lmdbio reads "), 0)
        self.assertEqual(job.numbers(), self.train("stock", caffe()).numbers())

    def test_another_backend_is_left_to_caffe(self):
        net = {"source": self.folder / "no", "backend": "LEVELDB"}
        stock = self.run_job("stock", caffe(), **net)
        taken_over = self.run_job("taken_over", caffe_with_layer(), **net)
        self.assertNotEqual(stock.exit_code, 0)
        self.assertEqual(taken_over.fatal_lines(), stock.fatal_lines())
        own_type = self.run_job("own_type", caffe_with_layer(), **net | {"type": "LmdbioData"})
        self.assert_one_fatal_line(own_type, "reads LMDB only")

    def assert_one_fatal_line(self, job, *words):
        self.assertNotEqual(job.exit_code, 0)
        self.assertEqual(len(job.fatal_lines()), 1, job.log[-3000:])
        for word in words:
            self.assertIn(word, job.fatal_lines()[0])

    def test_no_database(self):
        job = self.run_job("missing", caffe_with_layer(), source=self.folder / "missing")
        self.assert_one_fatal_line(job, str(self.folder / "missing"))

    def test_no_datum(self):
        database = self.folder / self.id() / "bytes"
        database.parent.mkdir()
        caffe_jobs.make("synthetic", "--count", "10", "--value-size", "100", database)
        self.assert_one_fatal_line(self.run_job("bytes", caffe_with_layer(), source=database),
                                   str(database), "position 0", "is not a Datum")

    def damage(self, database):
        """Fills a copy of a database with ones from its middle on."""
        damaged = self.folder / self.id() / "damaged"
        shutil.copytree(database, damaged)
        with open(damaged / "data.mdb", "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(size // 8192 * 4096)  # the begin of a page
            file.write(b"\xff" * (size // 4))
        return damaged

    def test_damaged_tree(self):
        database = self.damage(self.digits)
        (database / "data.mdb.prov").unlink()
        job = self.run_job("damaged", caffe_with_layer(), source=database)
        self.assert_one_fatal_line(job, str(database), "page")

    def test_damaged_record(self):
        """The job starts, and ends at the record with the wrong page or bytes."""
        database = self.damage(self.make_images(60, lambda i: (8, 8), "--resize", "64x64"))
        job = self.run_job("damaged", caffe_with_layer(), source=database, batch=5, test_batch=1,
                           prefetch=1)
        self.assertIn("Iteration 1 ", job.log)
        self.assert_one_fatal_line(job, str(database))

    def test_memory_budget(self):
        for budget, words in ("many", "=many is not a number"), ("1000", "budget, 1000 bytes"):
            job = self.run_job(budget, caffe_with_layer(LMDBIO_CAFFE_MEMORY_BUDGET=budget))
            self.assert_one_fatal_line(job, words)
        enough = caffe_with_layer(LMDBIO_CAFFE_MEMORY_BUDGET=str(2**20))
        self.assertEqual(self.train("enough", enough).numbers(),
                         self.train("stock", caffe()).numbers())

    def test_interrupted_while_prefetching(self):
        job = self.train("interrupted", caffe_with_layer(), iterations=10**6,
                         until=caffe_jobs.interrupt_at(20))
        self.assertIn("Optimization stopped early", job.log)

    def test_ends_at_once(self):
        for prefetch in 1, 4, 50:
            self.train(f"prefetch{prefetch}", caffe_with_layer(), iterations=1, prefetch=prefetch)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
