"""What the documentation quotes was measured."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

import benchmark_tables
import claims
import pytest

ROOT = Path(__file__).parents[1]
QUOTED = re.compile(r"\d+\.\d+ ± \d+\.\d+")
PER_CENT = r"(?<![\d.])\d{1,2}\.\d{2}(?!\d)"
ALONE = re.compile(rf"(?<!± ){PER_CENT}(?! ±)")  # of one seed, or somebody else's
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
SOURCES = {
    "docs/imbalance.md",
    "docs/rounds.md",
}  # pages that are themselves the record of a measurement, with its raw file


def quoted_in(*pages: Path) -> set[str]:
    return {number for page in pages for number in QUOTED.findall(page.read_text("utf-8"))}


@pytest.fixture(scope="module")
def measured() -> set[str]:
    return quoted_in(*(ROOT / "results").glob("*/README.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in SOURCES])
def test_every_quoted_result_was_measured(page, measured):
    elsewhere = quoted_in(ROOT / "benchmarks" / "README.md")  # the demo, the precisions
    quoted = quoted_in(ROOT / page)
    assert quoted <= measured | elsewhere, quoted - measured - elsewhere


def test_the_losses_and_warm_ups_of_the_benchmarks_are_those_of_their_raw_files():
    page = (ROOT / "benchmarks/README.md").read_text("utf-8")
    begin, end = (
        page.index(f"\n## {title}\n") for title in ("The loss of a short training", "Standard on the open-set")
    )
    raw = [
        row for path in (ROOT / "benchmarks/results").glob("losses*.json") for row in json.loads(path.read_text())
    ]
    seeds = [found for row in raw for found in row["accuracy"].values() if len(found) > 1]
    known = {f"{mean(s):.{digits}f} ± {stdev(s):.{digits}f}" for s in seeds for digits in (1, 2)}
    quoted = set(QUOTED.findall(page[begin:end]))
    assert len(quoted) > 100
    assert quoted <= known, quoted - known


def test_tables_of_single_runs_in_the_benchmarks_are_their_raw_files():
    page = (ROOT / "benchmarks/README.md").read_text("utf-8").replace("**", "")

    def raw(name: str) -> list[dict]:
        return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())

    audits = {(row["dataset"], row["noise"], row["rate"], row["loss"]): row for row in raw("audit-h200")}
    for (*problem, loss), row in audits.items():
        if loss is None:
            own = [of["average_precision"] for of in (row, audits[*problem, "gce"])]
            numbers = [*own, row["cleanlab_self_confidence"], row["cleanlab_normalized_margin"], row["time_share"]]
            assert "| {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.2f} ".format(*numbers) in page, problem
    for row in raw("openset"):
        assert f"| {row['last_ten']:.2f} | {row['best']:.2f} |" in page, row["setting"]
    for row in raw("noise-rate-h200"):
        if row["dataset"] == "mnist":
            told = [100 * row["accuracy"], 100 * row["accuracy_told"]]
            assert (
                "| {:+.3f} | {:.3f} – {:.3f} | {:.1f} | {:.1f} |".format(row["error"], *row["interval"], *told)
                in page
            )


def test_the_table_of_the_ranking_is_that_of_its_raw_file():
    """A second way to the same numbers."""
    runs = [
        row for row in json.loads((ROOT / "benchmarks/results/real.json").read_text()) if row["set"] == "worst"
    ]
    ours = [row["average_precision"] for row in runs]
    assert f"{mean(ours):.3f} ± {stdev(ours):.3f}" in benchmark_tables.ranking().splitlines()[4]
    theirs = max(
        ([row[score] for row in runs] for score in benchmark_tables.SCORES), key=lambda values: mean(values)
    )
    assert f"{mean(theirs):.3f} ± {stdev(theirs):.3f}" in benchmark_tables.ranking().splitlines()[4]


def test_the_table_of_the_defaults_is_that_of_its_raw_file():
    """A second way to the same numbers."""
    runs = [
        row for row in json.loads((ROOT / "benchmarks/results/defaults.json").read_text()) if row["epochs"] == 20
    ]
    ours = {(row["problem"], row["seed"]): row for row in runs if "twice after" in row["setting"]}
    gains = [row["average_precision"] - ours[row["problem"], row["seed"]]["average_precision"]
             for row in runs if row["setting"] == "coteaching, memory, balance"]  # fmt: skip
    assert len(gains) == 22
    (line,) = [line for line in benchmark_tables.defaults().splitlines() if "class balance" in line]
    assert f"| {mean(gains):+.3f} ± {stdev(gains) / 22**0.5:.3f} |" in line
    (line,) = [line for line in benchmark_tables.defaults().splitlines() if "then softmax twice" in line]
    assert f"| **{100 * mean(row['held_out'] for row in ours.values()):.2f}** |" in line


@pytest.mark.parametrize("name", benchmark_tables.TABLES)
def test_every_table_of_a_benchmark_is_on_a_page(name):
    pages = (*PAGES, "benchmarks/README.md")
    assert any(f"<!-- benchmark: {name} -->" in (ROOT / page).read_text("utf-8") for page in pages)


def test_every_quoted_result_of_one_seed_is_in_a_table():
    known = [*(ROOT / "results").glob("*/README.md"), ROOT / "src/coteach/paper/targets.toml"]
    tables = "\n".join(page.read_text("utf-8") for page in known)
    pages = [ROOT / f"docs/{name}.md" for name in ("results", "evidence", "replication")]
    quoted = {number for page in pages for number in ALONE.findall(page.read_text("utf-8"))}
    assert len(quoted) > 40
    assert quoted <= set(re.findall(PER_CENT, tables)), quoted - set(re.findall(PER_CENT, tables))


def test_what_was_measured_says_how_much_was_measured():
    page = (ROOT / "docs/evidence.md").read_text("utf-8")
    told = dict(re.findall(r"\| `coteach reproduce (\S+)` \| (\d+ of \d+) \|", page))
    pages = {path.parent.name: path.read_text("utf-8") for path in (ROOT / "results").glob("*/README.md")}
    assert told == {name: re.findall(r"(\d+ of \d+) cells", text)[0] for name, text in pages.items()}


def test_the_readme_quotes_the_tables_of_the_results(measured):
    quoted = quoted_in(ROOT / "README.md")
    assert len(quoted) > 5
    assert quoted <= measured, quoted - measured


def test_results_are_quoted_at_all(measured):
    for page, least in (("results", 30), ("evidence", 300), ("replication", 60)):
        assert len(QUOTED.findall((ROOT / f"docs/{page}.md").read_text("utf-8"))) > least, page
    assert len(measured) > 50


def test_the_results_are_read_in_ten_minutes():
    text = (ROOT / "docs/results.md").read_text("utf-8")
    read = re.sub(r"<!--.*?-->|<[^>]*>|\]\([^)]*\)|\|(?: *-+:? *\|)*", " ", text)  # not the markup
    assert len(read.split()) <= 2000


# ---- the claims: a table in results.md and in the report, their numbers in evidence.md --------------------------

VERDICT = r'<span class="verdict (\w+)">(\S) \1</span>'
SIGNS = {"holds": "●", "partly": "◐", "no": "○", "open": "–"}


def verdicts(page: str, pattern: str) -> dict[int, tuple[str, str]]:
    """The word and the sign of each claim, by its number."""
    text = (ROOT / page).read_text("utf-8")
    return {int(number): (word, sign) for number, word, sign in re.findall(pattern, text, re.MULTILINE)}


def test_every_claim_has_one_verdict_and_its_numbers():
    in_a_table = rf"^\| (\d+) \| [^|]+ \| {VERDICT} \|".replace("\\1", "\\2")
    found = verdicts("docs/results.md", in_a_table)
    assert list(found) == list(range(1, 28))
    assert all(SIGNS[word] == sign for word, sign in found.values())
    assert verdicts("docs/replication.md", in_a_table) == found
    folded = rf"<summary><b>(\d+)\.</b> .*? {VERDICT}</summary>".replace("\\1", "\\2")
    assert verdicts("docs/evidence.md", folded) == found
    text = " ".join((ROOT / "docs/replication.md").read_text("utf-8").split())
    assert f"{claims.message(claims.claims())}." in text, "as the figure of the claims says"


def test_nowhere_has_the_paper_a_loss_by_name():
    """It writes ℓ, and says no more."""
    named = re.compile(
        r"paper(?:'s)?\s+(?:\w+\s+)?(?:loss|recipe|writes|takes|uses)\b[^.|]*(?:entropy|logarithm|softmax)"
    )
    files = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("src/**/*.py")]
    assert [path for path in files if named.search(path.read_text("utf-8"))] == []
    assert named.search("The paper's loss is minus the logarithm")


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_links_inside_the_project_lead_somewhere(page):
    text = (ROOT / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target
