"""Draw docs/roofline.svg: the roofline of the profile of ResNet-50 that is shipped for predictions.

python docs/roofline.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.job.predict import read_capture
from tuner.paths import shipped_profiles
from tuner.report.model import roofline
from tuner.result.model import describe_profile
from tuner.study.subject import Subject

BATCH_SIZE = 8


def picture() -> str:
    """Return the chart as SVG."""
    capture = read_capture(shipped_profiles() / "resnet50.json.xz")
    of_no_search: dict[str, Any] = {"space": "", "points": 0, "knobs": {}, "default": "", "baselines": {}}
    subject = Subject(machine=capture.machine, runtime=capture.runtime, workload=capture.workload, **of_no_search)
    return roofline(describe_profile(capture.profiles[BATCH_SIZE], subject, batch_size=BATCH_SIZE))


if __name__ == "__main__":
    Path(__file__).with_name("roofline.svg").write_text(picture())
