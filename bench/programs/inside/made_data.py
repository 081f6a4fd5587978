"""Synthetic stand-ins for data that programs would download."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path
from typing import Any

IMAGES = 4000


def mnist(folder: str, images: int = IMAGES) -> None:
    """Write the four files that `torchvision.datasets.MNIST` looks for below ``folder``."""
    raw = Path(folder, "MNIST", "raw")
    raw.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for part in ("train", "t10k"):
        pixels = rng.randbytes(images * 784)
        labels = bytes(rng.randrange(10) for _ in range(images))
        for name, head, body in (
            (f"{part}-images-idx3-ubyte", struct.pack(">IIII", 2051, images, 28, 28), pixels),
            (f"{part}-labels-idx1-ubyte", struct.pack(">II", 2049, images), labels),
        ):
            (raw / name).write_bytes(head + body)
            with gzip.open(raw / f"{name}.gz", "wb", compresslevel=1) as file:
                file.write(head + body)


def cifar() -> None:
    """Replace `torchvision.datasets.CIFAR10` by synthetic images."""
    import torchvision

    def fake_cifar(root: str = "", train: bool = True, transform: Any = None, **_: Any) -> Any:
        return torchvision.datasets.FakeData(IMAGES, (3, 32, 32), 10, transform=transform)

    torchvision.datasets.CIFAR10 = fake_cifar


def words(folder: str, count: int = 20_000) -> None:
    """Write ``train.txt``, ``valid.txt`` and ``test.txt`` with made-up words."""
    rng = random.Random(0)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        lines = (" ".join(f"w{rng.randrange(500)}" for _ in range(20)) for _ in range(count // 20))
        Path(folder, f"{part}.txt").write_text("\n".join(lines) + "\n")


def masks(folder: str, images: int = 40) -> None:
    """Write folders ``imgs`` and ``masks`` with pictures of two colours."""
    from PIL import Image

    rng = random.Random(0)
    for kind in ("imgs", "masks"):
        Path(folder, kind).mkdir(parents=True, exist_ok=True)
    for number in range(images):
        Image.frombytes("RGB", (64, 64), rng.randbytes(64 * 64 * 3)).save(
            Path(folder, "imgs", f"{number}.png")
        )
        Image.frombytes("L", (64, 64), bytes(255 * rng.randrange(2) for _ in range(64 * 64))).save(
            Path(folder, "masks", f"{number}.png")
        )


def citations(folder: str, name: str, papers: int = 1600) -> None:
    """Write ``name.content`` (papers with words and a class) and ``name.cites`` (citations)."""
    rng = random.Random(0)
    Path(folder).mkdir(parents=True, exist_ok=True)
    lines = (
        " ".join([str(n), *(str(rng.randrange(2)) for _ in range(50)), f"class{n % 7}"])
        for n in range(papers)
    )
    Path(folder, f"{name}.content").write_text("\n".join(lines) + "\n")
    cites = (f"{rng.randrange(papers)} {rng.randrange(papers)}" for _ in range(3 * papers))
    Path(folder, f"{name}.cites").write_text("\n".join(cites) + "\n")


def bytes_of_text(path: str, count: int = 100_000) -> None:
    """Write a compressed file of letters."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(random.Random(0).randbytes(count))


def voc(images: int = 200) -> None:
    """Replace `torchvision.datasets.VOCDetection` by synthetic images."""
    import torchvision

    def fake_voc(root: str = "", transform: Any = None, **_: Any) -> Any:
        return torchvision.datasets.FakeData(images, (3, 96, 96), 10, transform=transform)

    torchvision.datasets.VOCDetection = fake_voc


def tokens(path: str, count: int = 100_000) -> None:
    """Write a file of tokens for llm.c: a header of 256 numbers, then 16 bits per token."""
    rng = random.Random(0)
    header = struct.pack("<256i", 20240520, 1, count, *([0] * 253))
    Path(path).write_bytes(
        header + b"".join(struct.pack("<H", rng.randrange(50_000)) for _ in range(count))
    )


def small_resnet() -> None:
    """Replace `torchvision.models.resnet18` by one layer with the same output, for busy CPUs."""
    import torch
    import torchvision

    def small_model(**_: Any) -> Any:
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 512, 8, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Linear(512, 10)
        )

    torchvision.models.resnet18 = small_model


def cifar_files(folder: str, images: int = 400) -> None:
    """Write CIFAR-10's files below ``folder``, for programs that subclass torchvision's class."""
    import pickle

    import torchvision

    rng = random.Random(0)
    place = Path(folder, "cifar-10-batches-py")
    place.mkdir(parents=True, exist_ok=True)
    import numpy as np

    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        count = images // 5
        entry = {
            "data": np.frombuffer(rng.randbytes(count * 3072), np.uint8).reshape(count, 3072),
            "labels": [n % 10 for n in range(count)],
        }
        (place / name).write_bytes(pickle.dumps(entry))
    (place / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(n) for n in range(10)]}))
    dataset = torchvision.datasets.CIFAR10
    dataset._check_integrity = lambda self: True  # its checksums are those of the real files
    dataset._load_meta = lambda self: setattr(self, "classes", [str(n) for n in range(10)])


def conversations(path: str, rows: int = 400) -> None:
    """Write lines of JSON for MiniMind: texts, conversations, and preference pairs."""
    import json

    rng = random.Random(0)
    Path(path).parent.mkdir(parents=True, exist_ok=True)

    def text() -> str:
        return " ".join(f"word{rng.randrange(300)}" for _ in range(rng.randrange(5, 20)))

    def talk() -> list[dict[str, str]]:
        empty = {"reasoning_content": "", "tools": "", "tool_calls": ""}
        return [{"role": role, "content": text(), **empty} for role in ("user", "assistant")]

    with Path(path).open("w") as file:
        for _ in range(rows):
            row = {"text": text(), "conversations": talk(), "chosen": talk(), "rejected": talk()}
            file.write(json.dumps(row) + "\n")


def graph(nodes: int = 600) -> None:
    """Replace `torch_geometric.datasets.Planetoid` by a random graph."""
    import torch_geometric

    def fake_planetoid(*_: Any, transform: Any = None, **__: Any) -> Any:
        return torch_geometric.datasets.FakeDataset(
            1, nodes, num_channels=50, num_classes=7, task="node", transform=transform
        )

    torch_geometric.datasets.Planetoid = fake_planetoid
