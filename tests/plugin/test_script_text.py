"""What job_submit.lua finds in the text of a script: signals that it asks for and handles."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from hopsd.core.submission.contract import read_asked
from hopsd.model.asked import Asked

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "slurm_plugin" / "job_submit.lua"
LUAS = [name for name in ("lua5.1", "lua5.2", "lua5.3", "lua5.4", "luajit") if shutil.which(name)]

pytestmark = pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")


def submitted(script: str, comment: str = "hops:reqs=1", variable: str = "") -> tuple[Asked, str]:
    """What becomes of the script's wishes, and what its user is told; with SBATCH_SIGNAL."""
    line = " ".join(text.encode().hex() for text in (comment, script, "", variable)) + "\n"
    done = subprocess.run(
        [LUAS[0], str(HERE / "submit_driver.lua"), str(PLUGIN)],
        input=line,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    became, told, word = done.stdout.rstrip("\n").split(" ")
    assert became == "held"
    return read_asked(bytes.fromhex(word).decode()), bytes.fromhex(told).decode()


@pytest.mark.parametrize(
    ("option", "signal"),
    [
        ("--signal=USR1@120", ("USR1", True, 120)),
        ("--signal=B:USR1@60", ("USR1", False, 60)),
        ("--signal=SIGUSR2@90", ("USR2", True, 90)),
        ("--signal=B:TERM", ("TERM", False, 60)),
        ("--signal 10@30", ("USR1", True, 30)),
        ("--signal=RB:SIGHUP@5", ("HUP", False, 5)),
        ('--signal="B:USR1@600"  # ten minutes', ("USR1", False, 600)),
        ("--signal=R:USR1@60", ("USR1", True, 60)),
        ("--signal=KILL@60", ("", False, None)),
        ("--signal=@60", ("", False, None)),
        ("--requeue", ("", False, None)),
    ],
)
def test_the_signal_of_the_script(option: str, signal: tuple[str, bool, int | None]) -> None:
    asked, _ = submitted(f"#!/bin/bash\n#SBATCH --requeue\n#SBATCH {option}\npython train.py\n")
    assert (asked.signal, asked.signal_steps, asked.signal_seconds) == signal


@pytest.mark.parametrize("variable", ["B:USR2@30", "B:12@30"])
def test_the_signal_of_the_environment_goes_before_the_scripts(variable: str) -> None:
    script = "#!/bin/bash\n#SBATCH --signal=USR1@120\npython train.py\n"
    asked, told = submitted(script, variable=variable)
    assert (asked.signal, asked.signal_steps, asked.signal_seconds) == ("USR2", False, 30)
    assert "no warning" not in told


@pytest.mark.parametrize(
    ("commands", "traps"),
    [
        ("python train.py", set()),
        ("trap save USR1\npython train.py & wait", {"USR1"}),
        ("trap 'kill -TERM $pid; wait $pid' SIGUSR1 TERM", {"USR1", "TERM"}),
        ("trap 'touch stop' 12", {"USR2"}),
        ("save() {\n  echo saved\n}\ntrap \\\n  save \\\n  USR1", {"USR1"}),
        ("# trap save USR1\npython train.py", set()),
        ("echo USR1", set()),
        ("trap cleanup EXIT", set()),
        ("import signal\nsignal.signal(signal.SIGUSR1, save)", {"USR1"}),
    ],
)
def test_the_signals_that_it_handles(commands: str, traps: set[str]) -> None:
    asked, told = submitted(f"#!/bin/bash\n{commands}\n")
    assert asked.traps == traps
    assert ("no warning is asked for" in told) == (not traps)


def test_who_asks_for_a_signal_or_stays_is_not_told_of_moving() -> None:
    assert "warning" not in submitted("#!/bin/bash\n#SBATCH --signal=USR1@60\nsrun x\n")[1]
    assert "warning" not in submitted("#!/bin/bash\nsrun x\n", "hops:reqs=1;preempt=no")[1]


@pytest.mark.parametrize(
    ("commands", "submits"),
    [
        ("trap 'sbatch train.sh' USR1", True),
        ("again() { kill $pid; sbatch $0; }\ntrap again USR1", True),
        ("import signal, subprocess\nsubprocess.run(['sbatch', me])", True),
        ("trap save USR1\ncd ${SLURM_SUBMIT_DIR:?run it with sbatch}", False),
        ("trap save USR1\ncat my_sbatch.log", False),
    ],
)
def test_a_trap_that_submits_the_script_again_is_told_of(commands: str, submits: bool) -> None:
    _, told = submitted(f"#!/bin/bash\n{commands}\nsignal.signal(signal.SIGUSR1, save)\n")
    assert ("leave sbatch out of its trap" in told) == submits


@pytest.mark.parametrize(
    ("commands", "ranks"),
    [
        ("torchrun --nproc_per_node=8 train.py", 8),
        ("torchrun --nproc-per-node 8 train.py", 8),
        ("torchrun --nproc_per_node=gpu train.py", None),
        ("torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py", None),
        ("NGPUS=4\ntorchrun --nproc_per_node=$NGPUS train.py", 4),
        ('export GPUS="${GPUS:-8}"\ntorchrun --nproc_per_node="${GPUS}" train.py', 8),
        ("GPUS_PER_NODE=8\nARGS=(\n  --nproc_per_node $GPUS_PER_NODE\n)\ntorchrun ${ARGS[@]}", 8),
        ("NGPUS=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node=$NGPUS train.py", None),
        ("deepspeed --num_gpus=4 train.py", 4),
        ("accelerate launch --num_processes 4 train.py", None),  # of all nodes
        ("# torchrun --nproc_per_node=8 train.py\npython train.py", None),
    ],
)
def test_ranks_that_the_script_does_not_take_from_its_allocation(
    commands: str, ranks: int | None
) -> None:
    asked, told = submitted(f"#!/bin/bash\n{commands}\n")
    assert asked.ranks == ranks
    assert ("ranks on each node" in told) == (ranks is not None)


MANY = 40_000
LONG_SCRIPTS = {
    "empty lines": "\n" * MANY,
    "blanks": "trap 1" + " " * MANY + "x",
    "launchers": "accelerate launch " * MANY,
    "ranks": ("--nproc_per_node" + " " * 20) * MANY,
    "one word": "--nproc_per_node=$" + "a" * MANY,
    "comments": "\n #" * MANY,
    "traps": "trap USR1 " * MANY,
    "lines that launch": "accelerate launch --num_processes $a\n" * (MANY // 5),
    "variables": "a=b " * MANY,
}


@pytest.mark.parametrize("name", LONG_SCRIPTS)
def test_no_script_keeps_slurmctld_busy(name: str) -> None:
    """It holds its locks meanwhile: 20,000 empty lines took minutes."""
    submitted(f"#!/bin/sh\n{LONG_SCRIPTS[name]}\n", "hops:reqs=1;shape=node")


def test_the_letters_of_apptainer_take_no_longer_than_other_words() -> None:
    """They took three times as long, and as the square of their number."""

    def cpu_seconds(command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        submitted(f"#!/bin/sh\n{command} {'-eew ' * 52_000}\n")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    assert cpu_seconds("apptainer exec") < 2 * cpu_seconds("apptainer echo x")


@pytest.mark.parametrize("inside", [" " * MANY, ";" * MANY, " ;" * MANY, " hops:" * MANY])
def test_no_comment_keeps_slurmctld_busy(inside: str) -> None:
    line = f"hops:a;{inside}b".encode().hex()
    done = subprocess.run(
        [LUAS[0], str(HERE / "submit_driver.lua"), str(PLUGIN)],
        input=f"{line}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.startswith("refused")


@pytest.mark.parametrize(
    ("commands", "starts"),
    [
        ("python train.py", set()),
        ("apptainer exec --nv image.sif python train.py", {"apptainer"}),
        ("srun singularity exec -e --nv image.sif python t.py", {"apptainer", "cleanenv"}),
        ("apptainer run --containall image.sif", {"apptainer", "cleanenv"}),
        ("apptainer exec --compat image.sif python t.py", {"apptainer", "cleanenv"}),
        ("apptainer exec --writable box python t.py", {"apptainer", "writable"}),
        ("apptainer exec --writable-tmpfs i.sif python t.py", {"apptainer"}),
        ("apptainer exec --writable=true box python t.py", {"apptainer", "writable"}),
        ("apptainer exec --nv -w box python t.py", {"apptainer", "writable"}),
        ("apptainer exec \\\n  -ec \\\n  --bind /data i.sif t.py", {"apptainer", "cleanenv"}),
        ("singularity run -C --bind /data i.sif t.py", {"apptainer", "cleanenv"}),
        ("apptainer exec --nv i.sif python t.py -w 4 -e 10", {"apptainer"}),
        ("apptainer exec i.sif python -w 4", {"apptainer"}),
        ("export APPTAINER_WRITABLE=1\napptainer exec box t.py", {"apptainer", "writable"}),
        ("cd singularity_images; python t.py", set()),
        ("srun ch-run --bind=/data image -- python t.py", {"charliecloud"}),
        ("bwrap --bind / / python t.py", {"bwrap"}),
        ("docker run --gpus all image python t.py", {"docker"}),
        ("srun podman-hpc run image python t.py", {"podman"}),
        ("podman --runtime crun --log-level=error run image python t.py", {"podman"}),
        ("docker pull image && docker -H tcp://h exec c python t.py", {"docker"}),
        ("podman pull image\npython run.py", set()),
        ("enroot start pytorch python t.py", {"enroot"}),
        ("srun shifter python t.py", {"shifter"}),
        ("srun sarus run image python t.py", {"sarus"}),
        ("#SBATCH --environment=/x.toml\nsrun python t.py", {"pyxis"}),
        ("python t.py --environment=CartPole", set()),
        ("srun --container-image=nvcr.io/x python t.py", {"pyxis"}),
        ("#SBATCH --container-image=nvcr.io/x\npython t.py", {"pyxis"}),
        ("#SBATCH --time=10 --container-name=mine\npython t.py", {"pyxis"}),
        ("deepspeed -H hosts t.py", {"pdsh"}),
        ("deepspeed \\\n  --hostfile hosts \\\n  t.py", {"pdsh"}),
        ("deepspeed --hostfile hosts --launcher slurm t.py", set()),
        ("deepspeed --hostfile hosts --launcher=pdsh t.py", {"pdsh"}),
        ("deepspeed --num_gpus 4 t.py", set()),
        ("deepspeed --hostfile=hosts t.py", {"pdsh"}),
        ("python3 -I t.py", {"isolated"}),
        ("python -u t.py", set()),
        ("export PYTHONPATH=.", {"pythonpath"}),
        ('export PYTHONPATH="$PWD:$PYTHONPATH"', set()),
        ("PYTHONPATH=src:${PYTHONPATH:-} python t.py", set()),
        ("# docker run image", set()),
    ],
)
def test_how_it_starts_its_training(commands: str, starts: set[str]) -> None:
    assert submitted(f"#!/bin/bash\n{commands}\n")[0].starts == starts


@pytest.mark.parametrize(
    ("commands", "reqs", "told"),
    [
        ("export WORLD_SIZE=8\nsrun python t.py", "4,8", "8 ranks (WORLD_SIZE)"),
        ("export WORLD_SIZE=8\nsrun python t.py", "8", ""),
        ("export WORLD_SIZE=$SLURM_NTASKS\nsrun python t.py", "4", ""),
        ("WORLD_SIZE=1 python t.py", "4", ""),
        ("srun torchrun --nnodes=4 t.py", "8", "4 nodes (--nnodes)"),
        ("N=2\nsrun torchrun --nnodes $N t.py", "4-8", "2 nodes (--nnodes)"),
        ("srun torchrun --nnodes=$SLURM_NNODES t.py", "8", ""),
        ("torchrun --nnodes=1 t.py", "8", ""),
        ("srun torchrun --nnodes=2:4 t.py", "8", ""),
        ("srun accelerate launch --num_processes 8 t.py", "4", "8 ranks (--num_processes)"),
    ],
)
def test_counts_of_its_own_for_the_whole_job_are_told_of(
    commands: str, reqs: str, told: str
) -> None:
    comment = f"hops:reqs={reqs};shape=even"
    said = submitted(f"#!/bin/bash\n{commands}\n", comment)[1]
    assert told in said
    assert ("however many it gets" in said) == bool(told)


@pytest.mark.parametrize(
    ("commands", "comment", "warned"),
    [
        ("srun -N1 -n1 hostname", "reqs=13", True),
        ('ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address)', "reqs=1-16", True),
        ("srun --label \\\n  --ntasks 1 hostname", "reqs=8;shape=any", True),
        ("srun -N1 -n1 --gres=none hostname", "reqs=13", False),
        ("srun -N1 -n1 hostname", "reqs=1", False),
        ("srun -N1 -n1 hostname", "reqs=8;shape=even", False),
        ("srun python t.py -n 1", "reqs=8", False),
        ("srun -n 16 python t.py", "reqs=8", False),
    ],
)
def test_a_step_that_uneven_nodes_refuse_is_told_of(
    commands: str, comment: str, warned: bool
) -> None:
    said = submitted(f"#!/bin/bash\n{commands}\n", f"hops:{comment}")[1]
    assert ("write --gres=none" in said) == warned


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node={}", "export WORLD_SIZE={}\npython"])
def test_a_count_that_no_job_has_is_none(start: str) -> None:
    """Lua 5.3 and later raise where they print it, and the job was refused."""
    script = f"#!/bin/sh\n{start.format('9' * 20)} train.py\n"
    asked, told = submitted(script)
    assert asked.ranks is None
    assert "ranks" not in told
