"""Write the report of what `run.sh` left in a folder, as Markdown on stdout.

python -m tests.gpu.report FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.quantity import energy_text, ratio_text
from tuner.report.terminal import setting_text

Document = Mapping[str, Any]


def report(folder: Path) -> Iterator[str]:
    """Yield the lines: the GPU, the answers, the batch curves, the tables, and which steps failed."""
    about = json.loads((folder / "inspect.json").read_text())
    gpu, build = about["device"], about["runtime"]
    yield f"# {gpu['model']}"
    yield ""
    yield (
        f"Driver {gpu['driver']}, compute capability {gpu['capability']}, {gpu['memory_bytes'] / 2**30:.0f} GiB; "
        f"TensorFlow {build['tensorflow']} for CUDA {build['cuda']}, Python {build['python']}; "
        f"{about['machine']['physical_cores']} cores of {about['machine']['cpu_model']}; "
        f"commit {(folder / 'commit.txt').read_text().strip()[:12]}."
    )
    for path in _last_parts(folder.glob("search-*.json")):
        yield ""
        yield from study(json.loads(path.read_text()))
    for path in [*sorted(folder.glob("overhead-*.txt")), *_last_parts(folder.glob("frameworks-*.txt"))]:
        yield f"\n## {path.stem.replace('-', ' ')}\n\n```text\n{path.read_text().strip()}\n```"
    if (folder / "benchmarks.md").is_file():
        yield "\n## Benchmarks\n"
        yield (folder / "benchmarks.md").read_text().strip()
    yield "\n## Steps\n"
    for path in sorted(folder.glob("tests-*.txt")):
        yield f"- {path.stem}: {path.read_text().strip().splitlines()[-1]}"
    for name in ("times.txt", "failures.txt"):
        if (folder / name).is_file():
            yield from (f"- {line}" for line in (folder / name).read_text().splitlines())


def _last_parts(paths: Iterable[Path]) -> Iterable[Path]:
    """Return the last part of each command that was run in parts."""
    return {path.stem.rpartition("-")[0]: path for path in sorted(paths)}.values()


def study(document: Document) -> Iterator[str]:
    """Yield what a search found, and its curve over batch sizes at the default's threads."""
    default, advice, finals = document["default"], document["recommended"], document["finals"]
    yield f"## {document['workload']['name']}"
    yield ""
    if advice is None:
        yield f"There are no finals; {len(document['history'])} trials ended."
        return
    yield f"Recommended: {setting_text(advice['setting'])} ({advice['source']}); {advice['reason']}"
    yield ""
    yield f"| in the finals | {finals['unit']} | energy per item | memory | the first beside it | verdict |"
    yield "| --- | ---: | ---: | ---: | --- | --- |"
    for name, aliases in finals["names"].items():
        if name not in finals["rates"]:
            continue
        tail = finals["tails"].get(name, {})
        peak = tail.get("peak_memory_bytes")
        memory = "—" if peak is None else f"{peak / 2**30:.2f} GiB"
        verdict = document["verdicts"].get(name)
        beside = "— | —"
        if verdict is not None:
            beside = f"{ratio_text(verdict['speedup'], verdict['low'], verdict['high'])} | {verdict['verdict']}"
        level = f"{finals['rates'][name]:.4g} | {energy_text(tail.get('energy_j'))} | {memory}"
        yield f"| {', '.join(aliases)} | {level} | {beside} |"
    reference = document["baselines"][default]["setting"]
    yield ""
    yield "| trial | items/s beside the default | energy per item | memory |"
    yield "| --- | --- | ---: | ---: |"
    for trial in sorted(document["history"], key=lambda each: each["setting"]["batch_size"]):
        setting = trial["setting"]
        shown = {n: value for n, value in setting.items() if n == "batch_size" or reference[n] != value}
        peak = trial["peak_memory_bytes"]
        memory = "—" if peak is None else f"{peak / 2**30:.2f} GiB"
        ratio = ratio_text(trial["ratio"], trial["low"], trial["high"]) if trial["status"] == "ok" else trial["status"]
        yield f"| {setting_text(shown)} | {ratio} | {energy_text(trial['energy_j'])} | {memory} |"


if __name__ == "__main__":
    print("\n".join(report(Path(sys.argv[1]))))
