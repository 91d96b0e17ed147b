"""A small design: a setting of each regime, tried before the model has its say."""

from __future__ import annotations

from tuner.frameworks.onnxruntime.knobs import PARALLEL, SEQUENTIAL, UNBOUND
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.space.values import Value


def design(space: Space) -> list[Setting]:
    """Return, as far as they are points of the space and no baselines: sleeping threads, two pools, and one thread."""
    reference, points = space.reference, set(space.points)
    values = reference.to_dict()
    threads = int(values["intra_op_num_threads"])
    share = max(1, threads // 2)
    candidates: list[dict[str, Value]] = [
        {"execution_mode": SEQUENTIAL, "intra_op_spinning": 0},
        {
            "execution_mode": PARALLEL,
            "inter_op_num_threads": 2,
            "intra_op_num_threads": share,
            "intra_op_affinity": UNBOUND,
        },
        {"execution_mode": SEQUENTIAL, "intra_op_num_threads": 1, "intra_op_affinity": UNBOUND},
    ]
    settings = [Setting.of(values | {k: v for k, v in each.items() if k in values}) for each in candidates]
    baseline_settings = set(space.baselines.values())
    return [each for each in dict.fromkeys(settings) if each in points and each not in baseline_settings]
