"""Hypotheses: what simulated studies say of machines that nobody has measured, and that they stay hypotheses."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.conftest import Call
from tests.frameworks import STOCK
from tests.towers import traced
from tuner.frameworks.tensorflow.baselines import DEFAULT, INTEL, WANG
from tuner.job.predict import Capture, write_capture
from tuner.job.rulebook import MACHINES, predicted_processes, simulated_rules
from tuner.machine.spec import parse_spec
from tuner.model.graph import Features
from tuner.report.hypotheses import answers, rule_lines
from tuner.rules.evidence import StudyEvidence
from tuner.rules.hypothesis import Simulated, hypotheses, one_operator, simulated_study
from tuner.rules.learn import LearnPlan
from tuner.rules.recipe import LATENCY, PROCESSES
from tuner.space.setting import Setting
from tuner.study.subject import WorkloadFacts
from tuner.workload.workload import Execution

HERE = parse_spec("cores=2").machine()


def workload(name: str) -> WorkloadFacts:
    """Return a workload of that name."""
    return WorkloadFacts(
        name=name,
        kind="python",
        mode="inference",
        execution=Execution.GRAPH,
        params={},
        fingerprint=name,
        description="",
        item="image",
        batch_size=8,
    )


def features(width: float = 1.0) -> Features:
    """Return those of a made graph."""
    return Features(
        operators={"Conv2D": 40, "Relu": 40},
        heavy_operators=40,
        layers=round(40 / width),
        width=width,
        depth=100,
        flops=10**9,
        moved_bytes=10**8,
        parameters=1000,
        parameter_bytes=4000,
        known=True,
    )


def capture(name: str, *, told: Features | None) -> Capture:
    """Return a capture of made towers, profiled on two cores."""
    return Capture(
        machine=HERE,
        runtime=msgspec.to_builtins(STOCK.to_dict()),
        workload=workload(name),
        traced={b: [traced(n, b) for n in (1, 2)] for b in (1, 8)},
        features=told,
    )


def planted(n: int, cores: int) -> list[tuple[str, StudyEvidence]]:
    """Return studies of so many workloads on machines of 4 and 32 cores: from so many cores on, one operator wins."""
    studies = []
    for spec in ("cores=4", "cores=32"):
        machine = parse_spec(spec).machine()

        def predict(reference: Setting, settings: Sequence[Setting], at: int = machine.usable_cores) -> np.ndarray:
            del reference
            gain = 0.3 if at >= cores else -0.1
            return np.array([gain if (s["inter_op"], s["intra_op"]) == (1, at) else 0.0 for s in settings])

        for number in range(n):
            made = Simulated(
                workload=workload(f"made{number}"),
                features=features(3.0),
                build=STOCK,
                machine=machine,
                predict=predict,
            )
            studies.append((spec, simulated_study(made)))
    return studies


def test_a_rule_of_large_machines_is_found_with_the_study_that_would_test_it() -> None:
    result = hypotheses(planted(8, cores=16), LearnPlan(), {})
    (rule,) = result.rules
    assert rule.if_.startswith("usable cores of ")
    assert rule.terms["inter_op"] == "1"
    assert rule.over[DEFAULT] == pytest.approx(math.exp(0.3), rel=0.02)
    assert (rule.test.machine, rule.test.b["intra_op"]) == ("cores=32", 32)
    assert rule.test.a != "intel"  # which says the same
    assert rule.test.ratio == pytest.approx(math.exp(0.3), rel=0.05)
    small, large = result.machines
    assert (small.helped, large.helped) == (0, 8)
    assert large.one_operator == pytest.approx(math.exp(0.3), rel=0.02)
    assert any(line.endswith("for half of the workloads? on 32 cores") for line in answers(result))
    _, _, test, expected = rule_lines(rule)
    assert test.startswith("test, on 32 cores: tftune compare made")
    assert "the hypothesis is wrong if it is below 1.02×" in expected


def test_teams_that_spin_are_asked_about_where_several_run() -> None:
    """Of a build with OpenMP, and of workloads that are two operators wide."""
    machine = parse_spec("cores=16").machine()

    def predict(reference: Setting, settings: Sequence[Setting]) -> np.ndarray:
        del reference
        return np.array([-0.2 if s["inter_op"] == 3 and s["kmp_blocktime"] == 200 else 0.0 for s in settings])

    studies = []
    for width in (1.0, 3.0):
        made = Simulated(
            workload=workload(f"made{width:g}"),
            features=features(width),
            build=replace(STOCK, onednn_runtime="openmp"),
            machine=machine,
            predict=predict,
        )
        studies.append(("cores=16", simulated_study(made)))
    narrow, wide = studies
    (row,) = hypotheses([wide], LearnPlan(), {}).machines
    assert row.pool == "openmp"
    assert row.spinning == pytest.approx(math.exp(-0.2), rel=0.03)
    assert hypotheses([narrow], LearnPlan(), {}).machines[0].spinning is None
    (both,) = hypotheses(studies, LearnPlan(), {}).machines
    assert both.spinning == pytest.approx(row.spinning)
    assert any("should threads spin" in line for line in answers(hypotheses(studies, LearnPlan(), {})))


def test_few_workloads_give_rows_and_no_rule() -> None:
    result = hypotheses(planted(3, cores=16), LearnPlan(), {})
    assert result.rules == ()
    assert len(result.machines) == 2
    with pytest.raises(ValueError, match="at least one"):
        hypotheses([], LearnPlan(), {})


def test_where_nothing_matters_there_is_no_rule() -> None:
    assert hypotheses(planted(8, cores=1000), LearnPlan(), {}).rules == ()


def test_guides_mean_there_what_they_say() -> None:
    study = dict(planted(1, cores=16))["cores=32"]
    assert study.baselines[INTEL]["intra_op"] == 32
    assert study.baselines[WANG]["inter_op"] == 3
    assert one_operator(study).to_dict() == {"inter_op": 1, "intra_op": 32, "batch_size": 8}
    assert study.default["inter_op"] == 32


def test_captures_are_simulated_on_machines_of_all_sizes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.json" for name in ("a", "b")]
    for path in paths:
        write_capture(capture(path.stem, told=features()), path)
    result = simulated_rules(paths)
    assert [row.machine for row in result.machines] == list(MACHINES)
    assert result.workloads == ("a", "b")
    assert not result.measured
    assert all(row.best >= max(row.one_operator, row.intel, row.wang) * 0.98 for row in result.machines)


def test_the_command_shows_them_and_says_that_nothing_is_measured(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    write_capture(capture("a", told=features()), path)
    code, out, _ = call("rules", "--simulated", "--from", str(path))
    assert code == 0
    assert out.startswith("simulated, not measured: 1 workload (a)")
    assert "no rule is learned from fewer than 6 workloads, and 1 are profiled" in out
    code, out, _ = call("rules", "--simulated", "--from", str(path), "--json")
    assert code == 0
    assert json.loads(out)["measured"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--simulated"], "no profile that can be simulated is in the cache"),
        (["--simulated", "--from", "nowhere.json"], "cannot read nowhere.json"),
        (["--simulated", "--save"], "--simulated goes with --from, --out and --json only"),
        (["--simulated", "--format", "html"], "--simulated goes with --from, --out and --json only"),
        (["--from", "nowhere.json"], "--from is for simulations"),
    ],
)
def test_bad_input_is_one_line(
    call: Call, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFTUNE_CACHE", str(tmp_path))
    code, out, err = call("rules", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_capture_without_its_graph_says_nothing_of_rules(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    write_capture(capture("a", told=None), path)
    code, _, err = call("rules", "--simulated", "--from", str(path))
    assert code == 2
    assert f"{path} is of an earlier version, without its graph" in err


def test_processes_are_predicted_to_gain_more_on_more_cores() -> None:
    predicted = predicted_processes()[PROCESSES]
    gains = [each.gain.ratio for each in predicted]
    assert [each.kind.cores for each in predicted] == ["8", "16", "32"]
    assert gains == sorted(gains)
    # Measured on 16 cores (results/cores16): 3.0, the geometric mean of eight workloads.
    on_16 = predicted[1].gain
    assert on_16.low is not None and on_16.high is not None
    assert on_16.low < 3.0 < on_16.high
    assert predicted[1].call is not None
    assert predicted[1].call.ratio == pytest.approx(16 / on_16.ratio)


def test_at_the_same_latency_processes_with_smaller_batches_are_predicted() -> None:
    on_16 = predicted_processes()[LATENCY][1]
    assert set(on_16.terms) == {"instances", "batch_size"}
    assert on_16.gain.ratio > 1
    assert on_16.call is not None
    assert on_16.call.ratio < 1.5
