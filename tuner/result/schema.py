"""The published JSON Schema (draft 2020-12) of what each command prints with `--json`, made from the types."""

from __future__ import annotations

from typing import Any

from msgspec.json import schema_components

from tuner.errors import BadInputError
from tuner.result.comparison import CheckResult, ComparisonResult, NoiseReport, NothingToCheck
from tuner.result.frameworks import FrameworksResult
from tuner.result.inspection import (
    AuditResult,
    BindingResult,
    EnvironmentResult,
    ImportLine,
    InspectionResult,
    SuiteResult,
    WorkloadLine,
    WorkloadResult,
)
from tuner.result.load import LoadResult, SizeResult
from tuner.result.model import OverheadResult, PredictionResult, ProfileResult
from tuner.result.recommendation import RecommendationResult
from tuner.result.study import NoStudyResult, StudyLine, StudyResult
from tuner.rules.hypothesis import HypothesesResult
from tuner.rules.rule import RuleSet
from tuner.space.deployment import Deployment

PUBLISHED: dict[str, tuple[Any, ...]] = {
    "search": (StudyResult, NoStudyResult),
    "show": (StudyResult,),
    "list": (tuple[StudyLine, ...],),
    "compare": (ComparisonResult,),
    "check": (CheckResult, NothingToCheck),
    "load": (LoadResult,),
    "size": (SizeResult,),
    "frameworks": (FrameworksResult,),
    "noise": (NoiseReport,),
    "overhead": (OverheadResult,),
    "predict": (PredictionResult,),
    "profile": (ProfileResult,),
    "suite": (SuiteResult,),
    "rules": (RuleSet, HypothesesResult),
    "recommend": (RecommendationResult,),
    "emit": (Deployment,),
    "export": (list[dict[str, Any]],),
    "import": (tuple[ImportLine, ...],),
    "inspect": (InspectionResult, AuditResult, BindingResult),
    "workloads": (tuple[WorkloadLine, ...],),
    "workloads show": (WorkloadResult,),
    "env create": (EnvironmentResult,),
}
"""What each command prints: one of these."""


def schema_of(command: str) -> dict[str, Any]:
    """Return the schema of a command's documents; raises BadInputError for one that prints none."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"tftune {command} --json"}
    if command not in PUBLISHED:
        raise BadInputError(f"no command '{command}' with --json", f"known: {', '.join(sorted(PUBLISHED))}")
    forms, parts = schema_components(PUBLISHED[command], ref_template="#/$defs/{name}")
    return head | {"anyOf": list(forms), "$defs": parts}
