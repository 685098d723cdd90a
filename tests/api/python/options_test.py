"""Each option of Loader, Dataset and Synchronizer, set to the example of options.toml, reaches the
library. The oracle is options(): tests/load/plan/option_text_test.cc checks that of loaders, and
SyncChoice::Json, which is written by hand, is that of synchronizers."""

import ctypes
import inspect
import pathlib
import sys
import tempfile
import unittest

from support import Databases, run_unless

import lmdbio
import lmdbio.sync

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))

import option_table  # noqa: E402

ROWS = option_table.rows("loader") or []
SYNC_ROWS = option_table.rows("sync") or []
SPECIAL = ("database_name", "state", "shuffle")  # tested one by one


def has_driver():
    """Whether there is a driver of a GPU: in CTest, the stand-in."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class OptionsTest(Databases):
    def effective(self, **options):
        with lmdbio.Loader(self.digits, **options) as loader:
            return loader.options()

    def test_defaults(self):
        effective = self.effective()
        self.assertEqual(list(effective), [row["name"] for row in ROWS])
        for row in ROWS:
            self.assertEqual(effective[row["name"]], row.get("default"), row["name"])

    def test_each_option_arrives_and_no_other_changes(self):
        defaults = self.effective()
        for row in ROWS:
            name = row["name"]
            if name in SPECIAL:
                continue
            with self.subTest(name):
                given = {**row.get("with", {}), name: row["example"]}
                self.assertEqual(self.effective(**given), {**defaults, **given})

    def test_none_is_the_default(self):
        names = [row["name"] for row in ROWS if row.get("optional") or row.get("zero")]
        self.assertEqual(self.effective(**dict.fromkeys(names)), self.effective())

    def test_constructors_name_every_option(self):
        names = {row["name"] for row in ROWS}
        self.assertLessEqual(names, inspect.signature(lmdbio.Loader).parameters.keys())
        of_datasets = {row["name"] for row in ROWS if row.get("dataset")}
        self.assertEqual(inspect.signature(lmdbio.Dataset).parameters.keys(),
                         {"path"} | of_datasets)
        for row in ROWS:
            self.assertIn(row["name"], lmdbio.Loader.__init__.__doc__)

    def test_options_of_datasets(self):
        examples = {row["name"]: row["example"] for row in ROWS if row.get("dataset")}
        with self.assertRaisesRegex(FileNotFoundError, "other"):
            lmdbio.Dataset(self.digits, **examples)
        del examples["database_name"]
        with lmdbio.Dataset(self.digits, **examples) as dataset:
            self.assertEqual(len(dataset), 1797)
        for wrong in ({"engine": "x"}, {"cache": "x"}, {"snapshot": "x"}, {"queue_depth": 0},
                      {"block_bytes": 5}):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, next(iter(wrong))):
                lmdbio.Dataset(self.digits, **wrong)

    def test_names_and_states(self):
        with self.assertRaisesRegex(FileNotFoundError, "other"):
            lmdbio.Loader(self.digits, database_name="other")
        with lmdbio.Loader(self.digits, epoch=2) as loader:
            state = loader.state_dict()
        with lmdbio.Loader(self.digits, state=state) as loader:
            self.assertEqual(loader.state_dict(), state)
            self.assertIn('"epoch":2', loader.options()["state"].replace(" ", ""))

    def test_words_of_pytorch(self):
        for given, expected in (
                ({"batch_size": 10}, {"global_batch_size": 10}),
                ({"batch_size": 10, "num_shards": 3}, {"global_batch_size": 30}),
                ({"shuffle": True}, {"order": "shuffle", "shuffle": "global"}),
                ({"shuffle": "block"}, {"order": "shuffle", "shuffle": "block"}),
                ({"shuffle": False, "order": "shuffle"}, {"order": "shuffle"}),
                ({"shuffle": False}, {"order": "sequential"}),
                ({"drop_last": True}, {"tail": "drop"}),
                ({"drop_last": False}, {"tail": "short"})):
            with self.subTest(given):
                effective = self.effective(**given)
                self.assertEqual({name: effective[name] for name in expected}, expected)
        for wrong in ({"batch_size": 1, "global_batch_size": 1},
                      {"shuffle": True, "order": "chunked"},
                      {"drop_last": True, "tail": "wrap"}, {"epoch": 1, "state": {}},
                      {"global_batch_size": 0}, {"reuse": 0}, {"queue_depth": 0}):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, next(iter(wrong))):
                lmdbio.Loader(self.digits, **wrong)

    def test_sizes_of_batches(self):
        with lmdbio.Loader(self.digits) as loader:
            self.assertEqual((loader.global_batch_size, loader.batch_size), (64, 64))
        with lmdbio.Loader(self.digits, global_batch_size=10, num_shards=3) as loader:
            self.assertEqual((loader.global_batch_size, loader.batch_size), (10, 4))
        with lmdbio.Loader(self.digits, 20, num_shards=3) as loader:
            self.assertEqual((loader.global_batch_size, loader.batch_size), (60, 20))


class SyncOptionsTest(unittest.TestCase):
    def effective(self, **options):
        with lmdbio.sync.Synchronizer(**options) as sync:
            return sync.options()

    def test_defaults(self):
        effective = self.effective()
        self.assertEqual(effective, {row["name"]: row["default"] for row in SYNC_ROWS})
        self.assertEqual(list(effective), [row["name"] for row in SYNC_ROWS])

    def test_each_option_arrives_and_no_other_changes(self):
        defaults = self.effective()
        for row in SYNC_ROWS:
            name = row["name"]
            if name in ("transport", "timeline_path"):
                continue
            with self.subTest(name):
                given = {name: row["example"]}
                if name == "device" and not has_driver():
                    with self.assertRaisesRegex(lmdbio.NotFoundError, "no GPU driver"):
                        self.effective(**given)
                    continue
                self.assertEqual(self.effective(**given), {**defaults, **given})
            if "minus_one" in row:
                self.assertEqual(self.effective(**{name: -1}), {**defaults, name: 0})

    def test_each_choice(self):
        # A rank without MPI and without a GPU cannot have these, nor one whose coordinator is not
        # caramel.
        refused = {"mpi": lmdbio.UnsupportedError, "nccl": lmdbio.InvalidArgumentError,
                   "bins": lmdbio.InvalidArgumentError,
                   "split": lmdbio.InvalidArgumentError}
        for row in SYNC_ROWS:
            for choice in row.get("choices", ()):
                given = {row["name"]: choice["name"]}
                with self.subTest(given):
                    if choice["name"] in refused:
                        with self.assertRaisesRegex(refused[choice["name"]], row["name"]):
                            self.effective(**given)
                    else:
                        self.assertEqual(self.effective(**given)[row["name"]], choice["name"])

    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/trace"
            self.assertEqual(self.effective(timeline_path=path)["timeline_path"], path)
            self.assertTrue(pathlib.Path(path + ".0").exists())

    def test_the_constructor_names_every_option(self):
        self.assertEqual(inspect.signature(lmdbio.sync.Synchronizer).parameters.keys(),
                         {"comm"} | {row["name"] for row in SYNC_ROWS})
        for wrong in ({"coordinator": "boss"}, {"cycle_time_us": -2}, {"gs_cycles": -1}):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, next(iter(wrong))):
                self.effective(**wrong)


if __name__ == "__main__":
    run_unless(None if ROWS else "this Python has no tomllib")
