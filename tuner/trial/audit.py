"""The audit of a process: did each knob of its setting take effect?

What the child reports of itself (`tuner.child.effective`) is compared with what the setting asked for. Where the
process does not tell, the answer is unknown and never "yes"; only a clear "no" makes a trial `unapplied`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.machine.conditions import Conditions
from tuner.machine.coresets import unlike
from tuner.machine.host import Machine
from tuner.space.auditing import AuditCase, Effective, changes
from tuner.space.catalogue import Catalogue
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether a knob took effect (None: unknown), and what was seen, in one line."""

    knob: str
    value: Value
    answer: bool | None
    evidence: str


@dataclass(slots=True, kw_only=True)
class Seen:
    """What processes were seen to be besides their settings, in words; empty where nothing was.

    `pinned` is how they have changed the CPUs that they were given, `unlike_cores` how the cores of those that ran
    side by side differ. `not_finite` is which outputs of the default hold NaN or infinite values, None before one ran.
    """

    pinned: str = ""
    unlike_cores: str = ""
    not_finite: str | None = None

    def see(self, pinned: str | None, deployment: Deployment, machine: Machine) -> None:
        """Take note of how a process has changed its CPUs, and of what it and those beside it were given."""
        self.pinned = self.pinned or pinned or ""
        kinds = machine.kind_by_core
        if kinds and deployment.cpu_sets and (differ := unlike(deployment.cpu_sets, kinds)) is not None:
            self.unlike_cores = f"{deployment.processes} processes: {differ}"

    def added_to(self, conditions: Conditions) -> Conditions:
        """Return conditions with what was seen."""
        return replace(conditions, pinned=self.pinned, unlike_cores=self.unlike_cores, not_finite=self.not_finite or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Auditor:
    """What processes are compared with: the catalogue's audits, on a build and a machine, with these libraries.

    `device` is the kind of what computes.
    """

    catalogue: Catalogue
    build: Any
    machine: Machine
    libraries: Mapping[str, str]
    device: str = "cpu"

    def audit(self, setting: Setting, deployment: Deployment, effective: Effective) -> list[Finding]:
        """Return a finding for each knob of `setting` that is deployed; what our own code is given is left out."""
        case = AuditCase(
            values=setting.to_dict(),
            deployment=deployment,
            effective=effective,
            build=self.build,
            machine=self.machine,
            libraries=self.libraries,
            device=self.device,
        )
        findings = []
        for name, value in setting.items:
            each = self.catalogue.knobs[name]
            deployed = each.carrier.deploy(value, self.libraries)
            if each.audit is not None and deployment.holds(deployed):
                answer, evidence = each.audit(case)
                now = effective.get("variables", {})  # a command, and a process of an earlier version, report none
                changed = {key: now[key] for key in deployed.env if key in now and now[key] != deployment.env.get(key)}
                if changed and not answer:
                    answer, evidence = False, f"the workload itself {changes(changed)}; {evidence}"
                findings.append(Finding(knob=name, value=value, answer=answer, evidence=evidence))
        return findings


def unapplied(findings: list[Finding]) -> str | None:
    """Return why the setting does not hold in the process, None if nothing speaks against it."""
    return next((f"{f.knob}={f.value} did not take effect: {f.evidence}" for f in findings if f.answer is False), None)
