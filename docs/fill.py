"""Writes what was measured into the pages: `make docs` calls it, a test says if it is due.

The page of a method has a pair of marks, and names the rows that tell most. Between them goes a table, from
results/summary.json. All other rows are in results/:

    <!-- measured: coteaching_plus coteaching_plus_own -->
    <!-- rows:
    mnist coteaching_plus authors
    mnist coteaching_plus authors --loss gce
    -->
    <!-- end -->

docs/evidence.md names rows in the same way, of any methods, for the accuracy or for the label precision:

    <!-- accuracy:
    mnist coteaching_plus paper
    -->
    <!-- end -->

docs/human.md has such pairs for one of our numbers (last, ensemble, average_precision), and for those of a source.
docs/guesses.md has them for another preset, which is named:

    <!-- people: last -->
    <!-- people: last winner -->
    <!-- published: best -->

With the first of them goes the figure, once it is drawn.

Any page may have the table of the paper's claims, with these of the columns of docs/claims.toml. Their figure,
docs/images/claims.svg, is drawn anew:

    <!-- claims: number says verdict why presets -->
    <!-- end -->

Any page may also have a table of docs/benchmark_tables.py, by its name:

    <!-- benchmark: ranking -->
    <!-- end -->
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import stdev

from benchmark_tables import benchmark_table
from claims import claims_table, draw_claims

from coteach.names import FLAG_WORDS, METHOD_LABELS
from coteach.paper import presets
from coteach.paper.compare import UNUSUAL, Target, targets

ROOT = Path(__file__).parents[1]
MARKED = re.compile(
    r"(<!-- measured: (?P<methods>[a-z_ ]+) -->\n(?:<!-- rows:\n(?P<rows>.*?)-->\n)?).*?(?P<end><!-- end -->)",
    re.DOTALL,
)
NAMED = re.compile(r"(<!-- (?P<what>accuracy|precision):\n(?P<rows>.*?)-->\n).*?(?P<end><!-- end -->)", re.DOTALL)
MOST_ROWS = 8  # on the page of a method
NOISES = ("pair 45 %", "symmetric 50 %", "symmetric 20 %", "openset 40 %")
END = "<!-- end -->"
FIGURE = "results/human/human.svg"
PEOPLE = re.compile(r"(<!-- people: ([a-z_]+)(?: ([a-z]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
PUBLISHED = re.compile(r"(<!-- published: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CLAIMS = re.compile(r"(<!-- claims: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BENCHMARK = re.compile(r"(<!-- benchmark: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Presets with a page of their own: the same runs with more seeds and other networks; another recipe.
ELSEWHERE = {"divergence", "human"}

LEGEND = """\
Test accuracy in per cent: mean of the networks over the last ten epochs, ± standard deviation over n seeds. In
brackets is the label precision, in per cent. `authors` and `paper` are values of `--fidelity`."""
DATA_LABELS = {
    "mnist": "MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "openset-cifar100": "open-set",
    "tiny-imagenet": "Tiny-ImageNet, 20 classes", "news": "NEWS, spaCy", "news-glove": "NEWS, GloVe",
}  # fmt: skip

Cell = dict


def main() -> None:
    for page, text in filled().items():
        page.write_text(text, encoding="utf-8")
    draw_claims(ROOT / "docs" / "images" / "claims.svg")


def filled() -> dict[Path, str]:
    """The pages that have marks, as they should be."""
    cells = json.loads((ROOT / "results" / "summary.json").read_text(encoding="utf-8"))
    pages = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "benchmarks" / "README.md"]
    texts = {page: page.read_text("utf-8") for page in pages}
    return {page: filled_in(text, cells) for page, text in texts.items() if "<!-- end -->" in text}


def filled_in(text: str, cells: list[Cell]) -> str:
    of_methods = [cell for cell in cells if cell["experiment"] not in ELSEWHERE]
    text = MARKED.sub(lambda found: with_table(found, of_methods), text)
    text = NAMED.sub(lambda found: with_rows(found, of_methods), text)
    text = CLAIMS.sub(lambda found: between(found, [claims_table(found[2].split())]), text)
    text = BENCHMARK.sub(lambda found: between(found, [benchmark_table(found[2])]), text)
    return with_people(text, cells) if PEOPLE.search(text) or PUBLISHED.search(text) else text


def with_table(found: re.Match, cells: list[Cell]) -> str:
    """What the page of a method shows of its results, and where all others are."""
    methods = found["methods"].split()
    wanted = (found["rows"] or "").splitlines()
    mine = [cell for cell in cells if cell["method"] in methods]
    if len(wanted) > MOST_ROWS:
        raise ValueError(f"a page shows at most {MOST_ROWS} rows, not {len(wanted)}: the others are in results/.")
    if not mine:
        return "\n\n".join([found[1].strip(), "Not measured yet.", found["end"]])
    pages = sorted({cell["experiment"] for cell in mine})
    rest = " · ".join(f"[{name}](../../results/{name}/README.md)" for name in pages)
    told = [LEGEND, table(mine, wanted, value, with_method=len(methods) > 1)] if wanted else []
    return "\n\n".join([found[1].strip(), *told, f"Every variant that was measured: {rest}.", found["end"]])


def with_rows(found: re.Match, cells: list[Cell]) -> str:
    shown = {"accuracy": accuracy, "precision": precision}[found["what"]]
    return "\n\n".join([found[1].strip(), table(cells, found["rows"].splitlines(), shown), found["end"]])


def table(cells: list[Cell], wanted: list[str], shown: Callable[[Cell], str], *, with_method: bool = True) -> str:
    """The rows that a page names, with a column for each noise."""
    known = {(key_of(cell), noise_of(cell)): cell for cell in cells}  # an ablation repeats cells of the figures
    if missing := set(wanted) - {key for key, _ in known}:
        raise ValueError(f"nothing was measured that is called {sorted(missing)}.")
    noises = [noise for noise in NOISES if any((key, noise) in known for key in wanted)]
    lines = [["data", "run", "n", *noises], ["---", "---", "---:", *["---:"] * len(noises)]]
    for key in wanted:
        row = [known.get((key, noise)) for noise in noises]
        measured = [cell for cell in row if cell]
        lines.append([data_label(measured[0]), run_of(measured[0], with_method), seeds_of(measured)])
        lines[-1] += [shown(cell) if cell else "–" for cell in row]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def key_of(cell: Cell) -> str:
    """How a page names a row."""
    return " ".join([short_data(cell), row_of(cell).replace("`", "").replace(",", "")])


def short_data(cell: Cell) -> str:
    glove = cell["data"].get("vectors", "").startswith("glove")
    return f"{cell['dataset']}-glove" if glove else cell["dataset"]


def data_label(cell: Cell) -> str:
    return DATA_LABELS[short_data(cell)].replace("-", "\N{NON-BREAKING HYPHEN}")


def run_of(cell: Cell, with_method: bool) -> str:
    method, _, rest = row_of(cell).partition(", ")
    return f"{METHOD_LABELS.get(cell['method'], method)}, {rest}" if with_method else rest


def seeds_of(cells: Iterable[Cell]) -> str:
    return " to ".join(str(n) for n in sorted({len(cell["seeds"]) for cell in cells}))


# ---- labels that people gave ----------------------------------------------------------------------------------


def with_people(text: str, cells: list[Cell]) -> str:
    text = PEOPLE.sub(lambda found: between(found, people_tables(found[2], found[3] or "human", cells)), text)
    return PUBLISHED.sub(lambda found: between(found, [published_table(found[2])]), text)


def between(found: re.Match, tables: list[str]) -> str:
    return "\n\n".join([found[1].strip(), *(tables or ["Not measured yet."]), END])


def people_tables(key: str, preset: str, cells: list[Cell]) -> list[str]:
    """One for the label sets, and one for labels that a program flipped; above them the figure, with the first."""
    wanted = {f"{preset}/{cell.name}.json": cell for cell in presets.cells(preset, then=True)}
    mine = [(wanted[cell["file"]], cell) for cell in cells if cell["file"] in wanted and cell[key] is not None]
    apart = [[pair for pair in mine if (pair[1]["noise"] == "human") == by_people] for by_people in (True, False)]
    drawn = mine and (key, preset) == ("last", "human") and (ROOT / FIGURE).exists()
    figure = [f"![Ours beside the published numbers, by method and label set](../{FIGURE})"] if drawn else []
    return figure + [
        grid({(place.row, place.column): number(cell, key) for place, cell in some}) for some in apart if some
    ]


def number(cell: Cell, key: str) -> str:
    """With its spread where every seed's is known."""
    digits = 4 if key == "average_precision" else 2
    seeds = cell.get(f"{key}_per_seed") or []
    spread = f" ± {stdev(seeds):.{digits}f}" if len(seeds) > 1 and None not in seeds else ""
    return f"{cell[key]:.{digits}f}{spread}"


