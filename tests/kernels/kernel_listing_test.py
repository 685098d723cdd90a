"""The machine code of the kernels: registers, spills, and accesses of 16 bytes.

    kernel_listing_test.py --source ROOT --image FATBIN --machines TEXT --program PROGRAM
                           --cuobjdump PROGRAM --nvcc NVCC OPTION...

It compiles the kernels to PTX, and that for each machine, and reads the words of ptxas. NVCC is
NONE in a build without kernels: then the test is skipped. With cuobjdump it also reads the fat
binary of the build. PROGRAM has that binary in it.
"""

import argparse
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
REDUCTIONS = ("sum", "min", "max", "product")
KERNELS = {f"lmdbio_reduce_{op}_{one}" for op in REDUCTIONS for one in TYPES}
KERNELS |= {f"lmdbio_pack_{one}" for one in TYPES} | {"lmdbio_pack_bytes", "lmdbio_gather"}
REGISTERS_MAX = 64  # with 512 threads, two blocks fit on a multiprocessor then

options = None


def run(words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words[0]} fails:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class KernelListing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        source = pathlib.Path(options.source)
        with tempfile.TemporaryDirectory() as folder:
            ptx = pathlib.Path(folder) / "kernels.ptx"
            run([*options.nvcc, f"-I{source}", "-arch=compute_80", "-ptx", "-o", ptx,
                 source / "lmdbio/kernels/device_kernels.cu"])
            cls.ptx = ptx.read_text(encoding="utf-8")
            cls.usage = {
                machine: run([options.nvcc[0], f"-arch={machine}", "-cubin", "-Xptxas", "-v", "-o",
                              pathlib.Path(folder) / "kernels.cubin", ptx])
                for machine in options.machines.split(", ") if machine.startswith("sm_")}

    def bodies(self):
        """The instructions of each kernel."""
        parts = re.split(r"\.visible \.entry (\w+)\(", self.ptx)
        return dict(zip(parts[1::2], parts[2::2]))

    def test_every_kernel_is_there(self):
        self.assertEqual(set(self.bodies()), KERNELS)

    def test_words_are_read_and_written_at_once(self):
        word = r"\.global\.(v2\.[ubf]64|v4\.[ubf]32)\b"
        for name, body in self.bodies().items():
            with self.subTest(name):
                self.assertTrue(re.search("ld" + word, body), "no word is read")
                self.assertTrue(re.search("st" + word, body), "no word is written")

    def test_all_memory_is_known_to_be_global(self):
        for name, body in self.bodies().items():
            with self.subTest(name):
                generic = re.findall(r"\b(?:ld|st)\.(?:v[24]\.)?[usbf]\d+", body)
                self.assertEqual(generic, [])

    def test_parameters_are_not_copied(self):
        for name, body in self.bodies().items():
            with self.subTest(name):
                self.assertEqual(re.findall(r".*\.local\b.*", body), [])

    def test_arithmetic_is_rounded_as_on_the_host(self):
        for name, body in self.bodies().items():
            with self.subTest(name):
                self.assertEqual(re.findall(r"\bfma\..*|.*\.ftz\b.*|.*\.approx\b.*", body), [])

    def test_halves_are_converted_by_instructions(self):
        for name, body in self.bodies().items():
            for one, word in (("_float16", "f16"), ("_bfloat16", "bf16")):
                if not name.endswith(one):
                    continue
                with self.subTest(name):
                    self.assertIn(f"cvt.rn.{word}.f32", body)
                    if word == "f16":
                        self.assertIn("cvt.f32.f16", body)

    def test_words_of_four_sources_are_on_their_way(self):
        """A thread that used a word before it loads the next would wait for each of them."""
        for name in ("lmdbio_reduce_sum_float32", "lmdbio_reduce_sum_float16"):
            with self.subTest(name):
                steps = re.findall(r"\bld\.global\.v[24]|\badd(?:\.rn)?\.f32", self.bodies()[name])
                loads = [len(list(run)) for step, run in itertools.groupby(steps)
                         if step.startswith("ld")]
                self.assertGreaterEqual(max(loads), 4)

    def test_nothing_is_spilled(self):
        for machine, usage in self.usage.items():
            found = re.findall(r"Function properties for (\w+)\s+(\d+) bytes stack frame, "
                               r"(\d+) bytes spill stores, (\d+) bytes spill loads", usage)
            self.assertEqual({name for name, *_ in found}, KERNELS)
            for name, *sizes in found:
                with self.subTest(f"{name} on {machine}"):
                    self.assertEqual(sizes, ["0", "0", "0"])

    def test_blocks_fit_on_a_multiprocessor(self):
        for machine, usage in self.usage.items():
            with self.subTest(machine):
                numbers = [int(number) for number in re.findall(r"Used (\d+) registers", usage)]
                self.assertEqual(len(numbers), len(KERNELS))
                self.assertLessEqual(max(numbers), REGISTERS_MAX)

    def test_fat_binary_is_in_the_program(self):
        image = pathlib.Path(options.image).read_bytes()
        self.assertGreater(len(image), 0)
        self.assertTrue(image in pathlib.Path(options.program).read_bytes(),
                        f"{options.program} has another one")

    def test_program_needs_no_library_of_the_vendor(self):
        listing = run(["readelf", "--dynamic", options.program])
        needed = re.findall(r"Shared library: \[([^\]]+)\]", listing)
        self.assertNotEqual(needed, [])
        self.assertEqual([name for name in needed if re.match(r"lib(cu|nv)", name)], [])

    def test_fat_binary_has_every_machine(self):
        if not options.cuobjdump or options.cuobjdump.endswith("NOTFOUND"):
            self.skipTest("no cuobjdump")
        machines = set(options.machines.split(", "))
        elf = run([options.cuobjdump, "-lelf", options.image])
        ptx = run([options.cuobjdump, "-lptx", options.image])
        found = set(re.findall(r"\.(sm_\d+)\.cubin", elf))
        found |= {f"compute_{number}" for number in re.findall(r"\.(?:sm|compute)_(\d+)\.ptx", ptx)}
        self.assertEqual(found, machines)


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--machines", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cuobjdump", required=True)
    parser.add_argument("--nvcc", nargs=argparse.REMAINDER, required=True)
    options = parser.parse_args()
    if options.nvcc == ["NONE"]:
        print("skipped: this build has no kernels for GPUs (LMDBIO_CUDA)")
        return SKIPPED
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
