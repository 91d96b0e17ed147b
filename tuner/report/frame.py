"""Studies as tables for other programs, through pandas: a row a trial, or a row a study."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from tuner.errors import BadInputError
from tuner.machine.host import host_of
from tuner.result.study import AnswerResult, StudyResult

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "json", "parquet")
KINDS = ("trials", "studies")


def trials(results: Iterable[StudyResult]) -> pd.DataFrame:
    """Return every finished trial: its study, setting, ratio to TensorFlow's default with its interval, and status."""
    import pandas as pd

    rows = []
    for study in results:
        for trial in study.history:
            plain = to_builtins(trial)
            figures = {name: plain[name] for name in _OF_TRIALS}
            rows.append(_common(study) | figures | {"baselines": " ".join(trial.baselines)} | trial.setting)
    return pd.DataFrame(rows)


def studies(results: Iterable[StudyResult]) -> pd.DataFrame:
    """Return every study: its workload's features, what it recommends, and the gain that its finals showed."""
    import pandas as pd

    rows = []
    for study in results:
        features, advice, finals = study.features, study.recommended, study.finals
        graph = {} if features is None else asdict(features)
        gain = dict.fromkeys(_OF_GAIN) if advice is None or advice.gain is None else to_builtins(advice.gain)
        rows.append(
            _common(study)
            | {f"graph_{name}": value for name, value in graph.items() if name != "operators"}
            | {"trials": len(study.history), "rounds": finals and finals.rounds, "wall_s": study.wall_s}
            | {"recommended": advice and advice.source, **gain}
            | {f"recommended_{knob}": value for knob, value in (advice.setting if advice else {}).items()}
            | _of("groups", study.groups, study.default)
            | _of("same_latency", study.same_latency, study.default)
        )
    return pd.DataFrame(rows)


def _of(name: str, answer: AnswerResult | None, default: str) -> dict[str, object]:
    """Return an answer beside that on one process; nothing where it was not asked for."""
    if answer is None:
        return {}
    finals, against = answer.finals, answer.recommended.together or answer.verdicts[default]
    figures = to_builtins(against)
    return {
        f"{name}_rounds": finals.rounds,
        **{f"{name}_{figure}": figures[figure] for figure in ("speedup", "low", "high", "verdict")},
        **{f"{name}_{knob}": value for knob, value in finals.incumbent.items()},
    }


_OF_GAIN = ("speedup", "low", "high", "verdict", "sessions", "sessions_disagree")
_OF_TRIALS = (
    "number", "status", "pruned", "ratio", "low", "high", "timed_s", "p99_ms", "peak_memory_bytes", "energy_j",
    "message",
)  # fmt: skip


def _common(study: StudyResult) -> dict[str, object]:
    machine, build, workload = study.machine, study.runtime, study.workload
    return {
        "study": study.study,
        "created": study.created,
        "workload": workload.name,
        "mode": workload.mode,
        "execution": workload.execution.value,
        "host": host_of(machine),
        "shape": machine.id,
        "physical_cores": machine.physical_cores,
        "logical_cpus": machine.logical_cpus,
        "cpu_quota": machine.cpu_quota,
        "device": study.device["name"],
        "device_model": study.device.get("model"),
        "framework": study.framework.name,
        "tensorflow": build.get("tensorflow"),
        "onednn_runtime": build.get("onednn_runtime"),
        "objective": study.objective.value,
    }


def write(frame: pd.DataFrame, format_: str, path: Path | None) -> str | None:
    """Write a table to a file, or return its text; Parquet is no text. Raises BadInputError."""
    if format_ == "parquet":
        if path is None:
            raise BadInputError("Parquet cannot be printed", "give --out FILE")
        try:
            frame.to_parquet(path)
        except ImportError as error:
            raise BadInputError("Parquet needs pyarrow, which is not installed", "pip install pyarrow") from error
        return None
    text = frame.to_csv(index=False) if format_ == "csv" else frame.to_json(orient="records", indent=1) + "\n"
    if path is None:
        return str(text)
    path.write_text(text, encoding="utf-8")
    return None