def published_table(source: str) -> str:
    known = [target for target in targets() if target.source == source]
    digits = max(len(f"{t.mean:g}".partition(".")[2]) for t in known)
    return grid({(method_label(t), t.where["dataset"]): f"{t.mean:.{digits}f}" for t in known})


def method_label(target: Target) -> str:
    """Not every published method is one of ours."""
    method = target.where["method"]
    return METHOD_LABELS.get(method, method)


def grid(texts: dict[tuple[str, str], str]) -> str:
    """A table by row and column."""
    rows, columns = (list(dict.fromkeys(key[i] for key in texts)) for i in (0, 1))
    lines = [["", *columns], ["---", *["---:"] * len(columns)]]
    lines += [[row, *(texts.get((row, column), "–") for column in columns)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- the cells of the methods ---------------------------------------------------------------------------------


def row_of(cell: Cell) -> str:
    """What tells a variant from the others."""
    given = {FLAG_WORDS.get(name, name): cell[name] for name in UNUSUAL if cell.get(name) is not None}
    flags = [f"`--{name.replace('_', '-')} {value}`" for name, value in given.items()]
    return ", ".join([f"`{cell['method']}`", f"`{cell['fidelity']}`", *flags])


def noise_of(cell: Cell) -> str:
    return f"{cell['noise']} {cell['rate']:.0%}".replace("%", " %") if cell["rate"] else cell["noise"]


def value(cell: Cell) -> str:
    return f"{accuracy(cell)} ({precision(cell)})"


def accuracy(cell: Cell) -> str:
    spread = "" if cell["std"] is None else f" ± {cell['std']:.2f}"
    return f"{cell['mean']:.2f}{spread}"


def precision(cell: Cell) -> str:
    return "–" if cell["label_precision"] is None else f"{cell['label_precision']:.0f}"


if __name__ == "__main__":
    main()
