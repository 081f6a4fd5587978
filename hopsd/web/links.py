"""Links to a site's other pages: GPU utilisation in Grafana, a job's log in Open OnDemand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote


def links(templates: Iterable[str], **values: str | None) -> list[tuple[str, str]]:
    """Title and address of each of ``templates``, such as `GPUs https://site/d?job={job}`. One that
    needs a value which is empty or None is left out.
    """
    made = []
    for template in templates:
        title, _, address = template.rpartition(" ")
        fields = re.findall(r"\{(\w+)\}", address)
        if all(values.get(name) for name in fields):
            for name in fields:
                address = address.replace(f"{{{name}}}", quote(values[name] or "", safe="/"))
            made.append((title.strip(), address))
    return made
