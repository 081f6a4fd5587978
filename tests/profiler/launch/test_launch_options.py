"""The launcher's command line, and its place according to Slurm's variables."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hops_profiler.launch import launch_place, rendezvous
from hops_profiler.launch.options import parse
from hypothesis import given
from hypothesis import strategies as st


def test_arguments_of_torchrun_are_accepted() -> None:
    options = parse(
        ["--nproc_per_node=4", "--nnodes", "2", "--node-rank=1", "--rdzv_backend=c10d",
         "--rdzv-endpoint=head:29500", "--rdzv_id", "7", "--max-restarts=3",
         "train.py", "--nnodes", "9"], {},
    )  # fmt: skip
    assert (options.per_node, options.nodes, options.node_rank) == (4, 2, 1)
    assert (options.address, options.port, options.run_id, options.restarts) == (
        "head",
        29500,
        "7",
        3,
    )
    assert options.arguments == ("train.py", "--nnodes", "9")
    assert options.without_effect == ("rdzv_backend",)


def test_unset_options_may_come_from_the_environment() -> None:
    assert parse(["t.py"], {"PET_NPROC_PER_NODE": "3"}).per_node == 3
    assert parse(["--nproc-per-node", "2", "t.py"], {"PET_NPROC_PER_NODE": "3"}).per_node == 2
    assert parse(["--nproc-per-node=gpu", "t.py"], {}).per_node is None
    assert parse(["--nnodes=1:4", "t.py"], {}).nodes is None
    assert parse(["--standalone", "t.py"], {}).nodes == 1
    assert parse(["-m", "package.train", "-x"], {}).module


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nproc-per-node=many", "t.py"], "many"),
        (["--nproc-per-node=0", "t.py"], "'0'"),
        (["--rdzv-endpoint=head:x", "t.py"], "'x'"),
        (["--gpus", "t.py"], "--gpus"),
        ([], "SCRIPT"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as code:
        parse(arguments, {})
    assert code.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8a,MIG-3"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "1"}, 1),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({}, 2),
    ],
)
def test_gpus_are_counted_without_cuda(environ: dict[str, str], gpus: int, tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert launch_place.visible_gpus(environ, tmp_path) == gpus


@pytest.mark.parametrize(
    ("names", "first"),
    [("n0", "n0"), ("n[3-5,9]", "n3"), ("gpu[03-07],login", "gpu03"), ("a[1,4]-ib,b", "a1-ib"),
     ("", "")],
)  # fmt: skip
def test_the_first_host_of_a_list_is_found(names: str, first: str) -> None:
    assert launch_place.first_host(names) == first


def test_a_task_of_a_step_finds_its_node() -> None:
    task_place = launch_place.find_place(
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3",
         "SLURM_STEP_NUM_TASKS": "5", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
         "SLURM_NODEID": "2", "SLURM_PROCID": "4", "SLURM_LOCALID": "0",
         "SLURM_STEP_NODELIST": "localhost"}
    )  # fmt: skip
    assert (task_place.node, task_place.nodes, task_place.task, task_place.tasks) == (2, 3, 4, 5)
    assert (task_place.local_task, task_place.local_tasks) == (0, 1)
    assert task_place.one_task_a_rank


def test_the_batch_script_is_not_a_step() -> None:
    batch = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "0"}
    for step in ({}, {"SLURM_STEP_ID": "4294967291"}, {"SLURM_STEP_ID": "-5"}):
        batch_place = launch_place.find_place({**batch, **step})
        assert not batch_place.in_step
        assert batch_place.nodes == 2


@pytest.mark.long
@given(st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_nodes_with_different_counts_number_their_ranks_in_order(counts: list[int]) -> None:
    worlds: dict[int, rendezvous.World] = {}
    key = f"test.{counts}.{threading.get_ident()}"

    def node(number: int) -> None:
        worlds[number] = rendezvous.meet(
            key, "127.0.0.1", number, len(counts), counts[number], None, 60.0
        )

    threads = [threading.Thread(target=node, args=(n,)) for n in reversed(range(len(counts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [worlds[n].offset for n in range(len(counts))] == [
        sum(counts[:n]) for n in range(len(counts))
    ]
    assert {w.ranks for w in worlds.values()} == {sum(counts)}
    assert {w.nodes for w in worlds.values()} == {len(counts)}
    assert len({w.port for w in worlds.values()}) == 1


@pytest.mark.slow
def test_simultaneous_launches_get_different_ports() -> None:
    """Rank 0 starts to listen seconds after its port was chosen."""
    code = """if True:
        import os
        from hops_profiler.launch import rendezvous
        rendezvous._PORTS = range(24_000, 24_040)
        print(rendezvous.free_port(), flush=True)
        os.execvp("cat", ["cat"])  # as a launch that becomes its rank
    """
    launches = []
    try:
        for _ in range(20):
            launches.append(
                subprocess.Popen(
                    [sys.executable, "-c", code],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        ports = [int(launch.stdout.readline()) for launch in launches if launch.stdout]
    finally:
        for launch in launches:
            launch.communicate()
    assert len(set(ports)) == 20
    assert {launch.returncode for launch in launches} == {0}


def test_a_port_is_free_again_after_its_launch_has_ended() -> None:
    code = """if True:
        from hops_profiler.launch import rendezvous
        rendezvous._PORTS = range(24_100, 24_101)
        print(rendezvous.free_port())
    """
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
        )
        assert (result.stdout, result.stderr) == ("24100\n", "")


def test_names_held_by_others_do_not_prevent_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user of the machine could hold them."""
    monkeypatch.setattr(rendezvous, "_PORTS", range(24_200, 24_202))
    with socket.socket(socket.AF_UNIX) as name_socket, socket.socket(socket.AF_UNIX) as peer:
        name_socket.bind("\0hops-port-24200")
        peer.bind("\0hops-port-24201")
        assert rendezvous.free_port() in rendezvous._PORTS


def test_a_node_that_waits_in_vain_names_the_missing_nodes() -> None:
    with pytest.raises(rendezvous.NobodyCameError, match=r"\[1, 2\] of 3"):
        rendezvous.meet("test.nobody", "127.0.0.1", 0, 3, 1, None, 0.2)


def test_strangers_cannot_join() -> None:
    """Anybody may connect, but garbage and nodes of another run change nothing."""
    results: list[rendezvous.World] = []
    first = threading.Thread(
        target=lambda: results.append(rendezvous.meet("test.own", "127.0.0.1", 0, 2, 2, None, 60.0))
    )
    first.start()
    port = rendezvous._port_order("test.own")[0]
    for text in ("garbage\n", '{"key": "test.other", "node": 1, "ranks": 9}\n',
                 '{"key": "test.own", "node": 7, "ranks": 1}\n', "[1]\n"):  # fmt: skip
        subprocess.run(["bash", "-c", f"printf '{text}' > /dev/tcp/127.0.0.1/{port}"], check=False)
    rendezvous_result = rendezvous.meet("test.own", "127.0.0.1", 1, 2, 3, None, 60.0)
    first.join()
    assert results[0].ranks == rendezvous_result.ranks == 5
    assert rendezvous_result.offset == 2


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_training_ends_cleanly_if_streams_are_closed(tmp_path: Path, redirection: str) -> None:
    line = f'exec "$0" -m hops_profiler.launch --no-python touch done {redirection}'
    subprocess.run(["/bin/sh", "-c", line, sys.executable], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "done").exists()
