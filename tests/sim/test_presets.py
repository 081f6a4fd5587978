"""The paper's clusters and job mixes, and workloads made from logs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean, stdev

import pytest
from sim_cases import cluster

from hopsd.errors import FormatError, InputError
from hopsd.sim.facts import facts_of, unplaceable
from hopsd.sim.logs.importers import philly, plain, sacct, workload_of
from hopsd.sim.presets import PRESETS, preset


@pytest.mark.parametrize(
    ("name", "servers", "gpus", "types", "jobs"),
    [("paper-64", 10, 64, 4, 25), ("paper-512", 64, 512, 5, 500)],
)
def test_sizes_match_sections_4_2_and_4_3(
    name: str, servers: int, gpus: int, types: int, jobs: int
) -> None:
    servers_of_preset = preset(name).cluster()
    assert (
        len(servers_of_preset.servers),
        servers_of_preset.gpus,
        len(servers_of_preset.gpus_by_type()),
    ) == (servers, gpus, types)
    load = preset(name).workload(seed=1)
    assert len(load.jobs) == jobs
    assert unplaceable(servers_of_preset, load) == []
    assert load.jobs[0].submit == 0.0
    for job in load.jobs:
        assert 1 <= len(job.reqs) <= 8
        assert list(job.reqs) == sorted(set(job.reqs))
        assert 1 <= job.reqs[0] <= job.reqs[-1] <= 16


def test_arrivals_have_the_requested_rate() -> None:
    load = preset("paper-512").workload(seed=3, jobs=2000, rate_per_hour=600.0)
    assert load.jobs[-1].submit == pytest.approx(2000 / 600 * 3600, rel=0.1)


@pytest.mark.slow
def test_gaps_between_arrivals_are_exponential() -> None:
    """Mean and standard deviation are equal, and 1 - 1/e of the gaps are below the mean."""
    submits = [job.submit for job in preset("paper-512").workload(seed=4, jobs=4000).jobs]
    gaps = [b - a for a, b in pairwise(submits)]
    assert fmean(gaps) == pytest.approx(36.0, rel=0.05)
    assert stdev(gaps) == pytest.approx(fmean(gaps), rel=0.1)
    assert sum(gap < fmean(gaps) for gap in gaps) / len(gaps) == pytest.approx(0.632, abs=0.03)


TABLE_2 = {
    "resnet50-imagenet": ("XL", 128), "resnet18-cifar10": ("S", 256),
    "vgg11-imagenet": ("L", 32), "vgg13-cifar10": ("S", 128),
    "convnext_base-imagenet": ("L", 32), "convnext_base-cifar10": ("S", 64),
    "densenet161-imagenet": ("L", 32), "densenet161-cifar10": ("S", 64),
    "mobilenet_v2-imagenet": ("M", 64), "mobilenet_v2-cifar10": ("S", 64),
    "regnet_y_8gf-imagenet": ("L", 32), "regnet_y_8gf-cifar10": ("M", 32),
    "distilbert-imdb": ("L", 128), "vit_b16-food101": ("M", 48), "macbert-c3": ("M", 8),
    "wav2vec2-commonlanguage": ("M", 16), "gpt2_medium-wikitext": ("L", 8),
}  # fmt: skip
"""Category and batch size by model and data set, as printed in the paper."""


@pytest.mark.parametrize("name", PRESETS)
def test_the_job_mix_matches_table_2(name: str) -> None:
    """Categories have the preset's shares, and the models of a category are equally frequent."""
    jobs = preset(name).workload(seed=5, jobs=4000).jobs
    job_counts = Counter(str(job.workload) for job in jobs)
    assert {job.workload: job.batch_size for job in jobs} == {n: b for n, (_, b) in TABLE_2.items()}
    for category, share in preset(name).mix.items():
        models = [n for n, (c, _) in TABLE_2.items() if c == category]
        for model in models:
            assert job_counts[model] / len(jobs) == pytest.approx(share / len(models), abs=0.016)


def test_presets_depend_on_the_seed_only() -> None:
    paper_preset = preset("paper-64")
    assert paper_preset.workload(7) == paper_preset.workload(7)
    assert paper_preset.workload(7) != paper_preset.workload(8)


def test_categories_have_the_papers_gpu_hours() -> None:
    """GPU hours on the mean type are samples / (one GPU's mean rate), which is age x mean size."""
    paper_preset = preset("paper-512")
    load = paper_preset.workload(seed=2)
    hours = [f.gpu_seconds / 3600 for f in facts_of(paper_preset.cluster(), load)]
    bounds = {"S": (0, 1.01), "M": (0.99, 10.1), "L": (9.9, 50.5), "XL": (49.5, 101.0)}
    category_counts = Counter(
        next(c for c, (low, high) in bounds.items() if low <= h <= high) for h in hours
    )
    assert category_counts["S"] > category_counts["L"] > category_counts["XL"] > 0
    assert 512 * 7 < sum(hours) < 512 * 14


