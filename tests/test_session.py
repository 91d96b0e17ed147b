"""Sessions: what runs on different days say together, and what a check adds to a study."""

from __future__ import annotations

import inspect
import math
import re
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from tests.conftest import Finished, setting
from tests.scripted import Log, checked, noisy, run
from tests.scripted_launcher import ScriptedLauncher
from tuner.cli import search as cli_search
from tuner.errors import BadInputError, TunerError
from tuner.job.compare import refuse_elsewhere
from tuner.job.request import SearchRequest
from tuner.job.run import SessionPlan, SessionsResult, make_sessions, run_sessions
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.rounds import Round
from tuner.report import verdicts
from tuner.report.progress import SearchShown
from tuner.result.decision import of_setting, pooled_result
from tuner.result.document import describe_line, describe_study
from tuner.result.study import ONE, StudyResult, nodes_of
from tuner.result.wording import disagreement, sessions_words
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import MARGIN, VerdictCode
from tuner.stats.estimate import Estimate
from tuner.stats.pooling import BELIEVED_SD, NODES_SD, pool, pool_nodes, pooled_verdict
from tuner.study.plan import EvaluatorPlan, Plan
from tuner.study.record import Record
from tuner.workload.spec import WorkloadSpec

pytestmark = pytest.mark.slow


def session(ratio: float, se: float = 0.006, df: float = 9.0) -> Estimate:
    return Estimate(mean=math.log(ratio), se=se, n=int(df) + 1, df=df)


def test_one_session_says_what_its_finals_say() -> None:
    alone = pooled_verdict([session(1.10)], level=0.99)
    assert (alone.n, alone.sessions_disagree) == (1, False)
    low, high = session(1.10).interval(0.99)
    assert (alone.verdict.low, alone.verdict.high, alone.verdict.code) == (low, high, VerdictCode.BETTER)
    assert pooled_verdict([]).verdict.code is VerdictCode.UNDECIDED
    assert pooled_verdict([session(1.1, se=math.inf, df=0)]).n == 0


def test_two_sessions_allow_for_what_sessions_differ_by() -> None:
    both = pool([session(1.10, se=0.001), session(1.10, se=0.001)])
    assert both.ratio == pytest.approx(1.10)
    assert 0.5 * BELIEVED_SD < both.se < BELIEVED_SD  # more slices in each would not make it smaller
    apart = pool([session(1.06, se=0.001), session(1.14, se=0.001)])
    assert apart.se > 1.5 * both.se
    many = pool([session(r, se=0.001) for r in (1.09, 1.10, 1.11, 1.10, 1.09, 1.11)])
    assert many.se < both.se


def test_an_imprecise_session_counts_for_little() -> None:
    assert pool([session(1.10), session(1.40, se=0.2)]).ratio == pytest.approx(1.10, abs=0.01)


@pytest.mark.parametrize(
    ("ratios", "word", "disagree"),
    [
        ((1.12, 1.10), VerdictCode.BETTER, False),
        ((1.30, 1.10), VerdictCode.BETTER, False),  # they differ, and say the same
        ((1.12, 1.00), VerdictCode.UNDECIDED, True),
        ((1.12, 0.90, 1.11), VerdictCode.UNDECIDED, True),
        ((1.00, 1.005, 0.998, 1.0, 1.001), VerdictCode.NO_DIFFERENCE, False),
        ((0.90, 0.92), VerdictCode.WORSE, False),
    ],
)
def test_sessions_that_disagree_have_no_verdict(ratios: tuple[float, ...], word: VerdictCode, disagree: bool) -> None:
    pooled = pooled_verdict([session(ratio) for ratio in ratios])
    assert (pooled.verdict.code, pooled.sessions_disagree, pooled.n) == (word, disagree, len(ratios))
    assert pooled_result(pooled).sessions == len(ratios)


def test_two_rounds_that_agree_by_luck_are_no_precise_session() -> None:
    lucky = session(1.00, se=0.005, df=1)
    assert not pooled_verdict([session(1.07, se=0.025), lucky]).sessions_disagree
    assert pool([session(1.10), lucky]).ratio > 1.07


