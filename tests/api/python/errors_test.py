"""lmdbio raises only LmdbioError, each of the built-in kind that fits, with its errno."""

import ast
import contextlib
import errno
import os
import pathlib
import pickle
import resource
import unittest

import numpy as np
from support import Databases, run_unless

import lmdbio
import lmdbio.sync
from lmdbio import _capi, _errors

PACKAGE = pathlib.Path(lmdbio.__file__).parent
OF_NOBODY = 65534  # a user who owns nothing here


@contextlib.contextmanager
def no_more_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class ErrorsTest(Databases):
    def raised_by(self, call):
        with self.assertRaises(lmdbio.LmdbioError) as raised:
            call()
        self.assertNotIn("\n", str(raised.exception))
        return raised.exception

    def test_every_raise_is_of_an_error_of_the_package(self):
        seen = 0
        files = {path: list(ast.walk(ast.parse(path.read_text()))) for path in PACKAGE.glob("*.py")}
        makes = {node.name: node.returns.id for nodes in files.values() for node in nodes
                 if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name)}
        for path, nodes in files.items():
            for node in nodes:
                if not isinstance(node, ast.Raise) or node.exc is None:
                    continue
                kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                name = kind.attr if isinstance(kind, ast.Attribute) else kind.id
                if name in ("error", "StopIteration"):  # made before; the end of an iterator
                    continue
                found = getattr(lmdbio, makes.get(name, name), None)
                self.assertTrue(isinstance(found, type) and issubclass(found, lmdbio.LmdbioError),
                                f"{path.name}:{node.lineno}: raises {name}")
                seen += 1
        self.assertGreater(seen, 20)

    def test_files_that_are_not_there(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for path in self.folder / "nowhere", empty, self.digits / "data.mdb" / "x":
            for kind in lmdbio.Loader, lmdbio.Dataset:
                error = self.raised_by(lambda path=path, kind=kind: kind(path))
                self.assertIsInstance(error, FileNotFoundError)
                self.assertIn(error.errno, (errno.ENOENT, errno.ENOTDIR))
                self.assertEqual(error.code, 2)

    def test_files_that_may_not_be_read(self):
        closed = self.folder / "closed"
        closed.mkdir()
        (closed / "data.mdb").write_bytes((self.even / "data.mdb").read_bytes())
        closed.chmod(0)
        self.addCleanup(closed.chmod, 0o700)
        if os.geteuid() == 0:  # who may read everything
            try:
                os.seteuid(OF_NOBODY)
            except OSError as error:
                self.skipTest(f"there is no other user here: {error}")
            self.addCleanup(os.seteuid, 0)
        for kind in lmdbio.Loader, lmdbio.Dataset:
            error = self.raised_by(lambda kind=kind: kind(closed / "data.mdb"))
            self.assertIsInstance(error, PermissionError)
            self.assertIsInstance(error, lmdbio.StorageError)
            self.assertEqual((error.code, error.errno), (3, errno.EACCES))

    def test_open_files_that_ran_out_are_no_lack_of_memory(self):
        lmdbio.version()  # loads the library, which is a file, too
        for kind in lmdbio.Loader, lmdbio.Dataset:
            with no_more_files():
                error = self.raised_by(lambda kind=kind: kind(self.digits))
            self.assertIsInstance(error, lmdbio.ResourceExhaustedError)
            self.assertIsInstance(error, OSError)
            self.assertNotIsInstance(error, MemoryError)
            self.assertEqual((error.code, error.errno), (8, errno.EMFILE))

    def test_the_errno_of_a_synchronizer(self):
        error = self.raised_by(
            lambda: lmdbio.sync.Synchronizer(timeline_path=str(self.folder / "none" / "trace")))
        self.assertIsInstance(error, lmdbio.StorageError)
        self.assertEqual(error.errno, errno.ENOENT)

    def test_statuses_as_exceptions(self):
        for status, number, kind in (
                (1, 0, ValueError), (1, errno.EISDIR, ValueError), (2, errno.ENOENT,
                FileNotFoundError), (3, errno.EACCES, PermissionError), (4, errno.EIO, OSError),
                (5, 0, lmdbio.CorruptionError), (6, 0, lmdbio.UnsupportedError),
                (7, 0, lmdbio.StaleError), (8, 0, MemoryError), (8, errno.ENOMEM, MemoryError),
                (8, errno.ENOSPC, OSError), (8, errno.EMFILE, OSError),
                (9, 0, lmdbio.LmdbioError), (10, errno.EIO, lmdbio.PeerFailedError),
                (11, 0, ValueError), (12, 0, RuntimeError), (1000, 0, lmdbio.LmdbioError)):
            with self.subTest(status=status, number=number):
                error = _errors.error_of(status, "what, where, why", number)
                self.assertIsInstance(error, lmdbio.LmdbioError)
                self.assertIsInstance(error, kind)
                if kind is OSError:
                    self.assertNotIsInstance(error, MemoryError)
                # Another process gets the same, as from a worker of PyTorch's.
                for same in error, pickle.loads(pickle.dumps(error)):
                    self.assertIs(type(same), type(error))
                    self.assertEqual(str(same), "what, where, why")
                    self.assertEqual((same.code, same.errno), (status, number or None))

    def test_wrong_calls(self):
        loader, dataset = lmdbio.Loader(self.even), lmdbio.Dataset(self.even)
        batch = loader.next()
        loader.next()
        sync = lmdbio.sync.Synchronizer()
        for call, kind in (
                (batch.keys, RuntimeError),
                (lambda: loader.next().array(out=np.zeros(3)), ValueError),
                (lambda: loader.set_epoch("x"), TypeError),
                (lambda: lmdbio.Loader(self.even, engine=3), TypeError),
                (lambda: lmdbio.Loader(self.even, seed=-1), ValueError),
                (lambda: dataset[10**6], IndexError),
                (lambda: lmdbio.sync.Synchronizer(gs_cycles="x"), TypeError),
                (lambda: sync.allreduce("a", np.zeros(6)[::2]), ValueError),
                (lambda: pickle.dumps(sync), TypeError),
                (lambda: sync.place(1), MemoryError),
                (lambda: _capi._load("LMDBIO_NO_SUCH_VARIABLE", "lmdbio_none"), ImportError)):
            with self.subTest(kind=kind):
                self.assertIsInstance(self.raised_by(call), kind)
        for closing in loader, dataset, sync:
            closing.close()
        for call in loader.next, lambda: dataset[0], lambda: sync.allreduce("a", np.zeros(3)):
            self.assertIsInstance(self.raised_by(call), ValueError)


if __name__ == "__main__":
    run_unless(None)
