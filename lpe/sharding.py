"""One mesh over every device; logical axes are mapped to it by rules. The same code runs on 1 device and on many."""

import math

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lpe.params import Spec, nest


def mesh(shape: dict[str, int]) -> Mesh:
    """A mesh with the named axes; at most one size may be -1: all devices that remain.

    Raises:
      ValueError: the sizes do not multiply to the number of devices.
    """
    sizes, devices = dict(shape), len(jax.devices())
    free = [a for a, s in sizes.items() if s == -1]
    fixed = int(np.prod([s for s in sizes.values() if s != -1]))
    if len(free) == 1:
        sizes[free[0]] = devices // fixed
    if len(free) > 1 or int(np.prod(list(sizes.values()))) != devices:
        raise ValueError(f"mesh {shape} does not fit {devices} devices: the sizes must multiply to {devices}, one may be -1")
    return Mesh(np.asarray(jax.devices()).reshape(tuple(sizes.values())), tuple(sizes))


def rows(mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes that divide the rows of a batch: under fsdp each device has its own rows as well as its parameters."""
    return tuple(a for a in ("data", "fsdp") if a in mesh.shape)


def batch(mesh: Mesh) -> NamedSharding:
    """Rows of a batch over the data axes."""
    return NamedSharding(mesh, PartitionSpec(rows(mesh)))


def parts(mesh: Mesh) -> int:
    """The number that the rows of a batch must be a multiple of."""
    return math.prod(mesh.shape[a] for a in rows(mesh))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def params(mesh: Mesh, specs: dict[str, Spec], rules: dict[str, str]) -> dict:
    """A sharding for each parameter: rules map a logical axis to a mesh axis; the rest is replicated.

    Raises:
      ValueError: a rule names no mesh axis or no logical one, or a parameter does not divide.
    """
    known = {a for s in specs.values() for a in s.axes if a}
    for axis, to in rules.items():
        if to not in mesh.shape or axis not in known:
            raise ValueError(
                f"sharding_rules: {axis!r} → {to!r}, allowed are {', '.join(sorted(known))} → {', '.join(mesh.shape)} (mesh)"
            )
    out = {}
    for path, spec in specs.items():
        to = [rules.get(a or "") for a in spec.axes]
        for size, axis in zip(spec.shape, to, strict=True):
            if axis and size % mesh.shape[axis]:
                raise ValueError(
                    f"{path} {spec.shape} {spec.axes} does not divide over {axis!r} of mesh {dict(mesh.shape)}; "
                    "change the mesh or leave that axis out of sharding_rules"
                )
        out[path] = NamedSharding(mesh, PartitionSpec(*to))
    return nest(out)


def put(tree, sharding: NamedSharding) -> dict[str, Array]:
    """A whole batch, the same on every host, as arrays of the mesh: each process places the rows of its devices.

    Raises:
      ValueError: the rows do not divide over the devices.
    """
    for name, x in tree.items():
        try:
            sharding.shard_shape(x.shape)
        except ValueError as e:
            raise ValueError(
                f"{name} has {len(x)} rows, which do not divide over the data axes of mesh {dict(sharding.mesh.shape)}; change "
                "train.batch_size or the mesh"
            ) from e
    return {k: jax.make_array_from_callback(x.shape, sharding, lambda at, x=x: x[at]) for k, x in tree.items()}


def whole(tree):
    """Arrays of the mesh as host arrays, on every process. All processes must ask."""
    return multihost_utils.process_allgather(tree, tiled=True)


def leads() -> bool:
    """True in the one process that writes what all share."""
    return jax.process_index() == 0


def wait(name: str) -> None:
    """Until all processes are here."""
    multihost_utils.sync_global_devices(name)


def agreed(*wishes: bool, now: bool) -> tuple[bool, ...]:
    """Each wish once any process has it, so that all act in the same step. Of several processes it waits for the steps so far.

    Args:
      wishes: of this process.
      now: whether to ask the others in this step, the same on all; else no wish is granted. One process needs no question.
    """
    if jax.process_count() == 1:
        return wishes
    return tuple(multihost_utils.process_allgather(np.asarray(wishes)).any(axis=0).tolist()) if now else (False,) * len(wishes)