def test_several_nodes_allow_for_what_nodes_differ_by() -> None:
    sessions = [session(1.10, se=0.001)] * 4
    one = pooled_verdict(sessions)
    two = pooled_verdict(sessions, nodes=["a", "a", "b", "b"])
    assert two.verdict.speedup == one.verdict.speedup == pytest.approx(1.10)
    assert two.verdict.low < one.verdict.low
    assert (two.n, [*two.nodes], one.nodes) == (4, ["a", "b"], {})
    # A node that was measured often counts for hardly more than one that was measured once.
    often = pooled_verdict([session(1.10)] * 9 + [session(1.20)], nodes=["a"] * 9 + ["b"])
    assert 1.13 < often.verdict.speedup < 1.16


def test_what_holds_on_two_of_three_nodes_is_undecided_and_each_is_named() -> None:
    pooled = pooled_verdict([session(1.80), session(1.78), session(0.95)], nodes=["a", "b", "c"])
    assert (pooled.verdict.code, pooled.sessions_disagree) == (VerdictCode.UNDECIDED, True)
    together = pooled_result(pooled)
    assert sessions_words(together) == "3 sessions on 3 nodes"
    assert disagreement(together) == ", which disagree (a 1.80×, b 1.78×, c 0.95×)"
    agreeing = pooled_verdict([session(1.80), session(1.78), session(1.82)], nodes=["a", "b", "c"])
    assert (agreeing.verdict.code, agreeing.sessions_disagree) == (VerdictCode.BETTER, False)
    assert disagreement(pooled_result(agreeing)) == ""


@pytest.mark.parametrize("between", [0.0, 0.02, 0.04])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_interval_of_several_nodes_covers(n: int, between: float) -> None:
    """If nodes differ by twice what is believed, the interval still holds the truth in 85 %."""
    rng, runs, hits = np.random.default_rng(0), 2000, 0
    for _ in range(runs):
        of_node = 0.05 + between * rng.standard_normal(n)
        x = [mean + 0.006 * rng.standard_normal() for mean in of_node for _ in range(2)]
        sessions = [Estimate(mean=float(v), se=0.006, n=10, df=9) for v in x]
        nodes = [pool(sessions[2 * i : 2 * i + 2]) for i in range(n)]
        low, high = pool_nodes(nodes).interval()
        hits += low <= math.exp(0.05) <= high
    assert hits / runs >= (0.85 if between > NODES_SD else 0.94)


@pytest.mark.parametrize("between", [0.0, 0.01, 0.02])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_interval_of_several_sessions_covers(n: int, between: float) -> None:
    """Where sessions differ by twice what is believed, the interval still holds the truth in 85 %."""
    rng, runs, hits = np.random.default_rng(0), 3000, 0
    for _ in range(runs):
        x = 0.05 + between * rng.standard_normal(n) + 0.006 * rng.standard_normal(n)
        low, high = pool([Estimate(mean=float(v), se=0.006, n=10, df=9) for v in x]).interval()
        hits += low <= math.exp(0.05) <= high
    assert hits / runs >= (0.85 if between > BELIEVED_SD else 0.94)


# ---- a study and its checks -----------------------------------------------------------------------------------


def shown(*parts: object) -> str:
    screen = Console(width=200)
    with screen.capture() as captured:
        screen.print(*parts)
    return captured.get()


def text_of(study: StudyResult) -> str:
    return shown(*verdicts.details(study))


@pytest.fixture
def study(tmp_path: Path, space: Space, finished: Finished) -> tuple[Record, Setting]:
    record, _ = finished(space, tmp_path, trials=16)
    advice = describe_study(record).recommended
    assert advice.source != "tf-default"
    return record, Setting.of(advice.setting)


