"""Links to a site's other pages: GPU utilisation in Grafana, a job's log in Open OnDemand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote


def links(templates: Iterable[str], **values: str) -> list[tuple[str, str]]:
    """Fill in ``templates``, such as `GPUs https://site/d?job={job}`, and return pairs of title
    and address. Templates that need an empty value are left out.
    """
    result = []
    for template in templates:
        title, _, address = template.rpartition(" ")
        fields = re.findall(r"\{(\w+)\}", address)
        if all(values.get(name) for name in fields):
            for name in fields:
                address = address.replace(f"{{{name}}}", quote(values[name], safe="/"))
            result.append((title.strip(), address))
    return result
