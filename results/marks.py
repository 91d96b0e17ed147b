"""What pages of results have in common: tables between marks, and the machine that they were measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Return a page with each table between its marks."""
    for name, body in tables.items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        text = f"{before}<!-- {name} -->\n{body}\n{end}{after}"
    return text


def machine(facts: Mapping[str, Any]) -> str:
    """Return the machine in a line; virtual ones of one name are told apart by their caches."""
    caches = {each["name"]: each["size_bytes"] // 1024 for each in facts["caches"]}
    cores, model = facts["physical_cores"], facts["cpu_model"]
    return f"On {cores} cores of an {model} with {caches['L1d']} KiB of L1 data cache each."
