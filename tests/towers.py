"""Towers of operators between a fork and a join, as a profile tells of them."""

from __future__ import annotations

from tuner.model.profile import Roof, Traced

BYTES_S = {1: 1e10, 2: 1.8e10}
TOWERS = 4


def traced(threads: int, batch_size: int) -> Traced:
    """Return what a process told of four towers of three operators between a fork and a join."""
    inputs: list[list[int]] = [[]]
    for _ in range(TOWERS):
        first = len(inputs)
        inputs += [[0], [first], [first + 1]]
    inputs.append([3 * tower + 3 for tower in range(TOWERS)])
    one_s = 1e-4 * batch_size
    seconds = one_s * (0.2 + 0.8 / threads)
    nodes = [
        [f"n{i}", "Tanh", [[j, 0] for j in taken], [["float32", [batch_size, 1024]]], {}, 1, seconds]
        for i, taken in enumerate(inputs)
    ]
    busy_s = seconds * len(nodes)
    return Traced(
        threads=threads,
        step_s=1.1 * busy_s,
        plain_s=1.05 * busy_s,
        traced_s=1.1 * busy_s,
        busy_s=busy_s,
        roof=Roof(flops=1e11, bytes_s=BYTES_S[threads]),
        nodes=nodes,
    )
