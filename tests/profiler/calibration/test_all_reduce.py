"""The all-reduce program of `hopsctl calibrate`, run by two processes over gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "profiler" / "calibration" / "all_reduce.py"


@pytest.mark.long
@pytest.mark.live
def test_rank_0_prints_the_seconds_of_each_size() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = ["1000", "4000000"]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM.read_text(), "127.0.0.1", str(port), *sizes],
            env=os.environ
            | {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        output, output_of_peer = (rank.communicate(timeout=120)[0] for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0]
    document = json.loads(output)
    assert document["backend"] == "gloo"
    (small, quick), (large, slow) = document["measured"]
    assert (small, large) == (1000, 4_000_000)
    assert 0 < quick < slow
    assert output_of_peer == ""
