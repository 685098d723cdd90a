"""Spack's recipe for the libraries and programs. It builds the clone that it lies in."""

import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Lmdbio(CMakePackage):
    """Reads LMDB files at the speed of the storage, for one process or ten thousand."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()
    license("Apache-2.0", checked_by="lmdbio")
    version("main", branch="main")

    variant("mpi", default=True, description="liblmdbio_mpi: ranks share reads and memory")
    variant("hwloc", default=True, description="Placement by cores and NUMA nodes")
    variant("lmdb", default=True, description="Strategy lmdb, pinned snapshots, the writer")
    variant("tools", default=True, description="The programs lmdbio-stat, lmdbio-dump, ...")
    variant("make", default=False, description="lmdbio-make, which writes example databases")
    conflicts("+make", when="~tools")
    conflicts("+make", when="~lmdb")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.10:", type="build")  # writes the man pages
    depends_on("fmt@9:")
    depends_on("liburing@2.3:")
    depends_on("nlohmann-json")
    depends_on("tl-expected")
    depends_on("xxhash")
    depends_on("zstd")
    depends_on("hwloc@2.1:", when="+hwloc")
    depends_on("lmdb", when="+lmdb")
    depends_on("mpi", when="+mpi")
    depends_on("boost@1.74: +program_options", when="+tools")
    with when("+make"):
        depends_on("libjpeg-turbo")
        depends_on("libpng")
        depends_on("protobuf")
        depends_on("stb")
        depends_on("zlib-api")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define_from_variant("LMDBIO_WITH_MPI", "mpi"),
            self.define_from_variant("LMDBIO_WITH_HWLOC", "hwloc"),
            self.define_from_variant("LMDBIO_WITH_LMDB", "lmdb"),
            self.define_from_variant("LMDBIO_BUILD_TOOLS", "tools"),
            self.define_from_variant("LMDBIO_BUILD_MAKE", "make"),
            self.define("LMDBIO_CUDA", False),
            self.define("LMDBIO_BUILD_TESTS", False),
            self.define("LMDBIO_BUILD_BENCH", False),
            self.define("LMDBIO_BUILD_EXAMPLES", False),
        ]
