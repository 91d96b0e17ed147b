"""The options of the commands, with their completion; and how a command of a request gets them, with its defaults."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from tuner.cli.help import COMMAND, MEASUREMENT, OTHERS, OUTPUT, SETTINGS, STUDIES, WORKLOAD
from tuner.errors import BadInputError, TunerError, unknown_name
from tuner.paths import DEFAULT_STORAGE, check_writable, storage_url
from tuner.quantity import PER_SECOND, PERCENT
from tuner.workload.spec import WorkloadSpec

_MAX_PERCENT = 50.0
JSON = "json"


def examples(*commands: str) -> str:
    """Return the end of a help page: examples, one a line."""
    return "\n".join(["Examples:", *(f"  {command}" for command in commands)])


# ---- completion -----------------------------------------------------------------------------------------------------


def complete_study(incomplete: str) -> list[str]:
    """Return the studies of the default storage that begin so."""
    from tuner.study.storage import all_records, open_storage, storage_errors

    try:
        with storage_errors():
            storage = open_storage(DEFAULT_STORAGE, create=False)
            study_names = [] if storage is None else [record.name for record in all_records(storage)]
    except TunerError:  # a shell that completes words has no place for it
        study_names = []
    return [name for name in ["last", *study_names] if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the baselines, the studies and the knobs that begin so."""
    from tuner.frameworks import registry

    catalogues = [registry.find(name).catalogue for name in registry.names()]
    candidates = [baseline.name for each in catalogues for baseline in each.baselines]
    candidates += dict.fromkeys(f"{name}=" for each in catalogues for name in each.knobs)
    return [name for name in candidates if name.startswith(incomplete)] + complete_study(incomplete)


def complete_space(incomplete: str) -> list[str]:
    """Return the shipped search spaces that begin so."""
    from tuner.frameworks import registry
    from tuner.space.spacefile import names

    folders = [registry.find(name).spaces for name in registry.names()]
    return [name for folder in folders for name in names(folder) if name.startswith(incomplete)]


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


def one_of(*words: str) -> Callable[[], list[str]]:
    """Return the completion of an option that takes one of these words."""
    return lambda: list(words)


def format_of(format_: str, known: Sequence[str], *, usual: str, json_: bool) -> str:
    """Return the format that was asked for, by its name or by --json; raises BadInputError for none, and for two."""
    if format_ not in known:
        raise unknown_name("format", format_, [name for name in known if name != JSON])
    if json_ and format_ not in (usual, JSON):
        raise BadInputError(f"--json with --format {format_}", "leave one of them out")
    return JSON if json_ else format_


# ---- files that are written -----------------------------------------------------------------------------------------


def check_out(out: Path | None, option: str = "--out") -> None:
    """Raise BadInputError if the file of an option cannot be written, before the work that it is for."""
    if out is None:
        return
    if out.is_dir():
        raise BadInputError(f"{option} {out} is a folder", "give a file name")
    if not out.parent.is_dir():
        raise BadInputError(f"{option}: folder {out.parent} does not exist", "create it first")
    check_writable(out.parent, f"give {option} a path that you can write to")


def make_out_folder(out: Path | None) -> None:
    """Make the folder that a command writes into; raises BadInputError where it cannot, before the work it is for."""
    if out is None:
        return
    if out.exists() and not out.is_dir():
        raise BadInputError(f"--out {out} is a file", "give the name of a folder")
    out.mkdir(parents=True, exist_ok=True)


# ---- options that several commands have -----------------------------------------------------------------------------


def _of(panel: str) -> Callable[..., Any]:
    """Return what declares an option under a panel of the help."""

    def option(usage: str, text: str, complete: Callable[..., list[str]] | None = None, **others: Any) -> Any:
        """Declare it as it is used, `--trials N`, with what it does and what completes its value."""
        name, _, metavar = usage.partition(" ")
        return typer.Option(
            name, metavar=metavar or None, help=text, autocompletion=complete, rich_help_panel=panel, **others
        )

    return option


other, setting, measuring, of_workload, of_command, of_studies, output = map(
    _of, (OTHERS, SETTINGS, MEASUREMENT, WORKLOAD, COMMAND, STUDIES, OUTPUT)
)


def out_folder(written: str) -> Any:
    """Declare the option that names a folder for what a command also writes."""
    return output("--out FOLDER", f"Also write {written} to a folder.")


def parse_margin(text: str | float) -> float:
    """Return a margin in percent; typer's own range lets NaN through in some versions, or words it strangely."""
    value = PERCENT.parse(text, "--margin")
    if not 0 < value <= _MAX_PERCENT:
        raise BadInputError(
            f"--margin is {value:g}", f"expected a percentage above 0 and at most {_MAX_PERCENT:g}, e.g. 2%"
        )
    return value


