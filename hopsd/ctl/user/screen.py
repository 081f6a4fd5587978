"""The application of `hopsctl top`, with the keys of htop."""

from __future__ import annotations

import getpass
import signal
from asyncio import get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from hopsd.ctl.render import cell
from hopsd.ctl.terminal import printable
from hopsd.ctl.user.status import explanation, headline, totals_of
from hopsd.errors import HopsError
from hopsd.model.reason import clock, duration
from hopsd.slurm.command import SlurmCommands

Document = dict[str, Any]
Row = dict[str, Any]

BAR = 30
"""Width of the bar of a GPU type."""
TYPES = 6
"""Maximum number of GPU types with a bar."""
LOW = 20
"""A screen with fewer lines has no bars."""
MAX_ROWS = 500
"""Maximum number of rows of a table: redrawing 4,000 takes two seconds for each key of a filter."""
KEYS = (
    ("arrows, PgUp, PgDn", "scroll; right: more columns; Home, End: first and last job"),
    ("Tab", "to the other table"),
    ("/", "only jobs with this text; Escape: all"),
    ("u", "only your jobs, and back"),
    ("s, S", "sort by the next or previous column; or click on a heading"),
    ("r", "reverse the order"),
    ("Enter", "why the job runs where it runs, or waits"),
    ("c", "cancel the job (scancel) after confirmation"),
    ("q", "quit"),
)


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """A column's heading, its text for a job, and the value that jobs are sorted by."""

    title: str
    text: Callable[[Row, float], object]
    order: Callable[[Row, float], Any]


def _plain(title: str, key: str) -> ScreenColumn:
    return ScreenColumn(title, lambda job, _: job[key], lambda job, _: job[key])


def _seconds(title: str, seconds: Callable[[Row, float], float | None]) -> ScreenColumn:
    def text(job: Row, now: float) -> str:
        time_left = seconds(job, now)
        return "-" if time_left is None else duration(time_left)

    return ScreenColumn(title, text, seconds)


def _prediction_column(title: str, key: str = "expected") -> ScreenColumn:
    def remaining(job: Row, now: float) -> float | None:
        prediction = job.get("predicted")
        return max(0.0, prediction[key] - now) if prediction else None

    return _seconds(title, remaining)


def _progress(job: Row, _: float = 0.0) -> float | None:
    return job["samples_done"] / job["samples"] if job["samples"] else None


def _percent(job: Row, now: float) -> str:
    progress = _progress(job, now)
    return "-" if progress is None else f"{progress:.0%}"


def _job_order(job: Row, _: float) -> tuple[int, ...]:
    return tuple(int(part) for part in job["id"].split("_") if part.isdigit())


def _gpus(job: Row, _: float = 0.0) -> int:
    return sum(job["placement"].values())


_JOB = ScreenColumn("job", lambda job, _: job["id"], _job_order)
_WAIT_COLUMN = _seconds("waited", lambda job, _: job["wait_seconds"])
_PRIORITY, _RATIO = _plain("priority", "priority"), _plain("wait/run", "latency_ratio")

RUNNING = (
    _JOB,
    _plain("user", "user"),
    _plain("name", "name"),
    ScreenColumn("GPUs", _gpus, _gpus),
    _seconds("runs for", lambda job, now: now - job["since"] if job["since"] else None),
    _prediction_column("ends in"),
    ScreenColumn("done", _percent, _progress),
    _WAIT_COLUMN,
    _RATIO,
    _PRIORITY,
    _plain("gain", "gain"),
    _prediction_column("at earliest", "low"),
    _prediction_column("at latest", "high"),
    _plain("restarts", "restarts"),
    ScreenColumn("placement", lambda job, _: job["placement"], lambda job, _: [*job["placement"]]),
    _plain("accepts", "reqs"),
)
WAITING = (
    _JOB,
    _plain("user", "user"),
    _plain("name", "name"),
    _plain("accepts", "reqs"),
    _WAIT_COLUMN,
    _prediction_column("starts in"),
    ScreenColumn("code", lambda job, _: _code(job), lambda job, _: _code(job)),
    _plain("priority", "priority"),
    _plain("why", "reason"),
    _RATIO,
    _prediction_column("at earliest", "low"),
    _prediction_column("at latest", "high"),
)


def _code(job: Row) -> str:
    return str(job["code"] or job["state"].lower())


@dataclass(frozen=True, slots=True)
class Sorting:
    """The column to sort by, None for hopsd's order; and whether the order is reversed."""

    column: int | None = None
    reverse: bool = False


