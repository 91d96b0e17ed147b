"""Rules: what many studies say together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.api.options import storage_text
from tuner.devices import registry as devices
from tuner.job import rulebook
from tuner.job.selection import Selection
from tuner.report import picture, rulepage
from tuner.rules.rule import RuleSet


class Rules:
    """A set of rules; all of it, with its evidence, is in `rule_set`. A notebook shows what to set where."""

    def __init__(self, rule_set: RuleSet) -> None:
        """Take a set of rules."""
        self.rule_set = rule_set

    def pictures(self) -> dict[str, str]:
        """Return the pictures of the page as SVG, by name; none where nothing was held out."""
        drawn = {rulepage.SPEEDUPS: picture.speedups(self.rule_set), rulepage.LOSSES: picture.losses(self.rule_set)}
        return {name: svg for name, svg in drawn.items() if svg is not None}

    def html(self) -> str:
        """Return the page as one file that needs nothing else."""
        return rulepage.html(self.rule_set, self.pictures())

    def markdown(self, files: dict[str, str] | None = None) -> str:
        """Return the page for a wiki; `files` are those of the pictures, by name."""
        return rulepage.markdown(self.rule_set, files or {})

    def save(self, path: str | Path | None = None) -> None:
        """Write the rules where `recommend` and `search` look for them, or to another file."""
        rulebook.save(self.rule_set, rulebook.local_rules(self.rule_set.device) if path is None else Path(path))

    def __str__(self) -> str:
        return rulepage.brief(self.rule_set)

    def __repr__(self) -> str:
        n = self.rule_set.provenance.n_studies
        return f"<Rules {sum(len(group.rules) for group in self.rule_set.groups.values())}, from {n} studies>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return rulepage.fragment(self.rule_set)


def learn_rules(
    storage: str | Path | None = None,
    *,
    since: str | None = None,
    machine: str | None = None,
    workloads: str | None = None,
    device: str = devices.DEFAULT,
    notify: Callable[[str], None] = lambda _: None,
) -> Rules:
    """Learn rules from the stored studies of a kind of device, filtered as by `tftune rules`.

    Raises BadInputError where there are none.
    """
    selection = Selection(since=since, machine=machine, workloads=workloads)
    return Rules(rulebook.make(storage_text(storage), selection, device=device, notify=notify))


def load_rules(path: str | Path | None = None, *, device: str = devices.DEFAULT) -> Rules:
    """Return the rules of a file, or `shipped` ones; by default those that `recommend` uses on a kind of device.

    Raises BadInputError.
    """
    return Rules(rulebook.load(None if path is None else Path(path), device)[0])