def test_a_verdict_names_how_many_sessions_it_rests_on(study: tuple[Record, Setting], space: Space) -> None:
    record, recommended = study
    before = describe_study(record)
    gain = before.recommended.gain
    assert (gain.sessions, gain.code) == (1, "better")
    assert "from one session" in text_of(before)
    checked(record, recommended, space.reference, gain.speedup, began="2126-12-01T02:00:00+00:00")
    after = describe_study(record)
    assert after.recommended.gain.sessions == 2
    assert after.recommended.gain.code == "better"
    assert [each.began for each in after.recommended.sessions][1] == "2126-12-01T02:00:00+00:00"
    assert "2 sessions" in text_of(after)
    assert after.verdicts == before.verdicts  # the finals are what they were


def test_what_other_sessions_do_not_bear_out_is_not_recommended(study: tuple[Record, Setting], space: Space) -> None:
    record, recommended = study
    checked(record, recommended, space.reference, 1.0, began="2126-12-01T02:00:00+00:00")
    after = describe_study(record)
    assert after.recommended.source == "tf-default", (after.recommended, after.finals.incumbent, recommended)
    assert after.recommended.env == {}
    assert after.recommended.gain is None
    assert after.recommended.together.sessions_disagree is True
    assert "2 sessions combined, which disagree, do not show" in after.recommended.reason
    assert after.finals.advice.setting == recommended.to_dict()  # what a check measures again
    assert "which disagree" in text_of(after)


def test_a_session_on_another_node_is_counted_as_one(study: tuple[Record, Setting], space: Space) -> None:
    record, recommended = study
    speedup = describe_study(record).recommended.gain.speedup
    checked(record, recommended, space.reference, speedup, began="2126-12-01T02:00:00+00:00", node="b")
    after = describe_study(record).recommended
    assert after.gain.nodes == ()  # the finals have no node, and may have been held on this one
    assert after.gain.sessions == 2
    record.put("finals", {**record.get("finals"), "node": "a"})
    named = describe_study(record)
    assert [node.node for node in named.recommended.gain.nodes] == ["a", "b"]
    assert nodes_of(named) == {"a", "b"}
    assert "2 sessions on 2 nodes" in text_of(named)
    checked(record, recommended, space.reference, 0.8, began="2126-12-02T02:00:00+00:00", node="c")
    differing = describe_study(record).recommended
    assert differing.source == "tf-default"
    assert re.search(r"3 sessions on 3 nodes combined, which disagree \(a .*, b .*, c 0\.8", differing.reason)


def test_a_check_of_another_setting_says_nothing(study: tuple[Record, Setting], space: Space) -> None:
    record, recommended = study
    other = setting(inter_op=1, intra_op=1, batch_size=1)
    checked(record, other, space.reference, 0.5, began="2126-12-01T02:00:00+00:00")
    assert len(of_setting(record.attributes(), recommended)) == 1


def test_finals_of_an_earlier_run_stay_as_a_session(
    study: tuple[Record, Setting], tmp_path: Path, space: Space
) -> None:
    record, recommended = study
    run(space, noisy(seed=5), folder=tmp_path, budget=Budget(trials=16))
    assert len(record.get("earlier_finals")) == 1
    sessions = describe_study(record).recommended.sessions
    assert len(sessions) == 2
    assert all(each.began for each in sessions)
    assert len(of_setting(record.attributes(), recommended)) in (1, 2)  # the second may recommend another


def test_where_all_others_lose_one_of_them_still_stands_against_the_default(space: Space) -> None:
    """So that the study can be shown, listed and continued."""
    launcher = ScriptedLauncher(rate=lambda s: 50.0 if s == space.reference else 10.0, noise=0.01)
    record, _ = run(space, launcher, budget=Budget(trials=8))
    document = describe_study(record)
    assert document.recommended.source == "tf-default"
    assert document.verdicts["tf-default"].code == "worse"
    assert describe_line(record).verdict.code == "worse"
    assert "the search has found a better setting since these finals: run it again for new finals" not in shown(
        verdicts.verdicts(document)
    )


def test_a_limit_that_only_the_default_keeps_leaves_the_default(space: Space) -> None:
    limits = Limits(p99_s=1.05 * space.reference.batch_size / 50.0)
    launcher = ScriptedLauncher(rate=lambda s: 50.0 if s == space.reference else 1.0)
    plan = Plan(evaluation=EvaluatorPlan(limits=limits))
    record, _ = run(space, launcher, budget=Budget(trials=8), plan=plan, limits=limits)
    assert describe_study(record).recommended.source == "tf-default"


