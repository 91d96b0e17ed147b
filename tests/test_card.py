"""The verdict card and the page of a study: what a reader is told, of scripted studies and of a stored one."""

from __future__ import annotations

import json
import re
import webbrowser
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec import structs
from rich.console import Console

import tuner
from tests.command_line import ROOT
from tests.conftest import Call, Finished
from tests.frameworks import read_space, resolve
from tests.reference import keep, unpack
from tests.scripted import noisy, run
from tests.scripted_launcher import ScriptedLauncher
from tuner.cli.output import append_summary
from tuner.frameworks.tensorflow.build import TensorFlowBuild as Build
from tuner.job import compare
from tuner.job.request import SearchRequest
from tuner.machine.host import Machine
from tuner.measure.budget import Budget
from tuner.measure.constraint import Limits
from tuner.measure.warning import Code, MeasurementWarning
from tuner.quantity import ms_text, ratio_text
from tuner.report import card, chart, studycard, studylist, studypage
from tuner.report.emit import Format
from tuner.report.progress import Progress
from tuner.result import budget
from tuner.result.comparison import NothingToCheck
from tuner.result.document import describe_study
from tuner.result.study import StudyResult, WarningResult
from tuner.space.setting import Setting
from tuner.space.space import Space
from tuner.stats.equivalence import VerdictCode
from tuner.stats.noise import PRIOR_NOISE
from tuner.stats.tail import LimitStatus
from tuner.study.trials import Trial
from tuner.trial.outcome import Status
from tuner.workload.spec import WorkloadSpec
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow


def lines_of(study: StudyResult, handle: str = "last") -> list[str]:
    return [str(line) for line in card.rendered(studycard.study_card(study, handle=handle))]


@pytest.fixture(scope="module")
def better(tmp_path_factory: pytest.TempPathFactory, space: Space, finished: Finished) -> StudyResult:
    record, _ = finished(space, tmp_path_factory.mktemp("better"), trials=16)
    return describe_study(record)


@pytest.fixture(scope="module")
def of_groups(
    tmp_path_factory: pytest.TempPathFactory, machine: Machine, stock: Build, resnet50: Workload, finished: Finished
) -> StudyResult:
    cores = replace(machine, cores=[f"{core},{core + 8}" for core in range(8)])
    several = resolve(read_space("cpu", cores), machine=cores, build=stock, workload=resnet50, with_groups=True)
    record, _ = finished(several, tmp_path_factory.mktemp("groups"), trials=12, efficiency=0.9, groups=3)
    return describe_study(record)


def test_a_gain_is_the_first_line_and_what_to_set_the_second(better: StudyResult) -> None:
    first, _, setting, _, *rows = lines_of(better)
    gain = better.recommended.gain
    pattern = r"✔ FASTER  resnet50: 1\.\d\d× \[.*\] over TensorFlow's defaults \(\d+\.\d → \d+\.\d items/s\)"
    assert re.fullmatch(pattern, first)
    assert f"{gain.speedup:.2f}× [{gain.low:.2f}, {gain.high:.2f}]" in first
    assert all(f"{name}={value}" in setting for name, value in better.recommended.env.items())
    assert "batch 16 (default 8)" in setting
    titles = [row.split()[0] for row in rows]
    assert titles[:9] == ["Why", "Latency", "Threads", "Proof", "Valid", "Study", "Apply", "--format", "Run"]
    same = better.verdicts["tf-default@same-batch"]  # what the threads gain without the larger batch
    assert f"{same.low:.2f}× to {same.high:.2f}× the speed of the default threads, both at batch size 16" in rows[2]
    assert "8 cores (16 threads), no CPU limit, TensorFlow" in rows[4]
    assert rows[5].split() == ["Study", better.study]  # a scripted study has no date
    assert rows[6].endswith("tftune emit last")
    assert len(lines_of(better)) <= 17


