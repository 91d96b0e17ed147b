"""Candidates at one batch size, measured together with the reference in common passes, on a scripted machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.scripted_launcher import ScriptedLauncher, ScriptedProcess
from tuner.measure.agreement import Sample
from tuner.measure.measurement import LostReference, Measurement, MeasurementPlan, block_sd, measure_together
from tuner.measure.pair import Pair
from tuner.measure.rounds import Contender
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.stats.noise import PRIOR_BLOCK_SD, PRIOR_NOISE
from tuner.trial.outcome import ReadyReport, Slice, Status, TrialFailure

RATES = {"reference": 20.0, "fast": 22.0, "slow": 15.0}


def rate(at: Setting) -> float:
    """Return the rate of a setting by its name; four times as many items in a step are 1.2 times as fast."""
    return RATES[str(at["name"])] * (1.2 if at.batch_size == 32 else 1.0)


def of(name: str, batch_size: int) -> Setting:
    return Setting.of({"name": name, "batch_size": batch_size})


class Watched(ScriptedLauncher):
    """A launcher that writes down whose slices run, lets a process die at its n-th one, and says what a start told."""

    def __init__(self, *, dies: tuple[str, int] = ("", 0), first_step_s: float = 0.5, **options: Any) -> None:
        super().__init__(rate=options.pop("rate", rate), **options)
        self.turns: list[str] = []
        self.dies, self.first_step_s = dies, first_step_s

    def launch(self, at: Setting, deployment: Deployment) -> ScriptedProcess:
        process = super().launch(at, deployment)
        name = str(at["name"])[0].upper() if at.batch_size == 32 else "a"
        slice_, ready = process.slice, process.ready

        def watched(duration_s: float) -> Slice:
            self.turns.append(name)
            if (str(at["name"]), self.turns.count(name)) == self.dies:
                raise TrialFailure(Status.CRASHED, "killed")
            return slice_(duration_s)

        def told() -> ReadyReport:
            process.slice = slice_  # type: ignore[method-assign]
            facts = ready()
            process.slice = watched  # type: ignore[method-assign]
            return replace(facts, first_step_s=self.first_step_s)

        process.ready = told  # type: ignore[method-assign]
        return process


def contender(launcher: ScriptedLauncher, name: str, batch_size: int = 32, processes: int = 1) -> Contender:
    deployment = Deployment(processes=processes)
    return Contender(names=(name,), setting=of(name, batch_size), deployment=deployment, launcher=launcher)


def measured(
    launcher: ScriptedLauncher,
    plan: MeasurementPlan | None = None,
    *,
    others: Sequence[str] = ("fast", "slow"),
    statuses: dict[str, Status] | None = None,
    max_s: float = math.inf,
    processes: int = 1,
    batch_size: int = 32,
    anchor_batch: int | None = 8,
) -> tuple[dict[str, Measurement], LostReference | None]:
    """Return the measurements by name, and how the reference was lost."""
    measurements: dict[str, Measurement] = {}

    def check(of: Contender, _: ReadyReport, expected: Sample | None) -> Measurement:
        assert (expected is None) == (of.names[0] == "reference")
        return Measurement(
            contender=of.names[0], batch_size=batch_size, status=(statuses or {}).get(of.names[0], Status.OK)
        )

    lost = measure_together(
        contender(launcher, "reference", batch_size),
        [contender(launcher, name, batch_size, processes) for name in others],
        plan or MeasurementPlan(),
        anchor=None if anchor_batch is None else contender(launcher, "reference", anchor_batch),
        check=check,
        ended=lambda each: measurements.__setitem__(each.contender, each),
        is_over=lambda: launcher.now() > max_s,
    )
    assert launcher.live == 0
    return measurements, lost


def test_all_are_measured_in_common_passes_with_one_reference() -> None:
    launcher = Watched(noise=0.02, drift=0.1)
    measurements, lost = measured(launcher, MeasurementPlan(max_pair_s=120.0))
    assert lost is None
    assert measurements.keys() == {"reference", "fast", "slow"}
    first = "".join(launcher.turns)[:8]
    assert first[:4] == first[4:][::-1]
    assert sorted(first) == sorted("aRFS" * 2)
    for name in ("fast", "slow"):
        own = measurements[name].estimate()
        assert own is not None
        low, high = own.interval()
        assert low < RATES[name] / RATES["reference"] < high
        assert math.log(high / low) / 2 <= 0.03
    anchored = measurements["reference"].estimate()
    assert measurements["reference"].paired_batch_size == 8
    assert anchored is not None
    assert anchored.ratio == pytest.approx(1.2, rel=0.04)
    pairs = {name: each.pair for name, each in measurements.items()}
    assert pairs["fast"] is not None and pairs["slow"] is not None
    shared = min(pairs["fast"].n_blocks, pairs["slow"].n_blocks)
    assert pairs["fast"].reference[: 2 * shared] == pairs["slow"].reference[: 2 * shared]
    n_reference = launcher.turns.count("R")
    assert n_reference == 2 * max(pair.n_blocks for pair in pairs.values() if pair is not None)


def test_who_is_known_leaves_and_the_others_go_on() -> None:
    def noisy(at: Setting) -> float:
        return rate(at) * (math.exp(launcher.rng.normal(0, 0.2)) if at["name"] == "slow" else 1.0)

    launcher = Watched(rate=noisy)
    measurements, _ = measured(launcher, MeasurementPlan(max_pair_s=60.0))
    assert measurements["fast"].pair is not None and measurements["slow"].pair is not None
    assert measurements["fast"].pair.n_blocks < measurements["slow"].pair.n_blocks
    assert "F" not in launcher.turns[-10:]
    assert "a" not in launcher.turns[-10:]


def test_without_an_anchor_the_reference_has_no_pair() -> None:
    measurements, _ = measured(Watched(), anchor_batch=None)
    assert (measurements["reference"].status, measurements["reference"].pair) == (Status.OK, None)
    assert measurements["fast"].pair is not None


def test_what_fails_is_a_failed_measurement_and_the_others_go_on() -> None:
    launcher = Watched(dies=("fast", 3), failures={of("slow", 32): Status.OOM})
    measurements, lost = measured(launcher)
    assert lost is None
    assert (measurements["fast"].status, measurements["fast"].message, measurements["fast"].pair) == (
        Status.CRASHED,
        "killed",
        None,
    )
    assert measurements["slow"].status is Status.OOM
    assert measurements["reference"].pair is not None


def test_what_computes_something_else_is_not_timed() -> None:
    launcher = Watched()
    measurements, _ = measured(launcher, statuses={"fast": Status.INVALID})
    assert measurements["fast"].status is Status.INVALID
    assert "F" not in launcher.turns


def test_what_ran_in_complete_passes_before_the_reference_failed_is_kept() -> None:
    measurements, lost = measured(Watched(dies=("reference", 5), noise=0.2))
    assert lost is not None
    assert (lost.failure.status, lost.was_alone) == (Status.CRASHED, False)
    assert [each.pair.n_blocks for each in measurements.values() if each.pair is not None] == [2, 2, 2]
    measurements, lost = measured(Watched(dies=("reference", 1)))
    assert (measurements, lost is not None) == ({}, True)
    launcher = Watched(failures={of("reference", 32): Status.OOM})
    measurements, lost = measured(launcher)
    assert (measurements, lost is not None and lost.was_alone) == ({}, True)
    assert [each["name"] for each in launcher.launched] == ["reference"]


def test_passes_end_with_the_time() -> None:
    measurements, lost = measured(Watched(noise=0.2), max_s=20.0)
    assert lost is None
    assert {each.pair.n_blocks for each in measurements.values() if each.pair is not None} == {1}


def test_long_steps_have_one_slice_in_a_pass_beside_two_of_the_others() -> None:
    """What ran before and after it is one slice then."""
    RATES["long"] = 2.0
    launcher = Watched()
    measurements, _ = measured(launcher, others=("long",), anchor_batch=None)
    assert "".join(launcher.turns)[:3] == "RLR"
    pair = measurements["long"].pair
    assert pair is not None
    assert pair.slices_per_block == 1
    assert len(pair.reference) == len(pair.candidate)
    assert pair.reference[0].n_steps == 2
    own = measurements["long"].estimate()
    assert own is not None
    assert own.ratio == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("plan", "first_step_s", "processes", "turns"),
    [
        (MeasurementPlan(once=True), 16.0, 1, "R"),  # and the reference ran before, too
        (MeasurementPlan(once=True), 0.1, 1, "FR"),  # the second step stalled
        (MeasurementPlan(once=True), 16.0, 2, "FR"),  # several are not warm at once
        (MeasurementPlan(once=True, warm_up_counts=False), 16.0, 1, "FR"),  # the device tells what a slice takes
        (MeasurementPlan(once=True, slice_s=40.0), 16.0, 1, "FR"),  # it is shorter than a slice
    ],
)
def test_the_end_of_a_warm_up_is_a_slice_where_steps_are_long(
    plan: MeasurementPlan, first_step_s: float, processes: int, turns: str
) -> None:
    launcher = Watched(rate=lambda at: rate(at) / 10, first_step_s=first_step_s)
    measurements, _ = measured(launcher, plan, others=("fast",), processes=processes, anchor_batch=None)
    assert sorted(launcher.turns) == list(turns)
    pair = measurements["fast"].pair
    assert pair is not None
    assert (len(pair.candidate), pair.slices_per_block) == (1, 1)
    is_turn = turns == "R"
    assert pair.candidate[0].n_steps == 1 + (plan.slice_s == 40.0) * 2
    assert (pair.reference[0].start_s < pair.candidate[0].start_s) or not is_turn
    own = measurements["fast"].estimate()
    assert own is not None
    assert own.ratio == pytest.approx(1.1, rel=0.01)


def test_with_one_slice_in_a_pass_every_other_pass_goes_back() -> None:
    launcher = Watched(noise=0.1)
    measured(launcher, MeasurementPlan(once=True, warm_up_counts=False, max_pair_s=30.0), anchor_batch=None)
    turns = "".join(launcher.turns)
    assert turns[:3] == turns[3:6][::-1]


@pytest.mark.parametrize(("tail_s", "timed_s"), [(0.0, 12.0), (30.0, 12.0), (60.0, 40.0), (90.0, 80.0)])
def test_a_measurement_goes_on_for_its_tail_only_where_that_is_within_reach(tail_s: float, timed_s: float) -> None:
    """400 steps of 0.1 s beside as many of the reference take 80 s; the ratio alone is known after a few passes."""
    launcher = Watched(rate=lambda _: 10.0)
    plan = MeasurementPlan(tail_steps=(200, 400), max_tail_s=tail_s)
    measurements, _ = measured(launcher, plan, others=("fast",), batch_size=1, anchor_batch=None)
    pair = measurements["fast"].pair
    assert pair is not None
    assert pair.timed_s == pytest.approx(timed_s, rel=0.35)
    n_steps = sum(len(each.latency_samples_s) for each in pair.candidate)
    assert (n_steps >= 400) == (timed_s == 80.0)
    assert (n_steps >= 200) == (timed_s >= 40.0)


def scattering(sd: float, n: int, seed: int) -> Measurement:
    """Return a measurement whose blocks scatter by so much."""
    x = np.random.default_rng(seed).normal(0, sd, n)
    alike = Slice(start_s=0.0, elapsed_s=1.0, n_steps=1, step_s=(1.0,))
    pair = Pair(
        reference=[alike] * n,
        candidate=[replace(alike, elapsed_s=math.exp(-each)) for each in x],
        slices_per_block=1,
    )
    return Measurement(contender="b", batch_size=8, pair=pair)


def test_what_a_single_block_is_worth_is_told_by_the_others() -> None:
    assert block_sd([]) == pytest.approx(PRIOR_BLOCK_SD, rel=0.2)
    assert block_sd([scattering(0.5, 1, 0)]) == pytest.approx(block_sd([]))  # one block says nothing
    quiet, loud = ([scattering(math.sqrt(2) * sd, 8, seed) for seed in range(20)] for sd in (0.01, 0.1))
    assert block_sd(quiet) == pytest.approx(0.01, rel=0.25)
    assert block_sd(loud) == pytest.approx(0.1, rel=0.25)
    # One that somebody else has disturbed moves it little.
    assert block_sd([*quiet, scattering(1.0, 8, 99)]) < 0.02
    single = scattering(0.0, 1, 0)
    widths = [single.estimate(replace(PRIOR_NOISE, block_sd=block_sd(others))).se for others in (quiet, loud)]
    assert widths[1] > 5 * widths[0]
