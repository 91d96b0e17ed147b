"""Rules: words and numbers, surfaces, learning where the truth is known, and proof."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.benchmarks.rules import found_again, nothing_found, shuffled_gives_nothing
from tests.conftest import setting
from tests.planted import BY_WIDTH, NOTHING, ONE_POOL, ONE_THREAD, Truth, attributes, make, studies
from tuner.frameworks.tensorflow.baselines import BASELINES, INTEL, wang_width
from tuner.machine.host import Machine
from tuner.rules.distil import Policy, coverage, distil, do_no_harm_policy
from tuner.rules.evidence import StudyEvidence, apply, at_latency
from tuner.rules.gains import evidence_for, is_tied_with_best, loss
from tuner.rules.learn import LearnPlan, Problem, RuleIndex, first_matching, learn
from tuner.rules.proof import POLICY, RULES, RecipesOf, folds, left_out
from tuner.rules.recipe import (
    BATCH,
    LATENCY,
    PROCESSES,
    THREADS,
    Recipe,
    batch_recipes,
    process_recipes,
    thread_recipes,
)
from tuner.rules.rule import AdviceReason, Rule, decide
from tuner.rules.situation import FEATURES, Condition, Literal, Situation, of_study, roundest, thresholds
from tuner.rules.strata import (
    Gain,
    Ratio,
    SituationKind,
    Stratum,
    StratumClass,
    StratumEvidence,
    advice_by_stratum,
    over_workloads,
    prediction_interval,
)
from tuner.rules.surface import FINALS, Measured, ResponseSurface
from tuner.rules.table import TrainingTable, follow, process_table, thread_table
from tuner.space.term import EIGEN, OPENMP
from tuner.stats.equivalence import MARGIN
from tuner.study.attributes import Attributes

PLAN = LearnPlan()


def made(truth: Truth = Truth(), seed: int = 1, **options: object) -> list[StudyEvidence]:  # noqa: B008  # frozen
    return studies(list(make(np.random.default_rng(seed), truth=truth, **options)))  # type: ignore[arg-type]


# ---- conditions -----------------------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 1e9), st.booleans())
def test_a_threshold_parts_its_neighbours(a: float, b: float, log: bool) -> None:
    low, high = sorted((a, b))
    if low < high:
        assert low < roundest(low, high, log=log) <= high


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (1.33, 1.98, False, 1.5),
        (1.0, 2.0, True, 2.0),
        (8.0, 16.0, True, 10.0),
        (0.11, 0.13, True, 0.12),
        (3, 4, False, 4),
    ],
)
def test_thresholds_are_round(low: float, high: float, log: bool, expected: float) -> None:
    assert roundest(float(low), float(high), log=log) == expected


def test_of_many_thresholds_those_that_part_most_evenly_are_taken() -> None:
    values = [float(i) for i in range(100)]
    cuts = thresholds(values, log=False, at_most=3)
    assert len(cuts) == 3
    assert [sum(v < cut for v in values) for cut in cuts] == pytest.approx([25, 50, 75], abs=2)


def test_what_is_not_known_lies_on_neither_side() -> None:
    values = {"cache": math.nan}
    assert not Literal("cache", 2.0, True).holds(values)
    assert not Literal("cache", 2.0, False).holds(values)


def test_conditions_read_as_one_would_say_them() -> None:
    both = Condition((Literal(OPENMP, 0.5, True), Literal("width", 1.5, True)))
    assert str(both) == "on the Eigen pool and average width below 1.5"
    assert str(Condition((Literal("mflops_operator", 4.0, False),))) == "work per operator and step of 4 MFLOPs or more"
    assert str(Condition()) == "everywhere"


# ---- recipes --------------------------------------------------------------------------------------------------------


@pytest.fixture
def wide(machine: Machine) -> Situation:
    """A graph of width 3.7 on the made machine of 8 cores."""
    study = made(workloads=1)[0]
    graph = replace(study.situation.features, width=3.7)
    return replace(study.situation, machine=machine, features=graph, pool=OPENMP)


def test_wangs_rule_is_one_of_the_recipes(wide: Situation) -> None:
    recipe = Recipe.of({"inter_op": "width", "intra_op": "cores/inter_op", "omp_num_threads": "cores/inter_op"})
    paper = wang_width(wide.machine, wide.features.width)
    assert recipe in thread_recipes()
    assert recipe.values(wide.scale) == {"inter_op": 3, "intra_op": 2, "omp_num_threads": 2}
    assert {name: paper[name] for name in recipe.values(wide.scale)} == recipe.values(wide.scale)


def test_no_more_pools_than_cores(machine: Machine) -> None:
    small = replace(machine, physical_cores=2, logical_cpus=2)
    assert wang_width(small, 11.2)["inter_op"] == 2
    assert wang_width(small, 0.0)["inter_op"] == 1
    assert wang_width(small, 11.2)["intra_op"] == 1


def test_a_recipe_leaves_out_what_cannot_act(wide: Situation) -> None:
    recipe = Recipe.of({"inter_op": "1", "omp_num_threads": "cores", "kmp_affinity": "compact"})
    assert recipe.values(replace(wide, pool=EIGEN).scale) == {"inter_op": 1}
    assert recipe.words(EIGEN) == "inter_op 1"
    assert recipe.words() == "inter_op 1, OMP_NUM_THREADS all usable cores, KMP_AFFINITY compact"


def test_keeping_the_defaults_comes_first() -> None:
    assert thread_recipes()[0] == batch_recipes()[0] == Recipe()
    assert Recipe().words() == "keep TensorFlow's defaults"
    assert len(thread_recipes()) == len(set(thread_recipes())) == 800 + 20 + 1


def test_onednn_is_turned_on_where_a_stock_wheel_leaves_it_off(wide: Situation) -> None:
    recipe = Recipe.of({"onednn": "1", "inter_op": "1"})
    off = replace(wide, pool=EIGEN, onednn=False)
    assert recipe in thread_recipes()
    assert recipe.values(off.scale) == {"inter_op": 1, "onednn": 1}
    assert recipe.values(replace(off, onednn=True).scale) == recipe.values(wide.scale) == {"inter_op": 1}
    assert recipe.words() == recipe.words(EIGEN) == "inter_op 1, oneDNN on (changes rounding)"
    assert recipe.words(OPENMP) == "inter_op 1"


def test_what_intel_recommends_is_one_of_the_recipes(machine: Machine, wide: Situation) -> None:
    two = replace(machine, sockets=2)
    intel = next(each for each in BASELINES if each.name == INTEL).rule(two) | {"kmp_affinity": "compact"}
    (recipe,) = (each for each in thread_recipes() if {"onednn", "kmp_affinity"} <= each.to_dict().keys())
    for situation in (replace(wide, machine=two), replace(wide, machine=two, pool=EIGEN, onednn=False)):
        values = recipe.values(situation.scale)
        assert len(values) >= 3
        assert values == {knob: intel[knob] for knob in values}


def test_a_batch_is_relative_to_the_workloads_own(wide: Situation) -> None:
    batch = replace(wide, batch_size=8)
    assert Recipe.of({"batch_size": "4"}).values(batch.scale) == {"batch_size": 32}
    assert Recipe.of({"batch_size": "0.125"}).values(replace(wide, batch_size=2).scale) == {"batch_size": 1}
    assert Recipe.of({"batch_size": "0.25"}).words() == "batch_size 1/4 of the workload's own"


@pytest.mark.parametrize(
    ("cores", "nodes", "expected"),
    [
        (8, 2, [8, 4, 2, 2]),
        (2, 1, [2, 1, 1, 1]),
        (1, 1, [1, 1, 1, 1]),
        (96, 4, [48, 48, 24, 4]),
        (128, 1, [64, 64, 32, 1]),
    ],
)
def test_processes_are_relative_to_cores_and_nodes(
    wide: Situation, cores: int, nodes: int, expected: list[int]
) -> None:
    machine = replace(
        wide.machine, physical_cores=cores, logical_cpus=cores, numa_nodes={str(n): str(n) for n in range(nodes)}
    )
    scale = replace(wide, machine=machine).scale
    assert [recipe.values(scale) for recipe in process_recipes()] == [{}, *({"instances": n} for n in expected)]
    limited = replace(wide, machine=replace(machine, cpu_quota=1.0)).scale
    assert {recipe.values(limited).get("instances", 1) for recipe in process_recipes()} == {1}


def test_processes_are_said_as_one_would_say_them() -> None:
    texts = ["one per core", "one per 2 cores", "one per 4 cores", "one per NUMA node"]
    assert [recipe.words() for recipe in process_recipes()[1:]] == [f"processes {text}" for text in texts]
    assert not any("instances" in recipe.to_dict() for recipe in [*thread_recipes(), *thread_recipes(on_gpu=True)])


def test_a_compact_binding_is_spelt_as_the_study_spells_it() -> None:
    default = setting(inter_op=2, kmp_affinity="none", batch_size=8)
    assert apply(default, {"kmp_affinity": "compact"}, "fine,compact") == default.with_values(
        kmp_affinity="fine,compact"
    )
    assert apply(default, {"kmp_affinity": "compact", "omp_num_threads": 3}, None) == default


# ---- surfaces -------------------------------------------------------------------------------------------------------

DEFAULT = setting(inter_op=2, intra_op=8, batch_size=8)
OTHER, FAR = DEFAULT.with_values(inter_op=1), DEFAULT.with_values(inter_op=8, intra_op=1)


def surface(gain: float, sd: float = 0.01) -> ResponseSurface:
    return ResponseSurface(DEFAULT, [Measured(setting=OTHER, log_ratio=gain, variance=sd**2)])


def test_the_default_gains_nothing_over_itself() -> None:
    mean, sd = surface(0.2).gains([DEFAULT])
    assert mean[0] == pytest.approx(0, abs=1e-9)
    assert sd[0] == pytest.approx(0, abs=1e-5)


def test_what_was_measured_precisely_is_believed() -> None:
    mean, sd = surface(0.2).gains([OTHER])
    assert mean[0] == pytest.approx(0.2, abs=0.01)
    assert sd[0] == pytest.approx(0.01, rel=0.1)


def test_what_nobody_tried_is_believed_to_gain_nothing_and_known_badly() -> None:
    mean, sd = surface(0.2).gains([DEFAULT.with_values(intra_op=1)])
    assert mean[0] == pytest.approx(0, abs=1e-9)
    assert sd[0] > 0.05


def test_what_larger_batches_gain_says_nothing_of_threads() -> None:
    batches = [
        Measured(setting=DEFAULT.with_values(batch_size=size), log_ratio=gain, variance=1e-4)
        for size, gain in ((16, 0.3), (32, 0.5))
    ]
    surface = ResponseSurface(DEFAULT, batches)
    assert surface.gains([OTHER])[0][0] == pytest.approx(0, abs=1e-9)
    assert surface.gains([DEFAULT.with_values(batch_size=64)])[0][0] > 0.2


def test_a_surface_of_nothing_knows_nothing() -> None:
    mean, sd = ResponseSurface(DEFAULT, []).gains([OTHER])
    assert mean[0] == 0
    assert sd[0] > 0


def test_a_surface_is_blind_to_the_side_of_1() -> None:
    up, down = surface(0.2).gains([OTHER, FAR]), surface(-0.2).gains([OTHER, FAR])
    assert up[0] == pytest.approx(-down[0])
    assert up[1] == pytest.approx(down[1])


def test_a_difference_knows_what_its_two_have_in_common() -> None:
    both = ResponseSurface(
        DEFAULT,
        [
            Measured(setting=OTHER, log_ratio=0.9, variance=1e-4, shared=0.05**2, reference=1),
            Measured(setting=FAR, log_ratio=0.9, variance=1e-4, shared=0.05**2, reference=1),
        ],
    )
    assert both.log_ratio(OTHER, FAR)[1] < 0.03 < both.gains([OTHER])[1][0]
    assert both.log_ratio(OTHER, FAR)[0] == -both.log_ratio(FAR, OTHER)[0]


@pytest.mark.parametrize(
    ("runtime", "enabled", "on"),
    [("threadpool", True, 1), ("threadpool", False, 0), ("openmp", None, 1), (None, None, 0), (None, False, 0)],
)
def test_whether_onednn_is_on_is_a_feature(runtime: str | None, enabled: bool | None, on: int) -> None:
    made_one = next(make(np.random.default_rng(0), truth=NOTHING, workloads=1))
    stored = Attributes("made", attributes(0, made_one))
    subject = structs.replace(
        stored.subject, runtime=stored.subject.runtime | {"onednn_runtime": runtime, "onednn_enabled": enabled}
    )
    assert of_study(subject, made_one.situation.features).values()["onednn"] == on


def test_many_contrasts_to_one_default_do_not_know_it_better() -> None:
    """Five settings that look faster: the default's process may have been slow once, and not five times."""
    settings = [DEFAULT.with_values(inter_op=1, intra_op=n) for n in (8, 4, 2, 1, 16)]

    def of(reference: int) -> ResponseSurface:
        return ResponseSurface(
            DEFAULT,
            [Measured(setting=s, log_ratio=0.3, variance=1e-3, shared=1e-3, reference=reference) for s in settings],
        )

    assert (of(FINALS).gains(settings)[1] > of(0).gains(settings)[1]).all()
    assert of(FINALS).log_ratio(settings[0], settings[1])[1] < 0.8 * of(0).log_ratio(settings[0], settings[1])[1]


