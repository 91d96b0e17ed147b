"""Studies as tables for other programs, through pandas: a row a trial, a row a study, or a row a slice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from tuner.errors import BadInputError
from tuner.machine.host import host_of
from tuner.measure.objective import Objective
from tuner.result.document import describe_study
from tuner.result.study import AnswerResult, StudyResult
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.study.record import Record
from tuner.study.trials import Trial
from tuner.trial.outcome import Slice

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "json", "parquet")


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


def slices(measured: Iterable[tuple[StudyResult, Sequence[Trial]]]) -> pd.DataFrame:
    """Return every slice of the trials, and of the default beside them: an open surface that others can replay.

    Slices of one pass of a study ran in turns. Those without a trial are the default's. Raises BadInputError where
    there are none, as in studies of pairs.
    """
    import pandas as pd

    rows = []
    for study, of_study in measured:
        common, default = _common(study), study.baselines[study.default].setting
        for trial, turn in [(each, turn) for each in of_study for turn in each.turns]:
            setting, is_own = turn.setting.to_dict(), turn.process == trial.process
            of_turn = {
                "trial": trial.number if is_own else None,
                "pass": turn.in_pass,
                "process": turn.process,
                INSTANCES: 1,
                **setting,
                "is_default": int(setting == default),
                "memory_bytes": trial.peak_memory_bytes if is_own else None,
            }
            rows += [
                common | of_turn | {"slice": number} | _figures(each, turn.setting)
                for number, each in enumerate(turn.slices)
            ]
    if not rows:
        raise BadInputError("no slices of passes are stored of these studies", "`--what trials` has their trials")
    return pd.DataFrame(rows).astype({"trial": "Int64", "memory_bytes": "Int64"})  # whole numbers, or none


def _figures(each: Slice, setting: Setting) -> dict[str, float]:
    """Return the columns of a slice."""
    steps_ms = [1000 * s for s in each.latency_samples_s]
    return {name: getattr(each, name) for name in ("start_s", "elapsed_s", "n_steps")} | {
        "items_per_s": math.exp(Objective.THROUGHPUT.log_rate(each, setting.batch_size)),
        "step_p50_ms": median(steps_ms),
        "step_max_ms": max(steps_ms),
        "first_step_ms": 1000 * each.step_s[0],
    }


def _with_trials(record: Record) -> tuple[StudyResult, Sequence[Trial]]:
    """Return a study with its trials of one process and of several."""
    return describe_study(record), [*record.trials(), *record.groups()]


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


KINDS: Mapping[str, tuple[Callable[[Record], Any], Callable[[Iterable[Any]], pd.DataFrame]]] = {
    "trials": (describe_study, trials),
    "studies": (describe_study, studies),
    "slices": (_with_trials, slices),
}
"""What the rows of a table can be: how a study is read for them, and how the table is made."""