STUDY = typer.Argument(
    help="Name of a study, a unique prefix of one, or 'last' for the newest.", autocompletion=complete_study
)
_STORAGE = of_studies(
    "--storage FILE|URL",
    "The database with the studies: an SQLite file, or the URL of another database.",
    envvar="TFTUNE_STORAGE",
    callback=storage_url,
)
Study = Annotated[str, STUDY]
Storage = Annotated[str, _STORAGE]
Since = Annotated[
    str | None,
    of_studies("--since DATE|DAYS", "Only studies started since a date (2026-11-01, UTC) or in the last days (30d)."),
]
Machines = Annotated[
    str | None,
    of_studies("--machines ID|here", "Only studies of this machine ('here'), or of the machine with this id."),
]
Workloads = Annotated[str | None, of_studies("--workloads NAME[,NAME…]", "Only studies of these workloads.")]
OF_SAME_LATENCY = other("--same-latency", "The fastest setting whose call takes no longer than the default's.")
SameLatency = Annotated[bool, OF_SAME_LATENCY]
Out = Annotated[Path | None, output("--out FILE", "Write to a file instead of the terminal.")]
Summary = Annotated[
    Path | None,
    output("--summary FILE", "Also append the answer to a file as Markdown, such as $GITHUB_STEP_SUMMARY."),
]
Details = Annotated[bool, output("--details", "Also show the tables behind the answer.")]
Json = Annotated[bool, output("--json", "Print one JSON document. All else goes to stderr.")]
MODEL_WORDS: Mapping[str, Any] = {
    "words": typer.Argument(
        metavar="WORKLOAD",
        help="A shipped workload (see: tftune workloads), your own Python file, a .keras or .onnx file, or a "
        "SavedModel folder. Several joined by + are an ensemble.",
        autocompletion=complete_workload,
        show_default=False,
    ),
    "framework": of_workload(
        "--framework NAME",
        "tensorflow, onnxruntime, openvino, tensorrt or a plugin's (default: by the file, else tensorflow)",
        complete_framework,
        show_default=False,
    ),
    "device": of_workload(
        "--device NAME",
        "cpu (default), gpu, gpu:1, gpu:0:2 or a plugin's.",
        complete_device,
        show_default=False,
    ),
    "mode": of_workload(
        "--mode MODE",
        "inference, or training (forward, backward, optimizer step).",
        one_of("inference", "training"),
    ),
    "params": of_workload("--param NAME=VALUE", "Set a parameter of the workload. Can be repeated."),
    "execution": of_workload(
        "--execution graph|eager|xla",
        "Run the model as a graph, operator by operator (eager), or compiled by XLA.",
        one_of("graph", "eager", "xla"),
    ),
    "signature": of_workload("--signature NAME", "Signature of the SavedModel to run."),
    "tags": of_workload("--tags TAG,TAG…", "Tags of the SavedModel's graph, e.g. serve,gpu."),
    "op_libraries": of_workload(
        "--op-library FILE|MODULE",
        "Load ./op.so, ./layers.py or a module such as tensorflow_text before the model. Can be repeated.",
    ),
    "input_shapes": of_workload(
        "--input-shape NAME=N,N…",
        "Sizes that the model leaves open, without the batch (224,224,3) or with it (100,batch,80).",
    ),
    "input_ranges": of_workload("--input-range NAME=LOW:HIGH", "Range of random values, HIGH excluded."),
    "inputs": of_workload(
        "--input NAME=VALUE|FILE",
        "What an input holds: training=false, x=items.npy, text=lines.jsonl, image_bytes=photo.jpg.",
    ),
    "name": of_workload("--name NAME", "Name of the workload (default: its file name)."),
    "feed": of_workload(
        "--feed host|device",
        "On a GPU: copy the inputs there in each step, as a server does (host, the default), or not.",
        one_of("host", "device"),
    ),
}
"""What names a model: fields of `WorkloadSpec`."""
WORKLOAD_WORDS: Mapping[str, Any] = {
    **MODEL_WORDS,
    "metric_regex": of_command(
        "--metric-regex REGEX",
        "Measure the command given after --. One group of the pattern captures the number that the command prints.",
    ),
    "minimize": of_command("--minimize", "A smaller number is better."),
    "rate": of_workload(
        "--rate R",
        "Send R requests per second (10, or 600/min) at random times. A request is one batch. The search "
        "minimises the mean time to the answer, with the wait in the queue.",
        parser=lambda text: PER_SECOND.parse(text, "--rate"),
    ),
}
"""What names a model, or a user's command."""


