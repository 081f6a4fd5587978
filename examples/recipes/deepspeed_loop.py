"""DeepSpeed, ZeRO 1: the same training on any number of GPUs.

Its checkpoints fit the number of ranks that saved them. For another number, DeepSpeed's own program
converts them to a universal checkpoint.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--checkpoint", type=Path, default=Path("deepspeed-run"))
options = parser.parse_args()

GLOBAL_BATCH = 256  # a multiple of every GPU count in the comment
save_requested = False


def request_save(*_: object) -> None:
    global save_requested  # noqa: PLW0603 - a signal handler should only set a flag
    save_requested = True


signal.signal(signal.SIGUSR1, request_save)
deepspeed.init_distributed()
rank, ranks = dist.get_rank(), dist.get_world_size()


def saved_checkpoint() -> tuple[str | None, bool]:
    """Name of the last checkpoint, and whether it is universal; converted by the first rank."""
    last = options.checkpoint / "last.json"
    if not last.exists():
        return None, False
    record = json.loads(last.read_text())
    name = record["name"]
    if record["ranks"] == ranks:
        return name, False
    universal = options.checkpoint / f"{name}-universal"
    if not universal.exists():
        command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal"]
        folders = [f"--input_folder={options.checkpoint / name}", f"--output_folder={universal}"]
        subprocess.run([*command, *folders, "--inject_missing_state"], check=True)
    return universal.name, True


answer = [saved_checkpoint() if rank == 0 else None]
dist.broadcast_object_list(answer)
name, universal = answer[0]

torch.manual_seed(1)
inputs, labels = torch.randn(4096, 64), torch.randint(10, (4096,))
body = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
engine, *_ = deepspeed.initialize(
    model=body,
    model_parameters=body.parameters(),
    config={
        "train_batch_size": GLOBAL_BATCH,
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // ranks,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "checkpoint": {"load_universal": universal},
    },
)
step = 0
if name is not None:
    _, state = engine.load_checkpoint(options.checkpoint, tag=name)
    step = state["step"]


def save() -> None:
    """Save on all ranks; ``last.json`` names the last complete checkpoint."""
    name = f"step-{step}"
    engine.save_checkpoint(options.checkpoint, tag=name, client_state={"step": step})
    if rank == 0:
        partial = options.checkpoint / "last.partial"
        partial.write_text(json.dumps({"name": name, "ranks": ranks}))
        partial.replace(options.checkpoint / "last.json")


while step < options.steps:
    # Seeded by the step and split among the ranks: the same samples on any number of GPUs.
    draw = torch.Generator().manual_seed(step)
    mine = torch.randint(len(inputs), (GLOBAL_BATCH,), generator=draw)[rank::ranks]
    scores = engine(inputs[mine].to(engine.device, torch.bfloat16))
    loss = cross_entropy(scores.float(), labels[mine].to(engine.device))
    engine.backward(loss)
    engine.step()
    step += 1
    if step % 20 == 0:
        if rank == 0:
            print(f"step {step} on {ranks} GPUs: loss {loss.item():.4f}", flush=True)
        stop = torch.tensor(int(save_requested), device=engine.device)
        dist.all_reduce(stop)
        if stop.item():
            save()
            if rank == 0:
                subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
            signal.pause()  # until Slurm ends this run
    if step % 500 == 0:
        save()
save()
