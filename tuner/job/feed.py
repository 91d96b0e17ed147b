"""What the models of a job are fed with, and which batch sizes their inputs leave possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import BadInputError
from tuner.measure.warning import ADVICE, Code, input_warnings
from tuner.space.space import Space
from tuner.trial.exporting import described_inputs
from tuner.workload.feed import InputFacts, facts_of
from tuner.workload.workload import Workload


def inputs_of(models: Sequence[Workload], folders: Iterable[Path]) -> tuple[InputFacts, ...]:
    """Return what tftune feeds to each input of models; none of those that make their own, or are not exported yet."""
    named = [model.name if len(models) > 1 else "" for model in models]
    try:
        described = [described_inputs(folder) for folder in folders]
    except FileNotFoundError:
        return ()
    return tuple(facts for name, own in zip(named, described, strict=True) for facts in facts_of(own, name))


def fixed_batch_sizes(described: Sequence[Mapping[str, Any]]) -> set[int] | None:
    """Return the batch sizes that are written into the inputs of a model; None where one of them is open."""
    if any(None in each["shape"] for each in described):
        return None
    return {each["shape"][each["batch_axis"]] for each in described if each["batch_axis"] is not None}


def fixed_batch_size(described: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the one batch size that the inputs of a model leave possible; None where one of them is open."""
    sizes = fixed_batch_sizes(described)
    return None if sizes is None else min(sizes) if len(sizes) == 1 else 1


def why_fixed(model: str, described: Sequence[Mapping[str, Any]]) -> str:
    """Return in words what keeps a model at one batch size; `model` is its name."""
    if not described:
        return f"{model} has no inputs, and so no batch"
    size = fixed_batch_size(described) if fixed_batch_sizes(described) else None
    return f"the inputs of {model} have " + ("no batch dimension" if size is None else f"the fixed batch size {size}")


def possible_sizes(asked: Sequence[int], models: Iterable[Sequence[Mapping[str, Any]]]) -> list[int]:
    """Return those batch sizes that the inputs of all models leave possible."""
    fixed = {size for size in map(fixed_batch_size, models) if size is not None}
    return [size for size in asked if fixed <= {size}]


def check_batch(model: Workload, described: Sequence[Mapping[str, Any]], space: Space) -> None:
    """Raise BadInputError where no input leaves its batch open, and another batch size is asked for."""
    size = fixed_batch_size(described)
    if size is not None and set(space.domains["batch_size"]) != {size}:
        is_shared = space.total_batch == size
        hint = "add --set instances=1: its batch cannot be shared" if is_shared else f"use --batch-size {size}"
        hint = hint if size > 0 else "save the model with an open batch: nothing is computed for a batch of no items"
        if model.kind == "keras" and fixed_batch_sizes(described):  # a model has the batch of its first call, too
            hint += ", or save the model with an open batch: let it begin with keras.Input(shape=…)"
        raise BadInputError(why_fixed(str(model.path), described), hint)


def tell_outputs(
    outputs: Mapping[str, Mapping[str, Sequence[int]]], not_finite: str | None, notify: Callable[[str], None]
) -> None:
    """Call `notify` with what the outputs show, for answers without a place for it: shapes, and what is not finite."""
    strange = [Code.NOT_FINITE.seen(not_finite)] if not_finite else []
    for warning in [*input_warnings((), outputs), *strange]:
        notify(f"{warning.code}: {warning.observation}; {ADVICE[warning.code]}")
