"""Rules from real storages: what is read and left out, golden pages, files, merging and tables."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from msgspec import structs, to_builtins

import tuner
from tests.command_line import ROOT, tftune, tftune_here
from tests.conftest import DATA, QUIET, Call
from tests.frameworks import MADE_MACHINE, WAYS, read_space, resolve
from tests.planted import NOTHING, ONE_THREAD, Truth, groups_of, make, studies, studies_in, write
from tuner.api.rules import Recommendation
from tuner.devices.cpu import DEVICE
from tuner.errors import BadInputError
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.frameworks.tensorflow.framework import FRAMEWORK
from tuner.job import advise, rulebook
from tuner.job.job import Job
from tuner.job.selection import Selection
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.objective import Objective
from tuner.model.graph import Features
from tuner.report import chart, frame, rulepage, terminal
from tuner.report.emit import Format, emit
from tuner.report.rulecores import Known, by_cores
from tuner.result.comparison import ComparisonResult, SideResult
from tuner.result.document import describe_study
from tuner.result.study import StudyResult
from tuner.rules.distil import distil
from tuner.rules.evidence import by_reason, read
from tuner.rules.gains import CounterExample
from tuner.rules.learn import LearnPlan
from tuner.rules.proof import Proof
from tuner.rules.recipe import BATCH, PROCESSES, THREADS, Recipe
from tuner.rules.rule import AdviceReason, PredictedGain, Rule, RuleSet, counter_example, decide
from tuner.rules.situation import Situation
from tuner.rules.strata import Ratio, SituationKind, Stratum
from tuner.space.deployment import Deployment
from tuner.space.setting import Setting
from tuner.space.term import EIGEN, OPENMP
from tuner.stats.equivalence import VerdictCode
from tuner.study.record import Record
from tuner.study.storage import all_records, open_storage
from tuner.workload.feed import InputFacts
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow

GOLDEN = DATA / "rules"
PICTURES = {rulepage.SPEEDUPS: "rules-speedups.svg", rulepage.LOSSES: "rules-losses.svg"}
BOTH = (False, True)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A storage with 48 studies of a planted rule."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = f"sqlite:///{tmp_path_factory.mktemp('rules') / 'made.db'}"
    studies_in(url)
    return url


@pytest.fixture(scope="module")
def rules(url: str) -> RuleSet:
    """The rules of that storage, made at a fixed time."""
    rules = rulebook.make(url, Selection())
    provenance = structs.replace(rules.provenance, created="2026-11-21T00:00:00+00:00", tftune="0.0.0")
    return structs.replace(rules, provenance=provenance)


@pytest.fixture(scope="module")
def document(rules: RuleSet) -> dict[str, Any]:
    """The same as plain data."""
    return dict(to_builtins(rules))


def threads_changed(rule_set: RuleSet, **changes: Any) -> RuleSet:
    """Return the rules with something else among those on threads."""
    return structs.replace(rule_set, groups={THREADS: structs.replace(rule_set.groups[THREADS], **changes)})


def on_many_cores(situation: Situation, n: int) -> float:
    """Return what processes gain (log-ratio): the more the better on 16 cores, and always a tenth less on fewer."""
    cores = situation.machine.usable_cores
    return 0.5 * math.log(n) / math.log(cores) if cores == 16 else -0.1


@pytest.fixture(scope="module")
def with_processes(rules: RuleSet) -> RuleSet:
    """Rules of studies in which no setting of one process is better than another, and several are on 16 cores.

    They say nothing of other features, so that they hold for whatever runs there.
    """
    made = make(np.random.default_rng(1), truth=NOTHING, workloads=12, cores=(4, 16), several=on_many_cores)
    lists = distil(studies(list(made)), replace(LearnPlan(), n_sign_flips=100))
    assert {name: len(each.rules) for name, each in lists.items()} == {THREADS: 0, PROCESSES: 1}
    of_cores = {
        name: structs.replace(each, coverage=structs.replace(each.coverage, ranges={})) for name, each in lists.items()
    }
    return structs.replace(rules, groups=of_cores)


# ---- golden pages ---------------------------------------------------------------------------------------------------


def _rounded(data: Any) -> Any:
    """Return data with its numbers to three digits: other versions of libraries round differently."""
    if isinstance(data, dict):
        return {key: _rounded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(value) for value in data]
    return float(f"{data:.3g}") if isinstance(data, float) else data


def test_the_json_is_as_it_was(document: dict[str, Any], write_golden: bool) -> None:
    rounded = json.loads(json.dumps(_rounded(document)))
    if write_golden:
        (GOLDEN / "rules.json").write_text(json.dumps(rounded, indent=1) + "\n")
    assert rounded == json.loads((GOLDEN / "rules.json").read_text())


def test_the_markdown_is_as_it_was(rules: RuleSet, write_golden: bool) -> None:
    page = rulepage.markdown(rules, PICTURES)
    if write_golden:
        (GOLDEN / "rules.md").write_text(page)
    assert page == (GOLDEN / "rules.md").read_text()


def test_the_page_is_one_file_with_its_pictures_inside(rules: RuleSet) -> None:
    drawn = {rulepage.SPEEDUPS: chart.speedups(rules), rulepage.LOSSES: chart.losses(rules)}
    page = rulepage.html(rules, {name: svg for name, svg in drawn.items() if svg})
    assert page.count("<svg") == 2
    assert "<img" not in page
    # Cores, situations and sets, the headline, one of each of two rules, two of what was left out: workloads, machines.
    assert page.count("<table>") == 10
    assert not re.search(r"(src|href)=\"http", page)


def test_the_same_figures_draw_the_same_picture(rules: RuleSet) -> None:
    assert chart.losses(rules) == chart.losses(rules)
    assert "made11" in str(chart.losses(rules))


def test_nothing_held_out_draws_nothing(rules: RuleSet) -> None:
    empty = threads_changed(rules, proof=Proof(by_workload=None, by_machine=None, by_shape=None))
    assert chart.speedups(empty) is None
    page = rulepage.markdown(empty, {})
    assert "there is only one" in page
    assert "No study covers batch sizes" in page


def test_a_page_without_a_rule_says_what_holds_and_why(rules: RuleSet) -> None:
    none = threads_changed(rules, rules=(), default_evidence=rules.groups[THREADS].rules[0].evidence)
    page = rulepage.markdown(none, {})
    assert "**No rule: keep TensorFlow's defaults**" in page
    assert "No rule gains 2 %" in page


def test_a_page_of_batches_alone_does_not_speak_of_threads(rules: RuleSet) -> None:
    threads = rules.groups[THREADS]
    words = "batch_size 4 times the workload's own"
    rule = structs.replace(threads.rules[0], literals=(), if_="everywhere", then=words)
    batches = structs.replace(rules, groups={BATCH: structs.replace(threads, rules=(rule,))})
    page = rulepage.markdown(batches, {})
    assert "No study covers threads" in page
    assert "**1. Everywhere: batch_size 4 times" in page
    assert "TensorFlow's defaults" not in page


def test_the_page_begins_with_what_to_set_by_cores(with_processes: RuleSet) -> None:
    page = rulepage.markdown(with_processes, {})
    few, some, many, most = (cells[PROCESSES] for _, cells in by_cores(with_processes))
    assert [each[0].known for each in (few, some, many, most)] == [
        Known.UNKNOWN,
        Known.MEASURED,
        Known.MEASURED,
        Known.PREDICTED,
    ]
    assert (
        str(some[0]) == "keep the default: nothing else is clearly better for all models (4 cores: measured, 12 models)"
    )
    assert re.fullmatch(
        r"one per core: 1\.\d+× \[1\.\d+, 1\.\d+\], a call takes (9|10)\.\d\d× "
        r"\(16 cores: measured, 12 models\)",
        str(many[0]),
    )
    table = page.partition("**Never measured**")[0].splitlines()
    assert table[4] == "What to set by usable physical cores (stock, oneDNN on, no CPU limit):"
    assert table[6] == "| cores | of | what to set |"
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table[8:] if line]
    assert [cores for cores, *_ in rows if cores] == ["1–2", "4–8", "16", "32+"]
    assert "batch size" not in {of for _, of, _ in rows}  # nothing is set
    assert ("16", "processes", str(many[0])) in rows
    assert "### On processes" in page
    assert re.search(r"\| stock \| on \| none \| 16 \| 1 \| A \| 1\.\d+× .*\| (9|10)\.\d\d× \|", page)
    assert "- A on 16 cores: 16 processes, each with TF_NUM_INTEROP_THREADS=1 TF_NUM_INTRAOP_THREADS=1" in page
    assert "# Run 16 processes of the program at the same time, each with these settings." in page


def test_what_is_predicted_stands_where_nothing_was_measured(with_processes: RuleSet) -> None:
    gain = Ratio(ratio=3.0, low=2.0, high=4.0, n_workloads=5)
    call = Ratio(ratio=10.7, low=8.0, high=16.0, n_workloads=5)
    made = [
        PredictedGain(
            kind=Stratum(shape=f"{n} cores", pool=EIGEN, onednn=True, quota=False),
            terms={"instances": "cores/2"},
            gain=gain,
            call=call,
            basis="profiles of 16 cores",
        )
        for n in (16, 64)
    ]
    predicted = structs.replace(with_processes, predicted={PROCESSES: tuple(made)})
    assert RuleSet.from_document(to_builtins(predicted)) == predicted
    *_, many, most = (cells[PROCESSES] for _, cells in by_cores(predicted))
    assert [each.known for each in many] == [Known.MEASURED]
    figures = "3.00× [2.00, 4.00], a call takes 10.70×"
    text = f"predicted, no advice: one per 2 cores: {figures} (64 cores)"
    assert [str(each) for each in most] == [text]
    assert text in rulepage.markdown(predicted, {})
    assert "- *Predicted*: by the model of the machine: profiles of 16 cores" in rulepage.markdown(predicted, {})
    without = {name: group for name, group in predicted.groups.items() if name != PROCESSES}
    unseen = structs.replace(predicted, groups=without)  # no study tells of processes
    *_, many, most = (cells[PROCESSES] for _, cells in by_cores(unseen))
    assert [each.known for each in (*many, *most)] == [Known.PREDICTED] * 2


def test_rules_on_processes_come_back_from_their_file(with_processes: RuleSet, tmp_path: Path) -> None:
    rulebook.save(with_processes, tmp_path / "rules.json")
    assert rulebook.load(tmp_path / "rules.json")[0] == with_processes


# ---- files ----------------------------------------------------------------------------------------------------------


def test_rules_come_back_from_their_file(rules: RuleSet, tmp_path: Path) -> None:
    rulebook.save(rules, tmp_path / "deep" / "rules.json")
    again, place = rulebook.load(tmp_path / "deep" / "rules.json")
    assert again == rules
    assert place == tmp_path / "deep" / "rules.json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not valid JSON:"),
        ('{"schema": NaN}', "is not valid JSON: JSON is malformed: invalid character"),
        ("[]", "it is not a rules file"),
        ('{"groups": {}}', "format None"),
        ('{"groups": {}, "schema": 2}', "rules have format 2, this version of tftune reads format 4"),
        ('{"groups": {}, "schema": 4}', "the rules are invalid .Object missing required field `provenance`"),
    ],
)
def test_a_file_that_holds_no_rules_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(BadInputError, match=message):
        rulebook.load(tmp_path / "rules.json")


def _broken(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return the rules with one value changed; a path such as `rules/0/recipe` lies below the rules on threads."""
    changed = json.loads(json.dumps(document))
    at = changed["groups"]["threads"]
    *before, last = path.split("/")
    for key in before:
        at = at[int(key) if isinstance(at, list) else key]
    at[last] = value
    return dict(changed)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rules/0/recipe", {"inter_op": "seven"}),
        ("rules/0/recipe", {"batch_size": "inf"}),
        ("rules/0/recipe", {"outer_op": "1"}),
        ("rules/0/condition", [{"feature": "weather", "threshold": 1, "below": True}]),
        ("rules/0/condition", [{"feature": "width", "threshold": "wide", "below": True}]),
        ("rules/0/evidence", {}),
        ("rules/0/evidence/n_studies", 0),
        ("default_evidence", {}),
        ("coverage", {"ranges": []}),
        ("rules", None),
        ("coverage/ranges", {"cores": ["a", "b"]}),
        ("coverage/hosts", None),
        ("coverage/names", []),
        ("rules/0/evidence/gains", None),
        ("rules/0/evidence/gains", {"all": {}}),
        ("rules/0/evidence/counter_examples", [{"a": 1}]),
        ("rules/0/evidence/expected", {"ratio": 1}),
        ("rules/0/advice/strata", None),
        ("rules/0/advice/strata/0/is_advised", "maybe"),
        ("rules/0/advice/builds/0/gained", {"ratio": 1}),
        ("headline", [{"class": "all"}]),
        ("rules/0/evidence/loss", None),
        ("rules/0/evidence/workloads", 3),
        ("rules/0/condition", [{"feature": "width", "threshold": True, "below": True}]),
    ],
)
def test_rules_that_make_no_sense_are_refused_before_anything_is_done(
    document: dict[str, Any], path: str, value: object
) -> None:
    assert RuleSet.from_document(document)
    with pytest.raises(BadInputError, match=r"the rules are invalid .* `\$\.groups"):
        RuleSet.from_document(_broken(document, path, value))


