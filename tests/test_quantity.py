"""Numbers with units, as they are typed and as programs give them."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tuner
from tests.command_line import tftune_here
from tuner.api.options import margin_share, workload_spec
from tuner.devices import registry as devices
from tuner.errors import BadInputError
from tuner.job.parsed import interpreter, parse_request
from tuner.job.request import SearchRequest
from tuner.job.selection import Selection
from tuner.machine.spec import parse_spec
from tuner.measure.budget import parse_duration
from tuner.quantity import CPUS, MILLISECONDS, PER_SECOND, PERCENT, WATTS, Quantity
from tuner.workload.spec import WorkloadSpec, ranges, shapes


@pytest.mark.parametrize(
    ("quantity", "text", "number"),
    [
        (MILLISECONDS, "50", 50), (MILLISECONDS, "50ms", 50), (MILLISECONDS, "50 ms", 50), (MILLISECONDS, "0.05s", 50),
        (MILLISECONDS, "500us", 0.5), (MILLISECONDS, "500µs", 0.5), (MILLISECONDS, "1e1", 10), (MILLISECONDS, 7, 7),
        (MILLISECONDS, "500\u03bcs", 0.5), (MILLISECONDS, "50msec", 50), (MILLISECONDS, "0.05 seconds", 50),
        (MILLISECONDS, "50 milliseconds", 50), (PER_SECOND, "10 requests per second", 10), (PER_SECOND, "10tps", 10),
        (WATTS, "50W", 50), (WATTS, "50", 50), (WATTS, "0.2 kW", 200), (WATTS, 12.5, 12.5),
        (PER_SECOND, "10/s", 10), (PER_SECOND, "600/min", 10), (PER_SECOND, "600rpm", 10), (PER_SECOND, "10 qps", 10),
        (PER_SECOND, "10 req/s", 10), (PER_SECOND, "10Hz", 10), (PER_SECOND, "1.5krps", 1500), (PER_SECOND, "10", 10),
        (PERCENT, "3%", 3), (PERCENT, "3 %", 3), (PERCENT, "3", 3), (PERCENT, ".5", 0.5),
        (CPUS, "1.5", 1.5), (CPUS, "150%", 1.5), (CPUS, "1500m", 1.5), (CPUS, "2 cpus", 2),
    ],
)  # fmt: skip
def test_a_unit_may_be_given(quantity: Quantity, text: str | float, number: float) -> None:
    assert quantity.parse(text, "--x") == number


@pytest.mark.parametrize(
    ("quantity", "text", "units"),
    [
        (MILLISECONDS, "50W", "ms, s, us"),
        (MILLISECONDS, "1,5ms", "ms, s, us"),
        (MILLISECONDS, "ms", "ms, s, us"),
        (WATTS, "50V", "W, kW"),
        (PER_SECOND, "10x", "/s, /min, /h, k/s"),
        (PERCENT, "3x", "%"),
        (PERCENT, "", "%"),
    ],
)
def test_a_wrong_unit_is_told_of_with_those_that_there_are(quantity: Quantity, text: str, units: str) -> None:
    with pytest.raises(BadInputError) as caught:
        quantity.parse(text, "--x")
    assert caught.value.message == f"--x is '{text}'"
    assert caught.value.hint.endswith(f"its units are {units}")


def test_no_number_stays_none() -> None:
    assert math.isnan(PERCENT.parse("nan", "--margin"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 min", 120),
        ("1h 30m", 5400),
        ("90 sec", 90),
        ("500ms", 0.5),
        ("1H", 3600),
        ("2 hours", 7200),
        ("5mins", 300),
        ("1d", 86400),
    ],
)
def test_durations_in_words(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hours"),
    [("30d", 720), ("1.5d", 36), ("7 days", 168), ("1 day", 24), ("2w", 336), ("2 weeks", 336), ("12h", 12)],
)
def test_studies_since_a_time_ago(text: str, hours: float) -> None:
    reason = Selection(since=text).exclusion_reason([])
    now = datetime.now(UTC)

    def begun(ago: float) -> Any:
        return SimpleNamespace(subject=None, created=(now - timedelta(hours=ago)).isoformat())

    assert str(reason(begun(hours + 1))).startswith("started before ")
    assert reason(begun(hours - 1)) is None


@pytest.mark.parametrize("text", ["2026-01-02T10:00:00+00:00", "2026-01-02 10:00", "2026-01-02T10:00Z", "2026-01-02"])
def test_studies_since_a_moment(text: str) -> None:
    reason = Selection(since=text).exclusion_reason([])
    for created, is_left_out in (("2026-01-02T11:00:00+00:00", False), ("2026-01-01T11:00:00+00:00", True)):
        stored: Any = SimpleNamespace(subject=None, created=created)
        assert (reason(stored) is not None) is is_left_out


@pytest.mark.parametrize("text", ["1m", "3M", "soon", "2026-13-01", "9999-01-01", "1e400d", ".d", "30"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match=f"--since is '{text}'"):
        Selection(since=text).check()


def test_a_machine_in_other_units() -> None:
    spec = parse_spec("cores=4,memory=64GiB,l3=512KiB,bandwidth=20000MB/s,quota=250%")
    assert (spec.memory, spec.l3, spec.bandwidth, spec.quota) == (64, 0.5, 20, 2.5)
    assert parse_spec("cores=4,memory=64,l3=16").memory == 64
    with pytest.raises(BadInputError, match=r"memory=64XB; expected a number from 0\.1 to 65536, in GiB"):
        parse_spec("cores=4,memory=64XB")


def test_shapes_and_ranges_may_be_written_as_programs_print_them() -> None:
    for text in ("224,224,3", "(224, 224, 3)", "[224,224,3]", "224x224x3", "224 × 224 × 3"):
        assert shapes([f"x={text}"]) == {"x": [224, 224, 3]}
    assert shapes(["x=(batch, 3)"]) == {"x": ["batch", 3]}
    assert shapes(["x=(5,)"]) == {"x": [5]}
    for text in ("2x", "None,3", "-1,3", "2.5", "(3", "3)x2"):
        with pytest.raises(BadInputError, match="--input-shape x is "):
            shapes([f"x={text}"])
    assert ranges(["ids=0:3e4"]) == {"ids": [0, 30000]}
    assert isinstance(ranges(["ids=0:3e4"])["ids"][1], int)
    assert isinstance(ranges(["x=0:2.0"])["x"][1], float)


def test_batch_sizes_may_double() -> None:
    request = SearchRequest(workload=WorkloadSpec(words=("mlp",)), batch_size="1..8")
    assert parse_request(request, stores=False).batch_sizes == [1, 2, 4, 8]
    for text in ("8..1", "0..4", "1...4", "1-4"):
        with pytest.raises(BadInputError, match=f"--batch-size is '{text}'"):
            parse_request(replace(request, batch_size=text), stores=False)


def test_limits_of_a_search_take_units() -> None:
    request = SearchRequest(workload=WorkloadSpec(words=("mlp",)), max_p99_ms="0.05s")
    assert parse_request(request, stores=False).limits.p99_s == 0.05
    with pytest.raises(BadInputError, match=r"--max-p99 is '50W'; expected a time, e.g. 50ms or 0.05s"):
        parse_request(SearchRequest(workload=WorkloadSpec(words=("mlp",)), max_p99_ms="50W"), stores=False)


def test_several_pins_may_stand_in_one_option() -> None:
    request = SearchRequest(
        workload=WorkloadSpec(words=("mlp",)), pins=["inter_op=1,cpus=0", "batch_size=4 intra_op=1"]
    )
    assert parse_request(request, stores=False).pins == {
        "inter_op": "1", "cpus": "0", "batch_size": "4", "intra_op": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "name"), [("TensorFlow", "tensorflow"), ("tf", "tensorflow"), ("ORT", "onnxruntime")]
)
def test_names_may_be_in_capitals_or_short(framework: str, name: str) -> None:
    spec = WorkloadSpec(words=("mlp",), framework=framework, device="CPU")
    parsed = parse_request(SearchRequest(workload=spec, batch_size="1,2,4,"), stores=False)
    assert (parsed.framework.name, parsed.device.kind, parsed.batch_sizes) == (name, "cpu", [1, 2, 4])


@pytest.mark.parametrize("name", ["GPU:7", "cuda:7"])
def test_a_gpu_has_another_name_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.devices.gpu.Gpu.check", lambda _: None)
    assert devices.find(name).name == "gpu:7"


def test_an_environment_is_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert interpreter(str(tmp_path)) == interpreter(f"{tmp_path}/") == tmp_path / "bin" / "python"


def test_the_api_takes_the_same() -> None:
    assert workload_spec("mlp", rate="600/min").rate == workload_spec("mlp", rate=10).rate == 10
    assert margin_share("3%") == margin_share("3") == margin_share("3pct") == 0.03
    assert margin_share(0.03) == 0.03
    with pytest.raises(BadInputError, match="margin is 'x'"):
        tuner.search("mlp", margin="x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--margin", "3x"], "--margin is '3x'; expected a percentage, e.g. 3%"),
        (["--margin", "60%"], "--margin is 60; expected a percentage above 0 and at most 50"),
        (["--margin", "0.02"], "a margin of 0.02 % cannot be measured; did you mean 2 %?"),
        (["--margin", "0.00001"], "a margin of 1e-05 % cannot be measured; did you mean 0.1 %?"),
        (["--rate", "10x"], "--rate is '10x'; expected requests per second, e.g. 10/s"),
        (
            ["--margin", "3%", "--rate", "10/s", "--max-p99", "50ms", "--max-memory", "2"],
            "--max-memory is '2'; expected e.g. 800MiB",
        ),
    ],
)
def test_the_command_line_takes_them(tmp_path: Path, words: list[str], message: str) -> None:
    done = tftune_here("search", "mlp", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
