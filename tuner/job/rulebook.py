"""Learn rules from a storage, save them in a file, and load them again.

What rules may be on machines that are not here, captures show, simulated on machines of many sizes. Those of the cache
give hypotheses, those that are shipped what is predicted of several processes.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from tuner import __version__
from tuner.devices import registry as devices
from tuner.errors import BadInputError, unknown_name
from tuner.frameworks import registry
from tuner.job.predict import Capture, cached_captures, model_of, read_capture
from tuner.job.selection import Selection
from tuner.machine.host import Machine
from tuner.machine.spec import parse_spec
from tuner.model.configuration import EXECUTOR, configuration_of
from tuner.model.hardware import Hardware, hardware_of
from tuner.model.prediction import PredictedRatio, ratio_sd
from tuner.model.predictor import Predictor
from tuner.paths import shipped_profiles, shipped_rules, write_whole
from tuner.quantity import plural
from tuner.rules.distil import distil
from tuner.rules.evidence import StudyEvidence, by_reason, gain_at_latency, n_items, read
from tuner.rules.hypothesis import HypothesesResult, Predict, Simulated, hypotheses, simulated_study
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import (
    BATCH,
    FRAMEWORK,
    LATENCY,
    PROCESSES,
    Recipe,
    latency_recipes,
    process_recipes,
)
from tuner.rules.rule import PredictedGain, Provenance, RuleSet
from tuner.rules.strata import Ratio, Stratum, over_workloads
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.space.term import EIGEN, Scale
from tuner.stats.equivalence import MARGIN
from tuner.stats.estimate import Array
from tuner.study.storage import open_storage, records, storage_errors
from tuner.workload.pyfile import INFERENCE

LOCAL_RULES = Path("results/tftune-rules.json")
"""Where a team's rules lie, beside its studies, below the folder that tftune is run in; those of a CPU."""
SHIPPED = "shipped"
"""Stands for the shipped rules where a file can be named."""
_NEVER = "run some searches first: tftune suite; the shipped rules are shown by: tftune rules --rules shipped"


def local_rules(device: str) -> Path:
    """Return where a team's rules for a kind of device lie."""
    return LOCAL_RULES if device == devices.DEFAULT else LOCAL_RULES.with_stem(f"{LOCAL_RULES.stem}-{device}")


@storage_errors()
def make(
    storage_url: str,
    selection: Selection,
    *,
    device: str = devices.DEFAULT,
    notify: Callable[[str], None] = lambda _: None,
) -> RuleSet:
    """Distil the rules of a storage for a kind of device; raises BadInputError where there is nothing to learn from."""
    selection.check()
    if device not in devices.kinds():
        raise unknown_name("kind of device", device, devices.kinds())
    storage = open_storage(storage_url, create=False)
    if storage is None:
        raise BadInputError(f"no studies in {storage_url}", _NEVER)
    notify(f"reading {storage_url}")
    study_records, unreadable = records(storage)
    if not study_records and not unreadable:
        raise BadInputError(f"no tftune studies in {storage_url}", _NEVER)
    exclusion_reason = selection.exclusion_reason(record.attributes().subject for record in study_records)
    studies, excluded = read(study_records, device=device, exclusion_reason=exclusion_reason)
    left_out = unreadable | by_reason(excluded)
    if not studies:
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in left_out.items())
        n_studies = sum(map(len, left_out.values()))
        needed = "rules need finished searches of TensorFlow models: tftune suite"
        raise BadInputError(
            f"none of the {n_studies} studies can be used: {reasons}",
            "change the filters, or run more searches" if selection.filters else needed,
        )
    notify(
        f"learning from {len(studies)} studies of {len({s.workload for s in studies})} workloads, and testing on "
        "held-out ones"
    )
    plan = LearnPlan()
    provenance = Provenance(
        tftune=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        n_studies=len(studies),
        first_study=studies[0].created,
        last_study=studies[-1].created,
        filters=selection.filters,
        excluded={reason: tuple(names) for reason, names in left_out.items()},
        level=plan.level,
        min_gain=plan.min_gain,
        margin=MARGIN,
        min_workloads=plan.min_workloads,
    )
    groups = distil(studies, plan)
    predicted = {}
    if device == devices.DEFAULT:
        notify("predicting what several processes gain on machines of which there is no study")
        predicted = predicted_processes()
    return RuleSet(device=device, provenance=provenance, groups=groups, predicted=predicted)


def exists(device: str = devices.DEFAULT) -> bool:
    """Return whether there are rules to follow on a kind of device, kept here or shipped."""
    return any(place.is_file() for place in _places(device))


