"""JAX, one process per node with all its GPUs: the same training on any number of GPUs."""

import argparse
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--checkpoint", type=Path, default=Path("jax.npz"))
options = parser.parse_args()

GLOBAL_BATCH = 256  # a multiple of every GPU count in the comment
save_requested = False


def request_save(*_: object) -> None:
    global save_requested  # noqa: PLW0603 - a signal handler should only set a flag
    save_requested = True


nodes = int(os.environ.get("SLURM_NNODES", "1"))
if nodes > 1:
    head, port = os.environ["SLURM_LAUNCH_NODE_IPADDR"], int(os.environ["SLURM_JOB_ID"]) % 10000
    jax.distributed.initialize(f"{head}:{20000 + port}", nodes, int(os.environ["SLURM_PROCID"]))
signal.signal(signal.SIGUSR1, request_save)

mesh = jax.make_mesh((len(jax.devices()),), ("data",))
sharding, replication = (
    NamedSharding(mesh, PartitionSpec("data")),
    NamedSharding(mesh, PartitionSpec()),
)
random = np.random.default_rng(1)
inputs, labels = random.normal(size=(4096, 64)).astype("f"), random.integers(10, size=4096)
weights = {
    "w1": random.normal(size=(64, 512)).astype("f") / 8,
    "w2": random.normal(size=(512, 10)).astype("f") / 22,
}
step = 0
if options.checkpoint.exists():
    with np.load(options.checkpoint) as saved:
        weights = {name: saved[name] for name in weights}
        step = int(saved["step"])
weights = jax.device_put(weights, replication)


@jax.jit
def train(weights: dict[str, Any], x: jax.Array, y: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    def loss_of(weights: dict[str, Any]) -> jax.Array:
        scores = jax.nn.log_softmax(jax.nn.relu(x @ weights["w1"]) @ weights["w2"])
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradients), loss


def save() -> None:
    """Write atomically: the job may be killed meanwhile."""
    if jax.process_index() == 0:
        partial = options.checkpoint.with_name(f"partial-{options.checkpoint.name}")
        np.savez(partial, step=step, **weights)
        partial.replace(options.checkpoint)
    multihost_utils.sync_global_devices("saved")


while step < options.steps:
    # Seeded by the step and split among the nodes: the same samples on any number of GPUs.
    rows = np.random.default_rng(step).integers(len(inputs), size=GLOBAL_BATCH)
    mine = np.array_split(rows, nodes)[jax.process_index()]
    x, y = (jax.make_array_from_process_local_data(sharding, a[mine]) for a in (inputs, labels))
    weights, loss = train(weights, x, y)
    step += 1
    if step % 20 == 0:
        if jax.process_index() == 0:
            print(f"step {step} on {jax.device_count()} GPUs: loss {loss:.4f}", flush=True)
        if multihost_utils.process_allgather(np.array(save_requested)).any():
            save()
            if jax.process_index() == 0:
                subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
            signal.pause()  # until Slurm ends this run
    if step % 500 == 0:
        save()
save()
