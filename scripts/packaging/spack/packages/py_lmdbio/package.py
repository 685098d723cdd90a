# check-tree: same-name (Spack gives recipes this name)
"""Spack's recipe for the Python package. The libraries are those of the package lmdbio."""

import pathlib

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyLmdbio(PythonPackage):
    """Training batches of LMDB files at the speed of the storage, shuffled, resumable."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()
    license("Apache-2.0", checked_by="lmdbio")
    version("main", branch="main")

    variant("mpi", default=True, description="Communicators of mpi4py")
    variant("torch", default=False, description="lmdbio.torch")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-scikit-build-core@0.11:", type="build")
    depends_on("py-numpy", type=("build", "run"))
    depends_on("py-mpi4py", type=("build", "run"), when="+mpi")
    depends_on("py-torch", type=("build", "run"), when="+torch")
    depends_on("lmdbio+mpi", when="+mpi")
    depends_on("lmdbio~mpi", when="~mpi")

    def config_settings(self, spec, prefix):
        return {"wheel.cmake": "false"}

    def setup_run_environment(self, env):
        lib = self.spec["lmdbio"].prefix.lib
        env.set("LMDBIO_LIBRARY", join_path(lib, "liblmdbio.so.0"))
        if self.spec.satisfies("+mpi"):
            env.set("LMDBIO_MPI_LIBRARY", join_path(lib, "liblmdbio_mpi.so.0"))
