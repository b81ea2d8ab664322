"""One mesh over every device; logical axes are mapped to it by rules. The same code runs on 1 device and on many."""

import jax
import numpy as np
from jax import Array
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


def batch(mesh: Mesh) -> NamedSharding:
    """Rows of a batch over the data axis."""
    return NamedSharding(mesh, PartitionSpec("data"))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def params(mesh: Mesh, specs: dict[str, Spec], rules: dict[str, str]) -> dict:
    """A sharding for each parameter: rules map a logical axis to a mesh axis; the rest is replicated."""
    return nest({path: NamedSharding(mesh, PartitionSpec(*(rules.get(a or "") for a in s.axes))) for path, s in specs.items()})


def put(tree, sharding: NamedSharding) -> dict[str, Array]:
    """Host arrays of this process as arrays of the whole mesh."""
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), tree)
