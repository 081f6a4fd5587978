"""`hopsctl when`: what it reads from a script, requests and shows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hopsd.ctl.user import when as module
from hopsd.ctl.user.when import limit_seconds, options, when
from hopsd.errors import CommentError, InputError, RefusedError
from hopsd.model.ids import UserName
from hopsd.predict.hypothetical import JobRequest
from hopsd.serve.when import when as answer

SCRIPT = """#!/bin/bash
# A training.
#SBATCH --job-name=train --comment="hops:reqs=1,2;samples=1e6"  # elastic
#SBATCH -t 1:30:00 -p a,b

#SBATCH --comment=hops:reqs=4
python train.py
#SBATCH --comment=hops:reqs=8
"""
ANN = UserName("ann")


class Source:
    """Predicts the same start for all jobs but those of two GPUs."""

    def __init__(self, document: dict[str, Any] | None) -> None:
        self.document = document
        self.requests: list[JobRequest] = []

    def predict_start(self, request: JobRequest) -> dict[str, Any] | None:
        self.requests.append(request)
        prediction: dict[str, Any] | None = (
            None if request.reqs == (2,) else {"expected": 60.0, "low": 0.0, "high": 600.0}
        )
        return prediction


# The text that sbatch 22.05 writes to stderr, after any output of a site's submit script.
ESTIMATE = """sbatch: welcome
sbatch: Job 7 to start at 1970-01-01T02:00:00 using 4 processors on nodes n[0-1] in partition main
"""
REFUSAL = "allocation failure: Requested node configuration is not available\n"


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utc: None) -> Path:
    """A fake sbatch with an estimate for one GPU, which refuses two and records its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("estimate", ESTIMATE), ("refusal", REFUSAL)):
        (folder / name).write_text(text)
    program = folder / "sbatch"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {folder}/words
case " $* " in
*" --gpus=1 "*) cat {folder}/estimate >&2 ;;
*) cat {folder}/refusal >&2; exit 1 ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "words"


def test_options_of_a_script_end_at_its_first_command() -> None:
    assert options(SCRIPT) == {"comment": "hops:reqs=4", "time": "1:30:00", "partition": "a,b"}
    with pytest.raises(InputError, match="No closing quotation"):
        options('#SBATCH --comment="hops')


def test_a_short_option_may_have_its_value_attached() -> None:
    assert options("#SBATCH -t1:30:00 -pa,b -N2 -J=x") == {"time": "1:30:00", "partition": "a,b"}


@pytest.mark.parametrize("limit", ["UNLIMITED", "infinite", "0"])
def test_a_script_may_ask_for_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: Path, limit: str
) -> None:
    """It was refused, though sbatch accepts it."""
    request: dict[str, Any] = {}

    def ask(_path: Path, _command: str, **arguments: Any) -> Any:
        request.update(arguments)
        document = {"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False}
        return answer(Source(document), ANN, arguments)

    monkeypatch.setattr(module, "ask_daemon", ask)
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/bash\n#SBATCH --comment=hops:reqs=1 --time={limit}\n")
    CliRunner().invoke(when, [str(script)], catch_exceptions=False)
    assert request["time_limit_seconds"] is None
    assert f"--time={limit}" in sbatch.read_text()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216000), ("1-0:30", 88200)],
)
def test_time_limits_are_parsed_as_by_sbatch(text: str, seconds: float) -> None:
    assert limit_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0:00", "-5", "1:2:3:4", "nan"])
def test_other_time_limits_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="give a time"):
        limit_seconds(text)


