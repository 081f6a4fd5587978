"""The --signal option of a job's submit line."""

from __future__ import annotations

import pytest

from hopsd.core.submission.options_text import with_signal
from hopsd.errors import AnswerPendingError, SlurmError
from hopsd.model.ids import JobId, UserName
from hopsd.model.reading import JobReading, SlurmState
from hopsd.model.script_options import NO_OPTIONS, ScriptOptions
from hopsd.slurm.command import SlurmCommands
from hopsd.slurm.submit_line import SubmitLines, options_of, signal_option, submit_lines


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("sbatch --signal=B:USR1@60 train.sh", "B:USR1@60"),
        ("sbatch --signal USR2@30 -N 2 train.sh", "USR2@30"),
        ("sbatch --signal=USR1 --signal=TERM@9 /home/ann/train.sh", "TERM@9"),
        ("sbatch --sig=USR1@60 train.sh", "USR1@60"),
        ("sbatch --s=USR1@60 train.sh", ""),
        ("sbatch train.sh --signal=USR1@60", ""),
        ("sbatch -N 2 train.sh", ""),
        ("sbatch --signal", ""),
        ("", ""),
    ],
)
def test_the_last_signal_option_before_the_script_counts(line: str, option: str) -> None:
    assert signal_option(line, "/home/ann/train.sh --signal=USR1@60") == option


@pytest.mark.parametrize(
    ("option", "signal"),
    [
        ("B:USR1@60", ("USR1", False, 60)),
        ("SIGUSR2@90", ("USR2", True, 90)),
        ("RB:sighup@5", ("HUP", False, 5)),
        ("R:10", ("USR1", True, 60)),
        ("TERM", ("TERM", True, 60)),
        ("KILL@60", ("", False, None)),
        ("@60", ("", False, None)),
        ("B:USR1@never", ("", False, None)),
    ],
)
def test_the_value_is_parsed_as_by_the_submit_plugin(
    option: str, signal: tuple[str, bool, int | None]
) -> None:
    options = with_signal(NO_OPTIONS, option)
    assert (options.signal, options.signal_steps, options.signal_seconds) == signal


def test_the_option_overrides_the_scripts() -> None:
    assert with_signal(ScriptOptions(signal="TERM", signal_steps=True), "B:USR1@7").signal == "USR1"


def fake_sacct(
    monkeypatch: pytest.MonkeyPatch, lines: dict[str, str] | None
) -> tuple[SlurmCommands, list[str]]:
    """A stand-in for sacct, and its requests; ``lines`` None: slurmdbd does not answer."""
    questions: list[str] = []

    def run(self: SlurmCommands, *arguments: str) -> str:
        questions.append(arguments[-1])
        if lines is None:
            raise SlurmError("sacct: Connection refused")
        (mark,) = [a.partition("=")[2] for a in arguments if a.startswith("--delimiter=")]
        return "".join(f"{job}{mark}{line}\n" for job, line in lines.items())

    monkeypatch.setattr(SlurmCommands, "run", run)
    return SlurmCommands(), questions


def a_job(job: str, state: SlurmState = SlurmState.RUNNING) -> JobReading:
    return JobReading(
        id=JobId(job),
        user=UserName("ann"),
        uid=7,
        name="t",
        comment="hops:reqs=1",
        partition="p",
        state=state,
        submit=0.0,
        command="/t.sh",
        number=job,
    )


def test_each_running_job_is_requested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known_lines = {"1": "sbatch --signal=USR2@9 t.sh", "2": "sbatch t.sh"}
    commands, questions = fake_sacct(monkeypatch, known_lines)
    lines = SubmitLines(commands, lambda: True)
    jobs = [a_job("1"), a_job("2"), a_job("3", SlurmState.PENDING)]
    for _ in range(2):
        assert [job.options.signal for job in lines.apply(jobs, {})] == ["USR2", "", ""]
    assert questions == ["--jobs=1,2"]


def test_a_line_break_cannot_forge_another_jobs_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a job name with a line break, followed by `1|sbatch --signal=KILL@1 t.sh`, gave
    job 1 that signal, which hops sent it when it moved it (seen with 22.05).
    """
    own_line = "sbatch --job-name=x\n1|sbatch --signal=KILL@1 y\n--signal=TERM@8 t.sh"
    commands, _ = fake_sacct(monkeypatch, {"1": "sbatch --signal=USR2@9 t.sh", "2": own_line})
    lines = SubmitLines(commands, lambda: True)
    jobs = lines.apply([a_job("1"), a_job("2")], {})
    assert [job.options.signal for job in jobs] == ["USR2", "TERM"]


def test_lines_that_slurm_shows_are_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, questions = fake_sacct(monkeypatch, {})
    line = "sbatch --signal=INT@9 t.sh"
    known_lines = submit_lines([{"job_id": 1, "submit_line": line}, {"job_id": 2}])
    lines = SubmitLines(commands, lambda: True)
    assert [job.options.signal for job in lines.apply([a_job("1")], known_lines)] == ["INT"]
    assert questions == []


def test_without_an_answer_of_slurmdbd_jobs_stay_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    commands, questions = fake_sacct(monkeypatch, None)
    lines = SubmitLines(commands, lambda: True, lambda: now[0])
    for now[0] in (0.0, 30.0, 61.0):
        assert lines.apply([a_job("1")], {}) == [a_job("1")]
    assert len(questions) == 2
    assert SubmitLines(commands, lambda: False).apply([a_job("1")], {}) == [a_job("1")]
    assert len(questions) == 2


def test_a_late_answer_is_fetched_even_if_the_jobs_have_changed() -> None:
    questions, marks = list[str](), set[str]()

    class Sacct:
        late = True

        def run(self, *arguments: str) -> str:
            questions.append(" ".join(arguments))
            if self.late:
                raise AnswerPendingError("slurmdbd has not answered yet")
            (mark,) = [a.partition("=")[2] for a in arguments if a.startswith("--delimiter=")]
            marks.add(mark)
            return f"1{mark}sbatch --signal=USR2@9 t.sh\n"

    sacct = Sacct()
    lines = SubmitLines(sacct, lambda: True)
    lines.apply([a_job("1")], {})
    sacct.late = False
    jobs = lines.apply([a_job("1"), a_job("2")], {})
    assert [job.options.signal for job in jobs] == ["USR2", ""]
    lines.apply([a_job("1"), a_job("2")], {})
    assert questions[0] == questions[1]
    assert questions[2].endswith("--jobs=2")
    assert len(marks) == 2


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("train.sh --signal=9", 0),
        ("-p gpu train.sh", 2),
        ("-pgpu train.sh", 1),
        ("-Hp gpu train.sh", 2),
        ("-HW train.sh", 1),
        ("--partition gpu --hold train.sh", 3),
        ("--partition=gpu --exclusive train.sh", 2),
        ("--exclusive=user train.sh", 1),
        ("--wait -- train.sh", 1),
        ("--oom-kill-step --resv-ports --stepmgr train.sh", 3),
        ("--consolidate-segments --spread-segments train.sh", 2),
        ("--requ --hol --spread train.sh", 3),
        ("--cons a100 --unknown 1 train.sh", 4),
        ("--requ=1 --parti gpu train.sh", 3),
        ("--wait --wait-all 1 train.sh", 3),
        ("--wrap hostname", 2),
        ("-p", 1),
        ("", 0),
        ("- train.sh", 0),
    ],
)
def test_the_options_end_at_the_script(line: str, options: int) -> None:
    words = line.split()
    assert options_of(words) == words[:options]