def test_rules_about_something_unknown_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="unknown group weather"):
        RuleSet.from_document(document | {"groups": {"weather": document["groups"]["threads"]}})


def test_the_rules_that_are_kept_here_come_before_the_shipped(
    rules: RuleSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"no rules file missing\.json"):
        rulebook.load(Path("missing.json"))
    rulebook.save(rules)
    assert rulebook.load()[1] == rulebook.LOCAL_RULES


# ---- reading storages -----------------------------------------------------------------------------------------------


def _excluded(storage: optuna.storages.BaseStorage) -> dict[str, int]:
    return _counts(read(all_records(storage))[1])


def _counts(excluded: Any) -> dict[str, int]:
    return {reason: len(names) for reason, names in by_reason(excluded).items()}


def test_studies_that_cannot_be_learned_from_are_counted_with_the_reason(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=7, cores=(8,))
    records = all_records(storage)
    records[0].put("finals", None)
    records[1].put("features", None)
    records[2].put("objective", "latency")
    described = records[3].get("described")
    records[3].put("described", described | {"workload": described["workload"] | {"execution": "eager"}})
    records[4].put("origin", "simulated")
    good, out = read(all_records(storage))
    assert [study.name for study in good] == ["made-5", "made-6"]
    assert _counts(out) == {
        "no finals": 1,
        "the graph of its workload is not known": 1,
        "its objective is latency, not throughput": 1,
        "its workload ran eager, not as a graph": 1,
        "simulated, not measured": 1,
    }
    assert [study.name for study in read(all_records(storage), simulated=True)[0]] == ["made-4"]


