"""Why the timing plugin may not get into a training, by the commands that start the training.

Python finds the plugin through ``PYTHONPATH``, and the plugin writes to the folder that
``HOPS_REPORT_DIR`` names.
"""

from __future__ import annotations

from hopsd.model.script_options import ScriptOptions

_REASONS = {
    "cleanenv": "apptainer with --cleanenv, --containall or --compat, which clears hops' variables",
    "writable": "apptainer with --writable, which cannot bind hops' folders",
    "docker": "docker, which passes on neither hops' variables nor its folders",
    "podman": "podman, which passes on neither hops' variables nor its folders",
    "enroot": "enroot, which passes on no variables but those named by --env",
    "shifter": "shifter, where hops' folders are missing unless the site mounts them",
    "sarus": "sarus, where hops' folders are missing unless the site mounts them",
    "charliecloud": "ch-run, where hops' folders are missing unless it binds them",
    "bwrap": "bwrap, where hops' folders are missing unless it binds them",
    "pyxis": "a container (pyxis), where hops' folders are missing unless the site mounts them",
    "pdsh": "pdsh, whose remote shells have none of hops' variables",
    "isolated": "python -I or -E, which ignores PYTHONPATH",
    "pythonpath": "another PYTHONPATH (write PYTHONPATH=FOLDER:$PYTHONPATH to keep hops', too)",
}


def why_unseen(options: ScriptOptions) -> str:
    """Say what may keep the plugin out; "" if nothing of the kind is seen in the script."""
    causes = [words for name, words in _REASONS.items() if name in options.starts]
    return f"its script starts Python with {' and '.join(causes)}" if causes else ""
