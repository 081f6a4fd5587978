"""Trainings on chosen shapes of a live cluster, through the daemon's own parts.

The port places the trainings, the timing plugin reports, the report reader validates, and the
estimator fits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from examples.demo.cluster import PrivateCluster
from hopsd.core.speed.calibration import Transfer
from hopsd.learning.reader import Collection, ReportReader
from hopsd.model.allocation import Allocation
from hopsd.model.ids import GpuType, JobId, NodeName
from hopsd.model.knowledge import PhaseRecord
from hopsd.model.reading import SlurmState
from hopsd.model.step import OutcomeStatus, Step, StepKind
from hopsd.slurm.apply import SlurmPort
from hopsd.slurm.calibrate import MeasuringSettings, measure, shapes
from hopsd.slurm.scontrol import ScontrolAdapter

FOLDER = Path(__file__).parent
SIZES = (500_000, 2_000_000, 8_000_000)
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A live cluster of emulated devices, and the folder that its jobs report to."""

    cluster: PrivateCluster
    spool: Path
    folder: Path

    def transfers(self, gpu_type: GpuType) -> tuple[list[Transfer], list[Transfer]]:
        """Measure what `hopsctl calibrate` does, within a server and between two."""
        reading = ScontrolAdapter(self.cluster.commands()).read()
        commands = self.cluster.commands(timeout_seconds=PATIENCE_SECONDS)
        site = MeasuringSettings(python=str(self.folder / "device.sh"))
        site_shapes = shapes(reading, gpu_type)
        within_server, between_servers = (
            [
                transfer
                for allocation in allocations
                for transfer in measure(commands, site, allocation, SIZES)[1]
            ]
            for allocations in (site_shapes.link, site_shapes.net)
        )
        return within_server, between_servers

    def profile(self, name: str, node: NodeName) -> tuple[PhaseRecord, ...]:
        """Return what a profile run on one device reports.

        Slurm is out of reach behind the emulated network, so the run ends by itself.
        """
        return self._run(name, 60, Allocation.of({node: 1}), profiling=True).phases

    def throughput(self, name: str, iterations: int, allocation: Allocation) -> float:
        """Samples per second of a training on ``allocation``, as its slowest server reports."""
        reports = self._run(name, iterations, allocation, profiling=False)
        if not reports.records:
            raise RuntimeError(f"{name} on {allocation}: no throughput in {reports}")
        return min(record.per_gpu for record in reports.records) * allocation.gpus

    def _run(
        self, name: str, iterations: int, allocation: Allocation, *, profiling: bool
    ) -> Collection:
        """Train to the end and return the reports."""
        job = self._submit(name, iterations)
        port = SlurmPort(ScontrolAdapter(self.cluster.commands()))
        step = Step(job, StepKind.START, target=allocation, profiling=profiling, iterations=50)
        (outcome,) = port.apply([step])
        if outcome.status is not OutcomeStatus.DONE:
            raise RuntimeError(f"{name} on {allocation}: {outcome.error}")
        reader = ReportReader(self.spool)
        reader.collect(port.read())  # registers where the job runs
        self._wait_until_completed(port, job)
        reports = reader.collect(port.read())
        reader.settle()
        return reports

    def _submit(self, name: str, iterations: int) -> JobId:
        output = self.cluster.run(
            "sbatch",
            "--parsable",
            f"--comment=hops:reqs=1-64;workload={name}",
            f"--output={self.folder}/%j.log",
            str(FOLDER / "job.sh"),
            str(FOLDER / "train.py"),
            name,
            str(iterations),
        )
        return JobId(output.strip())

    def _wait_until_completed(self, port: SlurmPort, job: JobId) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            (job_reading,) = (reading for reading in port.read().jobs if reading.id == job)
            if job_reading.state is SlurmState.COMPLETED:
                return
            if job_reading.state.finished:
                break
            time.sleep(0.5)
        log = (self.folder / f"{job}.log").read_text()[-2000:]
        raise RuntimeError(f"job {job} is {job_reading.state_text}: {log}")
