"""Times two small trainings on one GPU, by which `hopsctl calibrate` compares GPU types.

    srun ... python3 -I -c "$(cat training.py)" SECONDS

Prints a JSON object: the device, and the samples per second of each network, a convolution in
float32 and an attention block in half precision, as in most trainings.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

WARM_UP, MIN_STEPS = 3, 5


def convolution(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor], int]:
    """Return a network, a function that makes a batch for it, and the batch's samples."""
    batch, side = (64, 64) if device.type == "cuda" else (4, 16)
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 100),
    )
    return network.to(device), lambda: torch.randn(batch, 3, side, side, device=device), batch


def attention(device: torch.device) -> tuple[nn.Module, Callable[[], torch.Tensor], int]:
    """Return the same as :func:`convolution` for an attention block."""
    batch, tokens, width = (16, 256, 512) if device.type == "cuda" else (2, 16, 64)
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    network = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    return network, lambda: torch.randn(batch, tokens, width, device=device), batch


def samples_per_second(
    training: tuple[nn.Module, Callable[[], torch.Tensor], int],
    device: torch.device,
    seconds: float,
    *,
    half: bool,
) -> float:
    """Train for about ``seconds`` after a warm-up, and return the speed."""
    network, inputs, samples = training
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    data = inputs()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16, enabled=half and device.type == "cuda"):
            loss = network(data).float().square().mean()
        loss.backward()
        optimizer.step()

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(WARM_UP):
        step()
    wait()
    begin, steps = time.perf_counter(), 0
    while steps < MIN_STEPS or time.perf_counter() - begin < seconds:
        step()
        wait()
        steps += 1
    return steps * samples / (time.perf_counter() - begin)


def main() -> None:
    seconds = float(sys.argv[1])
    device = torch.device("cuda" if torch.cuda.device_count() else "cpu")
    torch.set_num_threads(1)
    speeds = [
        ["convolution", samples_per_second(convolution(device), device, seconds, half=False)],
        ["attention", samples_per_second(attention(device), device, seconds, half=True)],
    ]
    sys.stdout.write(json.dumps({"device": device.type, "measured": speeds}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
