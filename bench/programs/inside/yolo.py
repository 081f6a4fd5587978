"""Ultralytics' YOLO, trained on pictures of one colour."""

from pathlib import Path

import hand_clock
from PIL import Image
from ultralytics import YOLO

for part in ("train", "val"):
    for kind in ("images", "labels"):
        Path("made", kind, part).mkdir(parents=True, exist_ok=True)
    for number in range(64 if part == "train" else 4):
        Image.new("RGB", (64, 64), (number, 99, 99)).save(f"made/images/{part}/{number}.png")
        Path(f"made/labels/{part}/{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
Path("made.yaml").write_text(
    f"path: {Path('made').resolve()}\ntrain: images/train\nval: images/val\nnames: {{0: thing}}\n"
)
model = YOLO("yolov8n.yaml")


def on_batch_end(trainer):
    hand_clock.step(trainer.batch_size)


model.add_callback("on_train_batch_end", on_batch_end)
model.add_callback("on_val_start", lambda *_: hand_clock.pause())
model.train(
    data="made.yaml",
    epochs=5,
    imgsz=64,
    batch=8,
    device="cpu",
    workers=0,
    plots=False,
    verbose=False,
    nbs=8,
    amp=False,
    save=False,
)
