"""The pages: every link leads somewhere, and the README is short enough to read."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from docs import gains, outputs
from tests.conftest import Call

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
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
    pages = {path.stem for path in (tmp_path / "docs").glob("*.html")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} | {"notebook"} == pages
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


def test_the_chart_is_of_the_tables() -> None:
    models = [each[0] for title in gains.PANELS for each in gains.rows(title)]
    assert len(models) == 10
    assert gains.picture() == gains.picture()
    for chart in (gains.picture(), (ROOT / "docs" / "gains.svg").read_text()):
        assert all(f">{html.escape(model)}</text>" in chart for model in models)


def test_the_readme_is_short_enough_to_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


MANUALS = [ROOT / "docs" / name for name in ("kubernetes.md", "tensorflow-serving.md")]
OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")


def yaml_blocks(page: Path) -> list[Any]:
    """Return what the blocks of YAML of a page hold."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of the pods of a Job or a CronJob."""
    spec = manifest["spec"].get("jobTemplate", manifest)["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def commands(page: Path) -> list[tuple[str, set[str]]]:
    """Return the commands of tftune on a page, in a shell or as `args:`, each with its options."""
    text = page.read_text().replace("\\\n", " ")
    found = [
        (match[1], set(OPTION.findall(match[2])))
        for match in re.finditer(r"(?:^|/|\s)tftune (search|load|size|emit|check|run)\b(.*?)(?: -- |\n|$)", text)
    ]
    for document in yaml_blocks(page):
        kind = document.get("kind", "")
        parts = [document] if "args" in document else containers(document) if kind.endswith("Job") else []
        for words in (part["args"] for part in parts):
            own = words[: words.index("--")] if "--" in words else words
            found.append((words[0], set(OPTION.findall(" ".join(own)))))
    return found


@pytest.mark.parametrize("page", MANUALS, ids=lambda page: page.stem)
def test_the_commands_of_the_manuals_have_the_options_that_are_there(call: Call, page: Path) -> None:
    found = commands(page)
    assert len(found) >= 4
    for command, options in found:
        known = set(re.findall(r"--[\w-]+", call(command, "--help")[1]))
        assert options <= known, command


def test_the_jobs_of_the_manual_measure_in_the_limits_that_they_ask_for() -> None:
    """Each mount has its volume, and what is asked for is what is allowed: other CPUs are another study."""
    jobs = [each for each in yaml_blocks(MANUALS[0]) if each.get("kind", "").endswith("Job")]
    assert [job["kind"] for job in jobs] == ["Job", "CronJob"]
    for manifest in yaml_blocks(MANUALS[0]):
        if "kind" in manifest:  # the others are parts
            kubernetes_validate.validate(manifest, "1.34", strict=True)
    for job in jobs:
        for part in containers(job):
            assert part["resources"]["requests"] == part["resources"]["limits"]
            if part["args"][0] in ("search", "load", "check"):
                assert part["resources"]["limits"] == {"cpu": "4", "memory": "8Gi"}
    claims = {
        each["metadata"]["name"] for each in yaml_blocks(MANUALS[0]) if each.get("kind") == "PersistentVolumeClaim"
    }
    for job in jobs:
        pod = job["spec"].get("jobTemplate", job)["spec"]["template"]["spec"]
        volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
        assert set(volumes.values()) == claims
        assert {mount["name"] for part in containers(job) for mount in part["volumeMounts"]} == volumes.keys()
    place = "/opt/tftune/docs/serve_rest.py"  # where the Dockerfile copies it to
    assert place in str(yaml_blocks(MANUALS[0]))
