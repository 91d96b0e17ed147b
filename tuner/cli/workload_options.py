"""The words and options that name a workload: the same for every command that takes one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tuner.cli.help import COMMAND, WORKLOAD
from tuner.quantity import PER_SECOND
from tuner.workload.spec import WorkloadSpec

DEFAULT = "resnet50"


def complete_workload(incomplete: str) -> list[str]:
    """Return the shipped workloads that begin so."""
    from tuner.workload.workload import names

    return [name for name in names() if name.startswith(incomplete)]


def complete_framework(incomplete: str) -> list[str]:
    """Return the frameworks that begin so."""
    from tuner.frameworks.registry import names

    return [name for name in names() if name.startswith(incomplete)]


def complete_device(incomplete: str) -> list[str]:
    """Return the devices that begin so."""
    from tuner.devices.registry import names

    return [name for name in names() if name.startswith(incomplete)]


def _model_options(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="A shipped workload (see: tftune workloads), your own Python file of the same form, a .keras or .onnx "
            "file, a SavedModel folder, or several of these joined by + (an ensemble).",
            autocompletion=complete_workload,
            show_default=False,
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            rich_help_panel=WORKLOAD,
            metavar="NAME",
            help="tensorflow, onnxruntime, openvino, tensorrt or a plugin's (default: by the file, else tensorflow)",
            autocompletion=complete_framework,
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            rich_help_panel=WORKLOAD,
            metavar="cpu|gpu[:N]",
            help="Device: cpu, gpu, gpu:1, gpu:0:2 (a MIG slice), or a plugin's.",
            autocompletion=complete_device,
        ),
    ] = "cpu",
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            rich_help_panel=WORKLOAD,
            metavar="inference|training",
            help="Inference, or training (forward, backward, optimizer step).",
            autocompletion=lambda: ["inference", "training"],
        ),
    ] = "inference",
    params: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            rich_help_panel=WORKLOAD,
            metavar="NAME=VALUE",
            help="Set a parameter of the workload; can be repeated.",
        ),
    ] = None,
    execution: Annotated[
        str,
        typer.Option(
            "--execution",
            rich_help_panel=WORKLOAD,
            metavar="graph|eager|xla",
            help="Run the model as a graph, operator by operator (eager), or compiled by XLA.",
            autocompletion=lambda: ["graph", "eager", "xla"],
        ),
    ] = "graph",
    signature: Annotated[
        str | None,
        typer.Option(
            "--signature", rich_help_panel=WORKLOAD, metavar="NAME", help="Signature of the SavedModel to run."
        ),
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option(
            "--tags",
            rich_help_panel=WORKLOAD,
            metavar="TAG,TAG…",
            help="Tags of the SavedModel's graph, e.g. serve,gpu.",
        ),
    ] = None,
    op_libraries: Annotated[
        list[str] | None,
        typer.Option(
            "--op-library",
            rich_help_panel=WORKLOAD,
            metavar="FILE|MODULE",
            help="Load ./op.so, ./layers.py or a module such as tensorflow_text before the model; can be repeated.",
        ),
    ] = None,
    input_shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input-shape",
            rich_help_panel=WORKLOAD,
            metavar="NAME=N,N…",
            help="Sizes that the model leaves open, without the batch (224,224,3) or with it (100,batch,80).",
        ),
    ] = None,
    input_ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--input-range",
            rich_help_panel=WORKLOAD,
            metavar="NAME=LOW:HIGH",
            help="Range of random values, HIGH excluded.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            rich_help_panel=WORKLOAD,
            metavar="NAME=VALUE|FILE",
            help="What an input holds: training=false, x=items.npy, text=lines.jsonl, image_bytes=photo.jpg.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", rich_help_panel=WORKLOAD, metavar="NAME", help="Name of the workload (default: its file name)."
        ),
    ] = None,
    feed: Annotated[
        str | None,
        typer.Option(
            "--feed",
            rich_help_panel=WORKLOAD,
            metavar="host|device",
            help="On a GPU: copy the inputs there in each step, as a server does (host, the default), or not.",
            autocompletion=lambda: ["host", "device"],
        ),
    ] = None,
) -> WorkloadSpec:
    return WorkloadSpec(
        words=tuple(words or ()),
        framework=framework,
        device=device,
        mode=mode,
        params=tuple(params or ()),
        execution=execution,
        signature=signature,
        tags=tags,
        op_libraries=tuple(op_libraries or ()),
        input_shapes=tuple(input_shapes or ()),
        input_ranges=tuple(input_ranges or ()),
        inputs=tuple(inputs or ()),
        name=name,
        feed=feed,
    )


def _all_options(
    metric_regex: Annotated[
        str | None,
        typer.Option(
            "--metric-regex",
            rich_help_panel=COMMAND,
            metavar="REGEX",
            help="Measure the command given after --. One group of the pattern captures the number that the command "
            "prints.",
        ),
    ] = None,
    minimize: Annotated[
        bool, typer.Option("--minimize", rich_help_panel=COMMAND, help="A smaller number is better.")
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            rich_help_panel=WORKLOAD,
            metavar="R",
            help="Send R requests a second (10, or 600/min) at random times (a request is one batch; inference), "
            "and minimise the mean time to the answer, the wait in the queue included.",
        ),
    ] = None,
    **of_model: Any,
) -> WorkloadSpec:
    spec = _model_options(**of_model)
    number = None if rate is None else PER_SECOND.parse(rate, "--rate")
    own = {"words": spec.words, "metric_regex": metric_regex, "minimize": minimize, "rate": number}
    return WorkloadSpec(**(spec.to_dict() | own))


CliFunction = Callable[..., Any]


def _parameters(function: CliFunction) -> list[inspect.Parameter]:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters if each.name != "of_model"]


def _with_options(command: CliFunction, make_spec: CliFunction, options: list[inspect.Parameter]) -> CliFunction:
    """Return `command` with `options` in the place of its parameter `workload`, which `make_spec` makes of them.

    Where the command has an option of that name itself, as for several values at once, it takes that place.
    """
    command_parameters = [each for each in _parameters(command) if each.name != "workload"]
    own = {each.name for each in command_parameters}
    options = [each for each in options if each.name not in own]

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> Any:
        spec = make_spec(**{each.name: arguments.pop(each.name) for each in options})
        return command(workload=spec, **arguments)

    # What is specific to the command comes before what all have in common.
    parameters = [options[0], *command_parameters, *options[1:]]
    vars(wrapped)["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    del wrapped.__wrapped__  # or typer would look at the signature of the command itself
    return wrapped


def takes_model(command: CliFunction) -> CliFunction:
    """Return a command whose parameter `workload` is taken from the words and options that name a model."""
    return _with_options(command, _model_options, _parameters(_model_options))


def takes_workload(command: CliFunction) -> CliFunction:
    """Return a command whose parameter `workload` is taken from the options that name a model, or a user's command."""
    return _with_options(command, _all_options, [*_parameters(_model_options), *_parameters(_all_options)])


def spec_or_default(spec: WorkloadSpec) -> WorkloadSpec:
    """Return what was asked for, or ResNet-50 where no workload was named."""
    if spec.words or spec.metric_regex is not None:
        return spec
    return WorkloadSpec(**(spec.to_dict() | {"words": (DEFAULT,)}))
