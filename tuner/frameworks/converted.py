"""Frameworks that read files of their own, and whatever TensorFlow exports, once it is converted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, cast

from tuner.frameworks import framework
from tuner.frameworks.tensorflow.framework import FRAMEWORK as TENSORFLOW
from tuner.workload.workload import Workload


class _ConvertingBuild(Protocol):
    converters: Mapping[str, str]
    """The versions of what an export is made by, by name."""


class ConvertedFramework(framework.Framework):
    """Of kinds of its own a file stays where it is, with the weights beside it; all else comes from TensorFlow.

    `conversion` is raised when the conversion makes another file.
    """

    own_kinds: Collection[str]
    conversion: int

    def export_source(self, workload: Workload) -> framework.Framework | None:
        """Return TensorFlow for all but the files that it reads itself."""
        return None if workload.kind in self.own_kinds else TENSORFLOW

    def export_key(self, workload: Workload, build: framework.Build) -> list[object]:
        """Return what an export depends on: of a file of its own, only where that is."""
        if workload.kind in self.own_kinds:
            return [str(workload.path)]
        return [self.conversion, build.version, cast("_ConvertingBuild", build).converters]