def test_the_best_is_one_that_was_measured() -> None:
    assert surface(0.2).best() == OTHER
    assert surface(-0.2).best() == DEFAULT
    assert surface(0.2).best(batch_size=8) == OTHER


# ---- learning -------------------------------------------------------------------------------------------------------


def problem(u: np.ndarray, masks: np.ndarray | None = None, workloads: np.ndarray | None = None) -> Problem:
    n = len(u)
    held = np.ones((1, n), dtype=bool) if masks is None else masks
    return Problem(
        u=u,
        measured=np.ones(u.shape, dtype=bool),
        masks=held,
        workloads=np.arange(n) if workloads is None else workloads,
        recipe_cost=np.arange(u.shape[1]),
        mask_cost=np.array([int(not mask.all()) for mask in held]),
        plain=np.array([bool(mask.all()) for mask in held]),
        sd=0.01,
    )


def test_what_gains_everywhere_is_a_rule() -> None:
    u = np.column_stack([np.zeros(12), np.full(12, 0.1)])
    assert learn(problem(u), PLAN) == [RuleIndex(mask=0, recipe=1)]


def test_what_gains_too_little_to_matter_is_none() -> None:
    u = np.column_stack([np.zeros(40), np.full(40, 0.015)])
    assert learn(problem(u), PLAN) == []


