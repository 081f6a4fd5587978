"""What job_submit.lua finds in a script: the signals that it requests and handles."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from hopsd.core.submission.options_text import read_script_options
from hopsd.model.script_options import ScriptOptions

FOLDER = Path(__file__).parent
PLUGIN = FOLDER.parents[1] / "slurm_plugin" / "job_submit.lua"
LUAS = [
    name
    for name in ("lua5.1", "lua5.2", "lua5.3", "lua5.4", "lua5.5", "luajit")
    if shutil.which(name)
]

pytestmark = pytest.mark.skipif(not LUAS, reason="no Lua interpreter here")


def submit(
    script: str,
    comment: str = "hops:reqs=1",
    variable: str = "",
    plugin: Path = PLUGIN,
    check: bool = True,
    cpu_seconds: int = 60,
) -> tuple[ScriptOptions, str]:
    """Return the options read from the script, and the messages of `hopsctl check`.

    Without ``check``, the messages are those of sbatch. ``variable`` is SBATCH_SIGNAL.
    """
    mode = "HOPS_CHECK=1" if check else ""
    line = " ".join(text.encode().hex() for text in (comment, script, "", variable, mode)) + "\n"
    driver = [LUAS[0], str(FOLDER / "submit_driver.lua"), str(plugin)]
    result = subprocess.run(
        ["prlimit", f"--cpu={cpu_seconds}", *driver],
        input=line,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    became, hex_message, word = result.stdout.rstrip("\n").split(" ")
    assert became == "held"
    messages = [
        message
        for message in bytes.fromhex(hex_message).decode().splitlines()
        if not message.startswith("hops: hops-check ")
    ]
    return read_script_options(bytes.fromhex(word).decode()), "\n".join(messages)


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
def test_the_signal_of_the_script_is_read(
    option: str, signal: tuple[str, bool, int | None]
) -> None:
    options, _ = submit(f"#!/bin/bash\n#SBATCH --requeue\n#SBATCH {option}\npython train.py\n")
    assert (options.signal, options.signal_steps, options.signal_seconds) == signal


@pytest.mark.parametrize("variable", ["B:USR2@30", "B:12@30"])
def test_the_signal_of_the_environment_overrides_the_scripts(variable: str) -> None:
    script = "#!/bin/bash\n#SBATCH --signal=USR1@120\ntrap : USR2\npython train.py\n"
    options, messages = submit(script, variable=variable)
    assert (options.signal, options.signal_steps, options.signal_seconds) == ("USR2", False, 30)
    assert "hops sends it USR2 30 s ahead" in messages


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
        ("trap '' USR1\npython train.py", set()),
        ('trap "" USR1 TERM\npython train.py', set()),
        ("trap : USR1\npython train.py & wait; wait", {"USR1"}),
        ("import signal\nsignal.signal(signal.SIGUSR1, save)", {"USR1"}),
        ("trap save USR1\ntrap save USR1\ntrap save 10", {"USR1"}),
    ],
)
def test_trapped_signals_are_read(commands: str, traps: set[str]) -> None:
    options, messages = submit(f"#!/bin/bash\n{commands}\n")
    assert options.traps == traps
    assert ("does not handle USR1" in messages) == ("USR1" not in traps)


def test_only_a_trap_for_the_sites_signal_counts(tmp_path: Path) -> None:
    """Regression: a script that clears up on TERM was said to get a signal before a move."""
    script = (
        "#!/bin/bash\ncleanup() {\n  rm -rf tmp\n}\ntrap cleanup EXIT TERM INT\npython train.py\n"
    )
    assert "does not handle USR1" in submit(script)[1]
    plugin = Path(shutil.copy(PLUGIN, tmp_path))
    (tmp_path / "hops_site.lua").write_text('return { signal = "TERM" }\n')
    assert "hops sends the script TERM before" in submit(script, plugin=plugin)[1]


@pytest.mark.parametrize(
    ("commands", "ends"),
    [
        ("trap 'touch stop; exit 0' USR1\nsrun x & wait", {"USR1"}),
        ("trap 'kill -USR1 $PID; wait $PID' SIGUSR1\nsrun x & PID=$!\nwait", {"USR1"}),
        ("trap save USR1\nsave() {\n  touch stop\n  exit 0\n}\nsrun x & wait", {"USR1"}),
        ("trap save USR1\nfunction save { touch stop; exit; }\nsrun x & wait", {"USR1"}),
        ("source handlers.sh\ntrap save USR1\nsrun x", {"USR1"}),
        ("trap 'touch stop' USR1\nsrun x & wait", {"USR1"}),  # the script continues to its end
        ("import signal\nsignal.signal(signal.SIGUSR1, save)", {"USR1"}),
        ("trap 'exit 0' 10 TERM\ntrap '' USR2\nsleep 9", {"USR1", "TERM"}),
        ("trap -- 'exit 1' USR1\nsrun x", {"USR1"}),
        ("exec hops-lane trials.txt", set()),
        # The script does not end, or Slurm requeues it.
        ("trap 'touch stop' USR1\nsrun x", set()),
        ("trap '' USR1\nsrun x & wait", set()),
        ("trap 'touch stop' USR1\nsrun x & PID=$!\nwhile kill -0 $PID; do wait $PID; done", set()),
        ("trap 'touch stop' USR1\nsrun x &\nwait\nwait", set()),
        ("trap 'scontrol requeue $SLURM_JOB_ID; exit 0' USR1\nsrun x & wait", set()),
        ("trap save USR1\nsave() {\n scontrol requeue $SLURM_JOB_ID\n}\nsrun x & wait", set()),
        ("trap 'exit $HOPS_REQUEUE_EXIT_CODE' USR1\nsrun x & wait", set()),
        ("import signal\nsignal.signal(signal.SIGUSR1, f)\nrun('scontrol requeue')", set()),
        ("trap 'exit 0' EXIT\nsrun x", set()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["", "#SBATCH --signal=B:USR1@60\n"])
def test_a_signal_that_may_end_the_job_as_done_is_not_sent(
    commands: str, ends: set[str], option: str
) -> None:
    script_options, messages = submit(f"#!/bin/bash\n{option}{commands}\n")
    assert script_options.ends == ends
    is_sent = "USR1" in (script_options.survived_signals or ())
    assert script_options.is_warned("USR1") == is_sent
    assert ("then starts from its first line" in messages) == is_sent
    assert ("until it has called torch.save" in messages) == (not is_sent)


@pytest.mark.parametrize(
    ("script", "reqs", "is_warned"),
    [
        ("srun python train.py", "1,2", True),
        ("srun python train.py", "2", False),
        ("export HOPS_FRAMEWORK_SAVES=1\nsrun python train.py", "1,2", False),
        ("srun python -c 'from hops_profiler import ElasticLoader; ...'", "1,2", False),
    ],
)
def test_the_effect_of_another_gpu_count_is_explained(
    script: str, reqs: str, is_warned: bool
) -> None:
    text = submit(f"#!/bin/bash\n{script}\n", f"hops:reqs={reqs}")[1]
    assert ("the epoch begins again, unless" in text) == is_warned


@pytest.mark.parametrize(
    ("commands", "stays"),
    [
        ("again() {\n  sbatch train.sh\n}\ntrap again USR1\ntrap again TERM\nsrun x & wait", True),
        ("trap 'sbatch next.sh' EXIT\nsrun x", True),
        ("trap 'sbatch $0; exit' USR1 15\nsrun x & wait", True),
        ("trap 'sbatch $0' USR1\nsrun x & wait", False),  # hops does not send it
        ("trap 'rm -r tmp' EXIT\nsrun x\nsbatch next.sh", False),
    ],
)
def test_a_script_that_submits_a_job_when_stopped_is_not_moved(commands: str, stays: bool) -> None:
    options, messages = submit(f"#!/bin/bash\n#SBATCH --signal=B:USR1@60\n{commands}\n")
    assert ("resubmits" in options.repeats) == stays
    assert ("so hops does not move it" in messages) == stays
    assert not options.is_warned("USR1")


@pytest.mark.parametrize(
    ("commands", "waits"),
    [
        ("trap 'exit 0' USR1\nsrun x", True),
        ("srun python -u -m submitit.core._submit /logs", False),
        ("srun x || scontrol requeue $SLURM_JOB_ID", False),
    ],
)
def test_a_signal_for_the_steps_is_sent_whatever_the_shell_does(commands: str, waits: bool) -> None:
    options, messages = submit(f"#!/bin/bash\n#SBATCH --signal=USR1@60\n{commands}\n")
    assert options.is_warned("USR1")
    assert "hops sends the steps that srun starts USR1 60 s ahead" in messages
    assert ("not moved before hops has seen that they handle the signal" in messages) == waits
    assert ("requeues" in options.repeats) == (not waits)


@pytest.mark.parametrize("preempt", ["", ";preempt=yes"])
@pytest.mark.parametrize(
    "script",
    [
        "#SBATCH --signal=USR1@60\nsrun x",
        "#SBATCH --signal=B:USR1@60\nsrun x",
        "trap 'exit 0' USR1\nsrun x & wait",
        "srun x",
    ],
)
def test_a_declaration_that_the_job_tolerates_moves_is_believed(script: str, preempt: str) -> None:
    options, messages = submit(f"#!/bin/bash\n{script}\n", f"hops:reqs=1{preempt}")
    assert options.preempt == bool(preempt)
    assert ("torch.save once" in messages) == (not preempt)


def test_sbatch_explains_moves_and_how_to_prevent_them() -> None:
    messages = submit("#!/bin/bash\n#SBATCH --signal=B:USR1@90\ntrap : USR1\nsrun x\n")[1]
    assert "the job may be stopped and restarted" in messages
    assert "hops sends it USR1 90 s ahead" in messages
    assert "preempt=no in the comment disables moving" in messages
    assert "may be stopped" not in submit("#!/bin/bash\nsrun x\n", "hops:reqs=1;preempt=no")[1]


@pytest.mark.parametrize(
    ("script", "comment", "words"),
    [
        ("srun x", "reqs=1,2,4,8", "or another GPU count (and batch) after a torch.save;"),
        ("srun x", "reqs=1-16", "or another GPU count (and batch) after a torch.save;"),
        ("srun x", "reqs=4", "on other nodes after a torch.save;"),
        ("HOPS_FRAMEWORK_SAVES=1 x", "reqs=1,2", "or another GPU count after a torch.save;"),
        ("#SBATCH --signal=USR1@60\nsrun x", "reqs=1,2,4,8", "if ranks handle USR1;"),
        ("#SBATCH --signal=B:USR2@600\ntrap : USR2\nx", "reqs=1,2,4", "600 s after USR2;"),
        ("trap 'touch stop' USR1\nsrun x &\nwait\nwait", "reqs=1,2,4", "after a signal;"),
        ("srun x", "reqs=1,2,4;preempt=yes", "or another GPU count (and batch); preempt=no"),
    ],
)
def test_sbatch_explains_moves_in_three_lines(
    tmp_path: Path, script: str, comment: str, words: str
) -> None:
    """Lines have 80 columns; the site appends to output files, as `hopsctl setup` proposes."""
    plugin = shutil.copy(PLUGIN, tmp_path)
    (tmp_path / "slurm.conf").write_text("JobFileAppend=1\n")
    text = f"#!/bin/bash\n{script}\n"
    messages = submit(text, f"hops:{comment}", plugin=plugin, check=False)[1]
    lines = [
        line
        for message in messages.splitlines()
        for line in textwrap.wrap(f"sbatch: {message}", 80)
    ]
    assert len(lines) <= 3, lines
    assert words in messages
    assert "preempt=no in the comment forbids it. More: hopsctl check" in messages
    assert "; held until its turn" in messages


def test_sbatch_explains_why_no_signal_is_sent() -> None:
    """A mistake in the script is also named at submission."""
    script = "#!/bin/bash\n#SBATCH --signal=B:USR1@60\nsrun x\n"
    messages = submit(script, check=False)[1]
    assert "no handler for USR1, so hops does not send it. It may restart on" in messages


def test_a_job_that_stays_is_referred_to_explain() -> None:
    messages = submit("#!/bin/bash\nsrun x\n", "hops:reqs=1;preempt=no", check=False)[1]
    assert "held until hops starts it; `hopsctl explain JOB` says why" in messages


@pytest.mark.parametrize(
    ("comment", "script", "is_warned"),
    [
        ("reqs=1,2", "srun x", True),
        ("reqs=1-4", "srun x", True),
        ("reqs=2,2", "srun x", False),
        ("reqs=3,4;per_node=4", "srun x", False),
        ("reqs=1,2;preempt=no", "srun x", False),
        ("reqs=1,2", "export HOPS_FRAMEWORK_SAVES=1\nsrun x", False),
    ],
)
def test_the_effect_of_another_count_is_stated(comment: str, script: str, is_warned: bool) -> None:
    text = submit(f"#!/bin/bash\n{script}\n", f"hops:{comment}")[1]
    assert ("ElasticLoader" in text) == is_warned


@pytest.mark.parametrize(
    ("commands", "comment", "words"),
    [
        ("srun x", "reqs=1;profile=yes", "hops first runs the script on one GPU of each type"),
        ("srun x", "reqs=2,4;profile=yes", "no effect: the job needs more GPUs"),
        ("srun x", "reqs=1;profile=yes;preempt=no", "no effect: preempt=no"),
        ("sbatch next.sh", "reqs=1;profile=yes", "no effect: the script submits jobs"),
        ("x --devices 4", "reqs=1,4;profile=yes", "no effect: the script fixes more GPUs (--dev"),
        ("srun x", "reqs=1;profile=no", ""),
        ("srun x", "reqs=1", ""),
    ],
)
def test_measuring_runs_are_announced_only_to_jobs_that_ask_for_them(
    commands: str, comment: str, words: str
) -> None:
    messages = submit(f"#!/bin/bash\n{commands}\n", f"hops:{comment}")[1]
    assert words in messages
    assert ("profile=yes" in messages) == bool(words)


def test_a_script_with_a_deadline_is_told_that_it_stays() -> None:
    script = "#!/bin/bash\n#SBATCH --time=60 --deadline=now+2hours\nsrun python train.py\n"
    for check in (True, False):
        messages = submit(script, "hops:reqs=1,2", check=check)[1]
        assert "hops does not move the job while it runs" in messages
        assert "may be stopped" not in messages
        assert "may restart" not in messages


def test_options_end_at_the_first_command() -> None:
    """sbatch does the same."""
    options, messages = submit("#!/bin/bash\n\nsrun x\n#SBATCH --signal=USR1@60\n")
    assert options.signal == ""
    assert "does not handle USR1" in messages


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("", "empties its output file unless sbatch has --open-mode=append"),
        ("#SBATCH --open-mode=append", ""),
        ("#SBATCH --open-mode append", ""),
        ("#SBATCH --open-mode=truncate", "empties its output file, as --open-mode=truncate asks"),
    ],
)
@pytest.mark.parametrize("appends", [False, True])
def test_the_fate_of_the_log_is_explained(
    tmp_path: Path, option: str, words: str, appends: bool
) -> None:
    """Slurm empties --output at each restart unless JobFileAppend=1 is in slurm.conf."""
    plugin = tmp_path / "job_submit.lua"
    shutil.copy(PLUGIN, plugin)
    (tmp_path / "slurm.conf").write_text(
        f"# JobFileAppend=1\nJobFileAppend={int(not appends)}\njobfileappend = {int(appends)} # x\n"
    )
    _, messages = submit(f"#!/bin/bash\n{option}\nsrun x\n", plugin=plugin)
    if appends and "truncate" not in option:
        words = ""
    assert words in messages
    assert ("output file" in messages) == bool(words)


@pytest.mark.parametrize(
    ("commands", "repeats"),
    [
        ("python train.py\nsbatch --dependency=afterany:$SLURM_JOB_ID next.sh", {"submits"}),
        ("trap 'scontrol requeue $SLURM_JOB_ID' USR1", {"requeues"}),
        ('subprocess.run(["scontrol", "requeue", me])', {"requeues"}),
        ("python train.py ${SLURM_RESTART_COUNT:+--resume}", {"counts"}),
        ("[ -d out ] && exit 1\npython train.py", {"refuses"}),
        (
            "sbatch next.sh; scontrol requeue 7; echo $SLURM_RESTART_COUNT",
            {"submits", "requeues", "counts"},
        ),
        ("# sbatch train.sh\npython train.py", set()),
        ("cat my_sbatch.log", set()),
    ],
)
def test_side_effects_that_a_restart_would_repeat_are_found(
    commands: str, repeats: set[str]
) -> None:
    assert submit(f"#!/bin/bash\n{commands}\n")[0].repeats == repeats


@pytest.mark.parametrize(
    ("commands", "refuses"),
    [
        ("if [ -d $out ]; then echo exists; exit 1; fi\nsrun x", True),
        ("if [[ -e $out ]]; then\n  echo exists\n  exit 2\nfi\npython t.py", True),
        ("[ -f lock ] && exit 1\nsrun x", True),
        ("[ ! -d $out ] || { echo exists; exit 1; }\nsrun x", True),
        ("test -d $out && exit 1\nsrun x", True),
        ("mkdir runs/$NAME || exit 1\nsrun x", True),
        ("set -e\nmkdir $out\nsrun x", True),
        ("set -euo pipefail\nmv new/data.bin taken/\nsrun x", True),
        # These test for what is missing or finished, or do the same at each start.
        ("if [ ! -f data ]; then echo no data; exit 1; fi\nsrun x", False),
        ("[ -f data ] || exit 1\nsrun x", False),
        ("test -f data || exit 1\nsrun x", False),
        ("if [ -f done ]; then exit 0; fi\nsrun x", False),
        ("if [ -d venv ]; then source venv/bin/activate; else exit 1; fi\nsrun x", False),
        ("if [ -d venv ]; then\n  . venv/bin/activate\nelse\n  exit 1\nfi\nsrun x", False),
        ("if [ -d a ]; then x; fi\nif [ -z $b ]; then exit 1; fi\nsrun x", False),
        ("mkdir -p $out || exit 1\nsrun x", False),
        ("mkdir $out\nsrun x", False),
        ("set -e\nmkdir runs/$(date +%s)\nsrun x", False),
        ("set -e\nsrun x\nmv log kept/\n[ -f error ] && exit 1", False),
    ],
)
def test_a_script_that_refuses_a_second_start_is_not_moved(commands: str, refuses: bool) -> None:
    """Regression: such a job had saved, was moved, and then failed since its folder existed."""
    options, messages = submit(f"#!/bin/bash\n{commands}\n", "hops:reqs=1;profile=yes")
    assert ("refuses" in options.repeats) == refuses
    assert ("fails if a file or folder of an earlier start exists" in messages) == refuses
    assert ("fails at a second start" in messages) == refuses


@pytest.mark.parametrize(
    "commands",
    [
        "trap 'sbatch train.sh' USR1",
        "again() { kill $pid; sbatch $0; }\ntrap again USR1",
        "import signal\nsignal.signal(signal.SIGUSR1, f)\nsubprocess.run(['sbatch', me])",
    ],
)
def test_a_signal_that_resubmits_the_script_is_not_sent(commands: str) -> None:
    options, messages = submit(f"#!/bin/bash\n{commands}\n")
    assert options.ends == {"USR1"}
    assert "so hops does not send it" in messages


ROLES = """CUDA_VISIBLE_DEVICES=0 vllm serve m &
CUDA_VISIBLE_DEVICES=1,2 torchrun --nproc_per_node=2 t.py"""


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
        ("accelerate launch --num_processes 4 train.py", None),  # the count over all nodes
        ("# torchrun --nproc_per_node=8 train.py\npython train.py", None),
        ("python -m verl.trainer.main_ppo trainer.n_gpus_per_node=8", 8),
        ("vllm serve model --tensor-parallel-size 4", 4),
        ("python train.py --devices 4", 4),
        ("python train.py --devices=0,1,2", 3),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 python train.py", 4),
        ("export CUDA_VISIBLE_DEVICES='0,1'\npython train.py", 2),
        ("for gpu in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$gpu python t.py & done", 4),
        ("for i in {0..3}; do\n  CUDA_VISIBLE_DEVICES=$i python t.py &\ndone", 4),
        ("for gpu in $(seq 0 7)\ndo python t.py $gpu & done", 8),
        ("for i in 0 1 2 3; do python t.py --seed $i; done", None),
        (ROLES, 3),
        ("ray start --head --num_gpus 16", None),
        ("export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID", None),
    ],
)
def test_hard_coded_rank_counts_are_found(commands: str, ranks: int | None) -> None:
    options, messages = submit(f"#!/bin/bash\n{commands}\n")
    assert options.ranks == ranks
    assert ("GPUs on each node (" in messages or "gives roles to" in messages) == (
        ranks is not None
    )
    if ranks:
        comment = f"hops:reqs={ranks};shape=node"
        messages = submit(f"#!/bin/bash\n{commands}\n", comment)[1]
        assert "fixes" not in messages
        assert "roles" not in messages


def test_a_script_whose_gpus_have_roles_is_not_told_to_start_more_ranks() -> None:
    messages = submit(f"#!/bin/bash\n{ROLES}\n", "hops:reqs=2-4;shape=node")[1]
    assert "gives roles to 3 GPUs of a node (CUDA_VISIBLE_DEVICES): give reqs=3" in messages
    assert "nproc" not in messages


@pytest.mark.parametrize(
    ("commands", "port"),
    [
        ("export MASTER_PORT=29500\nsrun python t.py", "29500 (MASTER_PORT)"),
        ("export MASTER_PORT=${MASTER_PORT:-29501}\nsrun python t.py", "29501 (MASTER_PORT)"),
        ("torchrun --master_port=29500 t.py", "29500 (--master_port)"),
        ("torchrun --rdzv_endpoint=$head:29500 t.py", "29500 (--rdzv_endpoint)"),
        ("accelerate launch --main_process_port 29500 t.py", "29500 (--main_process_port)"),
        ("export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\nsrun python t.py", ""),
        ("torchrun --rdzv_endpoint=$head:$port t.py", ""),
        ("torchrun --rdzv_endpoint=$head:0 t.py", ""),
        ("torchrun --standalone t.py", ""),
    ],
)
def test_a_port_shared_by_two_jobs_on_a_node_is_reported(commands: str, port: str) -> None:
    messages = submit(f"#!/bin/bash\n{commands}\n")[1]
    assert f"uses port {port}" in messages if port else "uses port" not in messages
    assert ("$((20000 + SLURM_JOB_ID % 10000))" in messages) == bool(port)


LARGE_COUNT = 40_000
LONG_SCRIPTS = {
    "empty lines": "\n" * LARGE_COUNT,
    "blanks": "trap 1" + " " * LARGE_COUNT + "x",
    "launchers": "accelerate launch " * LARGE_COUNT,
    "ranks": ("--nproc_per_node" + " " * 20) * LARGE_COUNT,
    "loops": "for x in" + " " * LARGE_COUNT + "for gpu in 0 1 " * (LARGE_COUNT // 5),
    "devices": "CUDA_VISIBLE_DEVICES=0" + ",1" * LARGE_COUNT,
    "many devices": "CUDA_VISIBLE_DEVICES=0\n" * (LARGE_COUNT // 5),
    "ports": "--rdzv_endpoint=" + "a" * LARGE_COUNT + " --rdzv_endpoint" * LARGE_COUNT,
    "scontrol": "scontrol " * LARGE_COUNT + " " * LARGE_COUNT,
    "options": "#SBATCH --open-mode" + " " * LARGE_COUNT + "#SBATCH --signal" * LARGE_COUNT,
    "one word": "--nproc_per_node=$" + "a" * LARGE_COUNT,
    "comments": "\n #" * LARGE_COUNT,
    "traps": "trap USR1 " * LARGE_COUNT,
    "lines that launch": "accelerate launch --num_processes $a\n" * (LARGE_COUNT // 5),
    "variables": "a=b " * LARGE_COUNT,
    "tests": "[ -d " * LARGE_COUNT,
    "lines that test": ("[ -d " * 100 + "\n") * (LARGE_COUNT // 80),
    "lines that may exit": ("[ -d a ] && exit " * 30 + "\n") * (LARGE_COUNT // 80),
    "endpoints": "--rdzv_endpoint=x" * LARGE_COUNT,
    "loops of one line": "for a in 1;" * LARGE_COUNT,
    "handlers of many words": ("trap '" + "a " * 2040 + "' USR1\n") * 32 + "a() " * LARGE_COUNT,
    "functions": "trap '"
    + " ".join(f"f{n}" for n in range(700))
    + "' TERM USR1\n"
    + "".join(f"f{n}() {{\n" for n in range(LARGE_COUNT // 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_SCRIPTS)
def test_no_script_keeps_slurmctld_busy(name: str) -> None:
    """slurmctld holds its locks meanwhile: 20,000 empty lines or a long handler took minutes."""
    submit(f"#!/bin/sh\n{LONG_SCRIPTS[name]}\n", "hops:reqs=1;shape=node", cpu_seconds=10)


@pytest.mark.slow
def test_parsing_the_letters_of_apptainer_takes_no_longer_than_other_words() -> None:
    """Regression: they took three times as long, and quadratic time."""

    def cpu_seconds(command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        submit(f"#!/bin/sh\n{command} {'-eew ' * 52_000}\n")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    assert cpu_seconds("apptainer exec") < 2 * cpu_seconds("apptainer echo x")


@pytest.mark.parametrize(
    "inside", [" " * LARGE_COUNT, ";" * LARGE_COUNT, " ;" * LARGE_COUNT, " hops:" * LARGE_COUNT]
)
def test_no_comment_keeps_slurmctld_busy(inside: str) -> None:
    line = f"hops:a;{inside}b".encode().hex()
    result = subprocess.run(
        [LUAS[0], str(FOLDER / "submit_driver.lua"), str(PLUGIN)],
        input=f"{line}\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert result.stdout.startswith("refused")


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
def test_the_launcher_of_the_training_is_found(commands: str, starts: set[str]) -> None:
    assert submit(f"#!/bin/bash\n{commands}\n")[0].starts == starts


@pytest.mark.parametrize(
    ("commands", "reqs", "message"),
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
def test_hard_coded_counts_of_the_whole_job_are_reported(
    commands: str, reqs: str, message: str
) -> None:
    comment = f"hops:reqs={reqs};shape=even"
    messages = submit(f"#!/bin/bash\n{commands}\n", comment)[1]
    assert message in messages
    assert ("however many it gets:" in messages) == bool(message)


@pytest.mark.parametrize(
    ("commands", "comment", "is_warned"),
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
def test_a_step_that_uneven_nodes_refuse_is_reported(
    commands: str, comment: str, is_warned: bool
) -> None:
    messages = submit(f"#!/bin/bash\n{commands}\n", f"hops:{comment}")[1]
    assert ("write --gres=none" in messages) == is_warned


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node={}", "export WORLD_SIZE={}\npython"])
def test_an_impossible_count_is_ignored(start: str) -> None:
    """Lua 5.3 and later raise an error when they print it, and the job was refused."""
    script = f"#!/bin/sh\n{start.format('9' * 20)} train.py\n"
    options, messages = submit(script)
    assert options.ranks is None
    assert "ranks" not in messages


def assigned_loop_variables(source: str) -> list[str]:
    """Return the lines that assign to a variable of a surrounding loop, judged by indentation."""
    loops: list[tuple[int, set[str]]] = []
    wrong = []
    for line in source.splitlines():
        depth = len(line) - len(line.lstrip())
        if line.strip():
            loops = [
                (loop_depth, names)
                for loop_depth, names in loops
                if depth > loop_depth or not line.strip()
            ]
        header = re.match(r"\s*for ([\w, ]+?) (?:in|=)\s*", line)
        names = {name for _, inside in loops for name in inside}
        assignment = re.match(r"\s*([\w, ]+?) = ", line)
        if assignment and not header and names & set(re.split(r",\s*", assignment[1].strip())):
            wrong.append(line)
        if header and not line.rstrip().endswith(" end"):
            loops.append((depth, set(re.split(r",\s*", header[1]))))
        elif header:
            inner = line[header.end() :]
            if any(re.search(rf"\b(?:do|then|;) {name} = ", inner) for name in names_of(header[1])):
                wrong.append(line)
    return wrong


def names_of(variables: str) -> set[str]:
    return set(re.split(r",\s*", variables))


def test_no_loop_variable_is_assigned() -> None:
    """Loop variables are constants in Lua 5.5, so the script would not load."""
    mistake = (
        'for count in x:gmatch("%d") do\n  if count then\n    count = tonumber(count)\n  end\nend'
    )
    assert assigned_loop_variables(mistake) == ["    count = tonumber(count)"]
    assert assigned_loop_variables("for _, n in ipairs(x) do n = n + 1 end") != []
    assert assigned_loop_variables(PLUGIN.read_text()) == []
