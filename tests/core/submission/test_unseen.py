"""Lines in a script that keep the timing plugin out."""

from __future__ import annotations

from hopsd.core.submission.options_text import read_script_options
from hopsd.core.submission.unseen import why_unseen


def test_every_unmeasurable_line_is_named() -> None:
    reason = why_unseen(read_script_options("hops:asks|shape:any|starts:docker,pythonpath"))
    assert reason.startswith("its script starts Python with docker, which passes on neither")
    assert "PYTHONPATH=FOLDER:$PYTHONPATH" in reason


def test_enroot_lacks_the_variables_even_if_the_site_mounts_our_folders() -> None:
    reason = why_unseen(read_script_options("hops:asks|starts:enroot"))
    assert "no variables but those named by --env" in reason


def test_measured_and_unknown_scripts_have_no_notice() -> None:
    assert why_unseen(read_script_options("hops:asks|shape:any")) == ""
    assert why_unseen(read_script_options("hops:asks|starts:apptainer,something")) == ""