def test_finals_that_were_cut_short_claim_nothing(study: tuple[Record, Setting]) -> None:
    """After two rounds there was no look yet, and so there is no level to claim at."""
    record, _ = study
    stored = record.get("finals")
    record.put("finals", stored | {"rounds": stored["rounds"][:2], "levels": {}})
    document = describe_study(record)
    assert {verdict.code for verdict in document.verdicts.values()} == {"undecided"}
    assert document.recommended.source == "tf-default"


def test_what_several_sessions_show_outlasts_finals_that_leave_it_open(
    study: tuple[Record, Setting], space: Space
) -> None:
    record, recommended = study
    gain = describe_study(record).recommended.gain.speedup
    checked(record, recommended, space.reference, gain, began="2126-12-01T02:00:00+00:00")
    stored = record.get("finals")
    contenders = [each for each in stored["contenders"] if Setting.of(each["setting"]) == recommended]
    assert contenders, "the incumbent itself is what is recommended here"
    first = {"began": "2026-11-01T02:00:00+00:00"}
    record.put("earlier_finals", [stored | first])
    record.put("finals", stored | {"rounds": stored["rounds"][:2], "levels": {}})  # nothing can be said of these
    after = describe_study(record)
    if after.finals.incumbent == recommended.to_dict():
        assert after.recommended.setting == recommended.to_dict()
        assert "sessions combined" in after.recommended.reason
        assert after.recommended.gain.code == "better"
        assert after.finals.advice.setting == recommended.to_dict()
    else:
        # What the earlier finals show of the incumbent, which is another setting, may stand.
        assert after.recommended.source in ("tf-default", "incumbent")


def test_earlier_finals_stay_until_others_have_ended(
    study: tuple[Record, Setting], tmp_path: Path, space: Space
) -> None:
    record, _ = study
    before = describe_study(record).recommended

    class Interrupted(Log):
        def round_ended(self, number: int, round_: Round, left_s: float) -> None:
            if number == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(space, noisy(seed=5), folder=tmp_path, budget=Budget(trials=16), log=Interrupted())
    assert describe_study(record).recommended == before
    assert record.get("earlier_finals") is None


def test_sessions_that_lie_close_are_said_to(study: tuple[Record, Setting], space: Space) -> None:
    record, recommended = study
    checked(record, recommended, space.reference, 1.3, began="2126-12-01T02:00:00+00:00")
    assert "apart" not in text_of(describe_study(record))
    checked(record, recommended, space.reference, 1.3, began="2126-12-01T02:03:00+00:00")
    assert "3 sessions, two of them only 3 min 00 s apart" in text_of(describe_study(record))


def held(
    monkeypatch: pytest.MonkeyPatch, record: Record, *outcomes: Exception | None
) -> tuple[SessionsResult, list[str]]:
    """Return what comes of sessions of which the checks end so, and in which order things happened."""
    happened: list[str] = []
    remaining = list(outcomes)

    def check(*_: object, of: str) -> None:
        assert of == ONE
        happened.append("check")
        outcome = remaining.pop(0)
        if outcome is not None:
            raise outcome

    monkeypatch.setattr("tuner.job.run.run", lambda *_: (record, False))
    monkeypatch.setattr("tuner.job.run.check_again", check)
    sessions = SessionPlan(n=1 + len(outcomes), every_s=0.0)
    request = SearchRequest(workload=WorkloadSpec.of_name("resnet50"))
    sessions_run = run_sessions(
        request, sessions, SearchShown(Console(file=StringIO())), after_first=lambda _: happened.append("told")
    )
    return sessions_run, happened


