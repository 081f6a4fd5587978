"""Adapts a script to this machine, which lacks its site's partitions, accounts and programs."""

from __future__ import annotations

import re

GPU_TYPE = "a100"
"""Type of every GPU of the trial's cluster."""

# Options that name things or folders of another site.
_SITE = (
    "partition", "account", "qos", "reservation", "constraint", "nodelist", "nodefile", "exclude",
    "clusters", "licenses", "chdir", "workdir", "output", "error", "input", "wckey", "mail-user",
    "mcs-label", "container-image", "container-mounts", "container-workdir", "container-name",
)  # fmt: skip
_SITE_LETTERS = "pAqCwFxMLDoei"

_PROGRAMS = (
    r"python[\d.]*|torchrun|accelerate|deepspeed|mpirun|mpiexec|horovodrun|singularity|apptainer"
    r"|conda|gmx|gmx_mpi|Rscript"
)


def rewrite(text: str, prelude: str) -> str:
    """Return the script without the options that name a site, with at most three tasks of an array,
    and with stand-ins for its programs.
    """
    lines, has_options = [], False
    for line in text.splitlines():
        if line.startswith("#SBATCH") and not has_options:
            lines += [option_line] if (option_line := _option_line(line)) else []
            continue
        if not has_options and line.strip() and not line.startswith("#"):
            lines.append(f". {prelude}")
            has_options = True
        lines.append(_command_line(line) if has_options else line)
    lines[0] = "#!/bin/bash"
    return "\n".join([*lines, ""])


def _option_line(line: str) -> str:
    for name in _SITE:
        line = re.sub(rf"--{name}[= ]+('[^']*'|\"[^\"]*\"|\S)+", "", line)
    line = re.sub(rf"(?<=\s)-[{_SITE_LETTERS}][ =]*('[^']*'|\"[^\"]*\"|[^\s-]\S*)", "", line)
    line = re.sub(r"(?<=\s)-d[ =]+(?!singleton)\S+|--dependency[= ]+(?!singleton)\S+", "", line)
    line = re.sub(r"(--array[= ]|-a ?)(\d+)-\S+", lambda m: f"{m[1]}{m[2]}-{int(m[2]) + 2}", line)
    line = re.sub(r"gpu:(?!\d)[\w.-]+?(?=:|$|\s|,|\")", f"gpu:{GPU_TYPE}", line)
    line = re.sub(r"(--gpus(?:-per-\w+)?[= ]+|-G ?)(?!\d)[\w.-]+:", rf"\g<1>{GPU_TYPE}:", line)
    line = re.sub(r"(--gres[= ]\S*gpu\S*?),(?!gpu\b)\w+:\w+", r"\1", line)
    bare = line.partition(" #")[0].strip()
    return line if bare != "#SBATCH" else ""


def _command_line(line: str) -> str:
    """Supply the submitter's variables and arguments that the script insists on."""
    line = re.sub(r"\$\{(\w+):?\?[^}]*\}", r"${\1:-given}", line)
    line = re.sub(r"<(YOUR_\w+)>", r"\1", line)
    line = re.sub(r"^(\s*set\s+-\w*)u", r"\1", line)
    line = re.sub(rf"(?<![\w.])[~$\w{{}}./-]*/(?={_PROGRAMS}\b[\s\"'])", "", line)
    return re.sub(r"^(\s*(?:srun\s+|time\s+)?)\./(?=\w)", r"\1", line)