def test_a_gain_has_its_price_beside_it(better: StudyResult, of_groups: StudyResult) -> None:
    """Twice the items in a step at 1.2 times the speed take 1.7 times as long, for whoever waits for them."""
    price, gain = better.recommended.latency, better.recommended.gain
    assert price is not None
    assert (price.before.items, price.after.items) == (8, 16)
    assert price.high is not None
    assert price.low < 2 / gain.speedup < price.high
    assert price.ratio == pytest.approx(price.after.p50_ms / price.before.p50_ms, rel=0.05)
    [row] = [text for title, text in studycard.study_card(better, handle="last").rows if title == "Latency"]
    assert row.startswith(f"a call of 16 items instead of 8 takes {ratio_text(price.ratio, price.low, price.high)} ")
    assert f"p50 {ms_text(price.before.p50_ms)} → {ms_text(price.after.p50_ms)} ms" in row
    assert row.endswith("--objective latency")
    rows = [text for _, text in studycard.study_card(of_groups, handle="last").rows]
    assert [text.partition(": a call")[0] for text in rows if ": a call" in text] == ["one process", "several"]
    assert of_groups.groups.recommended.latency.after.items == of_groups.groups.recommended.setting["batch_size"]
    cheap = structs.replace(price, low=0.9)
    advice = structs.replace(better.recommended, latency=cheap)
    rows = [text for _, text in studycard.study_card(structs.replace(better, recommended=advice), handle="last").rows]
    assert not any("--objective latency" in text for text in rows)


def test_the_storage_is_part_of_every_command(better: StudyResult) -> None:
    rows = dict(studycard.study_card(better, handle="made", storage="sqlite:///my data.db").rows)
    for title in ("Apply", "Run", "Check", "More"):
        assert "made --storage 'my data.db'" in rows[title]


def test_several_processes_have_an_answer_of_their_own(of_groups: StudyResult) -> None:
    one, several = studycard.study_card(of_groups, handle="last").answers
    assert one.text.startswith("resnet50, one process: ")
    n = of_groups.groups.recommended.deployment.processes
    assert several.text.startswith(f"{n} processes side by side: ")
    assert (several.word, several.code) == ("FASTER", VerdictCode.BETTER)
    assert any(
        word.startswith(f"{n} processes, each on its own CPUs: ") and word.count("|") == n - 1
        for word in several.setting
    )
    rows = [text for _, text in studycard.study_card(of_groups, handle="last").rows]
    assert "tftune run last --instances -- python serve.py --port {8500+instance}" in rows
    assert "tftune emit last --instances" in rows
    assert "tftune check last --instances" in rows


def test_one_process_that_beats_several_is_not_called_several(of_groups: StudyResult) -> None:
    groups = of_groups.groups
    advice = structs.replace(groups.recommended, source="one-process", gain=of_groups.recommended.gain)
    study = structs.replace(of_groups, groups=structs.replace(groups, recommended=advice))
    _, several = studycard.study_card(study, handle="last").answers
    assert several.text.startswith("one process instead of ")
    assert (several.word, several.setting) == ("KEEP", ())


def test_what_meets_a_limit_that_the_default_breaks_is_not_called_faster(better: StudyResult) -> None:
    slow = structs.replace(better.recommended.gain, speedup=0.8, low=0.75, high=0.85, code=VerdictCode.WORSE)
    reason = "incumbent meets the limits, and tf-default does not"
    advice = structs.replace(better.recommended, gain=slow, reason=reason)
    first = lines_of(structs.replace(better, recommended=advice))[0]
    assert first == f"✔ USE  resnet50: {reason}; 0.80× [0.75, 0.85] the speed of TensorFlow's defaults"


def test_a_snippet_names_the_batch_size_where_it_is_another(better: StudyResult) -> None:
    """Programs read all of it; people only what they have to change, and at which size it was measured."""
    advice = better.recommended
    usual = better.baselines[better.default].setting["batch_size"]
    same = structs.replace(
        advice, arguments={"batch_size": usual}, setting={**advice.setting, "batch_size": usual}, env={"A": "1"}
    )
    other = structs.replace(same, arguments={"batch_size": 64}, setting={**advice.setting, "batch_size": 64})
    assert "batch size in your own code" not in studycard.snippet(better, same, Format.SH)
    assert f"; batch size {usual}\n" in studycard.snippet(better, same, Format.SH)
    assert "# Set the batch size in your own code: 64\n" in studycard.snippet(better, other, Format.SH)
    assert json.loads(studycard.snippet(better, same, Format.JSON))["arguments"] == {"batch_size": usual}


