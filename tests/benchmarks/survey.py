"""The survey of 16 cores as studies: what rules are learned from, of the slices in results/cores16/surfaces.csv.

    python -m tests.benchmarks.survey DATABASE     adds them to an SQLite file

Each panel becomes a study of planned measurements, on all 16 cores at three batch sizes. A setting has one process and
two slices, so that its error is mostly what slices scatter by. That is one figure for all settings of a panel. The
error of the default is in all ratios to it. Graphs are described by results/reference.db.xz.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from optuna import create_study
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.benchmarks.quick import CORES16
from tests.frameworks import read_space, resolve
from tuner.devices.cpu import DEVICE
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.machine.host import Machine
from tuner.model.graph import Features
from tuner.plain import to_plain
from tuner.space.groups import INSTANCES
from tuner.space.setting import Setting
from tuner.stats.noise import Noise
from tuner.study.attributes import EndReason, Run, stored_noise
from tuner.study.record import SCHEMA, Record, name_value
from tuner.study.storage import all_records, open_storage
from tuner.study.subject import subject_of
from tuner.study.trials import Trial, attributes_of
from tuner.trial.outcome import Status
from tuner.workload.workload import load

KNOBS = ("inter_op", "intra_op", "batch_size")
_SLICES = 2
_OWN_SE = 0.005  # of a setting, beside what slices scatter by


def write(database: Path) -> list[str]:
    """Add a study for each panel, and return their names."""
    described = json.loads((CORES16 / "machine.json").read_text())
    whole = msgspec.convert(described["machine"], Machine)
    features = features_by_workload()
    storage = open_storage(f"sqlite:///{database}", create=True)
    names = []
    for _, rows in pd.read_csv(CORES16 / "surfaces.csv").groupby("panel", sort=False):
        machine = part_of(whole, int(rows.cpus.iloc[0]))
        workload = load(rows.workload.iloc[0])
        rows = rows.assign(y=np.log(rows.items_per_s))
        slices = rows.groupby([INSTANCES, *KNOBS], sort=False).y
        scatter_sd = math.sqrt(float((slices.std() ** 2).mean()) / _SLICES)
        build = FRAMEWORK.stored_build(described["runtime"])
        sizes = sorted(map(int, rows.batch_size.unique()))
        file = read_space("threads", machine, default_batch=workload.batch_size)
        space = resolve(file, machine=machine, build=build, workload=workload, batch_sizes=sizes)
        levels = {setting_of(key, space.reference): float(y) for key, y in slices.mean().items()}
        own_level = levels[space.reference]
        known = [each.to_dict() for each in levels]
        domains = {
            name: tuple(dict.fromkeys(row[name] for row in known if name in row)) for row in known for name in row
        }
        study = create_study(
            study_name=f"{workload.name}-survey-{machine.logical_cpus}", storage=storage, direction="maximize"
        )
        name_value(study)
        record = Record(study)
        noise = Noise(block_sd=scatter_sd, process_sd=scatter_sd, drift=0.0, n_pairs=1, n_blocks=len(rows))
        timed_s = float(rows.elapsed_s.sum())
        run = Run(
            wall_s=0.0, measured_s=timed_s, search_timed_share=None, ended=EndReason.SPACE, ended_because="a survey"
        )
        attributes = {
            "objective": "throughput",
            "numerics": "keep",
            "origin": "measured",
            "planned": True,
            "seed": 0,
            "features": features[workload.name],
            "noise": stored_noise(noise),
            "created": f"{described['date']}T00:00:00+00:00",
            "described": subject_of(machine, DEVICE.describe(), build, workload, space, {}),
            "runs": [run],
            "schema": SCHEMA,
        }
        for key, value in attributes.items():
            record.put(key, value)
        distributions = {name: CategoricalDistribution(domain) for name, domain in domains.items()}
        study.add_trials(
            [
                _trial(number, each, level - own_level, distributions)
                for number, (each, level) in enumerate(levels.items())
            ]
        )
        names.append(record.name)
    return names


def setting_of(key: tuple[int, ...], reference: Setting) -> Setting:
    """Return the setting of a row's processes and threads; one process is no group."""
    instances, *values = map(int, key)
    several = {INSTANCES: instances} if instances > 1 else {}
    return Setting.of(several | reference.to_dict() | dict(zip(KNOBS, values, strict=True)))


def part_of(machine: Machine, n_cpus: int) -> Machine:
    """Return a machine of one thread per core with a mask of its first CPUs."""
    if n_cpus == machine.logical_cpus:
        return machine
    mask = f"0-{n_cpus - 1}"
    return replace(
        machine,
        id=f"{machine.id[:-2]}{n_cpus:02d}",
        logical_cpus=n_cpus,
        physical_cores=n_cpus,
        affinity=mask,
        numa_nodes={"0": mask},
        cores=machine.cores[:n_cpus],
    )


def features_by_workload() -> dict[str, Features]:
    """Return the features of each workload's graph in inference, as the reference results have them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "reference.db"
        file.write_bytes(lzma.decompress((CORES16.parent / "reference.db.xz").read_bytes()))
        attributes = [record.attributes() for record in all_records(open_storage(f"sqlite:///{file}", create=False))]
    return {
        each.subject.workload.name: features
        for each in attributes
        if each.subject.workload.mode == "inference" and (features := each.get("features", Features)) is not None
    }


def _trial(
    number: int, setting: Setting, log_ratio: float, distributions: dict[str, CategoricalDistribution]
) -> FrozenTrial:
    is_group = INSTANCES in setting.to_dict()
    trial = Trial(
        number=number, setting=setting, log_ratio=log_ratio, se=_OWN_SE, df=30.0, reference=1,
        process=number + 2, is_group=is_group, status=Status.OK,
    )  # fmt: skip
    own = setting.to_dict()
    return create_trial(
        state=TrialState.COMPLETE,
        value=log_ratio,
        params=own,
        distributions={name: distributions[name] for name in own},
        user_attrs=to_plain(attributes_of(trial)),
    )


if __name__ == "__main__":
    print("\n".join(write(Path(sys.argv[1]))))
