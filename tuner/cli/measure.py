"""The commands `compare`, `check`, `noise`, `load`, `size` and `frameworks`: what is measured beside a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.options import (
    WORKLOAD_WORDS,
    check_out,
    complete_setting,
    examples,
    make_out_folder,
    measuring,
    other,
    out_folder,
    output,
    parse_margin,
    setting,
    takes,
)
from tuner.cli.output import append_summary, console, show, show_json, show_result
from tuner.cli.search import INTERRUPTED
from tuner.errors import FindingError, TunerError
from tuner.job.request import CheckRequest, CompareRequest, FrameworksRequest, LoadRequest, NoiseRequest, SizeRequest
from tuner.quantity import PER_SECOND

if TYPE_CHECKING:
    from tuner.api.comparison import Check, Comparison
    from tuner.result.frameworks import FrameworksResult

COMPARE_EPILOG = examples(
    "tftune compare resnet50 --a tf-default --b intel",
    "tftune compare resnet50 --a tf-default --b inter_op=1,intra_op=2,batch_size=16",
    "tftune compare resnet50 --a intel --b resnet50-inference --json",
)
CHECK_EPILOG = examples(
    "tftune check last",
    "tftune check resnet50 --time-budget 5m --json",
    "tftune check last --instances",
    "tftune check last --same-latency",
    'tftune check last --fail-on-undecided --summary "$GITHUB_STEP_SUMMARY"',
)
NOISE_EPILOG = examples(
    "tftune noise resnet50",
    "tftune noise resnet50 --python .openmp/bin/python --time-budget 3m",
)
_STUDYS_TIMEOUT = measuring(
    "--trial-timeout TIME",
    "Time limit for a process to write the model, become ready, or run one slice (default: the study's).",
)
LOAD_EPILOG = examples(
    "tftune load last --max-p99 50ms",
    "tftune load resnet50 --max-batch 8 --batch-wait 5ms --out load/",
    "tftune load last --stored --details",
)
SIZE_EPILOG = examples(
    "tftune size last --rate 200 --max-p99 50ms",
    "tftune size resnet50 --rate 200 --max-p99 50ms --headroom 30% --cost 3f2a91c0=0.17 --cost 77b0c4d2=0.34",
)
FRAMEWORKS_EPILOG = examples(
    "tftune frameworks resnet50",
    "tftune frameworks resnet50 --scan 1..64 --out resnet50-frameworks",
    "tftune frameworks ./saved_model --frameworks onnxruntime,openvino --time-budget 15m --json",
    "tftune frameworks resnet50 --stored --json",
    "tftune frameworks resnet50 --python openvino=/opt/openvino/bin/python --numerics may-change",
)


@takes(
    CompareRequest,
    "time_budget space objective batch_size numerics python storage margin trial_timeout wait",
    words=WORKLOAD_WORDS,
    a=other("--a SETTING", "A setting: knob=value,…, the name of a baseline, or a study.", complete_setting),
    b=other("--b SETTING", "The setting to compare with --a, given in the same way.", complete_setting),
)
def compare(
    request: CompareRequest,
    details: options.Details = False,
    summary: options.Summary = None,
    json_: options.Json = False,
) -> None:
    """Compare two settings: is b faster than a?

    Every round starts new processes. Knobs that you do not name keep the framework's default.
    """
    from tuner.api.comparison import Comparison
    from tuner.job.compare import compare as measure
    from tuner.report.progress import ComparisonShown

    check_out(summary, "--summary")
    compared = Comparison(measure(request, ComparisonShown(console(stderr=True))))
    append_summary(summary, "tftune compare", compared.card)
    _show(compared, details=details, json_=json_)


@takes(
    CheckRequest,
    "study time_budget python storage wait",
    words={},
    instances=other(
        "--instances/--one-process",
        "Check the answer on several processes, or that on one (default: the first that sets anything).",
        show_default=False,
    ),
    same_latency=options.OF_SAME_LATENCY,
    margin=setting(
        "--margin PERCENT",
        "Smallest difference that matters, in percent (default: the study's own).",
        parser=parse_margin,
    ),
    trial_timeout=_STUDYS_TIMEOUT,
)
def check(
    request: CheckRequest,
    fail_on_undecided: Annotated[
        bool, output("--fail-on-undecided", "Exit with 1 if nothing is decided, too.")
    ] = False,
    details: options.Details = False,
    summary: options.Summary = None,
    json_: options.Json = False,
) -> None:
    """Measure the recommendation of a study against the default again.

    Each check adds a session to the study, for example on another day, and the verdict combines all sessions. The exit
    code is 1 if the recommendation is shown to be slower than or equal to the default, or with --same-latency to take
    longer for a call. It is 0 otherwise, also if undecided.
    """
    from tuner.api.comparison import Check
    from tuner.job.compare import check_study
    from tuner.report.progress import ComparisonShown
    from tuner.result.comparison import NothingToCheck

    check_out(summary, "--summary")
    checked = Check(check_study(request, ComparisonShown(console(stderr=True))))
    append_summary(summary, "tftune check", checked.card)
    _show(checked, details=details, json_=json_)
    is_undecided = not isinstance(checked.result, NothingToCheck) and checked.helps is None
    if checked.helps is False or (fail_on_undecided and is_undecided):
        raise typer.Exit(FindingError.exit_code)


def _show(compared: Comparison | Check, *, details: bool, json_: bool) -> None:
    """Print a comparison: its document, or its card, with `details` after its table."""
    from tuner.report import card, verdicts
    from tuner.result.comparison import NothingToCheck

    result = compared.result
    if json_:
        show_json(result)
        return
    if details and not isinstance(result, NothingToCheck):
        show(verdicts.comparison(result), "")
    show(*card.rendered(compared.card))


@takes(
    NoiseRequest,
    "time_budget objective batch_size python trial_timeout wait",
    words=WORKLOAD_WORDS,
    usual="resnet50",
)
def noise(request: NoiseRequest, json_: options.Json = False) -> None:
    """Measure how noisy this machine is.

    Compares the default setting with itself. Shows the smallest gain that a search with the default budget can detect
    here, and what else the machine did.
    """
    from tuner.job.calibration import calibrate
    from tuner.report import verdicts
    from tuner.report.progress import NoiseShown

    report = calibrate(request, NoiseShown(console(stderr=True)))
    if json_:
        show_json(report)
    else:
        show("", verdicts.noise(report))


@takes(
    LoadRequest,
    "study time_budget python storage wait",
    words={},
    trial_timeout=_STUDYS_TIMEOUT,
    max_p99_ms=setting(
        "--max-p99 TIME", "Limit on the 99th percentile of the responses: 50ms, or 50 (default: the study's)."
    ),
    max_batch=setting("--max-batch N", "Most requests of a batch (default: what carries most within the limit)."),
    batch_wait_ms=setting(
        "--batch-wait TIME", "Longest wait of a batch for more requests: 5ms, or 5 (default: what carries most)."
    ),
)
def load(
    request: LoadRequest,
    stored: Annotated[bool, output("--stored", "Show the last measurement again.")] = False,
    out: Annotated[Path | None, out_folder("load.json, table.csv and chart.svg")] = None,
    details: options.Details = False,
    json_: options.Json = False,
) -> None:
    """Measure how many requests per second each setting of a study carries.

    Requests of one item come at random times, whether or not the model is ready. Those that wait become a batch. The
    default and what the study recommends (each of its answers) take turns, at several rates. From how long their
    batches take, a model of the queue gives the curves. The exit code is 1 if no rate keeps to the limit.
    """
    from tuner.api.load import LoadTest, stored_load_test
    from tuner.job.load import load_study
    from tuner.report.progress import TaskShown

    make_out_folder(out)
    if stored:
        tested = stored_load_test(request.study, request.storage)
    else:
        tested = LoadTest(load_study(request, TaskShown(console(stderr=True))))
    show_result(tested, "load", out, json_=json_, details=details)
    if tested.result.has_no_rate and not stored:
        raise typer.Exit(FindingError.exit_code)


@takes(
    SizeRequest,
    "study storage",
    words={},
    rate=other(
        "--rate R",
        "Requests per second to carry: 200, or 12000/min.",
        parser=lambda text: PER_SECOND.parse(text, "--rate"),
    ),
    max_p99_ms=other("--max-p99 TIME", "Limit on the 99th percentile of the responses: 50ms, or 50."),
    headroom=other("--headroom PERCENT", "Share of the rate to keep free for more."),
    costs=other("--cost NAME=AMOUNT", "Cost of a copy on a machine, or of a study, in any unit. Can be repeated."),
)
def size(request: SizeRequest, json_: options.Json = False) -> None:
    """Compute how many copies of a setting carry a load within a limit.

    Reads the curves that `tftune load` has measured of this workload, on all machines of the storage. Measures nothing.
    """
    from tuner.api.load import Sizing
    from tuner.job.load import size as size_of

    show_result(Sizing(size_of(request)), "size", None, json_=json_)


@takes(
    FrameworksRequest,
    "space numerics margin storage trial_timeout wait",
    usual="resnet50",
    frameworks=setting(
        "--frameworks NAME[,NAME…]",
        "Frameworks to compare with TensorFlow (default: all that are installed): tensorflow-xla, onnxruntime, "
        "openvino, tensorrt (on a GPU), or a plugin's.",
    ),
    batch_size=setting(
        "--batch-size N", "Batch size that is tuned for, and of the verdicts (default: the workload's own)."
    ),
    batches=setting(
        "--scan N,N…|N..N",
        "Batch sizes to measure, the smallest first: 1..64 is 1, 2, 4 … 64. It ends if memory or time runs out.",
    ),
    time_budget=measuring("--time-budget TIME", "Time to spend, with searches. The same command continues."),
    pythons=measuring("--python [NAME=]PATH", "Python interpreter of one framework, or of all. Can be repeated."),
    new=measuring("--new", "Measure everything again."),
    stored=measuring("--stored", "Show the last measurement again."),
)
def frameworks(
    request: FrameworksRequest,
    out: Annotated[Path | None, out_folder("the table (CSV), the chart (SVG) and the document (JSON)")] = None,
    json_: options.Json = False,
) -> None:
    """Compare TensorFlow with ONNX Runtime, OpenVINO and XLA on one model.

    Each framework's default and its tuned setting take turns with TensorFlow's default. Outputs are compared before
    anything is timed. A search tunes each framework.
    """
    from tuner.api.comparison import Frameworks
    from tuner.job.frameworks import compare_frameworks
    from tuner.report.progress import TaskShown
    from tuner.result.frameworks import INTERRUPTED as WAS_INTERRUPTED

    make_out_folder(out)
    compared = Frameworks(compare_frameworks(request, TaskShown(console(stderr=True))))
    show_result(compared, "frameworks", out, json_=json_)
    if compared.result.ended == WAS_INTERRUPTED and not request.stored:
        raise typer.Exit(INTERRUPTED)
    if not request.stored and _has_nothing(compared.result):
        raise typer.Exit(TunerError.exit_code)


def _has_nothing(result: FrameworksResult) -> bool:
    """Return whether no framework was measured, or every search failed."""
    is_measured = any(row.items_per_s is not None for row in result.rows)
    searches = result.searches.values()
    return not is_measured or (
        bool(searches) and all(each.study is None and each.searched_s is None for each in searches)
    )
