"""Which ranks share the batches of a stream, as torch.distributed tells it.

Without a word of the user they are all ranks of the job. That is wrong where several ranks work on
the same batch, as with tensor parallelism, so it is refused as far as PyTorch shows it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.distributed

from lmdbio import _capi
from lmdbio._errors import InvalidArgumentError, InvalidStateError, InvalidTypeError


class Share(NamedTuple):
    """The share of a rank: part `rank` of `count` equal parts of each global batch."""

    count: int
    rank: int


def is_known() -> bool:
    """Returns whether torch.distributed knows the ranks of the job."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def of_arguments(mesh: Any, process_group: Any,
                 data_parallel: Optional[Tuple[int, int]]) -> Optional[Share]:
    """Returns the share that one of the arguments of DataLoader names; None without any.

    Errors: InvalidArgumentError, InvalidTypeError
    """
    given = [name for name, value in (("mesh", mesh), ("process_group", process_group),
                                      ("data_parallel", data_parallel)) if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} exclude each other; give only one of "
                                   "them")
    if mesh is not None:
        return _of_mesh(mesh)
    if process_group is not None:
        return _of_group(process_group)
    return _of_pair(data_parallel) if data_parallel is not None else None


def _of_mesh(mesh: Any) -> Share:
    if mesh.ndim != 1:
        names = ", ".join(map(str, mesh.mesh_dim_names or range(mesh.ndim)))
        raise InvalidArgumentError(
            f"mesh has {mesh.ndim} dimensions ({names}); pass the one along which the ranks get "
            "different records, for example mesh['dp'], or data_parallel=(rank, size)")
    if mesh.get_coordinate() is None:
        raise InvalidArgumentError("this rank is not in the mesh")
    return Share(mesh.size(), mesh.get_local_rank())


def _of_group(process_group: Any) -> Share:
    rank = torch.distributed.get_rank(process_group)
    if rank < 0:
        raise InvalidArgumentError("this rank is not in the process_group")
    return Share(torch.distributed.get_world_size(process_group), rank)


def _of_pair(pair: Any) -> Share:
    try:
        rank, size = pair
    except (TypeError, ValueError):
        raise InvalidTypeError(f"data_parallel is {pair!r}; expected (rank, size)") from None
    rank = _capi.number("the rank in data_parallel", rank, _capi.ctypes.c_uint32)
    size = _capi.number("the size in data_parallel", size, _capi.ctypes.c_uint32)
    if rank >= size:
        raise InvalidArgumentError(f"data_parallel is ({rank}, {size}); expected (rank, size) with "
                                   "rank below size")
    return Share(size, rank)


def of_job() -> Share:
    """Returns the share of this rank among all ranks of torch.distributed; without, all.

    Errors: InvalidStateError if the ranks cannot be told, or do not all get different records
    """
    if is_known():
        names = _dimensions_of_meshes()
        if names:
            raise InvalidStateError(
                f"the ranks form a DeviceMesh of several dimensions ({', '.join(names)}), and "
                "lmdbio cannot know along which of them the records differ: use "
                "lmdbio.torch.DataLoader with mesh=mesh['dp'], process_group= or "
                "data_parallel=(rank, size)")
        return Share(torch.distributed.get_world_size(), torch.distributed.get_rank())
    size = os.environ.get("WORLD_SIZE", "")
    if size.isdigit() and int(size) > 1:
        raise InvalidStateError(
            f"the job has {size} ranks (WORLD_SIZE), but torch.distributed is not initialized, so "
            "each rank would get all records: call torch.distributed.init_process_group first, or "
            "name the share with num_shards and shard_id, or with data_parallel=(rank, size)")
    return Share(1, 0)


def _dimensions_of_meshes() -> Tuple[str, ...]:
    """Returns the dimensions of meshes in which this rank is not with all ranks of the job.

    PyTorch keeps no list of meshes. But a mesh makes a process group for each dimension, whose
    description is "mesh_" and the name of the dimension, and `with mesh:` keeps the mesh itself.
    """
    world = torch.distributed.get_world_size()
    known = getattr(torch.distributed.distributed_c10d, "_world", None)
    found = {}
    for group in list(getattr(known, "pg_map", None) or ()):
        description = str(getattr(group, "group_desc", ""))
        if description.startswith("mesh_") and group.size() < world:
            found[description[len("mesh_"):]] = None
    module = sys.modules.get("torch.distributed.device_mesh")
    for mesh in getattr(getattr(module, "_mesh_resources", None), "mesh_stack", ()):
        if mesh.ndim > 1:
            found.update(dict.fromkeys(map(str, mesh.mesh_dim_names or range(mesh.ndim))))
    return tuple(found)


# Classes that give each rank a part of the records of an IterableDataset, and their packages.
_SHARDERS = ("DataLoaderDispatcher", "IterableDatasetShard")
_PACKAGES = ("accelerate", "transformers")


def check_sharded_once(share: Share) -> None:
    """Raises InvalidStateError if a caller of this function shards records that are a share of them
    already. The frames of the caller are also those of a worker process that was forked."""
    if share.count == 1:
        return
    frame: Any = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] in _PACKAGES:
            name = type(frame.f_locals.get("self")).__name__
            if name in _SHARDERS:
                raise InvalidStateError(
                    f"Accelerate ({name}) would shard these batches again, and records would be "
                    f"lost: rank {share.rank} of {share.count} gets its own share of the records "
                    "already (huggingface/accelerate#3547). Do not pass this DataLoader to "
                    "prepare(), or use lmdbio.torch.DataLoader, which prepare() leaves alone")
        frame = frame.f_back
