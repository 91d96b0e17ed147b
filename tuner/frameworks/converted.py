"""Frameworks that read files of their own, and whatever TensorFlow exports, once it is converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.frameworks import framework, probing
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.identity import digest
from tuner.workload.workload import Workload


class ConvertedFramework(framework.Framework):
    """Of `files` of its own, kinds by suffix, a file stays where it is, with the weights beside it.

    All else comes from TensorFlow; `conversion` is raised when the conversion makes another file. `build` is the class
    of its builds, and `switches` are how variables begin that may change one.
    """

    build: type[probing.ProbedBuild]
    switches: tuple[str, ...]
    files: Mapping[str, str]
    conversion: int

    def __init_subclass__(cls) -> None:
        """Be called as the package of its builds; read what TensorFlow reads, too."""
        cls.name, cls.title = cls.build.subject.package, cls.build.subject.title
        cls.child, cls.spaces = cls.build.subject.folder, cls.build.subject.folder.parent / "spaces"
        cls.suffixes = {**cls.files, **TENSORFLOW.suffixes}
        cls.kinds = (*cls.files.values(), *TENSORFLOW.kinds)

    def found(
        self,
        python: Path,
        env: Mapping[str, str],
        *,
        looks: Sequence[object] = (),
        plan: Mapping[str, Any] | None = None,
        **known: Any,
    ) -> framework.Build:
        """Return the build of an interpreter as the probe finds it, with what is `known` besides.

        See `tuner.frameworks.probing.remembered_facts`.
        """
        subject = self.build.subject
        facts = probing.remembered_facts(python, env, subject, switches=self.switches, looks=looks, plan=plan)
        identity = {name: fact for name, fact in facts.items() if name not in self.passing_facts}
        return self.build(id=digest(identity), **facts, **known)

    def probe(self, python: Path, env: Mapping[str, str]) -> framework.Build:
        """Return the build of an interpreter; raises BadInputError where there is none that works."""
        return self.found(python, env)

    def export_source(self, workload: Workload) -> framework.Framework | None:
        """Return TensorFlow for all but the files that it reads itself."""
        return None if workload.kind in self.files.values() else TENSORFLOW

    def export_key(self, workload: Workload, build: framework.Build) -> list[object]:
        """Return what an export depends on: of a file of its own, only where that is."""
        if workload.kind in self.files.values():
            return [str(workload.path)]
        return [self.conversion, build.version, build.to_dict()["converters"]]
