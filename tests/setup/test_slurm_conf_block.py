"""The block in slurm.conf: the site's settings are kept, and it can be removed completely."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopsd.setup.slurm_conf import (
    in_force,
    refusal,
    remarks,
    required_lines,
    values,
    with_block,
    without_block,
)

WORKING_CONF = {"SelectType": "select/cons_tres", "GresTypes": "gpu"}
LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
KEYS = st.dictionaries(
    st.sampled_from(["jobsubmitplugins", "requeueexithold", "schedulerparameters", "prolog"]),
    st.sampled_from(["lua", "all_partitions", "85", "80-90", "bf_interval=30", "/site/prolog"]),
)


@given(LINES, KEYS)
def test_removing_the_block_restores_the_file(lines: list[str], conf: dict[str, str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert without_block(with_block(text, required_lines(conf))) == text


@given(LINES, KEYS)
def test_writing_it_again_changes_nothing(lines: list[str], conf: dict[str, str]) -> None:
    one_block = with_block("".join(f"{line}\n" for line in lines), required_lines(conf))
    assert with_block(one_block, required_lines(conf)) == one_block


def test_lists_of_the_site_are_extended() -> None:
    conf = {
        "jobsubmitplugins": "all_partitions,throttle",
        "requeueexithold": "100",
        "schedulerparameters": "bf_interval=10,sched_interval=60",
    }
    assert required_lines(conf) == {
        "JobSubmitPlugins": "all_partitions,throttle,lua",
        "RequeueExitHold": "100,85",
        "SchedulerParameters": "bf_interval=10,sched_interval=60,batch_sched_delay=0",
        "Prolog": "/etc/hops/prolog.sh",
        "Epilog": "/etc/hops/epilog.sh",
        "JobFileAppend": "1",
    }


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_site_decides_about_output_files(value: str) -> None:
    assert "JobFileAppend" not in required_lines({"jobfileappend": value})
    output_remarks = [
        r for r in remarks({"jobfileappend": value}, WORKING_CONF) if "JobFileAppend" in r
    ]
    assert bool(output_remarks) == (value == "0")
    assert [r for r in remarks({}, WORKING_CONF) if "JobFileAppend=1 keeps a job's output" in r]


def test_existing_settings_are_not_written_again() -> None:
    conf = {
        "jobsubmitplugins": "job_submit/lua",
        "requeueexithold": "80-90",
        "schedulerparameters": "batch_sched_delay=3,sched_interval=5",
        "prolog": "/site/prolog",
        "epilog": "/etc/hops/epilog.sh",
        "jobfileappend": "1",
    }
    assert required_lines(conf) == {}
    assert [r for r in remarks(conf, WORKING_CONF) if "/site/prolog" in r]
    assert not [r for r in remarks(conf, WORKING_CONF) if "epilog" in r]


def test_kill_wait_and_memory_of_jobs_stay_the_sites() -> None:
    assert not {"KillWait", "MinJobAge"} & required_lines({}).keys()
    assert [r for r in remarks({}, {"MinJobAge": "5 sec"}) if "MinJobAge" in r]


def test_values_are_read_across_includes_and_after_the_block(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("Prolog = /site/prolog # ours\nNodeName=a\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        with_block(
            "SchedulerParameters=a=1,\\\nb=2\ninclude more.conf\n", {"JobSubmitPlugins": "lua"}
        )
    )
    assert values(conf) == {"schedulerparameters": "a=1, b=2", "prolog": "/site/prolog"}


@pytest.mark.parametrize(
    ("running", "word"),
    [
        (WORKING_CONF, None),
        (WORKING_CONF | {"SelectType": "select/linear"}, "cons_tres"),
        ({"SelectType": "select/cons_tres"}, "GresTypes"),
    ],
)
def test_a_slurm_without_gpus_is_refused(running: dict[str, str], word: str | None) -> None:
    refusal_text = refusal(running)
    assert refusal_text is None if word is None else word in str(refusal_text)


def test_lines_are_effective_when_slurmctld_has_each_item() -> None:
    lines = {"JobSubmitPlugins": "a,lua", "Prolog": "/etc/hops/prolog.sh"}
    assert in_force(lines, {"JobSubmitPlugins": "a,lua", "Prolog": "/etc/hops/prolog.sh"})
    assert not in_force(lines, {"JobSubmitPlugins": "a", "Prolog": "/etc/hops/prolog.sh"})
    assert not in_force(lines, {})
