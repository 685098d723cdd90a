#!/usr/bin/env python3
"""The trainer of examples/train_digits.c, on one rank, two and four.

    train_digits_test.py TRAIN_DIGITS MAKE MPIEXEC...

The oracle is the trainer itself, on one rank without a stop. All other runs must give its loss
curve. Ranks add gradients in another order, which changes the 16th digit. The effect on training
stays far below TOLERANCE. The effect of one repeated or missing record is far above.
"""

import os
import pathlib
import re
import struct
import subprocess
import tempfile
import unittest

import bench_program

TOLERANCE = 1e-6  # relative
EPOCHS = 30  # the default
LINE = re.compile(r"epoch (\d+): loss (\d+\.\d{9}), test accuracy (\d+\.\d) %")


def datum(pixels=bytes(64), label=7):
    shape = b"\x08\x01\x10\x08\x18\x08"
    return shape + b"\x22" + bytes([len(pixels)]) + pixels + b"\x28" + bytes([label])


class Epoch:
    def __init__(self, line):
        number, loss, accuracy = LINE.fullmatch(line).groups()
        self.number, self.loss, self.accuracy = int(number), float(loss), float(accuracy)


class TrainDigits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.train, cls.test = cls.folder / "train", cls.folder / "test"
        bench_program.make("digits", cls.train, "--part", "train")
        bench_program.make("digits", cls.test, "--part", "test")
        cls.whole = cls.curve(1)

    def setUp(self):
        self.checkpoint = self.folder / f"{self._testMethodName}.checkpoint"

    @classmethod
    def curve(cls, ranks, *words):
        outcome = bench_program.run(ranks, *words, cls.train, cls.test)
        if outcome.exit_code != 0 or outcome.errors:
            raise AssertionError(f"{words} on {ranks} ranks: exit code {outcome.exit_code}: "
                                 f"{outcome.output}{outcome.all_errors}")
        return [Epoch(line) for line in outcome.output.splitlines()]

    def assert_same(self, curve, expected):
        self.assertEqual([epoch.number for epoch in curve], [epoch.number for epoch in expected])
        for epoch, other in zip(curve, expected):
            self.assertLess(abs(epoch.loss / other.loss - 1), TOLERANCE, epoch.number)
            self.assertEqual(epoch.accuracy, other.accuracy, epoch.number)

    def assert_fails(self, exit_code, words, *command, all_ranks=(0,)):
        for ranks in all_ranks:
            with self.subTest(command=command, ranks=ranks):
                outcome = bench_program.run(ranks, *command)
                self.assertEqual(outcome.flaw_of_failure(exit_code, *words), "")

    def database(self, name, *values):
        """A database with these values under the keys 'key 0', 'key 1', ..."""
        lines = "".join(f" {f'key {i}'.encode().hex()}\n {value.hex()}\n"
                        for i, value in enumerate(values))
        path = self.folder / name
        path.mkdir()
        subprocess.run(["mdb_load", path], check=True, text=True, input=(
            "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n" + lines + "DATA=END\n"))
        return path

    def test_learns(self):
        self.assertEqual([epoch.number for epoch in self.whole], list(range(1, EPOCHS + 1)))
        self.assertGreaterEqual(self.whole[-1].accuracy, 95)
        self.assertLess(self.whole[-1].loss, self.whole[0].loss / 50)

    def test_any_number_of_ranks_gives_the_same_curve(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.assert_same(self.curve(ranks), self.whole)

    def test_any_coordinator_gives_the_same_curve(self):
        # Within a host every algorithm adds in rank order, so the bits are equal.
        ways = [("--coordinator", name) for name in ("cache", "horovod", "hierarchical")]
        ways += [("--pacing", name) for name in ("cycle", "gs", "nbcs")]
        ways += [("--collective", name) for name in ("shm", "ring", "halving", "direct", "mpi")]
        for ranks in (1, 3):
            expected = self.curve(ranks, "--epochs", 3)
            self.assert_same(expected, self.whole[:3])
            for words in ways:
                with self.subTest(ranks=ranks, words=words):
                    found = self.curve(ranks, "--epochs", 3, *words)
                    self.assert_same(found, expected)
                    if words[0] != "--collective" or words[1] == "shm":
                        self.assertEqual([epoch.loss for epoch in found],
                                         [epoch.loss for epoch in expected])

    def test_seeds_differ(self):
        (one,), (same,), (other,) = (self.curve(1, "--epochs", 1, "--seed", s) for s in (1, 1, 2))
        self.assertEqual(one.loss, same.loss)
        self.assertGreater(abs(one.loss / other.loss - 1), 1e-3)

    def test_batches_of_any_size(self):
        # Smaller batches need smaller steps.
        for batch_size, rate in ((1, 0.002), (3, 0.005), (10**6, 0.1)):
            words = "--batch-size", batch_size, "--learning-rate", rate
            with self.subTest(words=words):
                expected = self.curve(1, "--epochs", 2, *words)
                self.assertLess(expected[1].loss, expected[0].loss)
                self.assert_same(self.curve(4, "--epochs", 2, *words), expected)

    def test_goes_on_where_it_stopped_with_other_ranks(self):
        for stop, ranks in ((1, 4), (2, 1), (3, 2), (6, 1), (7, 4)):
            curve = self.curve(ranks, "--checkpoint", self.checkpoint, "--stop-after", stop)
            begin = {1: 0, 2: 1, 3: 2, 6: 3, 7: 6}[stop]
            self.assert_same(curve, self.whole[begin:stop])
        self.assert_same(self.curve(2, "--checkpoint", self.checkpoint), self.whole[7:])
        self.assertEqual(self.curve(1, "--checkpoint", self.checkpoint), [])
        self.assertEqual([path.name for path in self.folder.glob(self.checkpoint.name + "*")],
                         [self.checkpoint.name])

    def test_goes_on_from_a_checkpoint_behind_links(self):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "link").symlink_to("target")
        self.checkpoint.symlink_to(elsewhere / "link")
        for begin in (0, 1):  # without a target, and with one
            curve = self.curve(1, "--checkpoint", self.checkpoint, "--stop-after", begin + 1)
            self.assert_same(curve, self.whole[begin:begin + 1])
        self.assertTrue(self.checkpoint.is_symlink())
        self.assertTrue((elsewhere / "link").is_symlink())
        self.assertEqual({path.name for path in elsewhere.iterdir()}, {"link", "target"})

    def test_a_checkpoint_behind_a_link_in_a_folder_for_everybody(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        victim = self.folder / "victim"
        (shared / "link").symlink_to(victim)
        self.assert_fails(1, [f"{shared}/link", "is a symbolic link in a folder that everybody"],
                          "--checkpoint", shared / "link", "--stop-after", 1, self.train,
                          self.test)
        self.assertFalse(victim.exists())

    def test_a_trap_with_the_name_of_the_unfinished_checkpoint(self):
        victim = self.folder / "precious"
        victim.write_text("precious", encoding="utf-8")
        fresh = self.checkpoint.with_name(self.checkpoint.name + ".tmp")
        fresh.symlink_to(victim)
        self.curve(1, "--checkpoint", self.checkpoint, "--stop-after", 1)
        self.assertEqual(victim.read_text(encoding="utf-8"), "precious")
        self.assertFalse(fresh.is_symlink())
        self.assertTrue(self.checkpoint.is_file())

    def test_a_checkpoint_that_is_no_file(self):
        os.mkfifo(self.checkpoint)
        self.assert_fails(1, [str(self.checkpoint), "not a regular file"], "--checkpoint",
                          self.checkpoint, self.train, self.test)
        self.assertTrue(self.checkpoint.is_fifo())

    def test_goes_on_after_its_end_by_a_signal(self):
        job = bench_program.start(4, "--epochs", 10**6, "--checkpoint", self.checkpoint,
                                  self.train, self.test)
        curve = [Epoch(job.stdout.readline().strip()) for _ in range(3)]
        bench_program.end(job)
        job.stdout.close()
        job.stderr.close()
        self.assert_same(curve, self.whole[:3])
        # The job may be further than its output; the second field of the struct has the epoch.
        trained, = struct.unpack_from("=Q", self.checkpoint.read_bytes(), 8)
        self.assertGreaterEqual(trained, 3)
        end = "--epochs", trained + 2
        self.assert_same(self.curve(2, "--checkpoint", self.checkpoint, *end),
                         self.curve(1, *end)[trained:])

    def test_refuses_checkpoints_that_are_none_of_its_own(self):
        self.curve(2, "--checkpoint", self.checkpoint, "--stop-after", 1)
        content = self.checkpoint.read_bytes()
        databases = self.train, self.test
        here = "--checkpoint", self.checkpoint
        name = str(self.checkpoint)
        self.assert_fails(1, [name, "--seed 0, not 5"], "--seed", 5, *here, *databases,
                          all_ranks=(0, 3))
        self.assert_fails(1, [name, "--batch-size 64, not 32"], "--batch-size", 32, *here,
                          *databases)
        self.assert_fails(1, ["record count"], *here, self.test, self.test)
        for size in (0, 7, len(content) // 2, len(content) - 1):
            self.checkpoint.write_bytes(content[:size])
            self.assert_fails(1, [name, "truncated"], *here, *databases)
        for place in (20, len(content) // 2, len(content) - 1):
            damaged = bytearray(content)
            damaged[place] ^= 1
            self.checkpoint.write_bytes(damaged)
            self.assert_fails(1, [name, "checksum"], *here, *databases)
        for foreign, word in ((b"x" * len(content), "not a checkpoint"),
                              (content + b"x", "is not")):
            self.checkpoint.write_bytes(foreign)
            self.assert_fails(1, [name, word], *here, *databases)
        self.assertEqual(self.checkpoint.read_bytes(), content + b"x")  # never overwritten

    def test_a_checkpoint_that_cannot_be_written(self):
        self.assert_fails(1, ["none/checkpoint", "No such file"], "--checkpoint",
                          self.folder / "none" / "checkpoint", self.train, self.test)

    def test_a_database_that_is_not_there(self):
        missing = self.folder / "missing"
        words = [str(missing), "No such file"]
        self.assert_fails(1, words, missing, self.test, all_ranks=(0, 3))
        self.assert_fails(1, words, self.train, missing, all_ranks=(0, 3))
        empty = self.database("empty")
        self.assert_fails(1, ["holds no records"], empty, self.test)
        self.assert_fails(1, ["holds no records"], self.train, empty)

    def test_records_that_are_no_digits(self):
        for i, (value, flaw) in enumerate((
                (b"", "no 64 bytes"), (b"\xff" * 12, "not a Datum"), (b"\x22", "not a Datum"),
                (b"\x22\x40" + bytes(63), "not a Datum"), (b"\x0f", "not a Datum"),
                (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "not a Datum"),
                (datum(pixels=bytes(63)), "no 64 bytes"), (datum(label=10), "no label"),
                (datum()[:-2], "no label"), (datum(pixels=b"\x11" * 64), "above 16"))):
            bad = self.database(f"bad-{i}", datum(), datum(), value)
            words = "'key 2'", flaw
            self.assert_fails(1, words, self.train, bad)
        # In a batch of two, one rank has the bad record, and two of four ranks have no record.
        self.assert_fails(1, words, "--batch-size", 2, bad, self.test, all_ranks=(0, 2, 4))

    def test_takes_fields_that_it_does_not_know(self):
        more = datum() + b"\x38\x00" + b"\x35abcd" + b"\x79abcdefgh" + b"\xa2\x06\x02ab"
        path = self.database("more", more)
        outcome = bench_program.run(0, "--epochs", 1, path, path)
        self.assertEqual((outcome.exit_code, outcome.errors), (0, ""))

    def test_misuse(self):
        here = self.train, self.test
        self.assert_fails(2, ["TRAIN and TEST"], self.train, all_ranks=(0, 3))
        for option, value in (("--epochs", 0), ("--epochs", -1), ("--batch-size", "x"),
                              ("--seed", 2**64), ("--stop-after", 0), ("--learning-rate", 0),
                              ("--learning-rate", "nan"), ("--bogus", 1), ("--epochs", "")):
            self.assert_fails(2, [option], option, value, *here)
        self.assert_fails(1, ["--learning-rate"], "--learning-rate", 1e300, *here, all_ranks=(0, 3))
        for option, name in (("--coordinator", "boss"), ("--pacing", "run"),
                             ("--collective", "mail")):
            self.assert_fails(1, [option[2:], f"'{name}'"], option, name, *here, all_ranks=(0, 3))
        self.assertIn("--stop-after E", bench_program.run(0, "--help").output)


if __name__ == "__main__":
    unittest.main(argv=bench_program.sys.argv[:1])