def test_one_workload_makes_no_rule_however_many_its_studies() -> None:
    u = np.column_stack([np.zeros(50), np.full(50, 0.5)])
    assert learn(problem(u, workloads=np.zeros(50, dtype=int)), PLAN) == []


def test_a_few_workloads_make_no_rule_as_their_signs_agree_by_chance() -> None:
    u = np.column_stack([np.zeros(4), np.full(4, 0.5)])
    assert learn(problem(u), PLAN) == []


def test_an_exception_stands_before_what_holds_otherwise() -> None:
    narrow = np.arange(24) < 12
    u = np.column_stack([np.zeros(24), np.where(narrow, 0.1, 0.15), np.where(narrow, 0.2, -0.2)])
    learned = learn(problem(u, np.array([np.ones(24, dtype=bool), narrow])), PLAN)
    assert learned == [RuleIndex(mask=1, recipe=2), RuleIndex(mask=0, recipe=1)]
    assert list(first_matching(np.array([np.ones(24, dtype=bool), narrow]), learned)) == [0] * 12 + [1] * 12


def test_the_simpler_of_two_that_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(0)
    gain = 0.1 + 0.01 * rng.standard_normal(20)
    u = np.column_stack([np.zeros(20), gain, gain + 0.001 * rng.standard_normal(20)])
    assert learn(problem(u), PLAN) == [RuleIndex(mask=0, recipe=1)]


def test_the_same_studies_give_the_same_rules() -> None:
    table = thread_table(made())
    assert table.learn(PLAN) == table.learn(PLAN)


def test_a_rule_that_an_exception_has_hollowed_out_is_tested_again() -> None:
    """Everywhere it gains by the many; the few that are left after the exception say nothing clear."""
    rng = np.random.default_rng(0)
    many = np.arange(24) < 18
    other_gains = np.where(rng.random(24) < 0.5, 0.3, -0.2)
    u = np.column_stack([np.zeros(24), np.where(many, 0.1, other_gains), np.where(many, 0.3, -0.3)])
    learned = learn(problem(u, np.array([np.ones(24, dtype=bool), many])), PLAN)
    assert learned == [RuleIndex(mask=1, recipe=2)]


