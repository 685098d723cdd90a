#!/usr/bin/env python3
"""Writes the data version 3 fixtures of this folder; README.md describes content and purpose.

usage: make_fixtures.py --tools DIR [--checksum-module SO] [--cipher-module SO]

--tools holds mdb_load, mdb_dump and mdb_stat of LMDB 1.0.1. Fixtures of 4 KiB pages are written
by PyPI's lmdb (3.0.0 or newer, in its 1.0 format). Other page sizes, per-page checksums and
encryption come from mdb_load: the first is a header line of its input, the other two are modules
that it loads. Without the modules those two fixtures are left as they are.
"""

import argparse
import hashlib
import pathlib
import random
import shutil
import subprocess
import tempfile

import lmdb

HERE = pathlib.Path(__file__).parent
MAP_BYTES = 4 << 20
COMPRESS_ABOVE_BYTES = 16 << 10
HEADER_BYTES = 24  # of a version 3 page
PASSWORD = 'fixture'
PATTERN = bytes(random.Random(3).sample(range(256), 256))


def node_bytes_max(page_bytes):
    return ((page_bytes - HEADER_BYTES) // 2 & ~1) - 2


def key_bytes_max(page_bytes):
    return node_bytes_max(page_bytes) - 8 - 48


def payload(rng, size):
    """Bytes that compress well and yet differ from themselves moved by any distance under 256."""
    start = rng.randrange(256)
    return (PATTERN * (size // 256 + 2))[start:start + size]


def boundary_records(page_bytes):
    """Values just below, at and above every size at which their storage changes."""
    rng = random.Random(7)
    records = {}
    for key_bytes in (5, 6):
        room = node_bytes_max(page_bytes) - 8 - key_bytes
        sizes = {0, 1, 2, 3} | {room + d for d in range(-3, 4)}
        for pages in (1, 2, 5):
            sizes |= {pages * page_bytes - HEADER_BYTES + d for d in range(-2, 3)}
        for number, size in enumerate(sorted(sizes)):
            key = b'%0*d' % (key_bytes, number)
            records[key] = payload(rng, size)
    return records


def small_records(count, seed):
    rng = random.Random(seed)
    return {b'key-%07d' % i: payload(rng, rng.randrange(0, 60)) for i in range(count)}


def fill(env, records, database=None, order=None, append=False, commit_every=100):
    keys = list(records)
    if order is not None:
        order.shuffle(keys)
    for start in range(0, len(keys), commit_every):
        with env.begin(write=True, db=database) as txn:
            for key in keys[start:start + commit_every]:
                values = records[key] if isinstance(records[key], list) else [records[key]]
                for value in values:
                    txn.put(key, value, append=append)


def write_fresh(env):
    del env


def write_one(env):
    fill(env, {b'only': b'one record'})


def write_boundaries(env):
    fill(env, boundary_records(4096))


def write_long_keys(env):
    rng = random.Random(11)
    limit = key_bytes_max(4096)
    sizes = [1, 2, 3, 510, 511, 512, 513, limit - 1, limit]
    sizes += [rng.randrange(1, limit + 1) for _ in range(30)]
    fill(env, {payload(rng, size): b'%d' % size for size in sizes}, order=rng)


def write_random_order(env):
    fill(env, small_records(1500, 13), order=random.Random(13), commit_every=70)


def write_append(env):
    fill(env, small_records(1500, 17), append=True)


def write_deleted(env):
    rng = random.Random(19)
    records = small_records(1200, 19)
    for number, key in enumerate(records):
        if number % 50 == 0:
            records[key] = payload(rng, 5000)
    fill(env, records, order=rng)
    for _ in range(6):
        with env.begin(write=True) as txn:
            for key in rng.sample(sorted(records), 150):
                txn.delete(key)
            for key in rng.sample(sorted(records), 40):
                txn.put(key, payload(rng, rng.choice((0, 9, 100, 2100, 9000))))


def duplicates(seed, key_count, count_max, size_of):
    rng = random.Random(seed)
    records = {}
    for i in range(key_count):
        key = b'k' * (i % 2) + b'%03d' % i  # odd and even key sizes
        count = 1 if i % 3 == 0 else rng.randrange(1, count_max)
        values = {payload(rng, size_of(rng)) for _ in range(count)}
        records[key] = sorted(values)
    return records


def write_dupsort_small(env):
    database = env.open_db(b'values', dupsort=True)
    fill(env, duplicates(23, 90, 12, lambda rng: rng.randrange(1, 40)), database)


def write_dupsort_promoted(env):
    database = env.open_db(b'values', dupsort=True)
    records = duplicates(29, 12, 120, lambda rng: rng.randrange(1, 90))
    records[b'very many'] = [b'%06d-%s' % (i, b'x' * (i % 50)) for i in range(3000)]
    fill(env, records, database, commit_every=5)


def write_dupsort_long_values(env):
    """Single values too large for a node get a sub-tree at once."""
    database = env.open_db(b'values', dupsort=True)
    rng = random.Random(47)
    limit = key_bytes_max(4096)
    records = {}
    for i in range(24):
        sizes = {limit - rng.randrange(120) for _ in range(1 + i % 4 * (i % 3))}
        key = b'%0*d' % (5 + rng.randrange(120), i)
        records[key] = sorted(payload(rng, size) for size in sizes)
    fill(env, records, database)


def write_dupfixed(env):
    for size in (1, 2, 4, 8, 20):
        database = env.open_db(b'items-of-%d' % size, dupsort=True, dupfixed=True,
                               integerdup=size in (4, 8))
        records = duplicates(31 + size, 9, 30, lambda rng, n=size: n)
        records[b'promoted'] = [i.to_bytes(size, 'big') for i in range(200 if size == 1 else 900)]
        fill(env, records, database)


def write_integer_key(env):
    for size in (4, 8):
        database = env.open_db(b'keys-of-%d' % size, integerkey=True)
        rng = random.Random(size)
        numbers = [rng.randrange(1 << (8 * size)) for _ in range(300)]
        fill(env, {n.to_bytes(size, 'little'): b'%d' % n for n in numbers}, database)


def write_reverse_key(env):
    database = env.open_db(b'values', reverse_key=True)
    rng = random.Random(37)
    records = {payload(rng, rng.randrange(1, 24)): b'%d' % i for i in range(400)}
    fill(env, records, database)


def write_named(env):
    fill(env, {b'aaa plain': b'beside the databases', b'zzz plain': b'and after them'})
    fill(env, small_records(400, 41), env.open_db(b'plain'))
    fill(env, duplicates(43, 40, 40, lambda rng: rng.randrange(1, 60)),
         env.open_db(b'dupsort', dupsort=True))
    env.open_db(b'empty')
    env.open_db(b'empty dupfixed', dupsort=True, dupfixed=True)
    fill(env, boundary_records(4096), env.open_db('näme with spaces/\t'.encode()))


# The binding sets no flags on the main database, so named databases have all flags.
WITH_NAMED_DATABASES = ('dupsort-small', 'dupsort-promoted', 'dupsort-long-values', 'dupfixed',
                        'integer-key', 'reverse-key', 'named')
WRITERS = {
    'fresh': write_fresh,
    'one-record': write_one,
    'boundaries': write_boundaries,
    'long-keys': write_long_keys,
    'random-order': write_random_order,
    'append': write_append,
    'deleted': write_deleted,
    'dupsort-small': write_dupsort_small,
    'dupsort-promoted': write_dupsort_promoted,
    'dupsort-long-values': write_dupsort_long_values,
    'dupfixed': write_dupfixed,
    'integer-key': write_integer_key,
    'reverse-key': write_reverse_key,
    'named': write_named,
}


def dump_text(page_bytes, flags, records):
    lines = ['VERSION=3', 'format=bytevalue', 'type=btree', f'mapsize={16 << 20}', 'maxreaders=126']
    lines += [f'{flag}=1' for flag in flags]
    lines += [f'db_pagesize={page_bytes}', 'HEADER=END']
    for key, values in records.items():
        for value in values if isinstance(values, list) else [values]:
            lines += [' ' + key.hex(), ' ' + value.hex()]
    return '\n'.join(lines + ['DATA=END', '']).encode()


def page_size_records(page_bytes):
    rng = random.Random(page_bytes)
    records = boundary_records(page_bytes)
    limit = key_bytes_max(page_bytes)
    for size in (limit - 1, limit):
        records[payload(rng, size)] = b'key of %d bytes' % size
    records.update(small_records(700, page_bytes))
    return records


def page_size_duplicates(page_bytes):
    records = duplicates(page_bytes, 20, 50, lambda rng: rng.randrange(1, 40))
    records[b'very many'] = [b'%06d' % i for i in range(1500)]
    return records


def without_map_address(text):
    """The tools print where the file was mapped: the one thing that differs every time."""
    return b''.join(line for line in text.splitlines(keepends=True)
                    if not line.startswith((b'mapaddr=', b'  Map address:')))


class Maker:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.rows = []

    def tool(self, name, *arguments, stdin=None):
        command = [str(self.options.tools / name), *map(str, arguments)]
        return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout

    def by_binding(self, name, writer):
        path = self.folder / name
        env = lmdb.open(str(path), subdir=False, map_size=MAP_BYTES, max_dbs=16, lib_version=1)
        writer(env)
        if name == 'deleted':  # its compacted copy is a fixture of its own
            compact = self.folder / 'compact-copy'
            env.copy(str(compact), compact=True)
        env.close()
        self.keep(name, path, has_named=name in WITH_NAMED_DATABASES)
        if name == 'deleted':
            self.keep('compact-copy', compact)

    def by_load(self, name, page_bytes, records, flags=(), module=None):
        path = self.folder / name
        crypto = ['-m', module.resolve(), '-w', PASSWORD] if module else []
        self.tool('mdb_load', '-n', *crypto, path, stdin=dump_text(page_bytes, flags, records))
        self.keep(name, path, crypto)

    def keep(self, name, path, crypto=(), has_named=False):
        outputs = {'mdb': path.read_bytes()}
        outputs['dump'] = self.tool('mdb_dump', '-n', *crypto, path)
        if has_named:
            outputs['dump-a'] = self.tool('mdb_dump', '-n', '-a', *crypto, path)
        outputs['stat'] = self.tool('mdb_stat', '-n', '-efa', *crypto, path)
        for kind in outputs.keys() - {'mdb'}:
            outputs[kind] = without_map_address(outputs[kind])
        for kind, content in outputs.items():
            for stale in HERE.glob(f'{name}.{kind}*'):
                if stale.name in (f'{name}.{kind}', f'{name}.{kind}.zst'):
                    stale.unlink()
            target = HERE / f'{name}.{kind}'
            target.write_bytes(content)
            if len(content) > COMPRESS_ABOVE_BYTES:
                subprocess.run(['zstd', '-q', '-19', '--rm', str(target)], check=True)
        digest = hashlib.sha256(outputs['mdb']).hexdigest()
        self.rows.append(f'| {name} | {len(outputs["mdb"])} | `{digest}` |')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tools', type=pathlib.Path, required=True)
    parser.add_argument('--checksum-module', type=pathlib.Path)
    parser.add_argument('--cipher-module', type=pathlib.Path)
    folder = pathlib.Path(tempfile.mkdtemp())
    maker = Maker(parser.parse_args(), folder)
    for name, writer in WRITERS.items():
        maker.by_binding(name, writer)
    for page_bytes in (512, 1024, 16384, 65536):
        maker.by_load(f'page-{page_bytes}', page_bytes, page_size_records(page_bytes))
        maker.by_load(f'page-{page_bytes}-dupsort', page_bytes, page_size_duplicates(page_bytes),
                      ['dupsort'])
    reverse = {key: sorted(values, key=lambda v: v[::-1])
               for key, values in page_size_duplicates(4096).items()}
    maker.by_load('reverse-dup', 4096, reverse, ['dupsort', 'reversedup'])
    for name, module in (('checksum', maker.options.checksum_module),
                         ('encrypted', maker.options.cipher_module)):
        if module:
            maker.by_load(name, 4096, boundary_records(4096), module=module)
    shutil.rmtree(folder)
    print('\n'.join(maker.rows))


if __name__ == '__main__':
    main()
