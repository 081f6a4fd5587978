"""Data-parallel training that can stop at any iteration and resume with another GPU count.

torchrun starts it; see train.sh. Samples are counted over the whole job: a resumed run continues
the stream of samples at the last checkpoint, whatever the number of GPUs.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkpoint import Checkpoints
from models import EXAMPLES, FEATURES, Example
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler


class StreamSampler(Sampler[list[int]]):
    """This rank's share of each global batch, from sample ``samples_done`` to ``total``.

    Sample number ``i`` of the job is the same row of the data for any number of ranks: each
    epoch is one permutation, seeded by its number. The last batch may be short, or empty.
    """

    def __init__(
        self, rows: int, samples_done: int, total: int, batch: int, rank: int, world: int
    ) -> None:
        self.rows, self.samples_done, self.total = rows, samples_done, total
        self.batch, self.rank, self.world = batch, rank, world

    def __iter__(self) -> Iterator[list[int]]:
        epoch, order = -1, torch.empty(0)
        for start in range(self.samples_done, self.total, self.batch * self.world):
            indices = []
            first = start + self.rank * self.batch
            for i in range(first, min(first + self.batch, self.total)):
                if i // self.rows != epoch:
                    epoch = i // self.rows
                    order = torch.randperm(
                        self.rows, generator=torch.Generator().manual_seed(epoch)
                    )
                indices.append(int(order[i % self.rows]))
            yield indices


def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Stack samples; an empty share gives empty tensors, which DDP must still see."""
    if not rows:
        return torch.empty(0, FEATURES), torch.empty(0, dtype=torch.int64)
    features, labels = zip(*rows, strict=True)
    return torch.stack(features), torch.stack(labels)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(EXAMPLES), default="mlp")
    parser.add_argument("--samples", type=int, default=20_000, help="total number to train on")
    parser.add_argument("--batch", type=int, default=int(os.environ.get("HOPS_BATCH") or 32))
    parser.add_argument("--lr", type=float, help="if HOPS_LR is not set")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of this job")
    parser.add_argument("--save-every", type=int, default=100, help="iterations")
    parser.add_argument("--agree-every", type=int, default=5, help="iterations between checks")
    parser.add_argument("--print-every", type=int, default=20, help="iterations")
    parser.add_argument(
        "--pace",
        type=float,
        default=0.0,
        help="minimum seconds of data and forward: a slower device",
    )
    return parser.parse_args()


def join() -> tuple[torch.device, int, int]:
    """Join the process group; return this rank's device, its rank and the number of ranks."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device, dist.get_rank(), dist.get_world_size()


def agree(loss: Tensor, stop: bool) -> tuple[float, bool]:
    """Return the loss averaged over all ranks, and whether any of them wants to stop."""
    values = torch.stack([loss.detach(), torch.full_like(loss, float(stop), requires_grad=False)])
    dist.all_reduce(values)
    total, votes = values.tolist()
    return total / dist.get_world_size(), votes > 0


class Run:
    """Model, optimizer and samples done, which a checkpoint contains."""

    def __init__(self, example: Example, lr: float, device: torch.device) -> None:
        torch.manual_seed(1)
        self.model = DistributedDataParallel(example.build().to(device))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.lr = lr
        self.samples_done = 0

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "samples": self.samples_done,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr  # scaled for the current number of GPUs
        self.samples_done = state["samples"]


def train(
    run: Run,
    loader: DataLoader[tuple[Tensor, ...]],
    args: argparse.Namespace,
    store: Checkpoints,
) -> list[float]:
    """Train to the last sample or until asked to stop; return the mean losses along the way."""
    rank, world = dist.get_rank(), dist.get_world_size()
    device = next(run.model.parameters()).device
    criterion = nn.CrossEntropyLoss(reduction="sum")
    losses: list[float] = []
    loss_sum, iterations = torch.zeros((), device=device), 0
    begin, begin_time, clock = run.samples_done, time.monotonic(), time.monotonic()
    for iteration, (features, labels) in enumerate(loader, start=1):
        count = min(args.batch * world, args.samples - run.samples_done)
        # DDP averages over ranks; the factor turns that into the mean over samples, even for short
        # shares.
        loss = criterion(run.model(features.to(device)), labels.to(device)) * world / count
        time.sleep(max(0.0, args.pace - (time.monotonic() - clock)))
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        clock = time.monotonic()
        run.samples_done += count
        loss_sum, iterations = loss_sum + loss.detach(), iterations + 1
        last = run.samples_done >= args.samples
        if last or iteration % args.agree_every == 0:
            mean, stop = agree(loss_sum / iterations, rank == 0 and store.stop_requested)
            if rank == 0 and (last or stop or iteration % args.print_every == 0):
                speed = (run.samples_done - begin) / (clock - begin_time)
                print(
                    f"samples {run.samples_done} loss {mean:.4f} lr {run.lr:g} gpus {world}"
                    f" {speed:.0f} samples/s",
                    flush=True,
                )
            losses.append(mean)
            loss_sum, iterations = torch.zeros_like(loss_sum), 0
            if stop:
                break
        if rank == 0 and iteration % args.save_every == 0:
            store.save(run.state())
    return losses


def main() -> None:
    args = arguments()
    example = EXAMPLES[args.model]
    device, rank, world = join()
    lr = float(os.environ.get("HOPS_LR") or args.lr or example.lr)
    run = Run(example, lr, device)
    store = Checkpoints(args.checkpoints, run=int(os.environ.get("SLURM_RESTART_COUNT") or 0))
    if state := store.load():
        run.restore(state)
    data, begin = example.dataset(), run.samples_done
    sampler = StreamSampler(len(data), begin, args.samples, args.batch, rank, world)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=collate)
    losses = train(run, loader, args, store)
    if rank == 0:
        store.save(run.state())
        store.record(
            gpus=world, lr=lr, begin=begin, end=run.samples_done, losses=losses[:1] + losses[-1:]
        )
        if run.samples_done >= args.samples:
            store.finish()
    dist.barrier()  # wait until the checkpoint is on disk
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
