"""The same training on any number of GPUs: global batch, order of samples, end. In one file.

    sbatch --comment='hops:reqs=1,2,4' --signal=USR1@60 --wrap 'srun hops-run examples/elastic.py'

hops may stop it anywhere and start it on another number of GPUs: losses and weights stay those of
the unbroken run, up to rounding. With ``--record FOLDER``, each rank notes its samples and losses.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import hops_profiler
import torch
import torch.distributed as dist
from models import EXAMPLES
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, TensorDataset


class NumberedDataset(Dataset[tuple[int, torch.Tensor, torch.Tensor]]):
    """Samples with their indices, for the record."""

    def __init__(self, data: TensorDataset, length: int) -> None:
        self.data, self.length = data, min(length, len(data))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        features, label = self.data[index]
        return index, features, label


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", default="elastic.pt")
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between saves")
    parser.add_argument("--pace", type=float, default=0.0, help="minimum seconds of a micro-batch")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args(arguments)

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    device = device if torch.cuda.is_available() else torch.device("cpu")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    example = EXAMPLES["mlp"]
    model = example.build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=example.lr, momentum=0.9)

    loader = hops_profiler.ElasticLoader(
        NumberedDataset(example.dataset(), options.samples),
        global_batch=options.global_batch,
        micro_batch=options.micro_batch,
        epochs=options.epochs,
        seed=5,
    )
    checkpoint = hops_profiler.Checkpoint(
        options.checkpoint,
        lambda: {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "data": loader.state_dict(),
        },
        every=options.every,
    )
    state = checkpoint.load()
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["data"])

    for step in loader.steps():
        loss_sum, ids = 0.0, list[int]()
        for (numbers, features, labels), weight in step:
            time.sleep(options.pace)  # imitates a slower device
            loss = cross_entropy(model(features.to(device)), labels.to(device))
            (loss * weight).backward()
            loss_sum += loss.item() * len(numbers)
            ids += numbers.tolist()
        note(options.record, epoch=step.epoch, step=step.number, ids=ids, loss_sum=loss_sum)
        hops_profiler.average_gradients(model)
        optimizer.step()
        optimizer.zero_grad()
        checkpoint.step()
    checkpoint.save()


def note(folder: Path | None, **entry: object) -> None:
    if folder is not None:
        name = f"{os.environ.get('WORLD_SIZE', '1')}.{os.environ.get('RANK', '0')}.jsonl"
        with (folder / name).open("a") as file:
            file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
