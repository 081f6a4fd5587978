"""When sessions end: after a warning, and only if the site wants them to end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from memory_cluster import submission

from hopsd.core.interactive.ending import Endings
from hopsd.core.interactive.settings import EndingSettings
from hopsd.model.ids import JobId
from hopsd.model.reading import JobReading, SlurmState

IDLE = EndingSettings(idle_seconds=3600.0, warning_seconds=300.0)
JOB = JobId("1")


def session(comment: str = "hops:reqs=1;interactive", start: float = 1000.0) -> JobReading:
    return replace(submission(1, comment), state=SlurmState.RUNNING, start=start)


def test_an_idle_session_is_warned_once_and_ended_if_it_stays_idle() -> None:
    endings = Endings()
    notices = []
    for time in range(0, 4800, 60):
        idle = {JOB: float(time)}
        notices += [(time, n.ends) for n in endings.notices([session()], idle, 1000.0 + time, IDLE)]
    assert notices[0] == (3600, False)
    assert notices[1] == (3900, True)
    assert all(ends for _, ends in notices[1:])


def test_a_session_that_is_used_after_the_warning_continues() -> None:
    endings = Endings()
    assert [n.ends for n in endings.notices([session()], {JOB: 3600.0}, 5000.0, IDLE)] == [False]
    assert endings.notices([session()], {}, 5100.0, IDLE) == []
    assert [n.ends for n in endings.notices([session()], {JOB: 3600.0}, 9000.0, IDLE)] == [False]


def test_a_session_is_warned_before_its_maximum_time() -> None:
    endings, settings = Endings(), EndingSettings(seconds=7200.0, warning_seconds=300.0)
    assert endings.notices([session()], {}, 1000.0 + 6800.0, settings) == []
    (warning,) = endings.notices([session()], {}, 1000.0 + 6900.0, settings)
    assert not warning.ends
    assert "after 2 h" in warning.text
    (end,) = endings.notices([session()], {}, 1000.0 + 7200.0, settings)
    assert end.ends


@given(
    idle=st.floats(0, 1e6),
    ran=st.floats(0, 1e6),
    comment=st.sampled_from(["hops:reqs=1", "hops:reqs=1;interactive=no", "interactive"]),
)
def test_only_sessions_are_ever_ended(idle: float, ran: float, comment: str) -> None:
    endings, settings = Endings(), EndingSettings(60.0, 60.0, 60.0)
    for time in (ran, ran + 100.0):
        assert endings.notices([session(comment)], {JOB: idle}, 1000.0 + time, settings) == []


@given(idle=st.floats(0, 1e6), ran=st.floats(0, 1e6))
def test_sessions_are_not_ended_by_default(idle: float, ran: float) -> None:
    endings = Endings()
    for time in (ran, ran + 1e4):
        assert endings.notices([session()], {JOB: idle}, 1000.0 + time, EndingSettings()) == []