def test_of_few_workloads_every_sign_is_looked_at() -> None:
    """With five workloads 1 of 32 worlds has all signs alike, with four 1 of 16: more than 1 in 20."""
    gain = np.array([0.2, 0.21, 0.19, 0.2, 0.22])
    for n, expected in ((4, []), (5, [RuleIndex(mask=0, recipe=1)])):
        u = np.column_stack([np.zeros(n), gain[:n]])
        assert learn(problem(u), PLAN) == expected
        assert learn(problem(u), replace(PLAN, seed=7)) == expected


def test_with_conditions_a_rule_takes_six_workloads() -> None:
    masks = np.stack([np.ones(6, dtype=bool), np.array([True] * 5 + [False])])
    for n in (5, 6):
        u = np.column_stack([np.zeros(n), [0.2, 0.21, 0.19, 0.2, 0.22, 0.2][:n]])
        two_tiers = replace(problem(u, masks[:, :n]), plain=np.array([True, False]))
        assert bool(learn(two_tiers, PLAN)) == (n >= PLAN.min_workloads)


def test_what_was_hardly_measured_is_no_rule() -> None:
    u = np.column_stack([np.zeros(12), np.full(12, 0.2), np.full(12, 0.1)])
    measured = np.ones(u.shape, dtype=bool)
    measured[:7, 1] = False
    assert learn(replace(problem(u), measured=measured), PLAN) == [RuleIndex(mask=0, recipe=2)]


def test_no_studies_give_no_rules() -> None:
    assert learn(problem(np.zeros((0, 2))), PLAN) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_planted_rule_is_found_again(seed: int) -> None:
    assert found_again(Truth(), seed)


@pytest.mark.parametrize("seed", range(2))
def test_wangs_rule_is_found_again_where_it_is_true(seed: int) -> None:
    assert found_again(Truth(below=BY_WIDTH, above=BY_WIDTH), seed)


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_makes_no_rule(seed: int) -> None:
    assert nothing_found(NOTHING, seed)


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_gains_make_no_rule(seed: int) -> None:
    assert shuffled_gives_nothing(Truth(), seed)


def on_cores(n: int, **changes: Any) -> Stratum:
    """Return a kind of machine and build with so many cores: the Eigen pool, oneDNN on, no quota."""
    return structs.replace(Stratum(shape=f"{n} cores", pool=EIGEN, onednn=True, quota=False), **changes)


TWO_CORES, FOUR_CORES = on_cores(2), on_cores(4)


# ---- evidence of rules, and proof -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known() -> list[StudyEvidence]:
    """Sixty studies of a rule: one thread for small operators, one pool of all cores for others."""
    return made()


