"""hopsd.toml: what is accepted, which errors are reported, and that all descriptions agree."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from hopsd.config import Config, PortName, load, parse
from hopsd.config.__main__ import DOCUMENTATION, REFERENCE
from hopsd.config.option import Option, hide_password, options
from hopsd.config.reference import (
    documentation,
    reference_file,
    settings,
    toml,
    toml_value,
)
from hopsd.config.schema import SECTIONS
from hopsd.ctl.admin.config import config as config_command
from hopsd.errors import ConfigError
from hopsd.model.ids import GpuType
from hopsd.model.job import ThroughputTable
from hopsd.model.knowledge import Bandwidth
from hopsd.model.plan import PlanSettings, PriorityName
from hopsd.round.settings import round_settings

ALL_OPTIONS = [(section, option) for section, kind in SECTIONS.items() for option in options(kind)]


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigError) as error_info:
        parse(text, Path("hopsd.toml"))
    return str(error_info.value).splitlines()


def test_an_empty_file_means_all_defaults() -> None:
    assert parse("") == Config()
    assert Config().plan.settings == PlanSettings(policy="hops+")


def test_given_values_have_their_types() -> None:
    config = parse(
        """
        [daemon]
        refresh_seconds = 5
        socket = "/srv/x.sock"
        [slurm]
        port = "shadow"
        partitions = ["gpu", "a100"]
        [plan]
        lambda = 2
        time_limit = 3.5
        priority = "las"
        """
    )
    assert (config.daemon.refresh_seconds, config.daemon.socket) == (5.0, Path("/srv/x.sock"))
    assert config.slurm.port is PortName.SHADOW
    assert config.slurm.partitions == ("gpu", "a100")
    assert config.plan.settings == PlanSettings(
        lam=2.0, time_limit_seconds=3.5, priority=PriorityName.LAS, policy="hops+"
    )
    assert "plan.lambda" in config.explicit_keys


def test_throughput_tables_are_parsed() -> None:
    config = parse(
        """
        [throughput.resnet50.rtx3090]
        aggregated = { "1" = 100.0, "2" = 98 }
        distributed = { 2 = 70.0 }
        [throughput.resnet50.v100]
        aggregated = { "1" = 50.0 }
        """
    )
    assert config.throughput == {
        "resnet50": {
            "rtx3090": ThroughputTable({1: 100.0, 2: 98.0}, {2: 70.0}),
            "v100": ThroughputTable({1: 50.0}),
        }
    }


def test_bandwidths_are_parsed() -> None:
    rtx3090 = GpuType("rtx3090")
    config = parse("[bandwidth.rtx3090]\nb_link = 2.5e9\nb_net = 1100000000")
    assert config.bandwidth == {rtx3090: Bandwidth(rtx3090, 2.5e9, 1.1e9)}
    assert parse(toml(config)).bandwidth == config.bandwidth
    assert errors("[bandwidth.a100]\nb_link = 0\nb_lan = 1") == [
        "hopsd.toml:1: bandwidth.a100 needs b_net, in parameters per second",
        "hopsd.toml:2: bandwidth.a100.b_link 0 is not accepted; accepted: above 0",
        "hopsd.toml:3: bandwidth.a100.b_lan is unknown; did you mean b_link?",
    ]


def test_racks_are_parsed() -> None:
    config = parse('[racks]\nr1 = "n[0-2]"\n"row 2" = "m1,m[3-4]"')
    assert config.racks == {"r1": ("n0", "n1", "n2"), "row 2": ("m1", "m3", "m4")}
    assert parse(toml(config)).racks == config.racks
    assert round_settings(config).snapshot.racks["m3"] == "row 2"
    complaint = "is not accepted; accepted: a list of hosts as Slurm writes it, n[0-3,7]"
    assert errors('[racks]\na = "n[0-"\nb = 3\nc = "n[1-2]"\nd = "n2"\ne = ""') == [
        f"hopsd.toml:2: racks.a 'n[0-' {complaint}",
        f"hopsd.toml:3: racks.b 3 {complaint}",
        "hopsd.toml:5: racks.d has n2, which is in c",
        f"hopsd.toml:6: racks.e '' {complaint}",
    ]


def test_every_error_is_reported_with_its_line() -> None:
    text = """\
