"""What the experiments on an ONNX Runtime build say: which session options reach it.

Each is made in a fork of the target interpreter. Its observation holds the threads that the creation of a session
started, how many of them are bound to some of the process's CPUs, and the CPU time that they took while nothing was
asked of them: a thread that waits for work spins for a while before it sleeps, unless it is told not to.
"""

from __future__ import annotations

from tuner.space.experiment import Experiment, Observation, Reach

_SPUN_S = 0.01
"""CPU time of idle threads from which on they were spinning: 25 to 60 ms with it and under 2 ms without, as seen."""


def _threads(value: str, low: Observation, high: Observation) -> Reach:
    created = f"with 2 and {value}, a session starts {low['created']} and {high['created']} threads"
    return Reach(answer=high["created"] - low["created"] == int(value) - 2, evidence=created)


def _mode(value: str, low: Observation, high: Observation) -> Reach:
    created = f"parallel and {value}: a session starts {low['created']} and {high['created']} threads"
    return Reach(answer=high["created"] < low["created"], evidence=created)


def _spinning(_: str, low: Observation, high: Observation) -> Reach:
    asleep, awake = low["idle_cpu_s"], high["idle_cpu_s"]
    evidence = f"with spinning off and on, idle threads used {1000 * asleep:.0f} and {1000 * awake:.0f} ms of CPU time"
    # On a machine that is busy otherwise, threads may not have come to it.
    return Reach(answer=True if asleep < _SPUN_S < awake else None, evidence=evidence)


def _affinity(value: str, low: Observation, high: Observation) -> Reach:
    evidence = f"without and with {value}, {low['bound']} and {high['bound']} of its threads are bound to CPUs"
    return Reach(answer=low["bound"] == 0 < high["bound"], evidence=evidence)


INTRA_OP = Experiment(name="intra_op_num_threads", low="2", contrast=lambda _: "4", interpret=_threads)
INTER_OP = Experiment(name="inter_op_num_threads", low="2", contrast=lambda _: "4", interpret=_threads)
EXECUTION_MODE = Experiment(name="execution_mode", low="parallel", contrast=lambda _: "sequential", interpret=_mode)
INTRA_OP_AFFINITY = Experiment(name="intra_op_affinity", low="none", contrast=lambda _: "cores", interpret=_affinity)
INTRA_OP_SPINNING = Experiment(
    name="session.intra_op.allow_spinning", low="0", contrast=lambda _: "1", interpret=_spinning
)
INTER_OP_SPINNING = Experiment(
    name="session.inter_op.allow_spinning", low="0", contrast=lambda _: "1", interpret=_spinning
)