def test_studies_of_a_gpu_are_learned_from_apart(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=3, cores=(8,))
    own = {"active": True, "variable": "TF_X", "set_by": "TF_X", "meaning": "a knob of a GPU"}
    knobs = {
        "gpu_thread_mode": own | {"values": ["global", "gpu_private"]},
        "xla": own | {"values": ["off", "auto"]},
    }
    for record, feed in zip(all_records(storage), ("host", "device"), strict=False):
        device = {"name": "gpu:1", "model": "NVIDIA Fake 100", "feed": feed}
        described = record.get("described")
        record.put("described", described | {"device": device, "knobs": described["knobs"] | knobs})
    good, out = read(all_records(storage))
    assert [study.name for study in good] == ["made-2"]
    assert _counts(out) == {"it ran on the gpu, which these rules do not cover": 2}
    good, out = read(all_records(storage), device="gpu")
    assert [(study.name, study.kind.gpu, study.covers_threads) for study in good] == [
        ("made-0", "NVIDIA Fake 100", True)
    ]
    assert _counts(out) == {
        "it ran on the cpu, which these rules do not cover": 1,
        "its inputs were on the device already": 1,
    }
    with pytest.raises(BadInputError, match="unknown kind of device 'tpu'"):
        rulebook.make(f"sqlite:///{tmp_path}/s.db", Selection(), device="tpu")


def test_rules_of_a_kind_of_device_have_a_file_of_their_own(rules: RuleSet) -> None:
    assert rulebook.local_rules("gpu") == Path("results/tftune-rules-gpu.json")
    assert rules.device == "cpu"
    with pytest.raises(BadInputError, match=r"no rules file results/tftune-rules-gpu\.json") as error:
        rulebook.load(device="gpu")
    assert error.value.hint == "create one: tftune rules --device gpu --save"


def test_of_two_versions_of_a_workload_the_one_with_more_studies_is_learned_from(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=1, cores=(4, 8, 16))
    for record, fingerprint in zip(all_records(storage), ("new", "new", "old"), strict=True):
        described = record.get("described")
        record.put("described", described | {"workload": described["workload"] | {"fingerprint": fingerprint}})
    assert _excluded(storage) == {"it has another version of made0 inference than most studies": 1}


def test_what_tells_of_neither_threads_nor_batches_is_left_out(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=1)
    records = all_records(storage)
    described = records[0].get("described")
    held = described["knobs"] | {"inter_op": described["knobs"]["inter_op"] | {"values": [1]}}
    records[0].put("described", described | {"knobs": held})
    assert _excluded(storage) == {"its search space varies neither threads nor batch sizes": 1}
    several = held | {"batch_size": held["batch_size"] | {"values": [1, 2, 4]}}
    records[0].put("described", described | {"knobs": several})
    good, out = read(all_records(storage))
    assert [(study.covers_threads, study.covers_batch) for study in good] == [(False, True), (True, False)]
    assert not out


def test_a_baseline_that_sets_what_no_rule_speaks_of_is_not_compared_with(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=1, cores=(8,))
    record = all_records(storage)[0]
    described = record.get("described")
    baselines = {
        name: each | {"setting": each["setting"] | {"malloc": "tcmalloc" if name == "intel" else "system"}}
        for name, each in described["baselines"].items()
    }
    record.put("described", described | {"baselines": baselines})
    good, _ = read(all_records(storage))
    assert "intel" not in good[0].baselines
    assert "intel-zoo" in good[0].baselines


def test_parameters_make_another_workload_not_another_version(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=1)
    record = all_records(storage)[0]
    described = record.get("described")
    changed = {"fingerprint": "longer", "params": {"seq_len": 384}}
    record.put("described", described | {"workload": described["workload"] | changed})
    assert _excluded(storage) == {}


def test_a_study_says_the_same_from_a_storage_as_in_memory(tmp_path: Path) -> None:
    planted = list(make(np.random.default_rng(0), truth=Truth(), workloads=2, several=on_many_cores))
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    write(planted, storage)
    from_storage, _ = read(all_records(storage))
    for a, b in zip(studies(planted), from_storage, strict=True):
        assert a.situation == b.situation
        assert a.baselines == b.baselines
        assert a.best_found(batch=False) == b.best_found(batch=False)
        best = [b.best_found(batch=True)]
        assert a.surface.gains(best)[0] == pytest.approx(b.surface.gains(best)[0], abs=0.02)
        assert a.processes is not None and b.processes is not None
        assert (a.processes.default, a.processes.baselines) == (b.processes.default, b.processes.baselines)
        assert a.processes.surface.measured == b.processes.surface.measured
        counted = [*a.processes.surface.measured]
        assert a.processes.surface.gains(counted)[0] == pytest.approx(b.processes.surface.gains(counted)[0], abs=0.02)


def test_processes_that_do_not_share_the_cores_evenly_say_nothing_of_their_number(tmp_path: Path) -> None:
    """Such as those of a search that held a knob, or kept its processes to fewer cores."""
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    [planted] = make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(8,), several=on_many_cores)
    pinned = [(each.with_values(intra_op=1), mean, se) for each, mean, se in planted.several]
    write([replace(planted, several=[each for each in pinned if each[0]["instances"] != 8])], storage)
    [study], _ = read(all_records(storage))
    assert study.covers_threads
    assert study.processes is None


def test_what_the_finals_of_several_processes_say_counts_too(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/s.db", create=True)
    assert storage is not None
    [planted] = make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(8,))
    write([planted], storage)
    [record] = all_records(storage)
    assert read([record])[0][0].processes is None
    group = groups_of(planted.situation, planted.default)[0]
    finals = record.get("finals")
    of_default = finals["contenders"][0]
    several = of_default | {"names": ["several"], "setting": group.to_dict()}
    name = of_default["names"][0]
    rounds = [
        each | {"slices": {name: each["slices"][name], "several": [
            one | {"elapsed_s": one["elapsed_s"] / 2, "step_s": [one["elapsed_s"] / 2]} for one in each["slices"][name]
        ]}}
        for each in finals["rounds"]
    ]  # fmt: skip
    record.put("group_finals", finals | {"contenders": [several, of_default], "rounds": rounds})
    [study], _ = read(all_records(storage))
    assert study.processes is not None
    best = study.processes.best_found(batch=False)
    assert best["instances"] == group["instances"] == 8
    assert study.processes.surface.log_ratio(study.processes.default, best)[0] == pytest.approx(math.log(2), abs=0.05)


def test_a_planned_study_tells_without_finals(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=3, cores=(8,))
    planned, unfinished, _ = all_records(storage)
    for record in (planned, unfinished):
        record.put("finals", None)
    planned.put("planned", True)
    good, out = read(all_records(storage))
    assert [study.name for study in good] == ["made-0", "made-2"]
    assert _counts(out) == {"no finals": 1}
    assert all(len(study.surface.measured) > 5 for study in good)