class Jobs(DataTable[Text]):
    """A table of jobs that keeps its order, and its cursor on a job, through refreshes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", show=False),
        Binding("end", "scroll_bottom", show=False),
    ]

    def __init__(self, kind: str, columns: Sequence[ScreenColumn]) -> None:
        super().__init__(id=kind, cursor_type="row", zebra_stripes=False)
        self.kind, self.order = kind, Sorting()
        self._columns = columns
        self._rows: list[Row] = []

    def on_mount(self) -> None:
        self.add_columns(*(column.title for column in self._columns))

    @property
    def job(self) -> Row | None:
        """The job under the cursor."""
        return self._rows[self.cursor_row] if self._rows else None

    def sort_by(self, column: int) -> None:
        is_current = self.order.column == column
        self.order = Sorting(column, is_current and not self.order.reverse)

    def step(self, offset: int) -> None:
        """Sort by the column ``offset`` to the right; after the last comes hopsd's order."""
        places = [None, *range(len(self._columns))]
        position = (places.index(self.order.column) + offset) % len(places)
        self.order = Sorting(places[position])

    def show(self, doc: Document, selects: Callable[[Row], bool], words: str) -> str:
        """Fill the table; return its title."""
        now = doc["time"] or 0.0
        selection = self.job["id"] if self.job else None
        cells = [
            (job, [cell(column.text(job, now)) for column in self._columns])
            for job in doc[self.kind]
            if selects(job)
        ]
        cells = [(job, texts) for job, texts in cells if words in " ".join(texts).lower()]
        order = self.order
        if order.column is not None:
            value = self._columns[order.column].order
            with_value = [pair for pair in cells if value(pair[0], now) is not None]
            unknown = [pair for pair in cells if value(pair[0], now) is None]
            with_value.sort(key=lambda pair: value(pair[0], now), reverse=order.reverse)
            cells = with_value + unknown
        elif order.reverse:
            cells.reverse()
        matches = len(cells)
        del cells[MAX_ROWS:]
        self._rows = [job for job, _ in cells]
        scroll = self.scroll_offset
        self.clear()
        for _, texts in cells:
            self.add_row(*map(Text, texts))
        places = {job["id"]: position for position, job in enumerate(self._rows)}
        if selection in places:
            self.move_cursor(row=places[selection], scroll=False)
        self.scroll_to(scroll.x, scroll.y, animate=False)
        return self._title(matches, totals_of(doc)[self.kind])

    def _title(self, matches: int, total: int) -> str:
        count = f"{total:,}" if matches == total else f"{matches:,} of {total:,}"
        if matches > MAX_ROWS:
            count += f" (the first {MAX_ROWS} are listed)"
        title = f"{self.kind.capitalize()}: {count}"
        if self.order.column is not None:
            title += f", by {self._columns[self.order.column].title}"
        return title + (", reversed" if self.order.reverse else "")


class Page(ModalScreen[None]):
    """Shows text over the screen until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "back")
    ]

    def __init__(self, content: Any) -> None:
        super().__init__()
        self._content = content

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._content)
        yield Footer(show_command_palette=False)


class Confirmation(ModalScreen[bool]):
    """Asks a question; only y means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q", "dismiss(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(self._text))
        yield Footer(show_command_palette=False)


