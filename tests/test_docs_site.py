"""The documentation as a whole: nothing is missing, nothing is stale. `make docs` checks its links."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import coteach
from coteach import cli, methods

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
METHOD_PAGES = sorted((DOCS / "methods").glob("*.md"))
API_PAGES = sorted((DOCS / "api").glob("*.md"))


@pytest.fixture(scope="module")
def fill() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fill", DOCS / "fill.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_of(page: Path) -> list[str]:
    """The methods that a page is about, from the line below its title."""
    title, blank, line, *_ = page.read_text("utf-8").splitlines()
    assert title.startswith("# ")
    assert blank == ""
    return re.findall(r"`([a-z_]+)`", line)


# ---- nothing is missing -----------------------------------------------------------------------------------------


def test_every_method_has_one_page():
    ours = {name for name, method in coteach.METHODS.items() if method.phases.__module__ == methods.__name__}
    assert sorted(name for page in METHOD_PAGES for name in names_of(page)) == sorted(ours)


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_a_methods_page_is_whole(page):
    text = page.read_text("utf-8")
    headings = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert [h for h in headings if h != "The algorithm"] == ["Run it", "The rule", "Details", "Results"]
    (marked,) = re.findall(r"<!-- measured: (.*) -->", text)
    assert marked.split() == names_of(page)
    for name in names_of(page)[:1]:
        assert f"--method {name}" in text.partition("## Run it")[2].partition("## The rule")[0]


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_a_methods_page_shows_its_most_telling_results_only(page, fill):
    results = page.read_text("utf-8").partition("<!-- measured: ")[2].partition("<!-- end -->")[0]
    rows = [line for line in results.splitlines() if line.startswith("| ")][2:]
    assert len(rows) <= fill.MOST_ROWS == 8


def test_a_row_that_nobody_measured_is_told(fill):
    text = "<!-- accuracy:\nmnist standard authors\n-->\n\n<!-- end -->"
    cells = json.loads((ROOT / "results" / "summary.json").read_text("utf-8"))
    assert "| MNIST | Standard, `authors` | 5 | 53.93 ± 0.48 |" in fill.NAMED.sub(
        lambda found: fill.with_rows(found, cells), text
    )
    with pytest.raises(ValueError, match="mnist standard authors --loss none"):
        fill.NAMED.sub(lambda found: fill.with_rows(found, cells), text.replace("authors", "authors --loss none"))


def test_no_two_measurements_share_a_place_in_a_table(fill):
    cells = json.loads((ROOT / "results" / "summary.json").read_text("utf-8"))
    found = {}
    for cell in cells:
        if cell["experiment"] not in fill.ELSEWHERE:
            place = fill.key_of(cell), fill.noise_of(cell)
            found.setdefault(place, set()).add(cell["mean"])  # an ablation repeats cells of the figures
    assert len(found) > 300
    assert {place for place, means in found.items() if len(means) > 1} == set()


def test_every_page_is_in_the_index():
    index = (DOCS / "index.rst").read_text("utf-8")
    listed = set(re.findall(r"^   (?:.*<)?([\w/-]+)>?$", index, re.MULTILINE))
    listed |= set(re.findall(r"^api/\w+$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.glob("**/*.md")} - {"README"}
    assert pages <= listed, pages - listed


def test_every_example_has_a_page():
    pages = (page.read_text("utf-8") for page in (DOCS / "examples").glob("*.md"))
    shown = [name for page in pages for name in re.findall(r"\{example\} (\w+\.py)", page)]
    assert sorted(shown) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_the_reference_has_every_public_name():
    text = "".join(page.read_text("utf-8") for page in API_PAGES)
    missing = [name for name in coteach.__all__ if not re.search(rf":: coteach\.{name}$", text, re.MULTILINE)]
    assert missing == []


@pytest.mark.parametrize("page", API_PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_reference_begins_with_an_example(page):
    before, _, directives = page.read_text("utf-8").partition("```{eval-rst}")
    assert "```python" in before or "a whole training is" in before.lower()  # of hf.md, which needs a model
    assert f"api/{page.stem}\n" in (DOCS / "api.md").read_text("utf-8")
    assert len(re.findall(r"autoclass:: coteach\.[A-Z]", directives)) <= (4 if page.stem == "methods" else 1)


def test_every_command_is_told_of():
    text = (DOCS / "command-line.md").read_text("utf-8")
    for command in cli.COMMANDS:
        assert f"| `coteach {command}` |" in text


@pytest.mark.slow
def test_every_number_of_a_row_is_explained(tmp_path):
    table = (DOCS / "start.md").read_text("utf-8").partition("| in a row | |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(\w+)`", table))
    row = coteach.run(coteach.Experiment(epochs=1, out=tmp_path / "run")).rows[0]
    assert explained == set(row)


# ---- nothing is stale -------------------------------------------------------------------------------------------


def test_the_tables_are_what_was_measured(fill):
    for page, text in fill.filled().items():
        assert page.read_text("utf-8") == text, f"{page.name} is behind results/summary.json: run `make docs`."


def test_a_new_measurement_changes_its_page_only(fill, tmp_path, monkeypatch):
    cells = json.loads((ROOT / "results" / "summary.json").read_text("utf-8"))
    before = fill.filled()
    (tmp_path / "results").mkdir()
    (tmp_path / "docs" / "methods").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    for page in before:
        (tmp_path / page.relative_to(ROOT)).write_text(page.read_text("utf-8"), encoding="utf-8")
    changed = [cell | {"mean": 12.34, "std": None} if cell["method"] == "jocor" else cell for cell in cells]
    (tmp_path / "results" / "summary.json").write_text(json.dumps(changed), encoding="utf-8")
    monkeypatch.setattr(fill, "ROOT", tmp_path)
    after = {page.name: text for page, text in fill.filled().items()}
    changed = [page.name for page, text in before.items() if after[page.name] != text]
    assert changed == ["evidence.md", "jocor.md"]
    assert "| 12.34 (92) |" in after["jocor.md"]


def test_what_is_measured_on_labels_of_people_goes_into_their_page(fill):
    text = (DOCS / "human.md").read_text("utf-8")
    usual = {"noise": "human", "last": 87.0, "last_per_seed": [86.0, 88.0], "ensemble": 85.0}
    usual |= {"average_precision": 0.95, "average_precision_per_seed": [0.94, 0.96]}
    files = ("human/cifar10n-worst-coteaching-paper.json", "human/cifar10n-worst-coteaching-paper-epochs-2.json")
    filled = fill.with_people(text, [usual | {"file": file} for file in files])
    tables = [part.partition("<!-- end -->")[0] for part in filled.split("<!-- people: ")[1:]]
    for table, number in zip(tables, ("87.00 ± 1.41", "85.00", "0.9500 ± 0.0141"), strict=True):
        assert f"\n| Co-teaching | {number} |\n" in table
        assert table.count("Co-teaching") == 1  # that of other epochs is left out
        assert "Not measured yet" not in table
    assert fill.with_people(filled, []).count("Not measured yet.") == 3
    assert "| ELR+ | 94.83 | 94.43 | 91.09 | 66.72 |" in filled
    assert "| ELR+ | 91.3 | 67.5 |" in filled


def test_what_the_winner_comes_to_goes_into_its_page(fill):
    file = "winner/cifar10n-worst-dividemix-paper.json"
    cell = {"file": file, "method": "dividemix", "experiment": "winner", "noise": "human", "last": 92.5}
    cells = [cell | {"average_precision": None}]
    filled = fill.filled_in((DOCS / "guesses.md").read_text("utf-8"), cells)
    assert "\n| DivideMix | 92.50 |\n" in filled
    assert filled.count("Not measured yet.") == 1
    assert "![" not in filled.partition("## What came out")[2]


def test_a_page_that_names_no_rows_has_no_table(fill):
    cell = {"method": "dividemix", "experiment": "winner", "dataset": "cifar10n-worst", "noise": "human"}
    filled = fill.filled_in((DOCS / "methods" / "dividemix.md").read_text("utf-8"), [cell])
    told = filled.partition("<!-- measured: dividemix -->")[2].partition("<!-- end -->")[0]
    assert told.strip() == "Every variant that was measured: [winner](../../results/winner/README.md)."