_SHARED: Mapping[str, Any] = {
    "study": STUDY,
    "storage": _STORAGE,
    "space": setting(
        "--space NAME|FILE",
        "Name of a shipped search space, or a TOML file (default: cpu, or gpu with --device gpu).",
        complete_space,
    ),
    "pins": setting("--set KNOB=VALUE", "Fix a knob at one value. Can be repeated."),
    "batch_size": setting("--batch-size N,N…|N..N", "Sizes to try: 8, 1,2,4 or 1..64 (doubling)."),
    "batches": setting(
        "--batch-size N,N…|N..N",
        "Batch sizes to measure, the smallest first: 1..64 is 1, 2, 4 … 64. It ends if memory or time runs out.",
    ),
    "objective": setting(
        "--objective NAME",
        "throughput, latency, energy or capacity (requests within --max-p99).",
    ),
    "numerics": setting(
        "--numerics keep|may-change",
        "Whether other precisions may be tried (GPUs, OpenVINO).",
        one_of("keep", "may-change"),
    ),
    "margin": setting("--margin PERCENT", "Smallest difference that matters, in percent.", parser=parse_margin),
    "time_budget": measuring(
        "--time-budget TIME", "Time to spend, e.g. 90s or 5m. At least two rounds are always run."
    ),
    "python": measuring("--python PATH", "Python that runs the trials (default: tftune's own)."),
    "trial_timeout": measuring(
        "--trial-timeout TIME", "Time limit for a process to write the model, become ready, or run one slice."
    ),
    "wait": measuring("--wait", "Wait until no other tftune measures here, instead of failing."),
}
"""By the fields of requests, what most commands have under these names."""


# ---- the request of a command ---------------------------------------------------------------------------------------

CliFunction = Callable[..., Any]


def takes(
    request_type: type[Any], shared: str, *, words: Mapping[str, Any] = MODEL_WORDS, usual: str = "", **own: Any
) -> Callable[[CliFunction], CliFunction]:
    """Return what makes a command of a function of a `request`: its options are fields of it, with types and defaults.

    Those of the fields `shared` are as in most commands, its `own` are declared. `words` are the options that name the
    request's workload, and `usual` is the one that is meant where none is named. All are in the order of the request;
    options of the function itself come after these.
    """
    declared = {name: _SHARED[name] for name in shared.split()} | own
    options = {each.name: declared[each.name] for each in fields(request_type) if each.name in declared}
    assert declared.keys() == options.keys()
    flags = {_flag(option) for option in options.values()}
    of_workload = {name: option for name, option in words.items() if _flag(option) not in flags}

    def command(function: CliFunction) -> CliFunction:
        named = _parameters(WorkloadSpec, of_workload)
        others = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in others]
        # What is specific to the command comes before what all have in common.
        parameters = [*named[:1], *_parameters(request_type, options), *others, *named[1:]]

        @functools.wraps(function)
        def wrapped(**arguments: Any) -> Any:
            values = _asked(arguments, options)
            if words:
                spec = WorkloadSpec(**_asked(arguments, of_workload))
                is_named = spec.words or spec.metric_regex is not None or not usual
                values["workload"] = spec if is_named else replace(spec, words=(usual,))
            return function(request_type(**values), **arguments)

        vars(wrapped)["__signature__"] = inspect.Signature(parameters)
        wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
        del wrapped.__wrapped__  # or typer would look at the signature of the function itself
        return wrapped

    return command


def _flag(option: Any) -> str:
    """Return the name of an option, such as --rate."""
    return str(option.default)


def _parameters(of: type[Any], options: Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return the parameters of options that are fields of a type, with its defaults."""
    types = get_type_hints(of)
    defaults = {each.name: _typed(each.name, each.default) for each in fields(of)}
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[_option_type(types[name]), option],
            default=defaults[name],
        )
        for name, option in options.items()
    ]


def _option_type(of_field: Any) -> Any:
    """Return what an option takes: text where a field has text or numbers, and a list where it has several."""
    if get_origin(of_field) is Sequence:
        return list[str] | None
    return str | None if str in get_args(of_field) else of_field


def _typed(name: str, default: Any) -> Any:
    """Return the default of a field as that of an option: a margin in percent, None for an empty list."""
    if default is MISSING:
        return inspect.Parameter.empty
    return None if default == () else 100 * default if name == "margin" and default is not None else default


def _asked(arguments: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Take the values of options out of the arguments of a command; what was not typed is left out."""
    values = {name: arguments.pop(name) for name in options}
    if values.get("margin") is not None:
        values["margin"] /= 100
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if value is not None
    }
