"""Many files as one: lists, folders and globs, in Dataset, Loader and PyTorch's classes."""

import os
import pickle
import resource

from support import Databases, make, run_unless

import lmdbio

FILES = 12
COUNT = 30  # records of a file


class ManyFilesTest(Databases):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.split = cls.folder / "files"
        cls.split.mkdir()
        for i in range(FILES):
            make("synthetic", cls.split / f"s{i}", "--count", COUNT, "--value-size", 2000 + i)
        cls.paths = [cls.split / f"s{i}" for i in range(FILES)]

    def setUp(self):
        self.all = [record for path in self.paths for record in self.records(path)]

    def ways(self):
        return self.paths, [str(path) for path in self.paths], self.split, self.split / "s*"

    def test_dataset(self):
        for way in self.ways():
            with lmdbio.Dataset(way) as dataset:
                self.assertEqual(len(dataset), FILES * COUNT)
                self.assertEqual(list(dataset), self.all)
                self.assertEqual(dataset[[100, 3, -1]], [self.all[i] for i in (100, 3, -1)])
                self.assertEqual(list(dataset.keys()), [key for key, _ in self.all])
                # Each file has the same keys, so the first one answers.
                self.assertEqual(dataset[self.all[40][0]], self.all[40 - COUNT])
                self.assertEqual(dataset.find(b"absent"), -1)
                self.assertEqual(pickle.loads(pickle.dumps(dataset))[77], self.all[77])

    def test_loader(self):
        for way in self.ways():
            with lmdbio.Loader(way, batch_size=50, seed=1) as loader:
                delivered = [(bytes(record.key), bytes(record.value))
                             for batch in loader for record in batch]
                self.assertEqual(delivered, self.all)
        with lmdbio.Loader(self.paths, batch_size=50, shuffle=True, open_files_max=4) as loader:
            delivered = sorted(bytes(record.value) for batch in loader for record in batch)
            self.assertEqual(delivered, sorted(value for _, value in self.all))

    def test_state_names_the_file_that_changed(self):
        with lmdbio.Loader(self.paths, batch_size=50) as loader:
            next(iter(loader))
            state = loader.state_dict()
        with lmdbio.Loader(self.split, batch_size=50) as loader:
            loader.load_state_dict(state)
            self.assertEqual(next(iter(loader)).first_position, 50)
        other = self.paths[:4] + self.paths[5:]
        with lmdbio.Loader(other, batch_size=50) as loader:
            with self.assertRaisesRegex(lmdbio.StaleError, "does not have s4 as file 5"):
                loader.load_state_dict(state)

    def test_pairs_name_databases(self):
        pairs = [(self.paths[1], None), self.paths[0]]
        with lmdbio.Dataset(pairs) as dataset:
            self.assertEqual(list(dataset), self.records(self.paths[1]) +
                             self.records(self.paths[0]))
        with self.assertRaisesRegex(lmdbio.NotFoundError, "other"):
            lmdbio.Dataset([(self.paths[0], "other"), self.paths[1]])

    def test_what_is_no_list(self):
        for open_it in lmdbio.Dataset, lmdbio.Loader:
            with self.assertRaisesRegex(ValueError, "empty"):
                open_it([])
            with self.assertRaisesRegex(FileNotFoundError, "no file matches"):
                open_it(self.split / "x*")
            for wrong in [1, 2], [("a", "b", "c")], [("a", 1)], 7:
                with self.assertRaises(TypeError):
                    open_it(wrong)
            with self.assertRaisesRegex(FileNotFoundError, "nowhere"):
                open_it([self.paths[0], self.folder / "nowhere"])
            with self.assertRaises(lmdbio.UnsupportedError):
                open_it(self.paths, snapshot="pinned")

    def test_few_descriptors(self):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        links = self.folder / "links"
        links.mkdir()
        for i in range(600):
            os.link(self.paths[i % FILES] / "data.mdb", links / f"{i}.mdb")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        try:
            with lmdbio.Dataset(links) as dataset, lmdbio.Loader(
                    links / "*", batch_size=100, shuffle=True) as loader:
                self.assertEqual(len(dataset), 600 * COUNT)
                expected = [self.all[i % len(self.all)] for i in (5, 17999, 9000, 1234)]
                self.assertEqual(dataset[[5, 17999, 9000, 1234]], expected)
                self.assertEqual(sum(len(batch) for batch in loader), 600 * COUNT)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


if __name__ == "__main__":
    run_unless(None)
