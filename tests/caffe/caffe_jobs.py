"""Runs Caffe for the tests of examples/caffe and parses its log.

A test is called as TEST CAFFE LAYER LAUNCHER MAKE MPIEXEC... The last word of MPIEXEC is the flag
before the number of ranks.
"""

import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

CAFFE, LAYER, LAUNCHER, MAKE, *MPIEXEC = sys.argv[1:] if len(sys.argv) > 5 else ("",) * 5
SECONDS_MAX = 120  # for one job; all take much less

NET = """
layer {{
  name: "data" type: "{type}" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ {transform} }}
  data_param {{ source: "{source}" batch_size: {batch} backend: {backend} prefetch: {prefetch} }}
}}
layer {{
  name: "data" type: "{type}" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ {transform} }}
  data_param {{ source: "{source}" batch_size: {test_batch} backend: {backend} }}
}}
layer {{
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 16 kernel_size: 3 weight_filler {{ type: "xavier" }} }}
}}
layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{
  name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param {{ pool: MAX {pooling} }}
}}
layer {{
  name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }}
}}
layer {{
  name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy"
  include {{ phase: TEST }}
}}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""
SOLVER = """
net: "net.prototxt"
base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed"
test_iter: 5 test_interval: 50 display: 1 max_iter: {iterations}
snapshot_prefix: "{directory}/snap" solver_mode: CPU random_seed: 1701
"""
NET_DEFAULTS = {"type": "Data", "transform": "scale: 0.0625", "batch": 64, "test_batch": 100,
                "backend": "LMDB", "prefetch": 4, "pooling": "kernel_size: 2 stride: 2"}


def environment(**more):
    """An environment with one thread, because sums of several threads differ between runs."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LMDBIO_")}
    return plain | {"GLOG_logtostderr": "1", "OPENBLAS_NUM_THREADS": "1"} | more


def caffe(*arguments):
    """The stock binary."""
    return [CAFFE, "train", "--solver=solver.prototxt", *arguments], {}


def caffe_with_layer(*arguments, take_over="1", **more):
    """The stock binary with the layer of lmdbio."""
    command, _ = caffe(*arguments)
    return command, {"LD_PRELOAD": LAYER, "LMDBIO_CAFFE_DATA": take_over} | more


def launcher(rank_count, *arguments):
    """The launcher of examples/caffe; a single rank runs without mpirun."""
    ranks = [*MPIEXEC, str(rank_count)] if rank_count > 1 else []
    return ([*ranks, LAUNCHER, "solver.prototxt", *arguments], {"LMDBIO_CAFFE_DATA": "1"})


class Job:
    """A completed training job in its own directory."""

    def __init__(self, directory, how, iterations=200, until=None, **net):
        write_job(directory, iterations, **net)
        command, more = how
        self.directory = directory
        with subprocess.Popen(command, cwd=directory, env=environment(**more), text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                head = until(process) if until else ""
                rest = process.communicate(timeout=SECONDS_MAX)[1]
            except BaseException:
                end(process)
                raise
        self.log = head + rest
        self.exit_code = process.returncode

    def numbers(self):
        """Every loss and accuracy in the log, without the prefix of the line."""
        lines = [re.sub(r"\(\S+ iter/s, \S+/\d+ iters\), ", "", line.split("] ", 1)[-1]).strip()
                 for line in self.log.splitlines() if re.search(r"(loss|accuracy) = ", line)]
        return lines

    def test_numbers(self):
        """The losses and accuracies of the TEST phase as numbers."""
        return [float(number) for number in
                re.findall(r"Test net output #\d+: \w+ = ([^\s(]+)", self.log)]

    def fatal_lines(self):
        """The fatal lines of glog, without their prefix."""
        return [line.split("] ", 1)[-1] for line in self.log.splitlines()
                if re.match(r"F\d{4}", line)]

    def weights(self):
        """The bytes of the last snapshot."""
        return max(self.directory.glob("snap_iter_*.caffemodel"),
                   key=lambda path: int(re.findall(r"\d+", path.name)[0])).read_bytes()


def end(process):
    """Ends a hanging job with SIGTERM first, because a killed mpirun leaves its ranks."""
    process.terminate()
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()


def write_job(directory, iterations, **net):
    """The two prototxts of a job."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "net.prototxt").write_text(NET.format(**NET_DEFAULTS | net), encoding="utf-8")
    solver = SOLVER.format(iterations=iterations, directory=directory)
    (directory / "solver.prototxt").write_text(solver, encoding="utf-8")


def interrupt_at(iteration, find_process=None):
    """An `until` for Job: reads the log up to an iteration, then sends SIGINT."""
    def until(process):
        lines = []
        for line in process.stderr:
            lines.append(line)
            if f"Iteration {iteration} " in line:
                os.kill(find_process() if find_process else process.pid, signal.SIGINT)
                break
        return "".join(lines)
    return until


def make(*arguments):
    """Runs lmdbio-make."""
    subprocess.run([MAKE, *map(str, arguments)], check=True, capture_output=True)


def drop_from_cache(path):
    """Drops the cached pages of a file, so that the next reader reads from the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_png(path, width, height, seed):
    """An image of pseudo-random colours."""
    state, rows = seed, bytearray()
    for _ in range(height):
        rows.append(0)  # no filter
        for _ in range(3 * width):
            state = (state * 1103515245 + 12345) % 2**31
            rows.append(state >> 16 & 255)

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    pathlib.Path(path).write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b""))


def write_images(root, count, size_of):
    """`count` images in three folders, which are the labels; size_of(i) is (width, height)."""
    for i in range(count):
        folder = root / f"label{i % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        write_png(folder / f"{i:04}.png", *size_of(i), seed=i + 1)


def wait_for(path, seconds=30):
    """Waits for a file that another process writes, and returns its text."""
    for _ in range(int(seconds * 20)):
        if path.exists() and path.read_text(encoding="utf-8").endswith("\n"):
            return path.read_text(encoding="utf-8")
        time.sleep(0.05)
    raise TimeoutError(f"no {path}")


class JobTest(unittest.TestCase):
    """Jobs in one temporary directory with a database of digits."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lmdbio-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.digits = cls.folder / "digits"
        make("digits", cls.digits)

    def run_job(self, name, how, **net):
        return Job(self.folder / self.id() / name, how, **{"source": self.digits} | net)

    def train(self, name, how, **net):
        job = self.run_job(name, how, **net)
        self.assertEqual(job.exit_code, 0, job.log[-3000:])
        reads = job.log.count("lmdbio reads ")
        self.assertEqual(reads, 0 if name == "stock" else 2, "TRAIN and TEST, once each")
        return job