def test_a_summary_is_appended_as_markdown(better: StudyResult, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    of_study = studycard.study_card(better, handle="last")
    append_summary(None, "tftune check", of_study)
    append_summary(file, "tftune search resnet50", of_study)
    append_summary(file, "tftune check", of_study)
    text = file.read_text()
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == ["tftune search resnet50", "tftune check"]
    html = str(MarkdownIt().render(text))
    assert html.count("<strong>✔ FASTER</strong>") == 2
    assert "TF_NUM_INTEROP_THREADS=" in html


def test_the_page_says_which_search_it_was(better: StudyResult) -> None:
    of_study = studycard.study_card(better, handle="last")
    assert "| command |" not in studypage.markdown(better, of_study, {})  # earlier studies do not say
    asked = SearchRequest(workload=WorkloadSpec.of_name("resnet50"), objective="throughput", instances=False)
    page = studypage.markdown(structs.replace(better, command=asked.command), of_study, {})
    assert "| command | tftune search resnet50 --objective throughput --one-process |" in page


def test_a_study_says_how_it_was_searched_what_was_held_and_which_batch_sizes_were_asked_for(space: Space) -> None:
    launcher = ScriptedLauncher(rate=lambda _: 100.0, noise=0.002, process_noise=0.0005)
    record, _ = run(space, launcher, budget=Budget(trials=8))
    assert describe_study(record).pins is msgspec.UNSET
    pins = {"inter_op": "1", "kmp_affinity": "granularity=fine,compact"}
    record.put("pins", pins)
    record.put("batch_sizes", [8, 16])
    words = tuple(f"{name}={value}" for name, value in pins.items())
    asked = SearchRequest(workload=WorkloadSpec.of_name("resnet50"), batch_size="8,16", pins=words, seed=7)
    record.put("command", asked.command)
    study = describe_study(record)
    assert (study.pins, study.batch_sizes, study.command) == (pins, (8, 16), asked.command)
    page = studypage.markdown(study, studycard.study_card(study, handle="last"), {})
    assert " --batch-size 8,16 --set inter_op=1 --set kmp_affinity=granularity=fine,compact |" in page


def test_no_difference_says_that_there_is_nothing_to_set(space: Space) -> None:
    launcher = ScriptedLauncher(rate=lambda _: 100.0, noise=0.002, process_noise=0.0005)
    record, _ = run(space, launcher, budget=Budget(trials=8))
    study = describe_study(record)
    first, *rest = lines_of(study)
    assert first.startswith("= NO DIFFERENCE  resnet50: nothing to set; the best other setting runs at ")
    assert not any(line.startswith(("Apply", "Run", "Check", "Decide")) for line in rest)
    tried = {trial.setting["batch_size"] for trial in study.history}
    for sizes, told in (((640,), "; batch size 640 was"), ((640, 700, 900), "; batch sizes 640, 700 and 900 were")):
        asked = structs.replace(study, batch_sizes=(*tried, *sizes))
        assert lines_of(asked)[0].endswith(f"{told} not tried")
    assert "tried" not in lines_of(structs.replace(study, batch_sizes=tuple(tried)))[0]


def test_undecided_says_how_long_it_would_take(space: Space) -> None:
    def rate(s: Setting) -> float:
        return 103.0 if s == Setting.of({**space.reference.to_dict(), "batch_size": 16}) else 100.0

    record, _ = run(space, noisy(rate=rate, noise=0.08), budget=Budget(trials=8, time_s=200))
    study = describe_study(record)
    assert study.verdicts["tf-default"].code is VerdictCode.UNDECIDED
    first, *rest = lines_of(study)
    assert first.startswith("? UNDECIDED  resnet50: keep TensorFlow's defaults for now; the best other setting runs")
    assert sum(line.startswith("Decide") for line in rest) == 1


def test_the_time_that_would_decide_follows_the_interval(better: StudyResult) -> None:
    """Half-widths shrink with the square root of the rounds: twice as wide an interval takes four times as long."""
    against = better.verdicts["tf-default"]
    study = structs.replace(better, wall_s=300.0, measured_s=150.0)
    held = structs.replace(study.finals, rounds=6, timed_s=60.0)

    def budget_s(low: float, high: float) -> float | None:
        wide = structs.replace(against, speedup=(low * high) ** 0.5, low=low, high=high)
        return budget.deciding_budget_s(study, held, wide)

    # Six rounds of 20 s found 1.03 with a half-width of 6 %: (0.06 / 0.03)² × 6 rounds, in half of the budget.
    assert budget_s(1.03 / 1.0618, 1.03 * 1.0618) == 1200.0
    assert budget_s(1.03 / 1.1275, 1.03 * 1.1275) == 4200.0
    assert budget.deciding_budget_s(study, structs.replace(held, rounds=1), against) is None


def test_a_limit_that_is_open_says_how_many_steps_there_are_and_how_many_it_takes(better: StudyResult) -> None:
    study = structs.replace(better, wall_s=300.0, measured_s=150.0, limits=Limits(p99_s=0.05))

    def row(n_steps: int, status: LimitStatus = LimitStatus.UNKNOWN) -> list[str]:
        tails = {name: structs.replace(tail, n_steps=n_steps) for name, tail in study.finals.tails.items()}
        finals = structs.replace(study.finals, rounds=6, timed_s=60.0, tails=tails)
        advice = structs.replace(study.recommended, limits=status)
        of = structs.replace(study, finals=finals, recommended=advice)
        return [text for name, text in studycard.study_card(of, handle="last").rows if name == "Limit"]

    # 20 s a round of 60 steps, in half of the budget: 12 rounds are 8 minutes.
    assert row(360) == ["p99 needs 662 steps, and 360 were seen: the same command with --time-budget 10m"]
    assert row(20) == ["p99 needs 662 steps, and 20 were seen: it takes hours, or a smaller batch"]
    assert row(1000) == [
        "p99 is too near to its limit: 1000 steps cannot decide: the same command with --time-budget 20m"
    ]
    assert row(360, LimitStatus.MET) == row(360, LimitStatus.BROKEN) == []


def test_without_finals_the_next_step_is_told(better: StudyResult) -> None:
    unfinished = structs.replace(better, finals=None, verdicts=None, recommended=None)
    first, *rest = lines_of(unfinished)
    assert first.startswith("? UNFINISHED  resnet50: there are no finals yet")
    assert rest[-1].startswith("Next")


# ---- pages ---------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page, and whether each that was opened was closed."""

    VOID = ("meta", "br", "hr", "img", "link", "input", "path", "use")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href") or str(value).startswith("#"), "the page needs nothing else"

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("which", ["better", "of_groups"])
def test_the_page_is_whole_and_holds_what_the_card_says(which: str, request: pytest.FixtureRequest) -> None:
    study = request.getfixturevalue(which)
    of_study = studycard.study_card(study, handle="last")
    text = studypage.html(study, of_study, {"sh": "export A='<1>'"}, chart.all_of(study))
    page = Elements()
    page.feed(text)
    assert page.open == []
    assert page.seen.count("svg") >= 3
    assert "export A=&#x27;&lt;1&gt;&#x27;" in text
    for answer in of_study.answers:
        assert answer.word in text
    markdown = studypage.markdown(study, of_study, {"sh": "export A=1"})
    rendered = MarkdownIt("commonmark").enable("table").render(markdown)
    assert rendered.count("<table>") >= 4
    assert all(str(trial.number) in rendered for trial in study.history)


def test_a_page_of_200_trials_is_small(better: StudyResult) -> None:
    many = tuple(structs.replace(better.history[i % len(better.history)], number=i) for i in range(200))
    study = structs.replace(better, history=many)
    text = studypage.html(study, studycard.study_card(study, handle="last"), {}, chart.all_of(study))
    assert len(text.encode()) < 1_000_000


def test_what_cannot_be_shown_is_one_line(
    call: Call, space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study without finals, one of another format, and a browser that is not there."""
    record, _ = run(space, noisy(), folder=tmp_path, budget=Budget(trials=8))
    file = str(tmp_path / "t.db")

    def no_browser(*_: object) -> None:
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "get", no_browser)
    page = tmp_path / "page.html"
    code, _, error = call("report", "last", "--storage", file, "--out", str(page), "--open")
    assert (code, error) == (2, f"no browser was found to show {page}; open the file yourself")
    assert page.read_text().endswith("</html>\n")
    held = record.get("finals")
    record.put("finals", None)
    code, out, _ = call("report", "last", "--storage", file, "--format", "md")
    assert (code, out.splitlines()[2]) == (0, "**? UNFINISHED** resnet50: there are no finals yet")
    for command in ("emit", "check"):
        code, out, error = call(command, "last", "--storage", file)
        message = f"study {record.name} has no finals yet; run its search again to continue it"
        assert (code, out, error) == (2, "", message)
    record.put("finals", held)
    record.put("schema", 99)
    code, out, error = call("report", record.name, "--storage", file)
    reason = "its format is 99, this version of tftune reads format 3"
    assert (code, out) == (2, "")
    assert error == f"study {record.name} cannot be read: {reason}; search again with --new"


STUDIES = sorted((ROOT / "tests" / "data" / "studies").glob("*.json"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_card_and_the_page_of_a_stored_study_are_as_they_were(path: Path, write_golden: bool) -> None:
    """Real studies: decided, undecided, without a difference, and one of several processes."""
    study = tuner.Study(msgspec.json.decode(path.read_bytes(), type=StudyResult), handle="last")
    page = studypage.html(study.result, study.card, {"sh": study.emit("sh")}, [])
    page = re.sub(r"<details><summary>All of it as JSON.*?</details>", "", page, flags=re.DOTALL)
    for suffix, text in ((".card.txt", f"{study}\n"), (".md", study.report("md")), (".html", page)):
        golden = path.with_suffix(suffix)
        if write_golden:
            golden.write_text(text)
        assert text == golden.read_text()


def test_the_stored_studies_are_of_every_kind() -> None:
    words = {}
    for path in STUDIES:
        study = tuner.Study(msgspec.json.decode(path.read_bytes(), type=StudyResult))
        words[path.stem] = study.card.answers[0].word
    assert {"FASTER", "UNDECIDED", "NO DIFFERENCE"} <= set(words.values())


def test_the_command_writes_a_page_for_every_stored_kind(call: Call, tmp_path: Path) -> None:
    database = unpack(tmp_path / "reference.db")
    url = f"sqlite:///{database}"
    rows = json.loads(call("list", "--storage", url, "--json")[1])
    by_verdict = {row["verdict"]["verdict"]: row["study"] for row in rows if row["verdict"]}
    assert by_verdict.keys() >= {"better", "no difference", "undecided", "worse"}
    keep(database, [*by_verdict.values()])
    for study in by_verdict.values():
        out = tmp_path / f"{study}.html"
        code, printed, _ = call("report", study, "--storage", url, "--out", str(out))
        assert (code, printed.strip()) == (0, str(out))
        assert out.stat().st_size < 1_000_000
        code, printed, _ = call("show", study, "--storage", url)
        assert code == 0
        assert len(printed.splitlines()) <= 20
        assert call("report", study, "--storage", url, "--format", "md")[1].startswith("# ")
    assert call("report", "nothing", "--storage", url)[0] == 2
    assert call("report", study, "--storage", url, "--out", str(tmp_path / "no" / "page.html"))[0] == 2
    assert "unknown format 'pdf'" in call("report", study, "--storage", url, "--format", "pdf")[2]


def test_a_surface_is_of_the_two_knobs_that_were_tried_most(better: StudyResult) -> None:
    svg = chart.surface(better)
    assert svg is not None
    assert "batch_size" in svg
    one = structs.replace(better, history=better.history[:1])
    assert chart.surface(one) is None
    assert chart.finals(structs.replace(better, finals=None)) is None


@pytest.fixture
def only_several(of_groups: StudyResult) -> StudyResult:
    """A study of which one process is undecided, and several are proven to be faster."""
    default = of_groups.baselines[of_groups.default].setting
    advice = structs.replace(of_groups.recommended, source=of_groups.default, setting=default, gain=None, env={})
    advice = structs.replace(advice, arguments={}, reason="nothing was shown")
    return structs.replace(of_groups, recommended=advice)


def test_what_one_process_is_told_points_to_the_better_answer_of_several(only_several: StudyResult) -> None:
    study = tuner.Study(only_several, handle="last", storage="sqlite:///my data.db")
    n = only_several.groups.recommended.deployment.processes
    pointer = study.better_with_instances("run")
    assert pointer is not None
    assert pointer.startswith(f"{n} processes side by side were proven FASTER: ")
    assert pointer.endswith(" over the defaults; get that with: tftune run last --storage 'my data.db' --instances")
    for format_ in set(Format) - {Format.JSON}:
        text = study.emit(format_, instances=False)
        assert "nothing to set" not in text
        assert "A single process keeps the defaults." in text
        assert "tftune emit last --storage 'my data.db' --instances" in text
        assert "were proven" not in study.emit(format_, instances=True)
        assert study.emit(format_) == study.emit(format_, instances=True)  # one process has nothing to set
    assert study.deployment().processes == n


def test_nothing_points_to_several_that_were_not_proven(only_several: StudyResult, better: StudyResult) -> None:
    def undecided(study: StudyResult) -> StudyResult:
        kept = {"source": study.default, "env": {}, "processes": msgspec.UNSET, "cpu_sets": msgspec.UNSET}
        advice = structs.replace(study.groups.recommended, gain=None, **kept)
        return structs.replace(study, groups=structs.replace(study.groups, recommended=advice))

    for study in (better, undecided(only_several)):
        assert tuner.Study(study).better_with_instances() is None
    assert "there is nothing to set" in tuner.Study(undecided(only_several)).emit("sh")


def test_emit_run_and_check_say_that_there_is_more(
    call: Call, monkeypatch: pytest.MonkeyPatch, only_several: StudyResult
) -> None:
    study = tuner.Study(only_several, handle="last")
    monkeypatch.setattr("tuner.api.study.load_study", lambda *_: study)
    code, out, error = call("emit", "--one-process")
    assert code == 0
    assert "nothing to set" not in out
    assert error.startswith("tftune: this is not the best that is known: ")
    assert error.strip().endswith("tftune emit last --instances")
    assert call("emit", "last", "--instances")[2] == ""
    assert "tftune emit last --instances" in call("emit", "--one-process", "--json")[2]
    n = only_several.groups.recommended.deployment.processes
    code, out, error = call("emit")
    assert f"# Run {n} processes of the program at the same time" in out
    assert error == (
        f"tftune: this is for each of {n} processes side by side; --one-process: a single one keeps the defaults\n"
    )
    assert json.loads(call("emit", "--json")[1])["processes"] == n
    better = study.better_with_instances("check")
    nothing = compare.nothing_to_check("made", better=better)
    assert isinstance(nothing, NothingToCheck)
    assert nothing.reason.startswith("study made recommends the default for a single process, but ")
    assert nothing.reason.endswith("tftune check last --instances")


def test_a_pinned_process_is_not_called_valid_for_all_cores(better: StudyResult) -> None:
    pin = "the workload itself pins the process to CPU 0, 1 of 2 CPUs"
    warning = WarningResult.of(MeasurementWarning(code=Code.PINNED, observation=pin))
    study = structs.replace(better, warnings=(warning, *better.warnings))
    rows = dict(studycard.study_card(study, handle="last").rows)
    assert f"; {pin}; measure again elsewhere" in rows["Valid"]
    assert f"; {pin}\n" in tuner.Study(study).emit("sh")
    assert 'cpu: "1"' in tuner.Study(study).emit("k8s")
    assert json.loads(tuner.Study(study).emit("json"))["measured_cpus"] == 1
    assert studylist.outcome(study, "").endswith(f"; {pin}")


def test_rows_of_a_search_stand_below_their_heading(space: Space) -> None:
    """On a terminal of 110 columns each in a line of its own, that of a setting that was stopped early, too."""
    file = StringIO()
    progress = Progress(Console(file=file, width=110), [*space.points, *space.baselines.values()], ())
    quick = Trial(number=1, setting=space.reference, status=Status.OK, log_ratio=0.0, se=0.01, df=3.0, pruned=True)
    progress.trial_ended(quick, None, 61.0)
    progress.calibrated(PRIOR_NOISE, 0.02)
    progress.trial_ended(replace(quick, number=2), None, 60.0)
    lines = file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["#", "1", "noise:", "2"]
    assert lines[1].endswith("1:01   stopped early")
    assert max(len(line) for line in lines if line[0] in "#12") <= 110