def test_the_mix_has_sensitive_and_insensitive_models() -> None:
    """Spreading slows some models several times and others hardly at all, as in figure 1b."""
    tables = preset("paper-64").workload(0).throughput
    ratios = [
        fmean(t.aggregated[1] / t.distributed[2] for t in by_type.values())
        for by_type in tables.values()
    ]
    assert min(ratios) < 1.05
    assert max(ratios) > 2.0
    assert 0.2 < sum(r > 1.4 for r in ratios) / len(ratios) < 0.7


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=", ".join(PRESETS)):
        preset("paper-1")


def test_philly_logs_keep_gpus_and_run_times() -> None:
    text = "submit_s,num_gpus,duration,cluster\n0,4,17388.0,e13805\n522,1,71.0,11cb48\n"
    load = workload_of(philly(text), cluster(n0=8))
    assert [(j.submit, j.reqs, j.samples) for j in load.jobs] == [
        (0.0, (4,), 4 * 17388.0),
        (522.0, (1,), 71.0),
    ]


def test_sacct_logs_keep_gpu_jobs_that_ran() -> None:
    text = (
        "JobIDRaw|User|Submit|Start|End|AllocTRES|State\n"
        "7|ann|2026-01-01T10:00:00|2026-01-01T10:05:00|2026-01-01T11:05:00|cpu=8,gres/gpu=2|OK\n"
        "8|ann|2026-01-01T10:01:00|2026-01-01T10:05:00|2026-01-01T11:05:00|cpu=8|OK\n"
        "9|bob|2026-01-01T10:02:00|None|Unknown||CANCELLED\n"
        "10|bob|2026-01-01T10:03:00|2026-01-01T10:04:00|2026-01-01T10:05:00|gres/gpu:a100=4|OK\n"
    )
    jobs = sacct(text)
    assert [(j.id, j.user, j.gpus, j.seconds) for j in jobs] == [
        ("7", "ann", 2, 3600.0),
        ("10", "bob", 4, 60.0),
    ]
    assert [j.submit for j in workload_of(jobs, cluster(n0=8)).jobs] == [0.0, 180.0]


def test_a_csv_may_name_requirements() -> None:
    text = "id,user,submit,gpus,seconds,reqs\n1,ann,5,2,100,1 2 4\n2,bob,6,1,50,\n"
    load = workload_of(plain(text), cluster(n0=8))
    assert [j.reqs for j in load.jobs] == [(1, 2, 4), (1,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "line 1: columns"),
        ("submit_s,num_gpus,duration,cluster\n0,x,1,c\n", "line 2: num_gpus 'x'"),
        ("submit_s,num_gpus,duration,cluster\n0,1\n", "line 2: too few"),
    ],
)
def test_a_bad_log_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        philly(text)


HEAD = "id,user,submit,gpus,seconds,reqs\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1,u,0,2,100,\n1,u,5,2,100,\n", "job '1' is in the log twice"),
        (HEAD + ",u,0,2,100,\n", "has no id"),
        (HEAD + "1,u,0,2.7,100,\n", "line 2: gpus '2.7'"),
        (HEAD + "1,u,0,2,100,0 2\n", "line 2: reqs '0 2'"),
        (HEAD + "1,u,0,2,100,99999999\n", "line 2: reqs '99999999'"),
        (HEAD + "1,u,0,2,100,\n\n2,u,x,2,100,\n", "line 4: submit 'x'"),
        (HEAD + "1,u,0,2,100,4,8\n", "line 2: more columns"),
        ("gpus," + HEAD + "1,1,u,0,2,100,\n", "line 1: columns gpus are there twice"),
        (HEAD + "x" * 200_000 + ",u,0,2,100,\n", "line 1: field larger"),
    ],
)
def test_a_nonsensical_csv_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        workload_of(plain(text), cluster(n0=8))


@pytest.mark.parametrize("count", ["x", "-2"])
def test_gpu_counts_that_sacct_would_not_print_are_refused(count: str) -> None:
    text = (
        "JobIDRaw|User|Submit|Start|End|AllocTRES|State\n"
        f"1|u|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|gres/gpu={count}|OK\n"
    )
    with pytest.raises(FormatError, match=f"line 2: AllocTRES 'gres/gpu={count}'"):
        sacct(text)