def test_what_the_search_found_is_told_before_the_other_sessions(
    study: tuple[Record, Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions_run, happened = held(monkeypatch, study[0], None, None)
    assert happened == ["told", "check", "check"]
    assert not sessions_run.failed


def test_a_session_that_fails_does_not_end_the_others(
    study: tuple[Record, Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions_run, happened = held(monkeypatch, study[0], TunerError("[/it] crashed", ""), None)
    assert (sessions_run.failed, sessions_run.interrupted, happened) == (True, False, ["told", "check", "check"])
    sessions_run, happened = held(monkeypatch, study[0], BadInputError("another machine", ""), None)
    assert (sessions_run.failed, happened) == (True, ["told", "check"])
    sessions_run, happened = held(monkeypatch, study[0], KeyboardInterrupt(), None)  # type: ignore[arg-type]
    assert (sessions_run.interrupted, happened) == (True, ["told", "check"])


def test_nobody_waits_for_a_session_with_nothing_to_measure(
    study: tuple[Record, Setting], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _ = study
    stored = record.get("finals")
    record.put("finals", stored | {"rounds": stored["rounds"][:2], "levels": {}})
    _, happened = held(monkeypatch, record, None)
    assert happened == ["told"]


def test_a_session_elsewhere_is_refused_and_says_what_differs(study: tuple[Record, Setting]) -> None:
    record, _ = study
    subject = record.attributes().subject
    here = SimpleNamespace(subject=subject, environment={})
    described = record.get("described")
    refuse_elsewhere(record.attributes(), here)  # type: ignore[arg-type]
    for change, words in (
        ({"machine": {"affinity": "0-3"}}, f"machine (affinity is 0-3 there, and {subject.machine.affinity} here)"),
        ({"machine": {}}, "machine (its topology differs)"),
        ({"runtime": {"tensorflow": "2.0.0", "observations": [{"names": {"python3": 5}}]}},
         f"build (tensorflow is 2.0.0 there, and {subject.runtime['tensorflow']} here)"),
        ({"workload": {"mode": "training"}}, "workload (mode is training there, and inference here)"),
        ({"workload": {}}, "workload (its code, its model or a variable that it reads is another)"),
    ):  # fmt: skip
        for part, facts in change.items():
            key = "fingerprint" if part == "workload" else "id"
            record.put("described", described | {part: described[part] | facts | {key: "other"}})
        with pytest.raises(BadInputError) as refused:
            refuse_elsewhere(record.attributes(), here)  # type: ignore[arg-type]
        assert refused.value.message == f"study {record.name} was measured with a different {words}"
    record.put("described", described | {"environment": {"LD_PRELOAD": "libtcmalloc.so"}})
    words = r"different environment \(LD_PRELOAD is libtcmalloc.so there, and not set here\)"
    with pytest.raises(BadInputError, match=words):
        refuse_elsewhere(record.attributes(), here)  # type: ignore[arg-type]
    other = SimpleNamespace(subject=subject, environment={"LD_PRELOAD": "other.so", "TF_XLA_FLAGS": "--a"})
    with pytest.raises(BadInputError) as refused:
        refuse_elsewhere(record.attributes(), other)  # type: ignore[arg-type]
    assert refused.value.hint == (
        "set LD_PRELOAD=libtcmalloc.so and unset TF_XLA_FLAGS, as the study had it, or run a new search"
    )
    record.put("described", described | {"device": {"name": "gpu:1", "model": "NVIDIA Fake 100"}})
    with pytest.raises(BadInputError, match=r"different device \(kind is gpu there, and cpu here\)"):
        refuse_elsewhere(record.attributes(), here)  # type: ignore[arg-type]


# ---- the options ---------------------------------------------------------------------------------------------


def test_sessions_are_as_far_apart_as_is_said() -> None:
    assert make_sessions(1, None).n == 1
    assert make_sessions(3, None).every_s == 7200.0
    assert make_sessions(3, "90m").every_s == 5400.0
    with pytest.raises(BadInputError, match="--every 2h needs more than one session"):
        make_sessions(1, "2h")
    with pytest.raises(BadInputError, match="--every is 'soon'"):
        make_sessions(2, "soon")


def test_the_margin_of_the_command_line_is_the_margin() -> None:
    assert inspect.signature(cli_search.search).parameters["margin"].default == 100 * MARGIN
