# ruff: noqa: E501
"""What scripts do besides starting ranks, one small case for each kind: how they fail, end, submit,
trap, restart, and use their options. We wrote all of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Behaviour:
    """A script and its expected results: ``end``, its state and exit code in Slurm, and the lines of
    its ``output``. ``restarts``: it starts a second time, which plain Slurm delays by two minutes.
    ``logs_in``: Slurm runs the owner's login shell to get its variables.
    """

    name: str
    commands: str
    output: tuple[str, ...]
    end: str = "COMPLETED 0:0"
    options: str = "--nodes=1 --gres=gpu:1"
    restarts: bool = False
    logs_in: bool = False
    arguments: tuple[str, ...] = ()


APPEND_OPTIONS = "--nodes=1 --gres=gpu:1 --open-mode=append"
WAIT = "while :; do sleep 1; done"
"""Waits for the end in a loop: Slurm may end a sleep before the shell, which would continue."""

REQUEUE_ONCE = (
    f"[ ${{SLURM_RESTART_COUNT:-0}} != 0 ] || {{ scontrol requeue $SLURM_JOB_ID; {WAIT}; }}"
)
TWO_GPUS = "--nodes=1 --gres=gpu:2 --ntasks=2"

BEHAVIOURS = [
    # How errors are lost, and how they are kept.
    Behaviour("error before the last line", "false\necho done", ("done",)),
    Behaviour("error in a pipe", "(echo loss; exit 3) | cat", ("loss",)),
    Behaviour("error in the background", "(exit 3) &\nwait\necho done", ("done",)),
    Behaviour("error of a step", "srun false || echo caught", ("caught",)),
    Behaviour("error is the last line", "echo loss\nfalse", ("loss",), "FAILED 1:0"),
    Behaviour("set -e", "set -e\necho a\nfalse\necho b", ("a",), "FAILED 1:0"),
    Behaviour("pipefail", "set -eo pipefail\nfalse | cat\necho b", (), "FAILED 1:0"),
    Behaviour("unset variable", "set -u\necho a\n: $NOT_SET", ("a",), "FAILED 1:0"),
    Behaviour("code of its own", "echo a\nexit 5", ("a",), "FAILED 5:0"),
    Behaviour("code of a step", "srun bash -c 'exit 7'\nexit $?", (), "FAILED 7:0"),
    Behaviour("killed by itself", "echo a\nkill -9 $$", ("a",), "FAILED 0:9"),
    Behaviour("wait for a code", "(exit 4) & p=$!\nwait $p\nexit $?", (), "FAILED 4:0"),
    Behaviour("no such program", "not-there\necho after", ("after",)),
    Behaviour("time-out inside", "timeout 1 sleep 60\necho code $?", ("code 124",)),
    Behaviour("cancels itself", f"echo a\nscancel $SLURM_JOB_ID\n{WAIT}", ("a",), "CANCELLED 0:15"),
    # Traps.
    Behaviour("clears up", "trap 'echo cleared' EXIT\necho a", ("a", "cleared")),
    Behaviour("ignores a signal", "trap '' USR1\nkill -USR1 $$\necho a", ("a",)),
    Behaviour("answers a signal", "trap 'echo saved' USR1\nkill -USR1 $$\necho a", ("saved", "a")),
    Behaviour(
        "passes a signal on",
        "bash -c 'trap \"echo saved; exit 0\" USR1; touch ready.$SLURM_JOB_ID; sleep 60 & wait' & p=$!\n"
        "until [ -e ready.$SLURM_JOB_ID ]; do sleep 0.1; done\n"
        "trap 'kill -USR1 $p' USR1\nkill -USR1 $$\nwait $p\necho code $?",
        ("saved", "code 0"),
    ),
    Behaviour(
        "signal to the steps", "srun echo a", ("a",), options=APPEND_OPTIONS + " --signal=USR1@60"
    ),
    # Scripts that do not tolerate a second start, and scripts that ask for one.
    Behaviour(
        "folder of its own",
        "d=out.$SLURM_JOB_ID\n[ ! -d $d ] || exit 1\nmkdir $d\necho a",
        ("a",),
    ),
    Behaviour(
        "uses its input up",
        "f=in.$SLURM_JOB_ID\n[ -e taken.$f ] || touch $f\nmv $f taken.$f\necho a",
        ("a",),
    ),
    Behaviour("counts restarts", "echo ${SLURM_RESTART_COUNT:-first}", ("first",)),
    Behaviour("refuses a requeue", "echo a", ("a",), options=APPEND_OPTIONS + " --no-requeue"),
    Behaviour(
        "requeues itself",
        f"echo a\n{REQUEUE_ONCE}\necho b",
        ("a", "a", "b"),
        options=APPEND_OPTIONS,
        restarts=True,
    ),
    Behaviour(
        "requeues a task of an array",
        "j=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\n"
        + REQUEUE_ONCE.replace("$SLURM_JOB_ID", "$j").replace("scontrol", "echo a; scontrol")
        + "\necho b",
        ("a", "b"),
        options=APPEND_OPTIONS + " --array=3",
        restarts=True,
    ),
    Behaviour(
        "requeues in a trap",
        f"trap 'scontrol requeue $SLURM_JOB_ID; {WAIT}' USR1\necho a\n"
        "[ ${SLURM_RESTART_COUNT:-0} != 0 ] || kill -USR1 $$\necho b",
        ("a", "a", "b"),
        options=APPEND_OPTIONS + " --signal=B:USR1@60",
        restarts=True,
    ),
    Behaviour(
        "resumes",
        "f=state.$SLURM_JOB_ID\n[ ! -e $f ] || echo resumed\ntouch $f\n"
        + REQUEUE_ONCE
        + "\necho b",
        ("resumed", "b"),
        options=APPEND_OPTIONS,
        restarts=True,
    ),
    # What scripts submit.
    Behaviour(
        "submits its successor",
        "sbatch --parsable -o next.$SLURM_JOB_ID --wrap='env | grep ^HOPS_; echo end' > id.$SLURM_JOB_ID\n"
        "until grep -q . next.$SLURM_JOB_ID 2> /dev/null; do sleep 0.2; done\n"
        "cat next.$SLURM_JOB_ID",
        ("end",),
    ),
    Behaviour(
        "waits for what it submits",
        "sbatch --wait --quiet -o /dev/null --wrap='exit 3'\necho code $?",
        ("code 3",),
    ),
    # Steps.
    Behaviour("exec", "exec srun echo a", ("a",)),
    Behaviour("steps one by one", "for i in 1 2 3; do srun echo $i; done", ("1", "2", "3")),
    Behaviour(
        "steps beside each other",
        "srun -n1 --exact --gres=gpu:1 -c1 echo a &\nsrun -n1 --exact --gres=gpu:1 -c1 echo a &\nwait",
        ("a", "a"),
        options=TWO_GPUS,
    ),
    Behaviour(
        "steps that share",
        "srun --overlap -n1 echo a & srun --overlap -n1 echo a & wait",
        ("a", "a"),
    ),
    Behaviour("a step without GPUs", "srun --gres=none echo ${HOME:+a}", ("a",)),
    Behaviour(
        "several programs",
        "srun -n2 bash -c 'echo $SLURM_PROCID' | sort",
        ("0", "1"),
        options=TWO_GPUS,
    ),
    Behaviour("input of a step", "echo a | srun cat", ("a",)),
    Behaviour("a text in the script", "cat << END | srun cat\na $((1 + 1))\nEND", ("a 2",)),
    # Options and arguments.
    Behaviour("arguments", 'echo "$1,$2"', ("a b,c",), arguments=("a b", "c")),
    Behaviour(
        "no environment",
        "echo ${SECRET-unset}",
        ("unset",),
        options=APPEND_OPTIONS + " --export=NONE",
        logs_in=True,
    ),
    Behaviour(
        "a variable",
        "echo $RATE",
        ("0.1",),
        options=APPEND_OPTIONS + " --export=ALL,RATE=0.1",
        logs_in=True,
    ),
    Behaviour(
        "its name", "echo $SLURM_JOB_NAME", ("train",), options=APPEND_OPTIONS + " --job-name=train"
    ),
    Behaviour(
        "asks Slurm",
        'squeue -h -j $SLURM_JOB_ID -o %T\nscontrol show job $SLURM_JOB_ID | grep -o "JobState=[A-Z]*"',
        ("RUNNING", "JobState=RUNNING"),
    ),
    Behaviour(
        "tasks of an array",
        "echo $SLURM_ARRAY_TASK_ID",
        ("5",),
        options=APPEND_OPTIONS + " --array=5",
    ),
    Behaviour(
        "limits",
        "ulimit -n 512\nsrun bash -c 'ulimit -n'",
        ("512",),
        options=APPEND_OPTIONS + " --propagate=NOFILE",
    ),
    Behaviour("starts at a time", "echo a", ("a",), options=APPEND_OPTIONS + " --begin=now+2"),
    Behaviour(
        "has until a deadline",
        "echo a",
        ("a",),
        options=APPEND_OPTIONS + " --time=1 --deadline=now+20minutes",
    ),
]
