"""Studies as tables for other programs, through pandas: a row a trial, or a row a study."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import BadInputError
from tuner.machine.host import host_of
from tuner.report.document import describe_study
from tuner.search.record import Record

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "json", "parquet")
KINDS = ("trials", "studies")


def trials(records: Iterable[Record]) -> pd.DataFrame:
    """Return every finished trial: its study, setting, ratio to TensorFlow's default with its interval, and status."""
    import pandas as pd

    rows = []
    for record in records:
        document = describe_study(record)
        common = _common(document)
        for trial in document["history"]:
            told = {key: trial[key] for key in _OF_TRIALS}
            rows.append(common | told | {"baselines": " ".join(trial["baselines"])} | trial["setting"])
    return pd.DataFrame(rows)


def studies(records: Iterable[Record]) -> pd.DataFrame:
    """Return every study: its workload's features, what it recommends, and the gain that its finals showed."""
    import pandas as pd

    rows = []
    for record in records:
        document = describe_study(record)
        features = {k: v for k, v in (document["features"] or {}).items() if k != "operators"}
        advice, finals = document["recommended"], document["finals"] or {}
        gain = (advice or {}).get("gain") or dict.fromkeys(_OF_GAIN)
        rows.append(
            _common(document)
            | {f"graph_{name}": value for name, value in features.items()}
            | {"trials": len(document["history"]), "rounds": finals.get("rounds"), "wall_s": document["wall_s"]}
            | {"recommended": advice and advice["source"], **gain}
            | {f"recommended_{knob}": value for knob, value in (advice["setting"] if advice else {}).items()}
        )
    return pd.DataFrame(rows)


_OF_GAIN = ("speedup", "low", "high", "verdict", "sessions", "sessions_disagree")
_OF_TRIALS = (
    "number", "status", "pruned", "ratio", "low", "high", "timed_s", "p99_ms", "peak_memory_bytes", "message",
)  # fmt: skip


def _common(document: dict[str, Any]) -> dict[str, Any]:
    machine, runtime, workload = document["machine"], document["runtime"], document["workload"]
    return {
        "study": document["study"],
        "created": document["created"],
        "workload": workload["name"],
        "mode": workload["mode"],
        "execution": workload["execution"],
        "host": host_of(machine),
        "shape": machine["id"],
        "physical_cores": machine["physical_cores"],
        "logical_cpus": machine["logical_cpus"],
        "cpu_quota": machine["cpu_quota"],
        "framework": runtime.get("framework", "tensorflow"),
        "tensorflow": runtime.get("tensorflow"),
        "onednn_runtime": runtime.get("onednn_runtime"),
        "objective": document["objective"],
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
    path.write_text(text)
    return None