def _places(device: str) -> list[Path]:
    """Return where rules may lie, a team's own first; none are shipped but for the CPU."""
    return [local_rules(device), *([shipped_rules()] if device == devices.DEFAULT else [])]


def load(path: Path | None = None, device: str = devices.DEFAULT) -> tuple[RuleSet, Path]:
    """Return the rules of a file, else those that are kept here, else those that are shipped; and where they lie.

    The word `shipped` stands for the file that is shipped. Without a file they are for that kind of device. Raises
    BadInputError where there are none, or the file is none.
    """
    places = _places(device) if path is None else [shipped_rules()] if path == Path(SHIPPED) else [path]
    rules_file = next((place for place in places if place.is_file()), None)
    if rules_file is None:
        option = "" if device == devices.DEFAULT else f" --device {device}"
        raise BadInputError(
            f"no rules file {' or '.join(map(str, places))}", f"create one: tftune rules{option} --save"
        )
    try:
        document = msgspec.json.decode(rules_file.read_bytes())
    except OSError as error:
        raise BadInputError(f"{rules_file} cannot be read: {error.strerror}", "check its permissions") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(
            f"{rules_file} is not valid JSON: {error}", "create it again: tftune rules --save"
        ) from error
    try:
        return RuleSet.from_document(document), rules_file
    except BadInputError as error:
        raise BadInputError(f"{rules_file}: {error.message}", error.hint) from error


def save(rules: RuleSet, path: Path = LOCAL_RULES) -> None:
    """Write rules where `recommend` and `search` look for them; raises BadInputError for a folder."""
    if path.is_dir():
        raise BadInputError(f"{path} is a folder", "give a file name")
    text = json.dumps(msgspec.to_builtins(rules), indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode())


# ---- rules from simulations -----------------------------------------------------------------------------------------

MACHINES = (
    "cores=2",
    "cores=4",
    "cores=8",
    "cores=16",
    "cores=32",
    "sockets=2,cores=28,smt=2",
    "sockets=2,cores=64",
)
"""What is simulated: from a laptop to a server."""


def simulated_rules(
    profiles: Sequence[Path] = (), *, notify: Callable[[str], None] = lambda _: None
) -> HypothesesResult:
    """Return the hypotheses of captures, those of the cache if none are named; raises BadInputError where none is.

    What cannot be simulated of the cache is left out, and `notify` is told; of files that were named it is refused.
    """
    captures = [(str(path), read_capture(path)) for path in profiles]
    is_named = bool(captures)
    captures = captures or [(f"the profile of {each.workload.name}", each) for each in cached_captures()]
    described = {text: parse_spec(text).machine() for text in MACHINES}
    studies: list[tuple[str, StudyEvidence]] = []
    params: dict[str, dict[str, Any]] = {}
    for name, capture in captures if is_named else _latest(captures):
        try:
            own = _studies(name, capture, described)
        except BadInputError as error:
            if is_named:
                raise
            notify(f"left out: {error}")
            continue
        notify(f"simulated: {capture.workload.name}, {capture.workload.mode}, on {len(described)} machines")
        studies += own
        params[capture.workload.name] = capture.workload.params
    if not studies:
        raise BadInputError(
            "no profile that can be simulated is in the cache",
            "profile some workloads first: tftune predict resnet50 (tftune workloads lists them)",
        )
    return hypotheses(studies, LearnPlan(), params)


PREDICTED_CORES = (8, 16, 32)
"""Machines of one socket that processes are predicted for."""
_PREDICTED = {PROCESSES: process_recipes, LATENCY: latency_recipes}


@cache
def predicted_processes() -> dict[str, tuple[PredictedGain, ...]]:
    """Return what several processes are predicted to gain on machines of many sizes, by group of rules.

    Of each group and machine it is the recipe that gains most, by the shipped profiles.

    The gain is the geometric mean over workloads in inference. Its interval holds what workloads scatter by and what
    the model is off by, which all of them have in common.
    """
    captures = [read_capture(path) for path in sorted(shipped_profiles().glob("*.json.xz"))]
    models = [
        (each, model_of(each)[0])
        for each in captures
        if each.workload.mode == INFERENCE and FRAMEWORK.has_onednn(each.runtime)
    ]
    machines = [parse_spec(f"cores={n}").machine() for n in PREDICTED_CORES]
    return {group: tuple(_predicted_on(each, models, group) for each in machines) for group in _PREDICTED}


