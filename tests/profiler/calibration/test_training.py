"""The trainings by which `hopsctl calibrate` compares GPU types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "profiler" / "calibration" / "training.py"


@pytest.mark.long
@pytest.mark.live
def test_the_training_program_prints_the_speed_of_each_network() -> None:
    result = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM.read_text(), "0.1"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(result.stdout)
    assert document["device"] == "cpu"
    assert [network for network, _ in document["measured"]] == ["convolution", "attention"]
    assert all(speed > 0.0 for _, speed in document["measured"])
