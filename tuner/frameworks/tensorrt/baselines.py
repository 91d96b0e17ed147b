"""What is recommended for TensorRT."""

from __future__ import annotations

from tuner.devices.gpu import KIND as GPU
from tuner.frameworks.tensorrt.knobs import MOST_LEVEL
from tuner.space.baseline import Baseline

BASELINES: tuple[Baseline, ...] = (
    Baseline(
        name="trt-default",
        source="TensorRT documentation, IBuilderConfig: builder optimization level 3",
        rule=lambda _: {},
        devices=(GPU,),
    ),
    Baseline(
        name="trt-thorough",
        source="TensorRT documentation, Optimizing builder performance: level 5 compares the most kernels",
        rule=lambda _: {"builder_optimization_level": MOST_LEVEL},
        at_best_batch=True,
        devices=(GPU,),
    ),
)
