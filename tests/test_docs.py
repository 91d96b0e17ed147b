"""The pages: every link leads somewhere, and the README is short enough to read."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from typer.main import get_command

from docs import commands as commands_page
from docs import cores, drift, gains, limit, outputs, passes, roofline
from tests.conftest import Call
from tuner.cli import app
from tuner.errors import BadInputError
from tuner.paths import COMMAND

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
SERVERS, CLUSTER = ROOT / "docs" / "servers.md", ROOT / "docs" / "cluster.md"
FIGURE = re.compile(r"(\d+\.\d+)(?:×)? \[(\d+\.\d+), (\d+\.\d+)\]")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return what a heading is linked by, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_the_outputs_that_pages_show_are_of_commands_that_are_there(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs no measurement is as it is shown; what measures is not run here."""
    shown = {
        block["command"]: block["output"]
        for page in outputs.PAGES
        for block in outputs.BLOCK.finditer(page.read_text())
    }
    assert {command.split()[1] for command in shown} >= {"search", "noise", "compare", "recommend", "rules"}
    assert all(output.strip() for output in shown.values())
    command = "tftune rules --rules shipped"
    monkeypatch.setenv("COLUMNS", str(outputs.WIDTH))
    assert [line.rstrip() for line in call(*command.split()[1:])[1].splitlines()] == shown[command].splitlines()


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Links, anchors, names of the API, and the page of all options."""
    words = [sys.executable, ROOT / "docs" / "build.py", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.relative_to(tmp_path).with_suffix("") for path in (tmp_path / "docs").rglob("*.html")}
    written = {path.relative_to(ROOT).with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert written | {Path("docs/notebook")} == pages
    options = (tmp_path / "docs" / "options.html").read_text()
    assert all(f"tftune {command} [OPTIONS]" in options for command in ("search", "rules", "run"))


def test_an_image_gets_all_that_the_package_needs() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], *project["project"]["license-files"], "README.md"}
    assert {each for each in needed if not each.startswith("tuner/")} <= sources  # the package is copied whole
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert sources <= {line.removeprefix("!") for line in ignored}


def test_the_chart_is_of_the_results() -> None:
    gained = [gain for panel in gains.panels().values() for gain in panel]
    assert len(gained) == 10
    text = (ROOT / "README.md").read_text()
    alt = text[text.index("![What each lever") : text.index("](docs/gains.svg)")]
    for chart in (gains.picture(), (ROOT / "docs" / "gains.svg").read_text()):
        assert all(f">{gain.ratio:.2f}× ({gain.n_models} models)</text>" in chart for gain in gained)
    assert all(f"{gain.ratio:.2f}×" in alt for gain in gained)


@pytest.mark.parametrize("script", [cores, drift, gains, limit, passes, roofline], ids=lambda script: script.__name__)
def test_the_pictures_are_of_the_scripts(script: ModuleType) -> None:
    stored = ROOT / "docs" / f"{script.__name__.removeprefix('docs.')}.svg"
    texts = [re.findall(r">([^<>]+)</text>", chart) for chart in (script.picture(), stored.read_text())]
    assert len(texts[0]) > 3
    assert texts[0] == texts[1]


def test_the_page_of_commands_is_of_the_commands() -> None:
    assert commands_page.PAGE.read_text() == commands_page.page()


def test_pages_quote_figures_that_are_stored_or_shown() -> None:
    """An interval stands in results/, in the output of a command, or in the chart."""
    stored = [page.read_text() for page in (ROOT / "results").rglob("*.md")]
    shown = [block["output"] for page in outputs.PAGES for block in outputs.BLOCK.finditer(page.read_text())]
    charted = [str(gain) for panel in gains.panels().values() for gain in panel]
    known = {figure for text in [*stored, *shown, *charted] for figure in FIGURE.findall(text)}
    for page in outputs.PAGES:
        assert not set(FIGURE.findall(outputs.BLOCK.sub("", page.read_text()))) - known, page


def typed(page: Path) -> list[str]:
    """Return the commands of tftune in the code of a page, each without its comment and what a shell does with it."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    blocks = re.findall(r"^```(\S*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks if language in ("sh", "bash", "") for line in block.splitlines()]
    lines += re.findall(r"^    (\S.*)$", FENCE.sub("", text), re.MULTILINE)
    found = [re.search(r"^(?:[^#]*[ /\"(])?tftune ((?:[a-z]+)(?: .*)?)$", line) for line in lines]
    cut = r"\s+#.*|\s[|>;&].*|\)\".*"
    return [re.sub(cut, "", match[1]) for match in found if match and "$" not in match[1].split(" -- ")[0]]


COMMAND_PAGES = [page for page in PAGES if typed(page) and page.name not in ("CHANGELOG.md", "options.md")]


@pytest.mark.parametrize("page", COMMAND_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_the_pages_can_be_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a command with options that it has, and values that these take. What measures is not run here."""
    monkeypatch.chdir(tmp_path)
    team = re.search(r"^```toml\n(# Options of `tftune suite`.*?)^```", CLUSTER.read_text(), re.MULTILINE | re.DOTALL)
    assert team is not None
    Path("team.toml").write_text(team[1])
    for line in typed(page):
        own, is_followed, _ = line.partition(" -- ")
        name, *words = shlex.split(own) + (["--", "program"] if is_followed else [])
        command: Any = get_command(app).commands.get(name)  # type: ignore[attr-defined]  # a group
        assert command is not None, line
        if name in ("workloads", "env") and words and not words[0].startswith("-"):
            command = command.commands[words.pop(0)]
        try:
            command.make_context(name, words, resilient_parsing=False)
        except (typer.Exit, typer.TyperException, BadInputError) as error:
            raise AssertionError(f"{line}: {error}") from error


def test_the_readme_is_short_enough_to_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")


def yaml_blocks(page: Path) -> list[Any]:
    """Return what the blocks of YAML of a page hold."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of the pods of a manifest that has any."""
    spec = manifest["spec"].get("jobTemplate", manifest)["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def commands(page: Path) -> list[tuple[str, set[str]]]:
    """Return the commands of tftune on a page, in a shell or as `args:`, each with its options."""
    text = page.read_text().replace("\\\n", " ")
    found = [
        (match[1], set(OPTION.findall(match[2])))
        for match in re.finditer(
            r"(?<![^\s/])tftune (search|load|size|emit|check|run|suite|node|list)\b(.*?)(?: -- |\n|$)", text
        )
    ]
    for document in yaml_blocks(page):
        kind = document.get("kind", "")
        parts = (
            [document] if "args" in document else containers(document) if kind.endswith(("Job", "Deployment")) else []
        )
        for words in (part["args"] for part in parts if "args" in part):
            own = words[: words.index("--")] if "--" in words else words
            found.append((words[0], set(OPTION.findall(" ".join(own)))))
    return found


@pytest.mark.parametrize("page", [SERVERS, CLUSTER], ids=lambda page: page.stem)
def test_the_commands_of_the_manuals_have_the_options_that_are_there(call: Call, page: Path) -> None:
    found = commands(page)
    assert len(found) >= 3
    for command, options in found:
        known = set(re.findall(r"--[\w-]+", call(command, "--help-all")[1]))
        assert options <= known, command


@pytest.mark.parametrize("page", [SERVERS, CLUSTER], ids=lambda page: page.stem)
def test_kubernetes_takes_the_manifests_of_the_manuals(page: Path) -> None:
    manifests = [each for each in yaml_blocks(page) if "kind" in each]  # the others are parts
    assert len(manifests) >= 4
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_the_jobs_of_the_manual_measure_in_the_limits_that_they_ask_for() -> None:
    """Each mount has its volume, and what is asked for is what is allowed: other CPUs are another study."""
    jobs = [each for each in yaml_blocks(SERVERS) if each.get("kind", "").endswith("Job")]
    assert [job["kind"] for job in jobs] == ["Job", "CronJob"]
    for job in jobs:
        for part in containers(job):
            assert part["resources"]["requests"] == part["resources"]["limits"]
            if part["args"][0] in ("search", "load", "check"):
                assert part["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    claims = {each["metadata"]["name"] for each in yaml_blocks(SERVERS) if each.get("kind") == "PersistentVolumeClaim"}
    for job in jobs:
        pod = job["spec"].get("jobTemplate", job)["spec"]["template"]["spec"]
        volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
        assert set(volumes.values()) == claims
        assert {mount["name"] for part in containers(job) for mount in part["volumeMounts"]} == volumes.keys()
    place = "/opt/tftune/docs/serve_rest.py"  # where the Dockerfile copies it to
    assert place in str(yaml_blocks(SERVERS))


def test_the_pods_of_the_fleet_find_each_other_and_measure_alone() -> None:
    documents = [each for each in yaml_blocks(CLUSTER) if "kind" in each]
    manifests = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents}
    node, scheduler = manifests["Deployment", "tftune-node"], manifests["Deployment", "tftune-scheduler"]
    pods = [spec["template"] for (kind, _), spec in manifests.items() if kind in ("Deployment", "Job")]
    labels = node["template"]["metadata"]["labels"]
    [alone] = node["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert alone == {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    assert node["strategy"] == {"type": "Recreate"}  # a new pod cannot start beside an old one
    assert manifests["Service", "tftune-scheduler"]["selector"] == scheduler["template"]["metadata"]["labels"]
    allowed = manifests["NetworkPolicy", "tftune-cluster"]["podSelector"]["matchLabels"].items()
    assert len(pods) == 3
    for pod in pods:
        assert allowed <= pod["metadata"]["labels"].items()
        mounts = {mount["name"] for part in pod["spec"]["containers"] for mount in part["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}
        for part in pod["spec"]["containers"]:
            assert part["resources"]["requests"] == part["resources"]["limits"]
            assert part["resources"]["limits"]["cpu"].isdigit()  # of the class Guaranteed, with CPUs of its own


def script(page: Path, name: str) -> str:
    """Return the script that a page tells to save under a name."""
    match = re.search(rf"`{name}`.*?^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("name", ["tune.sbatch", "node.sbatch"])
def test_the_scripts_for_slurm_get_whole_machines(name: str) -> None:
    text = script(CLUSTER, name)
    options = set(re.findall(r"^#SBATCH (\S+)$", text, re.MULTILINE))
    assert {"--exclusive", "--mem=0"} <= options
    assert re.search(r"^srun --cpu-bind=none .*tftune node ", text, re.MULTILINE)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed (tftune[cluster])")
@pytest.mark.tensorflow
@pytest.mark.slow
def test_the_script_for_slurm_runs_a_suite(tmp_path: Path) -> None:
    """It runs as its page has it, but for the size, the port, the cache and what Slurm itself does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = script(CLUSTER, "tune.sbatch").replace("8786", str(port))
    text = re.sub("(?<=TFTUNE_CACHE=).*", str(tmp_path / "cache"), text)
    text = text.replace("resnet50,bert-base", "lenet5 --json --space threads --time-budget 5s")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"export PATH={tools}:{Path(sys.executable).parent}:$PATH\n")
    (tools / "srun").write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
    (tools / "tftune").write_text(f'#!/bin/sh\nexec {sys.executable} -P {COMMAND} "$@"\n')
    for tool in ("srun", "tftune"):
        (tools / tool).chmod(0o755)
    ended = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert [case["state"] for case in json.loads(ended.stdout)["cases"]] == ["made"]
    assert {each.name for each in tmp_path.iterdir()} == {".venv", "cache", "results"}  # no certificate stays