def _predicted_on(machine: Machine, models: Sequence[tuple[Capture, Predictor]], group: str) -> PredictedGain:
    """Return what the best recipe of a group is predicted to gain on a machine.

    At the same latency the gain is `gain_at_latency`, and the call is what it is.
    """
    recipes = _PREDICTED[group]()
    gains: dict[Recipe, list[tuple[str, float]]] = {each: [] for each in recipes}
    calls: dict[Recipe, list[tuple[str, float]]] = {each: [] for each in recipes}
    sds: dict[Recipe, list[float]] = {each: [] for each in recipes}
    for capture, predictor in models:
        hardware = hardware_of(machine, capture.bytes_s, is_here=False)
        n, own = machine.usable_cores, capture.workload.batch_size
        scale = Scale(
            cores=n,
            sockets=machine.sockets,
            nodes=max(1, len(machine.numa_nodes)),
            pools=1,
            batch_size=own,
            pool=EIGEN,
            onednn=True,
        )
        default = Setting.of({EXECUTOR.slots: n, EXECUTOR.threads: n, BATCH: own})
        of_default = configuration_of(default, machine, has_teams=predictor.has_teams)
        ratio = PredictedRatio(predictor=predictor, machine=machine, hardware=hardware, reference=default)
        for recipe in recipes:
            values = recipe.values(scale)
            instances, size = int(values.get(INSTANCES, 1)), int(values.get(BATCH, own))
            several = {INSTANCES: instances, **FRAMEWORK.threads_on(n // instances), BATCH: size}
            setting = Setting.of(several) if instances > 1 else default
            items, gain = n_items(setting, default), float(ratio([setting])[0])
            counted = gain_at_latency(gain, items) if group == LATENCY else gain
            gains[recipe].append((capture.workload.name, counted))
            calls[recipe].append((capture.workload.name, math.log(items) - gain))
            sds[recipe].append(ratio_sd(predictor, setting, of_default, machine) if instances > 1 else 0.0)
    means = {recipe: over_workloads(values) for recipe, values in gains.items()}
    best = max(recipes, key=lambda recipe: means[recipe].mean)
    expected, longer = (
        Ratio.of(replace(mean, se=math.hypot(mean.se, fmean(sds[best]))))
        for mean in (means[best], over_workloads(calls[best]))
    )
    profiled = " and ".join(map(str, sorted({capture.machine.usable_cores for capture, _ in models})))
    return PredictedGain(
        kind=Stratum(shape=plural(machine.usable_cores, "core"), pool=EIGEN, onednn=True, quota=False),
        terms=best.to_dict(),
        gain=expected,
        call=longer if best != Recipe() else None,
        basis=f"{plural(expected.n_workloads, 'workload')}, profiled on {profiled} cores",
    )


def _studies(name: str, capture: Capture, machines: Mapping[str, Machine]) -> list[tuple[str, StudyEvidence]]:
    """Return a simulated study of a capture on each machine; raises BadInputError for one that cannot be simulated."""
    if capture.features is None:
        again = f"profile it again: tftune predict {shlex.quote(capture.workload.name)} --new"
        raise BadInputError(f"{name} is of an earlier version, without its graph", again)
    try:
        build = registry.for_build(capture.runtime).stored_build(capture.runtime)
    except ValueError as error:
        raise BadInputError(f"{name} is of a build that cannot be read: {error}", "profile it again") from error
    predictor, _ = model_of(capture)
    studies = []
    for text, machine in machines.items():
        simulated = Simulated(
            workload=capture.workload,
            features=capture.features,
            build=build,
            machine=machine,
            predict=_predict(predictor, machine, hardware_of(machine, capture.bytes_s, is_here=False)),
        )
        studies.append((text, simulated_study(simulated)))
    return studies


def _predict(predictor: Predictor, machine: Machine, hardware: Hardware) -> Predict:
    """Return what predicts settings on a machine."""

    def predict(reference: Setting, settings: Sequence[Setting]) -> Array:
        ratio = PredictedRatio(predictor=predictor, machine=machine, hardware=hardware, reference=reference)
        return ratio(settings)

    return predict


def _latest(captures: Sequence[tuple[str, Capture]]) -> list[tuple[str, Capture]]:
    """Return one capture of each workload and build: with several batch sizes, of these with most threads, the last.

    One batch size alone does not tell what an item takes, and what a step takes whatever its items.
    """

    def worth(capture: Capture) -> tuple[bool, int]:
        return len(capture.traced) > 1, max(capture.bytes_s)

    chosen: dict[tuple[str, str, bool], tuple[str, Capture]] = {}
    for name, capture in captures:
        key = capture.workload.name, capture.workload.mode, capture.has_teams
        if key not in chosen or worth(capture) >= worth(chosen[key][1]):
            chosen[key] = name, capture
    return list(chosen.values())
