"""Measure on a GPU in steps of 60 s, or 90 s for tests and benchmarks, those that are worth most first.

    python -m tests.gpu.plan FOLDER                  the steps that have not run, for 14 minutes
    python -m tests.gpu.plan FOLDER --minutes 5      as many as fit
    python -m tests.gpu.plan --list                  the steps and their limits
    python -m tests.gpu.plan FOLDER --device cpu     a rehearsal without a GPU

A step leaves what it printed in FOLDER, and is skipped the next time, so two quarters of an hour add up. A step that
takes too long is interrupted, and leaves what it has by then. If it fails it leaves a line in FOLDER/failures.txt, and
the plan goes on.
The interpreter with TensorFlow and CUDA is this one, or that of TFTUNE_GPU_PYTHON.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON = os.environ.get("TFTUNE_GPU_PYTHON", sys.executable)
MODELS = ("lenet5", "resnet50", "bert-base")
_END_S = 10.0  # that a step has to keep what it has, once it was interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, the file that it leaves, and the seconds that it may take."""

    file: str
    words: Sequence[str]
    limit_s: float = 60.0


def tftune(file: str, *words: str, device: str, budget_s: int = 45) -> Step:
    """Return a step of tftune, whose budget leaves time for the start and the last round."""
    options = ["--device", device, "--python", PYTHON, "--time-budget", f"{budget_s}s"]
    return Step(file=file, words=[sys.executable, "-m", "tuner", *words, *options])


def steps(folder: Path, device: str) -> Iterator[Step]:
    """Yield the steps in their order."""
    run_tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu", "-m", "gpu", "-k"]
    for name in ("inspect or sees or counter", "device", "memory", "host"):
        yield Step(file=f"tests-{name.split()[0]}.txt", words=[*run_tests, name], limit_s=90.0)
    for model in MODELS:
        for execution in ("graph", "eager", "xla"):
            words = ["overhead", model, "--execution", execution, "--batch-size", "1,8,64,256"]
            yield tftune(f"overhead-{model}-{execution}.txt", *words, device=device)
    storage = ["--storage", f"sqlite:///{folder}/studies.db"]
    for part in (1, 2):  # the same command continues
        for model in MODELS[1:]:
            for numerics in ("keep", "may-change"):  # TF32 off and on, and mixed precision
                words = ["frameworks", model, "--numerics", numerics, *storage]
                yield tftune(f"frameworks-{model}-{numerics}-{part}.txt", *words, device=device)
    searches = [
        (f"{model}-{objective}", [model, "--objective", objective])
        for model in MODELS[1:]
        for objective in ("throughput", *(["energy"] if device != "cpu" else []))
    ]
    searches.append(("resnet50-may-change", ["resnet50", "--numerics", "may-change"]))
    for part in (1, 2, 3):
        for name, words in searches:
            yield tftune(f"search-{name}-{part}.json", "search", *words, *storage, "--json", device=device)
    yield Step(file="benchmarks.md", words=[sys.executable, "-m", "tests.benchmarks.gpu"], limit_s=90.0)


def run(step: Step, folder: Path) -> str:
    """Run a step and keep what it printed; return why it failed, or nothing."""
    part, log = folder / f"{step.file}.part", folder / f"{step.file}.log"
    with part.open("w") as out, log.open("w") as err:
        process = subprocess.Popen(
            step.words, stdout=out, stderr=err, start_new_session=True, preexec_fn=_take_interrupts
        )
        try:
            code = process.wait(step.limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # tftune stores what it has measured, and shows it
            try:
                code = process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"took longer than {step.limit_s:.0f} s"
    if code not in (0, 1, 130) or not part.stat().st_size:  # 1 is a finding, 130 an interrupt
        lines = log.read_text().strip().splitlines() or part.read_text().strip().splitlines()
        return f"exit code {code}: {lines[-1] if lines else 'no output'}"
    part.rename(folder / step.file)
    return ""


def _take_interrupts() -> None:
    """Let a step be interrupted: a plan in the background of a script inherits an ignored SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    """Take the options, and run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/gpu/plan"))
    parser.add_argument("--minutes", type=float, default=14.0)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    folder = options.folder.absolute()
    planned = list(steps(folder, options.device))
    if options.list:
        print("\n".join(f"{step.file:40} {step.limit_s:3.0f} s" for step in planned))
        return
    folder.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + 60 * options.minutes
    for step in planned:
        began_s = time.monotonic()
        if (folder / step.file).exists() or began_s + step.limit_s + _END_S > ends_s:
            continue
        failure = run(step, folder)
        line = f"{step.file}: {failure or 'done'} after {time.monotonic() - began_s:.0f} s"
        print(line, flush=True)
        with (folder / ("failures.txt" if failure else "times.txt")).open("a") as lines:
            lines.write(f"{line}\n")
    left = [step.file for step in planned if not (folder / step.file).exists()]
    print(f"{len(planned) - len(left)} of {len(planned)} steps are done")
    print("".join(f"left: {file}\n" for file in left), end="")


if __name__ == "__main__":
    main()
