"""The knobs of TensorRT: how an engine is built.

Semantics and sources: TensorRT documentation, `IBuilderConfig` (builder optimization level, auxiliary streams).
"""

from __future__ import annotations

from tuner.devices.gpu import KIND as GPU
from tuner.space.auditing import unobservable
from tuner.space.carrier import Option
from tuner.space.common import BATCH_SIZE, CPUS, INSTANCES, MALLOC, STREAMS, TF32
from tuner.space.knob import Knob
from tuner.space.values import Numbers, Words

DEFAULT_LEVEL, MOST_LEVEL = 3, 5

_ALL = (
    Knob(
        name="builder_optimization_level",
        meaning="how long the builder looks for faster kernels: from 0, the first that works, to 5, all",
        values=Numbers(minimum=0, limit=MOST_LEVEL),
        carrier=Option("builder_optimization_level"),
        default=lambda *_: DEFAULT_LEVEL,
        audit=unobservable,
        devices=(GPU,),
    ),
    Knob(
        name="max_aux_streams",
        meaning="CUDA streams beside the main one, for layers that may run at the same time; auto: as TensorRT likes",
        values=Words(words=("auto", "0", "1", "3")),
        carrier=Option("max_aux_streams", without="auto"),
        in_every_setting=False,
        default=lambda *_: "auto",
        audit=unobservable,
        devices=(GPU,),
    ),
    BATCH_SIZE,
    TF32,
    CPUS,
    INSTANCES,
    STREAMS,
    MALLOC,
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in _ALL}