class Top(App[int]):
    """Asks hopsd every few seconds in a thread, so that keys never wait for it."""

    CSS = """
    Screen { layout: vertical; }
    #head, #problem, .title, #find { height: auto; }
    #problem { color: red; text-style: bold; display: none; }
    .title { text-style: bold; }
    DataTable { height: 1fr; scrollbar-size-horizontal: 0; }
    #find { display: none; border: none; }
    Page VerticalScroll { background: $surface; }
    Confirmation { align: center middle; }
    Confirmation Static { width: auto; padding: 1 3; background: $surface; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "end", "end"),
        Binding("ctrl+c", "end", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("slash", "find", "filter", key_display="/"),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("u", "mine", "mine"),
        Binding("c", "cancel", "cancel"),
        Binding("escape", "all", show=False),
    ]

    def __init__(
        self,
        doc: Document,
        period: float,
        *,
        status: Callable[[], Document],
        explain: Callable[[str], Document],
        user: str | None = None,
    ) -> None:
        super().__init__()
        self._doc = doc
        self._period = period
        self._status = status
        self._explain = explain
        self._user = user or getpass.getuser()
        self._mine = False
        self._words = ""
        self._tables = Jobs("running", RUNNING), Jobs("waiting", WAITING)

    def run_until_asked_to_end(self) -> int:
        """Run, and return the exit code: 0, or 128 plus the number of the signal that ended it."""
        return self.run() or 0

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="problem")
        for jobs in self._tables:
            yield Static(id=f"title-{jobs.kind}", classes="title")
            yield jobs
        yield Input(placeholder="only jobs with this text", id="find", compact=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            end = partial(self.exit, 128 + number)
            get_running_loop().add_signal_handler(number, end)
        self.draw()
        self.set_interval(self._period, self.refresh_status)
        self._tables[1 if self._doc["waiting"] else 0].focus()

    def on_resize(self) -> None:
        self.draw()

    @work(thread=True, exclusive=True)
    def refresh_status(self) -> None:
        """Ask hopsd; if it does not answer, the screen keeps what it shows."""
        try:
            doc, problem = self._status(), ""
        except HopsError as error:
            doc, problem = self._doc, f"as of {clock(self._doc['time'])}: {error}"
        self.call_from_thread(self.take, doc, problem)

    def take(self, doc: Document, problem: str) -> None:
        self._doc = doc
        self.draw(problem)

    def draw(self, problem: str = "") -> None:
        """Redraw the screen."""
        doc = self._doc
        low = self.size.height < LOW
        bars = [] if low else _bars(totals_of(doc)["types"])
        head = self.query_one("#head", Static)
        head.update(Group(headline(doc), *bars))
        head.styles.max_height = 3 if low else None
        wrong = self.query_one("#problem", Static)
        text = problem or doc["error"] or ""
        wrong.update(Text(printable(text)))
        wrong.display = bool(text)
        for jobs in self._tables:
            title = jobs.show(doc, self._is_selected, self._words)
            subtitle = f'{title}, with "{printable(self._words)}"' if self._words else title
            subtitle += f", of {printable(self._user)}" if self._mine else ""
            self.query_one(f"#title-{jobs.kind}", Static).update(Text(subtitle))
        self._share_room()

    def _share_room(self) -> None:
        """Give each table no more lines than it has rows, and the rest to the other one."""
        needs = [jobs.row_count + 1 for jobs in self._tables]
        for jobs, need, opposite in zip(self._tables, needs, reversed(needs), strict=True):
            jobs.styles.height = "1fr" if need >= opposite else need
            jobs.styles.max_height = "50%" if need < opposite else None

    def _is_selected(self, job: Row) -> bool:
        return not self._mine or job["user"] == self._user

    @property
    def _active_table(self) -> Jobs:
        running, waiting = self._tables
        return running if self.focused is running else waiting

    def action_end(self) -> None:
        self.exit(0)

    def action_keys(self) -> None:
        wide = max(len(key) for key, _ in KEYS)
        self.push_screen(
            Page(Text("\n".join(f"{key:{wide}}  {description}" for key, description in KEYS)))
        )

    def action_sort(self, offset: int) -> None:
        self._active_table.step(offset)
        self.draw()

    def action_reverse(self) -> None:
        jobs = self._active_table
        jobs.order = replace(jobs.order, reverse=not jobs.order.reverse)
        self.draw()

    def action_mine(self) -> None:
        self._mine = not self._mine
        self.draw()

    def action_find(self) -> None:
        find = self.query_one("#find", Input)
        find.display = True
        find.focus()

    def action_all(self) -> None:
        """Show all jobs again."""
        find = self.query_one("#find", Input)
        find.value, find.display = "", False
        self._mine = False
        self._active_table.focus()
        self.draw()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value.lower()
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = bool(event.value)
        self._tables[0 if self._tables[0].row_count else 1].focus()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        if isinstance(event.data_table, Jobs):
            event.data_table.sort_by(event.column_index)
            self.draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if isinstance(event.data_table, Jobs) and (job := event.data_table.job) is not None:
            self.show_explanation(job["id"])

    @work(thread=True)
    def show_explanation(self, job: str) -> None:
        """Ask hopsd why the job runs or waits, and show the answer."""
        try:
            content: Any = Group(*explanation(job, self._explain(job)))
        except HopsError as error:
            content = Text(printable(str(error)))
        self.call_from_thread(self.push_screen, Page(content))

    def action_cancel(self) -> None:
        job = self._active_table.job
        if job is None:
            return
        name = printable(f"{job['name']} of {job['user']}")

        def cancel_if_confirmed(yes: bool | None) -> None:
            if yes:
                self.cancel(job["id"])

        self.push_screen(Confirmation(f"Cancel job {job['id']}, {name}?"), cancel_if_confirmed)

    @work(thread=True)
    def cancel(self, job: str) -> None:
        """Cancel the job; Slurm decides whether this user may."""
        try:
            message = SlurmCommands(30.0).run("scancel", job) or f"job {job} is cancelled"
        except HopsError as error:
            message = str(error)
        self.call_from_thread(self.notify, printable(message), markup=False)
        self.call_from_thread(self.refresh_status)


def _bars(types: Sequence[Document]) -> list[Text]:
    """Draw a bar for each type: how many of its usable GPUs are in use."""
    wide = max((len(kind["gpu_type"]) for kind in types), default=0)
    bars = []
    for kind in types[:TYPES]:
        usable = kind["usable"]
        in_use, unavailable = usable - kind["idle"], kind["gpus"] - usable
        cells = round(BAR * in_use / usable) if usable else 0
        bar = Text(f"{printable(kind['gpu_type']):{wide}} ", no_wrap=True, overflow="ellipsis")
        bar.append("█" * cells, style="green").append("░" * (BAR - cells), style="dim")
        bar.append(f" {in_use} of {usable} in use")
        if unavailable:
            bar.append(f", {unavailable} not usable", style="yellow")
        bars.append(bar)
    if len(types) > TYPES:
        bars.append(Text(f"and {len(types) - TYPES} more types: hopsctl status", no_wrap=True))
    return bars
