"""Tests of scripts/remote-storage --seek-ms: the bytes, the counts of seeks, and bad input.

The oracles are the file itself and a model that deals stripes to disks one by one. Reads with
O_DIRECT arrive at the server as they are made, one after the other, so the counts are exact. Exits
with 77 if mounting or compiling is not possible.
"""

import os
import random
import re
import subprocess
import sys
import threading
import time

from remote_mount import run_unless, why_no_seeks, why_not_here
from remote_storage_case import FILE_BYTES, RemoteStorageCase, cold_bytes

PAGE = 4096
STRIPE = 1 << 16


def expected_disks(requests, disk_count, stripe_bytes, free_bytes):
    """What `stats` should print for requests (offset, bytes), made one after the other."""
    places, lengths = {}, [0] * disk_count  # of each stripe; of each disk so far
    for stripe in range(FILE_BYTES // stripe_bytes + 1):
        disk = min(range(disk_count), key=lengths.__getitem__)
        places[stripe] = disk, lengths[disk]
        lengths[disk] += stripe_bytes
    disks = [{"pieces": 0, "seeks": 0} for _ in range(disk_count)]
    heads = [None] * disk_count
    for offset, count in requests:
        for stripe in range(offset // stripe_bytes, (offset + count - 1) // stripe_bytes + 1):
            disk, place = places[stripe]
            first = max(offset - stripe * stripe_bytes, 0)
            last = min(offset + count - stripe * stripe_bytes, stripe_bytes)
            disks[disk]["pieces"] += 1
            if heads[disk] is None or abs(place + first - heads[disk]) > free_bytes:
                disks[disk]["seeks"] += 1
            heads[disk] = place + last
    return disks


class SeekingStorageTest(RemoteStorageCase):
    def mount(self, *options, seek_ms=0, stripes=1, stripe_bytes=STRIPE, free_bytes=0):
        """Mounts the file, and opens it for direct reads."""
        self.up("--rate", "none", "--seek-ms", seek_ms, "--stripes", stripes, "--stripe-bytes",
                stripe_bytes, "--seek-free-bytes", free_bytes, *options)
        self.file = os.open(self.mountpoint / "data.mdb", os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(lambda: self.file is not None and os.close(self.file))

    def read(self, offset, count):
        """Reads in one request, and checks the bytes."""
        buffer = bytearray(count)
        done = os.preadv(self.file, [buffer], offset)
        self.assertEqual(buffer[:done], self.bytes[offset : offset + count])
        return done

    def down(self):
        os.close(self.file)
        self.file = None
        said = self.succeed("down", self.mountpoint)
        self.assert_nothing_left()
        return said

    def seeks_of(self, offsets):
        """The seeks of reads of one page at these offsets."""
        self.stats("--reset")
        for offset in offsets:
            self.read(offset, PAGE)
        return self.stats()["seeks"]

    def test_a_stream_seeks_once_on_each_disk(self):
        self.mount(stripes=3)
        self.assertEqual(self.seeks_of(range(0, 12 * STRIPE, PAGE)), 3)
        self.assertEqual(self.seeks_of(range(12 * STRIPE, 24 * STRIPE, PAGE)), 0)
        self.assertEqual(self.stats()["disks"], [{"pieces": 64, "seeks": 0}] * 3)
        self.down()

    def test_random_reads_seek(self):
        self.mount()
        offsets = [PAGE * page for page in range(0, 512, 2)]  # no read ends at the next one's begin
        random.Random(1).shuffle(offsets)
        self.assertEqual(self.seeks_of(offsets), len(offsets))
        self.down()

    def test_streams_disturb_each_other_only_on_one_disk(self):
        self.mount(stripes=2)
        length = STRIPE // PAGE

        def both(first, second):
            return [begin + PAGE * page for page in range(length) for begin in (first, second)]

        self.assertEqual(self.seeks_of(both(0, 2 * STRIPE)), 2 * length)
        self.assertEqual(self.seeks_of(both(8 * STRIPE, 9 * STRIPE)), 2)
        self.down()

    def test_a_read_near_the_last_one_is_free(self):
        self.mount(free_bytes=2 * PAGE)
        self.read(10 * PAGE, PAGE)
        for page, seeks in ((13, 0), (16, 0), (20, 1), (19, 0), (18, 0), (20, 0), (18, 1)):
            self.assertEqual(self.seeks_of([page * PAGE]), seeks, page)
        self.down()

    def test_counts_and_bytes_of_odd_requests(self):
        self.mount(stripes=5, stripe_bytes=3 * PAGE, free_bytes=5 * PAGE)
        choice = random.Random(2)
        requests = [(FILE_BYTES - 5, 5), (0, 1), (3 * PAGE - 1, 2), (7, 1 << 18)]
        for _ in range(300):
            offset = choice.randrange(FILE_BYTES)
            requests.append((offset, min(choice.choice((1, 77, PAGE, 50000, 100001)),
                                         FILE_BYTES - offset)))
        for offset, count in requests:
            self.assertEqual(self.read(offset, count), count)
        stats = self.stats()
        disks = expected_disks(requests, 5, 3 * PAGE, 5 * PAGE)
        self.assertEqual(stats["disks"], disks)
        self.assertEqual(stats["seeks"], sum(disk["seeks"] for disk in disks))
        self.assertEqual((stats["requests"], stats["bytes"]),
                         (len(requests), sum(count for _, count in requests)))
        shares = ", ".join(f"{disk['seeks']} of {disk['pieces']}" for disk in disks)
        self.assertIn(f"\nseeks: {stats['seeks']} of {sum(d['pieces'] for d in disks)} pieces; "
                      f"by disk: {shares}\n", self.down())

    def test_delivers_the_file_to_its_end(self):
        self.mount(stripes=3, stripe_bytes="4K")
        self.assertEqual(cold_bytes(self.mountpoint / "data.mdb"), self.bytes)
        self.assertEqual(self.read(FILE_BYTES - 77, PAGE), 77)
        self.assertEqual(self.read(FILE_BYTES, PAGE), 0)
        self.down()

    def test_seeks_take_their_time(self):
        self.mount(seek_ms=30, stripes=2)
        start = time.monotonic()
        for _ in range(2):
            self.read(0, PAGE)
        self.assertGreaterEqual(time.monotonic() - start, 0.060)  # each seek is guaranteed
        start = time.monotonic()
        readers = [threading.Thread(target=self.read, args=(2 * number * STRIPE, PAGE))
                   for number in (1, 2, 3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertGreaterEqual(time.monotonic() - start, 0.090)  # one after the other
        self.down()

    def test_goes_with_delays_rates_errors_and_a_log(self):
        log, errors = self.folder / "log", self.folder / "errors"
        self.mount("--delay-ms", 1, "--rate", "8G", "--error-file", errors, "--log", log, stripes=2)
        self.read(0, PAGE)
        errors.touch()
        with self.assertRaisesRegex(OSError, "Input/output error"):
            self.read(PAGE, PAGE)
        errors.unlink()
        self.read(2 * PAGE, PAGE)  # the failed read has moved the head
        stats = self.stats()
        self.assertEqual(stats["disks"], [{"pieces": 3, "seeks": 1}, {"pieces": 0, "seeks": 0}])
        self.assertEqual((stats["requests"], stats["bytes"]), (3, 2 * PAGE))
        self.assertEqual(len(re.findall(r" Read ", log.read_text(encoding="ascii"))), 3)
        log.unlink()
        self.down()

    def test_a_file_that_shrinks_fails_reads_and_not_the_server(self):
        self.mount(stripes=2)
        self.source.write_bytes(self.bytes[:STRIPE])
        self.read(0, STRIPE)
        with self.assertRaisesRegex(OSError, "Input/output error"):
            self.read(STRIPE, PAGE)
        self.source.write_bytes(self.bytes)
        self.read(STRIPE, PAGE)
        self.down()

    def test_down_ends_reads_that_wait(self):
        self.mount(seek_ms=600_000)
        reader = subprocess.Popen(
            ["dd", f"if={self.mountpoint}/data.mdb", "of=/dev/null", "iflag=direct", "count=1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 10
        while self.stats()["seeks"] == 0 and time.monotonic() < give_up:
            time.sleep(0.01)
        self.succeed("down", self.mountpoint, "--force")
        self.assertNotEqual(reader.wait(timeout=30), 0)
        self.assert_nothing_left()

    def test_refuses_bad_options_and_leaves_nothing(self):
        for text, *options in (
                ("--seek-ms takes whole", "--seek-ms", "-1"),
                ("--seek-ms takes whole", "--seek-ms", "1.5"),
                ("--seek-ms needs a value", "--seek-ms"),
                ("--stripes takes 1 to 256", "--seek-ms", "8", "--stripes", "0"),
                ("--stripes takes 1 to 256", "--seek-ms", "8", "--stripes", "257"),
                ("--stripe-bytes takes", "--seek-ms", "8", "--stripe-bytes", "0"),
                ("--stripe-bytes takes", "--seek-ms", "8", "--stripe-bytes", "6000"),
                ("--stripe-bytes takes", "--seek-ms", "8", "--stripe-bytes", "1025G"),
                ("--seek-free-bytes takes", "--seek-ms", "8", "--seek-free-bytes", "-4K"),
                ("--stripes needs --seek-ms", "--stripes", "4"),
                ("--stripe-bytes needs --seek-ms", "--stripe-bytes", "1M"),
                ("--seek-free-bytes needs --seek-ms", "--seek-free-bytes", "0")):
            self.fail_with(text, "up", self.source, self.mountpoint, *options)
        self.fail_with("does not exist", "up", self.folder / "missing", self.mountpoint,
                       "--seek-ms", "8")
        self.assert_nothing_left()

    def test_says_what_compiling_lacks(self):
        words = ("up", self.source, self.mountpoint, "--seek-ms", "8")
        self.fail_with("needs a C compiler, and no-cc is not installed", *words, CC="no-cc")
        compiler = self.folder / "no-good-cc"
        path = f"{self.folder}:{os.environ['PATH']}"
        for said, text in (("fatal error: nbdkit-filter.h: No such file", "needs nbdkit-filter.h"),
                           ("error: no space left", "cannot compile")):
            compiler.write_text(f"#!/bin/sh\necho 'x.c:1:1: {said}' >&2\nexit 1\n",
                                encoding="ascii")
            compiler.chmod(0o755)
            self.fail_with(text, *words, CC=compiler.name, PATH=path)
        compiler.unlink()
        self.assert_nothing_left()

    def test_interrupted_up_leaves_nothing(self):
        self.assert_interrupted_up_leaves_nothing((0.03, 0.1, 0.2, 0.3), "--seek-ms", "8")


if __name__ == "__main__":
    sys.exit(run_unless(why_not_here() or why_no_seeks()))