[daemon]
refresh_secs = 3
round_seconds = true
[plan]
gap = 5
[slurm]
port = "scontrl"
partitions = [1]
[datbase]
dsn = "x"
[throughput.resnet50.rtx3090]
aggregated = { "x" = 3, "0" = 1.0, "1" = -2, "2" = "fast", "3" = 1.0 }
distributed = { "1" = 1.0 }
[throughput.bert.v100]
speed = 3
"""
    table = "throughput.resnet50.rtx3090"
    ports = "auto, pyslurm, scontrol, shadow"
    seconds = "is not accepted; accepted: a number from 1 to 604800"
    needs = 'needs aggregated, such as aggregated = { "1" = 100.0 }'
    assert errors(text) == [
        "hopsd.toml:2: daemon.refresh_secs is unknown; did you mean refresh_seconds?",
        f"hopsd.toml:3: daemon.round_seconds true {seconds}",
        "hopsd.toml:5: plan.gap 5 is not accepted; accepted: a number from 0 to 1",
        f"hopsd.toml:7: slurm.port 'scontrl' is not accepted; accepted: one of {ports}",
        "hopsd.toml:8: slurm.partitions [1] is not accepted; accepted: a list of strings",
        "hopsd.toml:9: datbase is unknown; did you mean database?",
        f"hopsd.toml:12: {table}.aggregated.0 is not a count; accepted: a whole number from 1",
        f"hopsd.toml:12: {table}.aggregated.1 -2 is not accepted; accepted: above 0",
        f"hopsd.toml:12: {table}.aggregated.2 'fast' is not accepted; accepted: a number",
        f"hopsd.toml:12: {table}.aggregated.x is not a count; accepted: a whole number from 1",
        f"hopsd.toml:13: {table}.distributed.1 is not a count; accepted: a whole number from 2",
        f"hopsd.toml:14: throughput.bert.v100 {needs}",
        "hopsd.toml:15: throughput.bert.v100.speed is unknown; accepted: aggregated, distributed",
    ]


@pytest.mark.parametrize(
    ("text", "setting", "accepted_values"),
    [
        ("daemon = 3", "daemon 3", "a table"),
        ("throughput = 3", "throughput 3", "a table"),
        ("throughput.x = 3", "throughput.x 3", "a table"),
        ("bandwidth = 3", "bandwidth 3", "a table"),
        ("bandwidth.x = 3", "bandwidth.x 3", "a table"),
        ("racks = 3", "racks 3", "a table"),
        ("daemon.socket = 'run'", "daemon.socket 'run'", "an absolute path"),
        ("plan.seed = 1.5", "plan.seed 1.5", "a whole number from 0"),
        ("plan.lambda = nan", "plan.lambda nan", "a number from 0"),
        ("plan.sigma = 0", "plan.sigma 0", "a number above 0"),
        ("plan.time_limit = 1e300", "plan.time_limit 1e+300", "a number above 0 to 86400"),
        ("plan.paper_exact = 1", "plan.paper_exact 1", "true or false"),
    ],
)
def test_bad_values_are_refused(text: str, setting: str, accepted_values: str) -> None:
    assert errors(text) == [f"hopsd.toml:1: {setting} is not accepted; accepted: {accepted_values}"]


def test_conflicting_settings_are_refused() -> None:
    complaint = "daemon.refresh_seconds is 60; accepted: at most round_seconds = 30"
    text = "[daemon]\nrefresh_seconds = 60\nround_seconds = 30"
    assert errors(text) == [f"hopsd.toml:2: {complaint}"]


def test_a_bad_dsn_is_not_repeated_in_the_error() -> None:
    (error,) = errors('database.dsn = ["password=geheim"]')
    assert "geheim" not in error


def test_invalid_toml_and_missing_files_are_refused(tmp_path: Path) -> None:
    assert errors("[daemon\n")[0].startswith("hopsd.toml: not TOML: ")
    twice = errors("# x\n[web]\n[api]\n[web]\n")[0]
    assert twice.endswith(": [web] is already in line 2; put the keys there")
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "hopsd.toml")
    (tmp_path / "windows").write_bytes(b"\xef\xbb\xbf[plan]\r\ngap = 0.5\r\n")
    assert load(tmp_path / "windows").plan.settings.gap == 0.5
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "latin")


@pytest.mark.parametrize(
    ("section", "option"), ALL_OPTIONS, ids=lambda value: getattr(value, "key", value)
)
def test_every_setting_is_described_and_its_default_accepted(section: str, option: Option) -> None:
    assert option.doc.endswith(".")
    assert option.key in {"lambda", "time_limit"} or option.key == option.name
    plain = option.plain(option.default)
    assert option.parse(plain) == option.default
    config = parse(f"[{section}]\n{option.key} = {toml_value(plain)}")
    assert config == Config()
    assert config.explicit_keys == {f"{section}.{option.key}"}


def test_sections_are_the_fields_of_the_configuration() -> None:
    names = {item.name for item in fields(Config)} - {
        "throughput",
        "bandwidth",
        "racks",
        "explicit_keys",
        "warnings",
        "path",
    }
    assert names == set(SECTIONS)


def test_the_reference_file_is_generated_from_the_schema() -> None:
    assert REFERENCE.read_text() == reference_file(), "run python -m hopsd.config"
    assert load(REFERENCE) == Config()


def test_the_reference_file_uncommented_sets_every_default() -> None:
    lines = [line.removeprefix("#") for line in reference_file().splitlines()]
    text = "\n".join(line for line in lines if not line.startswith(" "))
    config = parse(text)
    assert {f"{section}.{option.key}" for section, option in ALL_OPTIONS} < config.explicit_keys
    assert config.plan == Config().plan
    assert list(config.throughput) == ["resnet50"]


def test_the_documentation_is_generated_from_the_schema() -> None:
    text = DOCUMENTATION.read_text()
    assert text == documentation(text), "run python -m hopsd.config"
    assert all(f"| `{option.key}` | " in text for _, option in ALL_OPTIONS)


@pytest.mark.parametrize(
    ("dsn", "hidden_dsn"),
    [
        ("dbname=hops", "dbname=hops"),
        ("host=h password=geheim dbname=x", "host=h password=*** dbname=x"),
        (r"password='ge\'h eim' host=h", "password=*** host=h"),
        (r"password = ge\ heim host=h", "password = *** host=h"),
        ("sslpassword=geheim", "sslpassword=***"),
        ("PASSWORD='geheim", "PASSWORD=***"),
        ("postgresql://u:geheim@h:5432/x", "postgresql://u:***@h:5432/x"),
        ("postgresql://u:ge@heim@h/x", "postgresql://u:***@h/x"),
        ("postgresql://u@h/x?password=geheim&host=y", "postgresql://u@h/x?password=***&host=y"),
        ("postgresql://h/x", "postgresql://h/x"),
    ],
)
def test_passwords_are_hidden(dsn: str, hidden_dsn: str) -> None:
    assert hide_password(dsn) == hidden_dsn


def run(*args: str) -> Any:
    return CliRunner().invoke(config_command, list(args))


def test_check_counts_settings_and_show_names_their_origin(tmp_path: Path) -> None:
    path = tmp_path / "hopsd.toml"
    path.write_text(
        '[plan]\nlambda = 2\n[database]\ndsn = "host=h password=geheim"\n'
        '[throughput."a b".v100]\naggregated = { 1 = 2.0 }\n'
    )
    path.chmod(0o640)
    output = run("check", str(path)).stdout
    assert output.startswith(f"{path}: good")
    assert output.endswith(", 3 settings given\n")
    shown_text = run("show", str(path)).output
    assert "geheim" not in shown_text
    assert "lambda = 2.0  # file" in shown_text
    assert "sigma = 1.4  # default" in shown_text
    second_parse = parse(shown_text)
    assert (second_parse.plan, second_parse.throughput) == (load(path).plan, load(path).throughput)
    settings = json.loads(run("show", "--json", str(path)).output)["settings"]
    assert settings["plan.lambda"] == {"value": 2.0, "origin": "file"}
    assert settings["plan.sigma"] == {"value": 1.4, "origin": "default"}
    assert settings['throughput."a b".v100.aggregated'] == {"value": {"1": 2.0}, "origin": "file"}
    assert "geheim" not in json.dumps(settings)


def test_show_prints_the_whole_configuration() -> None:
    assert parse(toml(Config())) == Config()
    assert {setting.path for setting in settings(Config())} == {
        f"{s}.{o.key}" for s, o in ALL_OPTIONS
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    section=st.sampled_from(
        [*SECTIONS, "throughput", "throughput.x", "throughput.x.y", "bandwidth.x", "racks"]
    ),
    key=st.sampled_from(
        [option.key for _, option in ALL_OPTIONS] + ["aggregated", "distributed", "x", "b_net"]
    ),
    value=json_values,
)
def test_no_value_causes_a_crash(section: str, key: str, value: object) -> None:
    """Any value that TOML can express is accepted or refused with an error."""
    text = f"[{section}]\n{key} = {toml_value(value)}"
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    message = ""
    try:
        parse(text)
    except ConfigError as error:
        message = str(error)
    assert not message or f"configuration:1: {section}" in message or f"{section}.{key}" in message


@given(st.text())
def test_any_text_is_written_as_valid_toml(text: str) -> None:
    assert tomllib.loads(f"x = {toml_value(text)}") == {"x": text}


def test_a_setting_of_an_earlier_release_is_accepted_with_a_notice() -> None:
    config = parse("[plan]\ntry_shapes = true\n", Path("hopsd.toml"))
    assert config == parse("")
    assert config.warnings == ("hopsd.toml:2: plan.try_shapes has no effect any more; delete it",)


def test_a_rival_is_accepted_for_simulations_only() -> None:
    with pytest.raises(ConfigError, match=r"plan.policy.*sia"):
        parse('[plan]\npolicy = "sia"')


def test_paper_exact_uses_hops_unless_another_policy_is_named() -> None:
    def policy(text: str) -> str:
        return parse(f"[plan]\n{text}").plan.settings.policy

    assert policy("") == "hops+"
    assert policy("paper_exact = true") == "hops"
    assert policy('policy = "themis"\npaper_exact = true') == "themis"
    assert policy('policy = "hops+"\npaper_exact = false') == "hops+"
    with pytest.raises(ConfigError, match=r"plan.policy is hops\+, which the paper does not have"):
        policy('policy = "hops+"\npaper_exact = true')
    with pytest.raises(ConfigError) as error_info:
        policy('policy = "hosp"\npaper_exact = true')
    assert len(str(error_info.value).splitlines()) == 1