def test_a_plan_that_was_measured_in_part_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the default, one thread or all cores it does not tell what threads do."""
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=1, cores=(8,))
    [record] = all_records(storage)
    record.put("finals", None)
    record.put("planned", True)
    subject = record.attributes().subject
    default = Setting.of(subject.baselines[subject.default].setting)
    threads = [{"inter_op": 1, "intra_op": n, "omp_num_threads": n} for n in (1, 8)]
    ends = [default.with_values(**{k: v for k, v in each.items() if k in default.to_dict()}) for each in threads]
    rows = [(each, 0.1 * i, 0.01, 1) for i, each in enumerate((default, *ends))]
    for n, reasons in ((3, {}), (2, {"planned, and measured in part": 1})):
        for known in itertools.combinations(rows, n):
            monkeypatch.setattr(Record, "observations", lambda *_, known=known, **__: list(known))
            good, out = read(all_records(storage))
            assert (len(good), _counts(out)) == (1 if n == 3 else 0, reasons)
    monkeypatch.setattr(Record, "observations", lambda *_, **__: [])
    assert read(all_records(storage))[0] == []


def test_studies_whose_space_has_the_number_of_processes_need_one_among_them(tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=3, cores=(8,))
    knob = {"active": True, "variable": None, "meaning": "processes"}
    searched = {
        "made-0": {"instances": knob | {"values": [2, 4]}},
        "made-1": {"instances": knob | {"values": [1, 2]}},
        "made-2": {"streams": knob | {"values": [1, 2]}},
    }
    for record in all_records(storage):
        described = record.get("described")
        record.put("described", described | {"knobs": described["knobs"] | searched[record.name]})
    good, out = read(all_records(storage))
    assert [study.name for study in good] == ["made-1"]
    assert _counts(out) == {
        "it had several processes in all of its settings": 1,
        "it had several calls at once, which these rules do not cover": 1,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "yesterday"}, "--since is 'yesterday'"),
        ({"since": "2099-01-01"}, "', which is not in the past"),
        ({"since": "0d"}, "', which is not in the past"),
        ({"workloads": ","}, "--workloads is empty"),
        ({"machines": ""}, "--machines is empty"),
        ({"workloads": "made1,resnet"}, "unknown workload 'resnet'"),
        ({"machines": "made9"}, "unknown machine 'made9'"),
        ({"storage": "sqlite:///missing.db"}, "no studies in"),
    ],
)
def test_what_cannot_be_asked_is_said(url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        rulebook.make(options.pop("storage", url), Selection(**options))


def test_filters_choose_studies(url: str) -> None:
    filtered = rulebook.make(url, Selection(machines="made16", workloads="made1,made2"))
    assert filtered.groups["threads"].coverage.n_studies == 2
    assert list(filtered.groups["threads"].coverage.shapes) == ["made16"]


def test_too_few_workloads_are_said_to_be_that(url: str, call: Call) -> None:
    out = call("rules", "--storage", url, "--workloads", "made1,made2")[1]
    assert "only 2 workloads: a rule needs at least 6, because a few workloads agree by chance too often" in out
    assert "--save" not in out


@pytest.mark.parametrize(("key", "value"), [("finals", {"rounds": 3}), ("noise", {"quads": 2}), ("noise", [0.1])])
def test_a_damaged_study_is_left_out_and_named(key: str, value: object, tmp_path: Path) -> None:
    storage = studies_in(f"sqlite:///{tmp_path}/s.db", workloads=2, cores=(8,))
    record = all_records(storage)[0]
    record.put(key, value)
    assert [reason.split(" (")[0] for reason in _excluded(storage)] == ["damaged"]


def test_a_study_of_unknown_age_is_left_out_where_the_age_matters(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    storage = studies_in(url, workloads=2, cores=(8,))
    all_records(storage)[0].put("created", None)
    provenance = rulebook.make(url, Selection(since="2026-01-01")).provenance
    assert provenance.excluded == {"its start time is unknown": ("made-0",)}


def test_a_foreign_database_has_no_rules(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/foreign.db"
    optuna.create_study(study_name="theirs", storage=url).optimize(lambda trial: trial.suggest_float("x", 0, 1), 1)
    with pytest.raises(BadInputError, match="no tftune studies in"):
        rulebook.make(url, Selection())


# ---- commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def learned(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find in that storage what was learned from it: it takes seconds, and another test does it."""
    monkeypatch.setattr(rulebook, "distil", lambda *_: rules.groups)