def test_every_count_is_predicted() -> None:
    source = Source({"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False})
    comment = "hops:reqs=1,2;samples=10;workload=net"
    reply = answer(source, ANN, {"comment": comment, "time_limit_seconds": 60.0})
    assert [way["reqs"] for way in reply["ways"]] == [[1, 2], [1], [2]]
    assert reply["ways"][2]["predicted"] is None
    assert source.requests[0] == JobRequest(ANN, (1, 2), 10.0, 60.0, "net", preemptible=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limit", [0.0, -1.0, float("nan"), float("inf"), "60", True, 1e12, 10**400]
)
def test_bad_limits_are_refused(limit: object) -> None:
    with pytest.raises(InputError, match="time_limit_seconds"):
        answer(Source({}), ANN, {"comment": "hops:reqs=1", "time_limit_seconds": limit})


def test_bad_comments_are_refused() -> None:
    with pytest.raises(CommentError):
        answer(Source({}), ANN, {"comment": "hops:reqs=0"})


def test_before_the_first_predictions_the_request_is_refused() -> None:
    with pytest.raises(RefusedError, match="nothing is predicted yet"):
        answer(Source(None), ANN, {"comment": "hops:reqs=1"})


def test_starts_are_shown_for_every_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: Path
) -> None:
    request: dict[str, Any] = {}

    def ask(_path: Path, command: str, **arguments: Any) -> Any:
        request.update(arguments, command=command)
        return answer(
            Source({"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False}), ANN, arguments
        )

    monkeypatch.setattr(module, "ask_daemon", ask)
    monkeypatch.setattr("time.time", lambda: 0.0)
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT.replace("reqs=4", "reqs=1,2"))
    result = CliRunner().invoke(when, [str(script)], catch_exceptions=False)
    assert request["command"] == "when"
    assert request["time_limit_seconds"] == 5400.0
    assert "0s to 10m00s" in result.output
    assert "not known" in result.output
    assert "2.0 jobs per hour" in result.output
    assert [line.rsplit(None, 1)[-1] for line in result.output.splitlines() if "0s to" in line] == [
        "-",  # for 1 and 2, for which Slurm has no estimate
        "2h00m",
    ]
    assert "by running jobs' time limits" in result.output
    assert sbatch.read_text().splitlines() == [
        f"--test-only --gpus={count} --time=1:30:00 --partition=a,b --comment= --wrap=true"
        for count in (1, 2)
    ]


@pytest.mark.parametrize(("flag", "session"), [(";interactive", True), ("", False)])
def test_the_answer_for_a_session_says_that_it_is_a_batch_jobs(
    monkeypatch: pytest.MonkeyPatch, sbatch: Path, flag: str, session: bool
) -> None:
    """It was shown as if sessions waited like other jobs."""
    source = Source({"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False})
    monkeypatch.setattr(module, "ask_daemon", lambda _p, _c, **kw: answer(source, ANN, kw))
    arguments = [f"--comment=hops:reqs=1{flag}"]
    output = CliRunner().invoke(when, arguments, catch_exceptions=False).output
    assert ("a session starts before other jobs" in output) is session
    document = CliRunner().invoke(when, [*arguments, "--json"], catch_exceptions=False).output
    assert json.loads(document)["session"] is session


def test_the_document_contains_slurms_own_estimate(
    monkeypatch: pytest.MonkeyPatch, sbatch: Path
) -> None:
    source = Source({"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False})
    monkeypatch.setattr(module, "ask_daemon", lambda _p, _c, **kw: answer(source, ANN, kw))
    result = CliRunner().invoke(when, ["--comment=hops:reqs=1,2", "--json"], catch_exceptions=False)
    assert [way.get("plain_slurm") for way in json.loads(result.output)["ways"]] == [
        None,
        7200.0,
        None,
    ]
    assert sbatch.exists()


def test_hops_answers_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source({"at": 5.0, "arrivals_per_hour": 2.0, "arrivals_by_hour": False})
    monkeypatch.setattr(module, "ask_daemon", lambda _p, _c, **kw: answer(source, ANN, kw))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(when, ["--comment=hops:reqs=1,2"], catch_exceptions=False)
    assert "0s to" in result.output
    assert "time limits" not in result.output


def test_a_script_without_a_comment_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "plain.sh"
    script.write_text("#!/bin/bash\nsleep 1\n")
    result = CliRunner().invoke(when, [str(script)])
    assert isinstance(result.exception, InputError)