def test_a_rule_carries_its_evidence(known: list[StudyEvidence]) -> None:
    rule_list = distil(known, PLAN)[THREADS]
    rules = rule_list.rules
    assert [rule.recipe for rule in rules] == [ONE_THREAD, Recipe.of({"inter_op": "1"})]
    small = rules[0].evidence
    assert str(rules[0].condition).startswith("work per operator and step below")
    assert small.n_studies == 2 * len(small.workloads)
    assert small.n_shapes == 2
    gain = small.gains[StratumClass.REST]["tf-default"]
    assert gain.low is not None and gain.low < math.exp(0.15) * 1.02
    assert gain.ratio == pytest.approx(math.exp(0.15), rel=0.02)
    assert small.loss.median < 0.01
    assert small.n_tied >= 0.9 * small.n_studies
    # What the rules of the others gain there, and what one workload more lies between.
    assert small.expected is not None and small.expected.prediction_interval is not None
    low, high = small.expected.prediction_interval
    assert low < small.expected.over_default.ratio < high
    assert small.expected.over_default.ratio <= gain.ratio * 1.001
    strata = {each.kind: each.expected for each in rules[0].advice.strata}
    assert set(strata) == {on_cores(8), on_cores(16)}
    assert all(each.is_advised for each in rules[0].advice.strata)
    # On threads, what is kept without the rule is TensorFlow's default.
    for each in rules[0].advice.strata:
        assert each.expected is not None
        assert each.gained.ratio == pytest.approx(each.expected.over_default.ratio)
    (build,) = rules[0].advice.builds
    assert (build.kind, build.n_studies) == (Stratum(shape=None, pool=EIGEN, onednn=True, quota=False), small.n_studies)
    mean = np.mean([each.over_default.ratio for each in strata.values() if each is not None])
    assert small.expected.over_default.ratio == pytest.approx(mean, rel=0.02)
    assert rules[0].example is not None
    assert rules[0].example.env == {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    # Everything has a rule, so the defaults have no studies left.
    assert rule_list.default_evidence is None


def test_counter_examples_are_named(known: list[StudyEvidence]) -> None:
    evidence = evidence_for(known, [study.setting(ONE_THREAD) for study in known])
    bad = evidence.counter_examples
    large = [study for study in known if Truth().recipe(study.situation) == ONE_POOL]
    assert {each.study for each in bad} <= {study.name for study in large}
    assert len(bad) > len(large) / 2
    assert bad[0].of_best == min(each.of_best for each in bad)
    assert evidence.loss.worst == pytest.approx(1 - bad[0].of_best)


def test_a_held_out_workload_is_met_by_the_rules_of_the_others(known: list[StudyEvidence]) -> None:
    proof = distil(known, replace(PLAN, n_sign_flips=100))[THREADS].proof
    for held_out, n_units in ((proof.by_workload, 30), (proof.by_machine, 2)):
        assert held_out is not None
        assert held_out.n_units == n_units
        assert {row.name: row for row in held_out.rows}[RULES].of_best.ratio > 0.97
        for name in ("tf-default", "tf-guide", "wang-width"):
            low = held_out.over[name][StratumClass.REST].low
            assert low is not None and low > 1


def test_what_is_held_out_is_not_learned_from() -> None:
    """Eight workloads of one machine are better with one thread: with them it is a rule, without them it is none."""
    some = made(NOTHING, workloads=8, cores=(8,)) + [
        replace(study, host="another") for study in made(NOTHING, 2, workloads=8, cores=(16,))
    ]
    named = [replace(study, situation=replace(study.situation, workload=f"w{i}")) for i, study in enumerate(some)]
    table = thread_table(named)
    gains = table.problem.u.copy()
    own_mask = np.array([study.host != "another" for study in named])
    gains[own_mask, table.recipes.index(ONE_THREAD)] = 1.0
    changed = replace(table, problem=replace(table.problem, u=gains))
    learned = changed.learn(PLAN)
    assert all(follow(learned, study) == ONE_THREAD for study, is_own in zip(named, own_mask, strict=True) if is_own)

    def without(out: Callable[[StudyEvidence], bool]) -> RecipesOf:
        rules = changed.learn(PLAN, [not out(study) for study in named])
        return lambda study: (follow(rules, study),)

    recipes = left_out(named, without, lambda study: study.host)
    assert all(recipe == (Recipe(),) for recipe, is_own in zip(recipes, own_mask, strict=True) if is_own)


def test_one_machine_cannot_be_left_out() -> None:
    proof = distil(made(cores=(8,), workloads=6), PLAN)[THREADS].proof
    assert proof.by_machine is None
    assert proof.by_workload is not None and proof.by_workload.n_units == 6


def test_shapes_are_left_out_where_machines_do_not_tell_of_them() -> None:
    planted = made(workloads=6)
    assert distil(planted, PLAN)[THREADS].proof.by_shape is None
    proof = distil([replace(study, host="one") for study in planted], PLAN)[THREADS].proof
    assert proof.by_machine is None
    assert proof.by_shape is not None
    assert (proof.by_shape.unit, proof.by_shape.n_units) == ("shape of a machine", 2)
    both = [replace(study, host=host) for study in planted for host in ("one", "another")]
    by_shape = distil(both, PLAN)[THREADS].proof.by_shape
    assert by_shape is not None and by_shape.n_units == 2


def test_what_was_not_measured_is_not_right_for_want_of_knowledge(known: list[StudyEvidence]) -> None:
    far = known[0].default.with_values(inter_op=3, intra_op=5)
    assert far not in known[0].surface.measured
    assert not is_tied_with_best(known[0], far)
    assert is_tied_with_best(known[0], known[0].best_found(batch=False))


def test_losses_are_not_below_zero(known: list[StudyEvidence]) -> None:
    """Even of a setting that is believed to be better than all that were measured."""
    best = known[0].best_found(batch=False)
    assert loss(known[0], best) == 0
    beyond = ResponseSurface(DEFAULT, [Measured(setting=DEFAULT.with_values(inter_op=4), log_ratio=0.5, variance=1e-2)])
    study = replace(known[0], default=DEFAULT, surface=beyond)
    wider = DEFAULT.with_values(inter_op=5)
    assert beyond.gains([wider])[0][0] > beyond.gains([study.best_found(batch=False)])[0][0]
    assert loss(study, wider) == 0


def test_rules_on_batches_come_from_studies_that_have_several() -> None:
    def with_batches(study: StudyEvidence) -> StudyEvidence:
        own_mask = study.default.batch_size
        best = study.default.with_values(batch_size=4 * own_mask)
        other = study.default.with_values(batch_size=2 * own_mask)
        more = [
            Measured(setting=best, log_ratio=0.4, variance=1e-4),
            Measured(setting=other, log_ratio=0.2, variance=1e-4),
        ]
        return replace(
            study, batches=(own_mask, 2 * own_mask, 4 * own_mask), surface=ResponseSurface(study.default, more)
        )

    lists = distil([with_batches(study) for study in made(NOTHING, workloads=12)], PLAN)
    assert lists[THREADS].rules == ()
    assert [rule.recipe.to_dict() for rule in lists[BATCH].rules] == [{"batch_size": "4"}]
    by_workload = lists[BATCH].proof.by_workload
    assert by_workload is not None
    held_out = {row.name: row.of_best.ratio for row in by_workload.rows}
    assert held_out[RULES] == pytest.approx(1, abs=0.01)
    assert held_out[POLICY] == pytest.approx(1, abs=0.01)
    assert all(row.is_advised for row in lists[BATCH].rules[0].advice.strata)


def test_studies_of_batches_alone_say_nothing_of_threads() -> None:
    alone = [replace(study, covers_threads=False, batches=(1, 2, 4)) for study in made(workloads=4)]
    assert list(distil(alone, PLAN)) == [BATCH]


# ---- processes ------------------------------------------------------------------------------------------------------

EACH_CORE = Recipe.of({"instances": "cores"})


def on_many_cores(situation: Situation, n: int) -> float:
    """Return what processes gain (log-ratio): the more the better on 16 cores, and always a tenth less on fewer."""
    cores = situation.machine.usable_cores
    return 0.5 * math.log(n) / math.log(cores) if cores == 16 else -0.1


@pytest.fixture(scope="module")
def several() -> list[StudyEvidence]:
    """Studies in which no setting of one process is better than another, and several processes are on 16 cores."""
    return made(NOTHING, workloads=12, cores=(4, 16), several=on_many_cores)


def test_a_study_tells_of_processes_beside_threads(several: list[StudyEvidence]) -> None:
    small, large = several[:2]
    assert small.covers_threads and large.covers_threads
    assert small.processes is not None and large.processes is not None
    batch = large.default.batch_size
    assert large.processes.default == setting(instances=1, batch_size=batch)
    counts = {each["instances"] for each in large.processes.surface.measured}
    assert counts == {1, 2, 4, 8, 16}
    assert large.processes.baselines["core-each"] == large.processes.setting(EACH_CORE)
    assert large.processes.best_found(batch=False) == setting(instances=16, batch_size=batch)
    assert not any("instances" in each.to_dict() for each in large.surface.measured)
    assert made(workloads=1)[0].processes is None


def test_what_gains_on_many_cores_and_costs_on_few_is_a_rule_with_a_condition(several: list[StudyEvidence]) -> None:
    lists = distil(several, PLAN)
    assert list(lists) == [THREADS, PROCESSES]
    assert lists[THREADS].rules == ()
    (rule,) = lists[PROCESSES].rules
    assert (rule.if_, rule.then) == ("usable cores of 8 or more", "processes one per core")
    assert rule.recipe == EACH_CORE
    assert rule.evidence.equivalents == ("what core-each sets",)
    (row,) = rule.advice.strata
    assert (row.kind, row.is_advised, row.n_processes) == (on_cores(16), True, 16)
    assert row.gained.ratio == pytest.approx(math.exp(0.5), rel=0.05)
    assert rule.example is not None
    assert rule.example.processes == 16
    assert rule.example.env == {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    few, many = (study.situation for study in several[:2])
    assert lists[PROCESSES].rule(few) is None
    assert decide(lists[PROCESSES].rule(many), many).advice is AdviceReason.FOLLOW
    by_workload = lists[PROCESSES].proof.by_workload
    assert by_workload is not None and by_workload.n_studies == 24
    assert {row.name: row for row in by_workload.rows}[POLICY].of_best.ratio > 0.97


def test_processes_that_gain_nothing_make_no_rule() -> None:
    none = made(NOTHING, workloads=12, cores=(4, 16), several=lambda *_: 0.0)
    assert distil(none, replace(PLAN, n_sign_flips=100))[PROCESSES].rules == ()


def test_a_call_of_several_processes_takes_as_many_times_longer_as_there_are_over_what_they_gain(
    several: list[StudyEvidence],
) -> None:
    (row,) = distil(several, replace(PLAN, n_sign_flips=100))[PROCESSES].rules[0].advice.strata
    assert row.call is not None and row.expected is not None
    gain = row.expected.over_default
    assert row.call.ratio == pytest.approx(16 / gain.ratio)
    assert (row.call.low, row.call.high) == (pytest.approx(16 / gain.high), pytest.approx(16 / gain.low))


def test_the_price_is_that_of_the_processes_and_of_the_batch() -> None:
    gained = Ratio(ratio=2.0, low=1.6, high=2.5, n_workloads=6)
    row = StratumEvidence(kind=on_cores(16), n_studies=6, gained=gained, is_advised=True)

    def price(n_processes: int | None, factor: float) -> tuple[float, float | None, float | None] | None:
        call = structs.replace(row, n_processes=n_processes).priced(factor).call
        return None if call is None else (call.ratio, call.low, call.high)

    assert price(1, 1.0) == pytest.approx((0.5, 0.4, 0.625))
    assert price(16, 1.0) == pytest.approx((8.0, 6.4, 10.0))
    assert price(16, 0.25) == pytest.approx((2.0, 1.6, 2.5))
    assert price(None, 1.0) is None  # machines that differ in it have no price in common


def test_rules_on_processes_may_ask_what_others_may(several: list[StudyEvidence]) -> None:
    told = []
    for number, study in enumerate(several):
        assert study.processes is not None
        features = replace(study.situation.features, exposed_overhead=number / 100)
        situation = replace(study.situation, features=features)
        told.append(replace(study, processes=replace(study.processes, situation=situation)))
    asked = {literal.feature for condition in process_table(told).conditions for literal in condition.literals}
    assert {"cores", "width", "mflops_operator", "exposed_overhead"} <= asked


def test_a_rule_that_comes_to_one_process_keeps_it(several: list[StudyEvidence]) -> None:
    few, many = (study.situation for study in several[:2])
    (rule,) = distil(several, replace(PLAN, n_sign_flips=100))[PROCESSES].rules
    each_four: Rule = structs.replace(rule, literals=(), terms={"instances": "cores/4"})
    assert decide(each_four, few).advice is AdviceReason.BY_RULE
    assert decide(each_four, many).advice is AdviceReason.FOLLOW


def test_what_breaks_the_latency_counts_as_slower_by_the_excess() -> None:
    default = setting(instances=1, batch_size=8)

    def counts(instances: int, batch_size: int, gain: float) -> float:
        measured = Measured(
            setting=setting(instances=instances, batch_size=batch_size), log_ratio=math.log(gain), variance=0.01
        )
        return math.exp(at_latency(measured, default).log_ratio)

    assert counts(16, 1, 2.7) == pytest.approx(2.7)  # a call takes 2 / 2.7 as long
    assert counts(1, 8, 1.0) == pytest.approx(1.0)
    assert counts(2, 8, 1.29) == pytest.approx(1.25 / (2 / 1.29))  # a gain that breaks the latency is none
    assert counts(16, 8, 2.95) == pytest.approx(1.25 / (16 / 2.95))
    assert counts(4, 1, 0.3) == pytest.approx(0.3 * 1.25 / (0.5 / 0.3))


def with_smaller_batches(study: StudyEvidence, rng: np.random.Generator) -> StudyEvidence:
    """Return a study of a process per core at two batch sizes: on 16 cores an eighth gains at the default's latency."""
    n, default = study.situation.machine.usable_cores, setting(instances=1, batch_size=64)
    gains = {(1, 64): 0.0, (1, 8): -0.5, (n, 64): math.log(3), (n, 8): math.log(1.9 if n == 16 else 0.45)}
    measured = [
        Measured(
            setting=setting(instances=instances, batch_size=size),
            log_ratio=gain + 0.02 * float(rng.standard_normal()),
            variance=1e-4,
        )
        for (instances, size), gain in gains.items()
    ]
    at_both = ResponseSurface(default, [at_latency(each, default) for each in measured])
    return replace(
        study,
        situation=replace(study.situation, batch_size=64),
        default=default,
        baselines={"tf-default": default},
        surface=at_both,
        rates=ResponseSurface(default, measured),
    )


def test_the_same_latency_has_a_rule_of_its_own_with_a_smaller_batch(several: list[StudyEvidence]) -> None:
    rng = np.random.default_rng(0)
    told = [replace(each, latency=with_smaller_batches(each.processes, rng)) for each in several if each.processes]
    lists = distil(told, replace(PLAN, n_sign_flips=100))
    assert list(lists) == [THREADS, PROCESSES, LATENCY]
    (rule,) = lists[LATENCY].rules
    assert rule.if_ == "usable cores of 8 or more"
    assert rule.then == "processes one per core, batch_size 1/8 of the workload's own"
    (row,) = rule.advice.strata
    assert (row.kind, row.is_advised, row.n_processes) == (on_cores(16), True, 16)
    assert row.gained.ratio == pytest.approx(1.9, rel=0.05)
    assert row.call is not None
    assert row.call.ratio == pytest.approx(2 / 1.9, rel=0.05)
    assert rule.example is not None
    assert (rule.example.processes, rule.example.arguments) == (16, {"batch_size": 8})
    many = replace(several[1].situation, batch_size=64)
    assert decide(rule, many).advice is AdviceReason.FOLLOW
    assert decide(rule, replace(many, batch_size=1)).advice is AdviceReason.BY_RULE  # a batch of one has no eighth


def test_processes_without_smaller_batches_say_nothing_of_the_same_latency(several: list[StudyEvidence]) -> None:
    assert all(each.processes is not None and each.latency is None for each in several)


# ---- what is covered ------------------------------------------------------------------------------------------------


def test_what_the_evidence_covers_and_what_lies_outside(known: list[StudyEvidence]) -> None:
    covered = coverage(known)
    assert covered.outside(known[0].situation) == []
    assert coverage([]).outside(known[0].situation) == ["there are no studies"]
    far = replace(
        known[0].situation, pool=OPENMP, machine=replace(known[0].situation.machine, physical_cores=64, logical_cpus=64)
    )
    assert "on an OpenMP build: no study" in covered.outside(far)
    assert "usable cores: 64, the studies cover 8 to 16" in covered.outside(far)
    assert set(covered.ranges) <= {feature.name for feature in FEATURES}
    assert sum(shape.n_studies for shape in covered.shapes.values()) == 60


def test_what_a_rule_asks_and_is_not_known_is_said(known: list[StudyEvidence]) -> None:
    rules = distil(known, PLAN)[THREADS]
    situation = known[0].situation
    open_ended = replace(situation, features=replace(situation.features, known=False))
    assert rules.outside(situation) == []
    assert rules.outside(open_ended) == ["work per operator and step is not known"]


def test_the_build_says_more_than_what_goes_with_it() -> None:
    """Small machines have one build and large ones the other: the condition names the build."""
    planted = made(cores=(4,), workloads=6) + made(cores=(16,), pools=(OPENMP,), workloads=6)
    said = {str(condition) for condition in thread_table(planted).conditions}
    assert {"on an OpenMP build", "on the Eigen pool"} <= said
    assert not any("usable cores" in text for text in said)


def test_the_workload_is_the_unit_of_an_average() -> None:
    average = over_workloads([("a", 0.1)] * 9 + [("b", 0.3)])
    assert (average.mean, average.n) == (pytest.approx(0.2), 2)
    with pytest.raises(ValueError, match="no values"):
        over_workloads([])
    assert prediction_interval(over_workloads([("a", 0.1)])) is None
    low, high = prediction_interval(over_workloads([("a", 0.1), ("b", 0.2), ("c", 0.3)])) or (0.0, 0.0)
    assert low < math.exp(0.1) and high > math.exp(0.3)


def test_following_no_rule_keeps_what_is_there(known: list[StudyEvidence]) -> None:
    assert follow([], known[0]) == Recipe()


# ---- doing no harm --------------------------------------------------------------------------------------------------


def gains_of(ratios: list[float], kind: Stratum = TWO_CORES) -> list[Gain]:
    return [
        Gain(
            situation=SituationKind(workload=f"w{i}", mode="inference", **structs.asdict(kind)),
            log_ratio=math.log(ratio),
        )
        for i, ratio in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("ratios", "is_advised"),
    [
        ([1.09, 1.10, 1.11], True),
        ([1.021, 1.022, 1.023, 1.024], True),
        ([0.98, 0.97, 0.99, 0.98], False),
        ([1.0, 1.0, 1.0], False),  # there it is the default itself
        ([1.011, 1.012, 1.013], False),  # above 1 for sure, but within the margin
        ([1.018, 1.020, 1.022], False),
        ([1.5, 0.8, 1.1, 0.9, 1.2], False),  # 1.07 in the mean, but it may be a loss
    ],
)
def test_a_rule_is_advised_where_a_gain_that_matters_is_shown(ratios: list[float], is_advised: bool) -> None:
    row = advice_by_stratum(gains_of(ratios)).row(TWO_CORES)
    assert row is not None
    assert row.is_advised is is_advised
    assert row.gained.ratio == pytest.approx(math.exp(np.mean(np.log(ratios))))


def is_advised(gains: list[Gain], kind: Stratum) -> bool | None:
    """Return whether gains advise a rule on a machine and build; None where they say nothing of it."""
    row = advice_by_stratum(gains).row(kind)
    return None if row is None else row.is_advised


def test_strata_do_not_speak_for_each_other() -> None:
    gains = gains_of([1.29, 1.3, 1.31]) + gains_of([0.98, 0.97, 0.98], FOUR_CORES)
    assert is_advised(gains, TWO_CORES) is True
    assert is_advised(gains, FOUR_CORES) is False


def test_of_too_few_workloads_the_build_decides_but_a_loss_is_never_advised() -> None:
    many = gains_of([1.1, 1.11, 1.12, 1.1])
    assert is_advised(many + gains_of([1.2, 1.1], FOUR_CORES), FOUR_CORES) is True
    assert is_advised(many + gains_of([1.01, 1.0], FOUR_CORES), FOUR_CORES) is False
    few = [1.1, 2.0, 1.3]  # whose own interval reaches below 1
    assert is_advised(gains_of(few, FOUR_CORES), FOUR_CORES) is False
    assert is_advised(gains_of([1.1, 1.11, 1.12, 1.1, 1.1, 1.11, 1.1]) + gains_of(few, FOUR_CORES), FOUR_CORES) is True
    enough = [1.1, 4.0, 1.3, 0.5, 2.0, 0.9]
    assert is_advised(many + gains_of(enough, FOUR_CORES), FOUR_CORES) is False
    assert is_advised(gains_of([1.2, 1.3]), TWO_CORES) is False


def test_a_shape_that_was_never_seen_is_judged_by_its_build() -> None:
    gains = gains_of([1.1, 1.11, 1.12])
    assert is_advised(gains, FOUR_CORES) is True
    for other in ({"pool": OPENMP}, {"onednn": False}, {"quota": True, "shape": "2 cores, quota 1"}):
        assert is_advised(gains, on_cores(2, **other)) is None


def test_headlines_have_three_classes() -> None:
    assert TWO_CORES.stratum_class is StratumClass.REST
    assert on_cores(2, quota=True).stratum_class is StratumClass.QUOTA
    assert on_cores(2, quota=True, onednn=False).stratum_class is StratumClass.ONEDNN_OFF


def in_two_strata(gain: float, harm: float) -> TrainingTable:
    """Return a table in which one thread gains on 8 cores and harms on 16, the same in every workload."""
    table = thread_table(made(NOTHING, workloads=12, cores=(8, 16)))
    u = np.zeros_like(table.problem.u)
    small = np.array([study.situation.machine.physical_cores == 8 for study in table.studies])
    u[:, table.recipes.index(ONE_THREAD)] = np.where(small, gain, harm)
    return replace(table, problem=replace(table.problem, u=u))


def policy_of(table: TrainingTable, kept: tuple[bool, ...] | None = None) -> Policy:
    everywhere = [(Condition(), ONE_THREAD)]
    return do_no_harm_policy(
        table,
        everywhere,
        kept or (True,) * len(table.studies),
        learned=lambda _: everywhere,
        fold=folds(table.studies, lambda study: study.workload, at_most=5),
    )


def test_a_policy_keeps_the_default_where_its_rule_harms() -> None:
    table = in_two_strata(gain=0.3, harm=-0.03)
    policy = policy_of(table)
    for study in table.studies:
        small = study.situation.machine.physical_cores == 8
        assert policy.recipe(study) == (ONE_THREAD if small else Recipe())
    assert Policy(rules=[], advice=[]).recipe(table.studies[0]) == Recipe()


def test_what_is_held_out_has_no_part_in_the_decision_to_follow() -> None:
    """One workload's gain of a hundred would make a rule of its stratum: the policy without it does not know of it."""
    table = in_two_strata(gain=0.3, harm=-0.03)
    own_mask = np.array([study.workload == "made3" for study in table.studies])
    u = table.problem.u.copy()
    u[own_mask, table.recipes.index(ONE_THREAD)] = math.log(100)
    changed = replace(table, problem=replace(table.problem, u=u))
    kept = tuple(bool(each) for each in ~own_mask)
    assert policy_of(changed, kept) == policy_of(table, kept)
    assert policy_of(changed) != policy_of(table)


def test_the_proof_of_a_policy_does_not_see_the_workload_that_it_is_proven_on() -> None:
    """Whatever is measured of a workload, the policy that it meets when it is left out is the same."""
    planted = made(workloads=14)
    one = planted[0].workload

    def otherwise(study: StudyEvidence) -> StudyEvidence:
        best = study.setting(ONE_THREAD)
        said = [Measured(setting=best, log_ratio=-0.5, variance=1e-4)]
        return replace(study, surface=ResponseSurface(study.default, said)) if study.workload == one else study

    def met(studies: list[StudyEvidence]) -> list[Any]:
        held_out = distil(studies, replace(PLAN, n_sign_flips=100))[THREADS].proof.by_workload
        assert held_out is not None
        return [each.policy for each in held_out.studies if each.situation.workload == one]

    assert met(planted) == met([otherwise(study) for study in planted])


def test_headlines_say_what_the_policy_gains_by_class() -> None:
    off = [
        replace(s, name=f"off-{s.name}", situation=replace(s.situation, onednn=False))
        for s in made(NOTHING, 4, cores=(8,))
    ]
    lists = distil(made(cores=(16,)) + off, replace(PLAN, n_sign_flips=100))
    headline = {each.class_: each for each in lists[THREADS].headline}
    assert set(headline) == {StratumClass.REST, StratumClass.ONEDNN_OFF}
    rest, without_onednn = headline[StratumClass.REST], headline[StratumClass.ONEDNN_OFF]
    assert rest.expected.policy.low is not None and rest.expected.policy.low > 1 + MARGIN
    assert rest.n_followed == rest.n_studies == 30
    assert without_onednn.n_followed == 0
    assert without_onednn.expected.policy.ratio == pytest.approx(1, abs=0.005)