@pytest.mark.usefixtures("learned")
def test_rules_for_people(url: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one screen what to set where; with --details all that it rests on."""
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = call("rules", "--storage", url)
    assert code == 0
    assert "rules from 48 studies of 24 workloads on 2 shapes of 2 machines" in out
    lines = out.splitlines()
    assert len(lines) <= 50
    assert re.search(r"never measured on a machine like this one: .*usable cores", out)
    assert re.search(r"all others +stock +on +none +16 +1 +B +1.1\d×", out)
    assert re.search(r"A B +TF_NUM_INTEROP_THREADS +1", out)
    assert "B: the same as TensorFlow performance guide, section on MKL (tf-guide-mkl)" in out
    assert re.search(r"^Unknown .*on an OpenMP build", out, re.MULTILINE)
    assert "tied with the best" not in out
    code, out, _ = call("rules", "--storage", url, "--details")
    assert code == 0
    for text in (
        "tied with the best",
        "each workload held out, one by one",
        "wang-width",
        "threads, speed-up over tf-default on held-out workloads",
        "16 cores on the Eigen pool",
        "applied in",
        "wang-width applies the formula of Wang et al., ACM TACO 2021; the formula as recalled, not verified",
        "not covered",
        "several sockets",
    ):
        assert text in out


def test_rules_for_a_program(url: str, call: Call, document: dict[str, Any]) -> None:
    code, out, _ = call("rules", "--storage", url, "--json")
    assert code == 0
    assert json.loads(out)["groups"] == json.loads(json.dumps(document["groups"]))


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize("format_", ["md", "html", "json", "text"])
def test_rules_as_files(url: str, call: Call, format_: str, tmp_path: Path) -> None:
    out = tmp_path / f"rules.{format_}"
    assert call("rules", "--storage", url, "--format", format_, "--out", str(out))[0] == 0
    assert "work per operator and step" in out.read_text()
    pictures = {path.name for path in tmp_path.glob("*.svg")}
    assert pictures == (set(PICTURES.values()) if format_ == "md" else set())
    assert all((f"]({name})" in out.read_text()) for name in pictures)


@pytest.mark.usefixtures("learned")
def test_rules_are_kept_where_they_are_looked_for(
    url: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call("rules", "--storage", url, "--save")
    assert code == 0
    assert ": recommend and search in this folder now use these rules (from" in " ".join(err.split())
    assert RuleSet.from_document(json.loads(rulebook.LOCAL_RULES.read_text())).groups


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rules", "--save", "--since", "3d"), "--save cannot be combined with --since, --machines or --workloads"),
        (("rules", "--save", "--workloads", ""), "--save cannot be combined with --since, --machines or --workloads"),
        (("rules", "--format", "pdf"), "unknown format 'pdf'"),
        (("rules", "--out", "."), "is a folder"),
        (("rules", "--out", "missing/rules.md"), "folder missing does not exist"),
        (("export", "--format", "xls"), "unknown format 'xls'"),
        (("export", "--what", "rows"), "unknown kind of row 'rows'"),
        (("export", "--storage", "sqlite:///missing.db"), "no studies in sqlite:///missing.db"),
        (("import", "missing.db"), "there is no file missing.db; give the file or URL"),
    ],
)
def test_bad_options_end_with_2(words: tuple[str, ...], message: str, call: Call) -> None:
    code, out, error = call(*words)
    assert (code, out) == (2, "")
    assert message in error


def test_a_space_that_did_not_ask_about_onednn_says_nothing_of_it(tmp_path: Path) -> None:
    """It was off in all that was measured: what it would do is unknown, and not the same as what is without it."""
    url = f"sqlite:///{tmp_path / 'off.db'}"
    [planted] = make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(8,))
    write([replace(planted, situation=replace(planted.situation, onednn=False))], optuna.storages.RDBStorage(url))
    storage = open_storage(url, create=False)
    assert storage is not None
    [study], left_out = read(all_records(storage))
    assert not left_out
    with_onednn = study.setting(Recipe.of({"onednn": "1"}))
    assert (study.default["onednn"], with_onednn["onednn"], study.baselines["intel"]["onednn"]) == (0, 1, 1)
    assert with_onednn not in study.surface.measured
    gain, sd = study.surface.gains([with_onednn])
    assert gain[0] == pytest.approx(0)
    assert sd[0] > 0.02
    assert study.setting(ONE_THREAD) in study.surface.measured


def test_what_is_expected_is_of_such_a_machine_and_build(rules: RuleSet) -> None:
    rule = rules.groups[THREADS].rules[0]
    there = next(make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(8,))).situation
    decision = decide(rule, replace(there, workload="another"))
    assert decision.advice is AdviceReason.FOLLOW
    assert decision.stratum is not None
    assert (decision.stratum.kind.shape, decision.stratum.kind.pool) == ("8 cores", "eigen")
    unseen = decide(rule, replace(there, machine=replace(there.machine, physical_cores=4)))
    assert unseen.stratum is not None
    assert unseen.stratum.kind.shape is None
    assert decide(rule, replace(there, onednn=False)).advice is AdviceReason.NO_EVIDENCE
    assert decide(None, there).advice is AdviceReason.NO_RULE
    assert decide(structs.replace(rule, terms={}), there).advice is AdviceReason.BY_RULE


def test_a_workload_that_speaks_against_its_own_rule_keeps_the_default(rules: RuleSet) -> None:
    situation = next(make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(8,))).situation
    kind = SituationKind.of(situation)
    own_study = CounterExample(study="s", situation=kind, over_default=0.6, low=0.5, high=0.7, of_best=0.6)
    other_studies = tuple(
        structs.replace(own_study, situation=structs.replace(kind, **change))
        for change in ({"workload": "other"}, {"onednn": False}, {"shape": "9 cores"})
    )
    rule = rules.groups[THREADS].rules[0]

    def against(*studies: CounterExample) -> Rule:
        return structs.replace(rule, evidence=structs.replace(rule.evidence, counter_examples=studies))

    both = against(*other_studies, own_study)
    assert counter_example(both.evidence, situation) == own_study
    assert counter_example(against(*other_studies).evidence, situation) is None
    assert decide(both, situation).advice is AdviceReason.OWN_STUDY
    assert decide(against(*other_studies), situation).advice is AdviceReason.FOLLOW
    # It could have more, but what the rule gives is more than the default already.
    better = structs.replace(own_study, over_default=1.2, low=1.1, high=1.3, of_best=0.85)
    assert decide(against(better), situation).advice is AdviceReason.FOLLOW


# ---- the shipped rules ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped() -> RuleSet:
    """The rules that tftune ships."""
    return rulebook.load(ROOT / "results/rules.json")[0]


def _situation_of(kind: Stratum) -> Situation:
    """Return a situation of a stratum."""
    cores, _, quota = str(kind.shape).partition(", quota ")
    n = int(cores.split()[0])
    [planted] = make(np.random.default_rng(0), truth=Truth(), workloads=1, cores=(n,))
    machine = replace(planted.situation.machine, cpu_quota=float(quota) if quota else None)
    return replace(planted.situation, machine=machine, pool=kind.pool, onednn=kind.onednn)


def test_the_shipped_rules_advise_nothing_that_gains_nothing(shipped: RuleSet) -> None:
    """Whatever the stratum: where the evidence is 1.02 or below, or may be a loss, the default is kept."""
    advised = set()
    for group in shipped.groups.values():
        for rule in group.rules:
            strata = rule.advice.strata
            assert strata
            builds = {row.kind.build: row for row in rule.advice.builds}
            for row in (*strata, *rule.advice.builds):
                # Six workloads decide alone. The interval of fewer is wide, so that their build does.
                deciding = row if row.gained.n_workloads >= 6 else builds[row.kind.build]
                assert deciding.gained.low is not None
                assert row.is_advised == (
                    min(row.gained.ratio, deciding.gained.ratio) > 1.02 and deciding.gained.low > 1
                )
            for row in strata:
                if not row.is_advised and row.gained.n_workloads > 6:  # without one of six the build decides, too
                    assert row.expected is not None
                    assert row.expected.policy.ratio == pytest.approx(1, abs=0.01)
                decision = decide(rule, _situation_of(row.kind))
                assert decision.stratum == row
                assert (decision.advice is AdviceReason.FOLLOW) == row.is_advised
                advised.add(decision.advice)
    assert advised == {AdviceReason.FOLLOW, AdviceReason.NO_GAIN}


def test_the_shipped_rules_give_way_to_what_a_workload_says_itself(shipped: RuleSet) -> None:
    for group in shipped.groups.values():
        for rule in group.rules:
            for each in rule.evidence.counter_examples:
                kind = each.situation
                there = replace(_situation_of(kind), workload=kind.workload, mode=kind.mode)
                if each.over_default <= 1.02:
                    assert decide(rule, there).advice is AdviceReason.OWN_STUDY


def test_the_shipped_page_is_by_stratum(shipped: RuleSet) -> None:
    page = (ROOT / "results/rules.md").read_text()
    made_of_it = rulepage.markdown(shipped, PICTURES)
    assert page.splitlines()[3:] == made_of_it.splitlines()[3:]  # the date is above
    for title in ("| oneDNN off |", "| a CPU quota |", "| the rest |", "as recalled, not verified"):
        assert title in page
    assert "1.16 [" not in page.split("## Held-out tests")[0]


# ---- recommend, without TensorFlow ----------------------------------------------------------------------------------


@pytest.fixture
def call_on(
    machine: Machine,
    stock: Build,
    openmp: Build,
    resnet50: Workload,
    monkeypatch: pytest.MonkeyPatch,
) -> Call:
    """Let jobs be of a made machine of 2 cores and of a build, without exporting anything."""
    monkeypatch.setattr(rulebook, "LOCAL_RULES", Path("none.json"))
    features = Features(
        operators={"Conv2D": 53, "Relu": 49},
        heavy_operators=54,
        layers=50,
        width=1.08,
        depth=273,
        flops=7763376016,
        moved_bytes=591960380,
        parameters=25636712,
        parameter_bytes=102546848,
        known=True,
    )

    def use(build: str = EIGEN, name: str = "resnet50", *, with_groups: bool = False, **changes: Any) -> Job:
        shape: dict[str, Any] = {
            "online_cpus": 2, "logical_cpus": 2, "physical_cores": 2, "threads_per_core": 1, "sockets": 1,
            "affinity": "0-1", "numa_nodes": {"0": "0-1"},
        }  # fmt: skip
        small = replace(machine, **(shape | changes))
        runtime = openmp if build == OPENMP else stock
        workload = replace(resnet50, name=name)
        file = read_space("threads", small)
        space = resolve(file, machine=small, build=runtime, workload=workload, with_groups=with_groups)
        job = Job(
            python=Path("python"),
            env={},
            ignored_variables=[],
            machine=small,
            device=DEVICE,
            framework=FRAMEWORK,
            build=runtime,
            workload=workload,
            catalogue=space.catalogue,
            file=file,
            pins={},
            batch_sizes=None,
            space=space,
            objective=Objective.THROUGHPUT,
            is_python_known=True,
            limits=Limits(),
            budget=Budget(),
            deadline_s=120.0,
            export_deadline_s=600.0,
            storage_url="",
            feed=None,
            may_change_numerics=False,
            same_latency=False,
            with_groups=with_groups,
            predict=None,
            libraries={},
        )
        monkeypatch.setattr("tuner.api.rules.prepare", lambda _: job)
        monkeypatch.setattr(Job, "features", lambda _: features)
        monkeypatch.setattr(Job, "launcher", lambda *_, **__: None)
        return job

    return use


RULES = ("--rules", str(ROOT / "results/rules.json"))


def test_where_no_gain_is_shown_recommend_keeps_the_default(call_on: Call, call: Call) -> None:
    job = call_on(name="resnet101")  # of which no study speaks against the rule
    code, out, _ = call("recommend", "resnet101", *RULES)
    assert code == 0
    assert out.startswith(
        "= KEEP  resnet101: keep TensorFlow's defaults; what the rules set is not shown to gain more "
    )
    assert "the rule shows no gain of more than 2 % (2 cores on the Eigen pool): 0.99 [0.98, 1.01]" in out
    assert "tftune search resnet101\n" in out
    assert "TF_NUM" not in out
    assert "Apply" not in out
    job.ignored_variables.append("TF_NUM_INTRAOP_THREADS")
    assert "though set in your environment: TF_NUM_INTRAOP_THREADS\n" in call("recommend", "resnet101", *RULES)[2]
    document = json.loads(call("recommend", "resnet50", *RULES, "--json")[1])
    assert (document["advice"]["code"], document["advice"]["reason"]) == ("keep-default", "no-gain")
    assert document["advice"]["stratum"]["gained"]["ratio"] <= 1.02
    assert {name: document["expected"][name] for name in ("ratio", "low", "high")} == {"ratio": 1, "low": 1, "high": 1}
    assert (document["env"], document["setting"]) == ({}, job.space.reference.to_dict())


@pytest.mark.parametrize("format_", list(Format))
def test_a_kept_default_is_emitted_as_one(format_: str, call_on: Call, call: Call) -> None:
    call_on()
    out = call("recommend", "resnet50", *RULES, "--format", format_)[1]
    title = out.splitlines()[0].removeprefix("# ")
    assert out == emit(Deployment(), Format(format_), title=title, ways=WAYS, model="resnet50")


def test_a_program_runs_with_a_recommendation(call_on: Call, call: Call, tmp_path: Path) -> None:
    call_on()
    (tmp_path / "setting.json").write_text(call("recommend", "resnet50", *RULES, "--any-batch-size", "--json")[1])
    ended = tftune("run", "setting.json", "--", "echo", "{batch_size}", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "32\n"), ended.stderr


def test_a_kept_default_needs_no_proof(call_on: Call, call: Call) -> None:
    call_on()
    code, out, err = call("recommend", "resnet50", *RULES, "--verify", "--json")
    assert code == 0
    assert "nothing to verify: the recommendation is the default" in err
    assert json.loads(out)["verified"] is None


def test_where_a_gain_is_shown_recommend_follows_the_rule(call_on: Call, call: Call) -> None:
    call_on(OPENMP)
    code, out, _ = call("recommend", "resnet50", *RULES)
    assert code == 0
    assert out.startswith(
        "✔ RECOMMENDED  resnet50: 1.10× over TensorFlow's defaults is expected, between 0.93× and 1.31× for a single "
        "model; not measured here\n"
    )
    assert "the mean of 18 models, each left out of the learning in turn: 1.10 [1.06, 1.15]" in out
    assert "it gained in the studies behind the rules (2 cores on an OpenMP build); equal to what intel sets" in out
    words = ("recommend", "resnet50", *RULES, "--any-batch-size")
    assert f"tftune recommend resnet50 --rules {RULES[1]} --any-batch-size --format sh" in call(*words)[1]
    assert "KMP_BLOCKTIME=1" in out
    assert "as recalled, not verified from the paper" not in out
    assert "as recalled, not verified from the paper" in call("recommend", "resnet50", *RULES, "--details")[1]
    manifest = call("recommend", "resnet50", *RULES, "--format", "k8s")[1]
    limited = re.findall(r"name: (\w+)\n    valueFrom:\n      resourceFieldRef: {resource: limits.cpu}", manifest)
    assert limited == ["TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"]
    snippet = call("recommend", "resnet50", *RULES, "--format", "sh")[1]
    assert "export KMP_BLOCKTIME=1" in snippet
    assert re.search(r"# Expected on 2 cores, .*: 1.10 \[1.06, 1.15\] over the defaults", snippet)
    document = json.loads(call("recommend", "resnet50", *RULES, "--json")[1])
    assert (document["advice"]["code"], document["advice"]["reason"]) == ("follow", None)
    assert document["expected"]["ratio"] > 1.02


SIXTEEN: dict[str, Any] = {
    "online_cpus": 16,
    "logical_cpus": 16,
    "physical_cores": 16,
    "affinity": "0-15",
    "numa_nodes": {"0": "0-15"},
    "cores": [str(core) for core in range(16)],
}


@pytest.fixture
def processes_file(with_processes: RuleSet, tmp_path: Path) -> str:
    """A file of rules on processes."""
    rulebook.save(with_processes, tmp_path / "processes.json")
    return str(tmp_path / "processes.json")


def test_recommend_says_what_several_processes_gain_and_cost_beside_one(
    call_on: Call, call: Call, processes_file: str
) -> None:
    call_on(with_groups=True, **SIXTEEN)
    words = ("recommend", "resnet50", "--rules", processes_file)
    code, out, _ = call(*words)
    assert code == 0
    assert out.startswith("= KEEP  resnet50, one process: keep TensorFlow's defaults; no rule applies\n")
    answer = re.search(
        r"^✔ RECOMMENDED  resnet50, 16 processes side by side: (1\.\d\d)× over TensorFlow's defaults is expected, "
        r"between (1\.\d\d)× and (1\.\d\d)× for a single model; "
        r"a call takes (\d+\.\d+)× \((\d+\.\d+)× to (\d+\.\d+)× for a single model\) as long; not measured here$",
        out,
        re.MULTILINE,
    )
    assert answer is not None
    gain, least, most, call_, shortest, longest = map(float, answer.groups())
    assert [gain * call_, least * longest, most * shortest] == pytest.approx([16] * 3, rel=0.01)
    each = " | ".join(str(core) for core in range(16))
    assert f"TF_NUM_INTEROP_THREADS=1  TF_NUM_INTRAOP_THREADS=1  16 processes, each on its own CPUs: {each}\n" in out
    assert f"tftune recommend resnet50 --rules {processes_file} --instances --format sh\n" in out
    document = json.loads(call(*words, "--json")[1])
    assert (document["env"], document["advice"]["code"]) == ({}, "keep-default")
    several = document["several"]
    assert (several["processes"], several["advice"]["code"]) == (16, "follow")
    assert several["setting"]["instances"] == 16
    assert several["expected"]["call"]["ratio"] == pytest.approx(16 / several["expected"]["ratio"])
    assert [rule["recipe"] for rule in several["followed"]] == [{"instances": "cores"}]


def test_what_several_processes_need_is_emitted_where_it_is_asked_for(
    call_on: Call, call: Call, processes_file: str
) -> None:
    call_on(with_groups=True, **SIXTEEN)
    words = ("recommend", "resnet50", "--rules", processes_file, "--instances")
    assert call(*words)[1].startswith("✔ RECOMMENDED  resnet50, 16 processes side by side: ")
    snippet = call(*words, "--format", "sh")[1]
    assert "# Run 16 processes of the program at the same time, each with these settings" in snippet
    assert re.search(r"# There a call takes \d+\.\d+× \(.* for a single model\) as long as under the", snippet)
    assert "export TF_NUM_INTRAOP_THREADS=1" in snippet
    assert "taskset -c 15" in snippet
    document = json.loads(call(*words, "--json")[1])
    assert (document["processes"], document["several"]) == (16, None)
    code, _, error = call(*words, "--any-batch-size")
    assert code == 2
    assert "--any-batch-size and --instances are different answers" in error


def test_the_price_is_that_of_the_processes_here(call_on: Call, call: Call, processes_file: str) -> None:
    """No study has 12 cores: the rule is about such builds, and a call is about as many processes as there are here."""
    twelve = SIXTEEN | {"logical_cpus": 12, "physical_cores": 12, "affinity": "0-11", "numa_nodes": {"0": "0-11"}}
    call_on(with_groups=True, **twelve | {"cores": [str(core) for core in range(12)]})
    document = json.loads(call("recommend", "resnet50", "--rules", processes_file, "--json")[1])
    expected = document["several"]["expected"]
    assert (document["several"]["processes"], expected["kind"]["shape"]) == (12, None)
    assert expected["call"]["ratio"] == pytest.approx(12 / expected["ratio"])


def test_few_cores_keep_one_process(call_on: Call, call: Call, processes_file: str) -> None:
    four = SIXTEEN | {"logical_cpus": 4, "physical_cores": 4, "affinity": "0-3", "numa_nodes": {"0": "0-3"}}
    call_on(with_groups=True, **four | {"cores": ["0", "1", "2", "3"]})
    out = call("recommend", "resnet50", "--rules", processes_file)[1]
    assert re.search(r"^Several +no rule applies: keep one process$", out, re.MULTILINE)
    out = call("recommend", "resnet50", "--rules", processes_file, "--instances")[1]
    assert out.startswith("= KEEP  resnet50: keep one process; no rule applies")


def test_several_processes_are_refused_where_there_can_be_none(call_on: Call, call: Call, processes_file: str) -> None:
    call_on(with_groups=False, **SIXTEEN)
    words = ("recommend", "resnet50", "--rules", processes_file)
    assert "Several" not in call(*words)[1]
    assert "--instances is for the inference of one model on two cores or more" in call(*words, "--instances")[2]
    call_on(with_groups=True, **SIXTEEN)
    error = call("recommend", "resnet50", "--rules", str(GOLDEN / "rules.json"), "--instances")[2]
    assert "has no rules about processes; create some: tftune search resnet50, and others" in error


def test_numbers_of_cores_follow_a_limit_only_where_these_are_cpus(call_on: Call, call: Call) -> None:
    """A limit counts hardware threads: of two a core the variables would be twice too large."""
    call_on(OPENMP, threads_per_core=2, logical_cpus=4, online_cpus=4, affinity="0-3", numa_nodes={"0": "0-3"})
    manifest = call("recommend", "resnet50", *RULES, "--format", "k8s")[1]
    assert "resourceFieldRef" not in manifest
    assert 'name: OMP_NUM_THREADS\n    value: "2"' in manifest


def test_inputs_that_were_made_up_are_listed_by_a_recommendation(call_on: Call) -> None:
    call_on(OPENMP)
    recommended = tuner.recommend("resnet50", rules=RULES[1], progress=False)
    assert (recommended.result.inputs, "Inputs" in str(recommended)) == ((), False)  # the file makes its own
    words = InputFacts(name="ids", dtype="int32", shape=(None, 7), values="0 or 1", given=False, doubtful=True)
    result = structs.replace(recommended.result, inputs=(words,))
    shown = str(Recommendation(result, command="resnet50", ways=WAYS, machine=MADE_MACHINE))
    assert "Inputs    ids int32 (batch, 7) 0 or 1" in " ".join(shown.split()).replace("Inputs ", "Inputs    ")


def test_what_was_measured_as_slower_is_exported_by_nobody(call_on: Call) -> None:
    call_on(OPENMP)
    recommended = tuner.recommend("resnet50", rules=RULES[1], progress=False)
    side = SideResult(
        asked="",
        env={},
        arguments={},
        cpus=None,
        rate=1.0,
        n_steps=9,
        p50=1.0,
        p90=None,
        p99=None,
        peak_memory_bytes=None,
    )
    measured = ComparisonResult(
        a={}, b={}, speedup=0.8, low=0.7, high=0.9, code=VerdictCode.WORSE, reason=None, margin=0.02, level=0.95,
        objective=Objective.THROUGHPUT, unit="items/s", rounds=3, fresh_rounds=1, ended="decided", timed_s=9.0,
        sides={"a": side, "b": side}, failures={}, conditions=QUIET, warnings=(),
    )  # fmt: skip
    slower = Recommendation(
        structs.replace(recommended.result, verified=measured), command="resnet50", ways=WAYS, machine=MADE_MACHINE
    )
    assert slower.is_slower
    assert "✘ SLOWER" in str(slower)
    with pytest.raises(tuner.TunerError, match="slower than the default here"):
        slower.emit("sh")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace('"2 cores"', '"two cores"'), "the rules are invalid ('two cores' is no shape"),
        (lambda text: text.replace('"pool": "eigen"', '"pool": "mkl"'), "the rules are invalid (unknown pool 'mkl'"),
        (lambda text: text[:5000], "is not valid JSON"),
        (lambda _: "[" * 200_000, "is not valid JSON"),
    ],
)
def test_a_damaged_rules_file_is_one_line(
    change: Callable[[str], str], message: str, call: Call, tmp_path: Path
) -> None:
    path = tmp_path / "rules.json"
    path.write_text(change((ROOT / "results" / "rules.json").read_text()))
    code, out, error = call("rules", "--rules", str(path))
    assert (code, out) == (2, "")
    assert message in error
    path.write_bytes(b'{"groups":{"a":"\xff"}}')
    assert call("rules", "--rules", str(path))[0] == 2


def test_a_workload_whose_own_study_speaks_against_the_rule_keeps_the_default(call_on: Call, call: Call) -> None:
    call_on(name="inceptionv3")
    document = json.loads(call("recommend", "inceptionv3", *RULES, "--json")[1])
    assert (document["advice"]["code"], document["advice"]["reason"]) == ("keep-default", "own-study")
    assert document["advice"]["own_study"]["over_default"] == pytest.approx(0.87, abs=0.01)


def test_hints_of_a_search_leave_out_what_gains_nothing(call_on: Call) -> None:
    """What nobody has seen is worth a trial, as a search measures it; what was shown to gain nothing is not."""
    features = call_on(name="resnet101").features()
    message: list[str] = []
    assert advise.RULES not in advise.hints(call_on(name="resnet101"), features, notify=message.append)
    assert len(message) == 1
    assert message[0].startswith("the rules recommend the default: the rule shows no gain of more than")


def test_rules_of_the_old_format_are_refused_with_what_to_do(call: Call, tmp_path: Path) -> None:
    old = json.loads((ROOT / "results/rules.json").read_text()) | {"schema": 1}
    (tmp_path / "old.json").write_text(json.dumps(old))
    code, out, error = call("recommend", "resnet50", "--rules", str(tmp_path / "old.json"))
    assert (code, out) == (2, "")
    assert "rules have format 1, this version of tftune reads format 4" in error
    assert "tftune rules --save" in error


def test_what_no_study_is_of_is_kept_by_recommend_and_tried_by_a_search(
    rules: RuleSet, call_on: Call, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules are of the Eigen pool alone."""
    path = tmp_path / "rules.json"
    rulebook.save(rules, path)
    job = call_on(OPENMP)
    recommendation = json.loads(call("recommend", "resnet50", "--rules", str(path), "--json")[1])
    assert (recommendation["advice"]["code"], recommendation["advice"]["reason"]) == ("keep-default", "no-evidence")
    monkeypatch.setattr(rulebook, "LOCAL_RULES", path)
    rule = rulebook.load()[0].groups[THREADS].rules[-1]
    assert decide(rule, advise.situation_of(job, job.features())).advice is AdviceReason.NO_EVIDENCE
    assert advise.RULES in advise.hints(job, job.features(), notify=lambda _: None)


def test_a_hint_by_wangs_formula_is_said_to_be_recalled(call_on: Call) -> None:
    job = call_on(OPENMP)
    line = terminal.hint_line("wang-width", job.space.reference.to_dict(), job.subject)
    assert "Wang et al., ACM TACO 2021; the formula as recalled, not verified from the paper" in str(line)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_a_setting_in_seconds_without_a_trial(tmp_path: Path) -> None:
    """The rules are of made machines of 8 and 16 cores, so that this one lies outside of their evidence."""
    data = json.loads((GOLDEN / "rules.json").read_text())
    for rule in data["groups"]["threads"]["rules"]:  # whatever the CPU has oneDNN do
        rule["advice"]["builds"] = [
            row | {"kind": row["kind"] | {"onednn": onednn, "quota": quota}}
            for row in rule["advice"]["builds"]
            for onednn in BOTH
            for quota in BOTH
        ]
    (tmp_path / "rules.json").write_text(json.dumps(data))
    words = ["recommend", "lenet5", "--rules", "rules.json"]
    done = tftune_here(*words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recommendation = json.loads(done.stdout)
    assert [rule["then"] for rule in recommendation["followed"]] == ["inter_op 1, intra_op 1"]
    assert recommendation["env"] == {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    assert any("usable cores" in text for text in recommendation["outside"])
    assert recommendation["expected"] is None
    assert not recommendation["machine_known"]
    page = tftune_here(*words, "--verify", "--time-budget", "8s", cwd=tmp_path)
    # One thread may well be the slower setting on the machine of the test: both answers are right, with their exit code
    is_slower = "SLOWER" in page.stdout
    assert page.returncode == int(is_slower), page.stderr
    assert ("keep the default" in page.stderr) == is_slower
    assert re.search(r"^ +usable cores: \d+, the studies cover", page.stdout, re.MULTILINE)
    assert re.search(r"the speed of TensorFlow's defaults, measured here$", page.stdout, re.MULTILINE)
    assert ("TF_NUM_INTEROP_THREADS=1" in page.stdout) == (not is_slower)
    snippet = tftune_here(*words, "--format", "dotenv", cwd=tmp_path)
    assert "TF_NUM_INTEROP_THREADS=1" in snippet.stdout
    assert "evidence" not in snippet.stdout.replace(snippet.stdout.splitlines()[0], "")


@pytest.mark.tensorflow
@pytest.mark.usefixtures("forks_only")
def test_what_rules_know_nothing_of_is_refused(tmp_path: Path) -> None:
    (tmp_path / "light.py").write_text(
        '"""No heavy operator"""\n'
        "def build():\n    import tensorflow as tf\n    return tf.keras.Sequential("
        "[tf.keras.layers.Input((4,)), tf.keras.layers.ReLU()])\n"
        "def inputs(batch_size):\n    import numpy as np\n    return (np.ones((batch_size, 4), np.float32),)\n"
    )
    done = tftune_here("recommend", "./light.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot apply rules to light: its graph has no heavy operator" in done.stderr


# ---- tables ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(url: str) -> list[StudyResult]:
    """The studies of that storage."""
    storage = open_storage(url, create=False)
    assert storage is not None
    return [describe_study(record) for record in all_records(storage)]


def test_a_row_for_each_trial(results: list[StudyResult]) -> None:
    table = frame.trials(results)
    assert len(table) == sum(len(study.history) for study in results)
    assert {"study", "workload", "ratio", "low", "high", "status", "inter_op", "intra_op", "batch_size"} <= set(table)


def test_a_row_for_each_study(results: list[StudyResult]) -> None:
    row = frame.studies(results).iloc[0]
    assert row["study"] == results[0].study
    assert row["trials"] == len(results[0].history)
    assert row["recommended"]


@pytest.mark.parametrize("format_", frame.FORMATS)
def test_tables_come_back(results: list[StudyResult], format_: str, tmp_path: Path) -> None:
    table, path = frame.trials(results), tmp_path / f"t.{format_}"
    assert frame.write(table, format_, path) is None
    again = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[format_](path)
    assert list(again["ratio"]) == pytest.approx(list(table["ratio"]), nan_ok=True)
    assert list(again.columns) == list(table.columns)


def test_parquet_is_no_text(results: list[StudyResult]) -> None:
    with pytest.raises(BadInputError, match="give --out"):
        frame.write(frame.trials(results), "parquet", None)


def test_a_missing_reader_is_said(results: list[StudyResult], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
    with pytest.raises(BadInputError, match="pip install pyarrow"):
        frame.write(frame.trials(results), "parquet", tmp_path / "t.parquet")
