"""Writes what was measured into the pages: `make docs` calls it, a test says if it is due.

The page of a method has a pair of marks; between them goes a table for each data set, from results/summary.json:

    <!-- measured: coteaching_plus coteaching_plus_own -->
    <!-- end -->

docs/human.md has such pairs for one of our numbers (last, ensemble, average_precision), and for those of a source:

    <!-- people: last -->
    <!-- published: best -->

With the first of them goes the figure, once it is drawn.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import stdev

from coteach.names import FLAG_WORDS, METHOD_LABELS
from coteach.paper import presets
from coteach.paper.compare import UNUSUAL, Target, targets

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- measured: ([a-z_ ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = "results/human/human.svg"
PEOPLE = re.compile(r"(<!-- people: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PUBLISHED = re.compile(r"(<!-- published: ([a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Presets with a page of their own: the same runs with more seeds and other networks; another recipe.
ELSEWHERE = {"divergence", "human"}

LEGEND = """\
Test accuracy in per cent, mean of the networks over the last ten epochs, ± standard deviation over seeds; in
brackets the share of right labels among those that were learnt from. `authors` and `paper` are values of
`--fidelity`."""

Cell = dict


def main() -> None:
    for page, text in filled().items():
        page.write_text(text, encoding="utf-8")


def filled() -> dict[Path, str]:
    """The pages as they should be."""
    cells = json.loads((ROOT / "results" / "summary.json").read_text(encoding="utf-8"))
    of_methods = [cell for cell in cells if cell["experiment"] not in ELSEWHERE]
    pages = sorted((ROOT / "docs" / "methods").glob("*.md"))
    human = ROOT / "docs" / "human.md"
    return {
        page: MARKED.sub(lambda found: with_tables(found, of_methods), page.read_text("utf-8")) for page in pages
    } | {human: with_people(human.read_text("utf-8"), cells)}


def with_tables(found: re.Match, cells: list[Cell]) -> str:
    mine = [cell for cell in cells if cell["method"] in found[2].split()]
    tables = [table([cell for cell in mine if data_of(cell) == data]) for data in in_order(mine, data_of)]
    return "\n\n".join([found[1].strip(), *([LEGEND, *tables] if tables else ["Not measured yet."]), found[3]])


def table(cells: list[Cell]) -> str:
    """A row for each variant, a column for each noise."""
    known = {(row_of(cell), noise_of(cell)): cell for cell in cells}  # an ablation repeats cells of the figures
    noises = in_order(cells, noise_of)
    lines = [[data_of(cells[0]), *noises], ["---", *["---:"] * len(noises)]]
    lines += [[row, *(value(known.get((row, noise))) for noise in noises)] for row in in_order(cells, row_of)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- labels that people gave ----------------------------------------------------------------------------------


def with_people(text: str, cells: list[Cell]) -> str:
    wanted = {f"human/{cell.name}.json": cell for cell in presets.cells("human", then=True)}
    mine = [(wanted[cell["file"]], cell) for cell in cells if cell["file"] in wanted]
    text = PEOPLE.sub(lambda found: between(found, people_tables(found[2], mine)), text)
    return PUBLISHED.sub(lambda found: between(found, [published_table(found[2])]), text)


def between(found: re.Match, tables: list[str]) -> str:
    return "\n\n".join([found[1].strip(), *(tables or ["Not measured yet."]), found[3]])


def people_tables(key: str, mine: list[tuple[presets.Cell, Cell]]) -> list[str]:
    """One for the label sets, and one for labels that a program flipped; above them the figure, with the first."""
    apart = [[pair for pair in mine if (pair[1]["noise"] == "human") == by_people] for by_people in (True, False)]
    drawn = mine and key == "last" and (ROOT / FIGURE).exists()
    figure = [f"![Ours beside the published numbers, by method and label set](../{FIGURE})"] if drawn else []
    return figure + [
        grid({(place.row, place.column): number(cell, key) for place, cell in some}) for some in apart if some
    ]


def number(cell: Cell, key: str) -> str:
    """With its spread where every seed's is known."""
    digits = 4 if key == "average_precision" else 2
    seeds = cell.get(f"{key}_per_seed") or []
    spread = f" ± {stdev(seeds):.{digits}f}" if len(seeds) > 1 and None not in seeds else ""
    return "–" if cell[key] is None else f"{cell[key]:.{digits}f}{spread}"


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


def data_of(cell: Cell) -> str:
    options = cell["data"]
    told = [f"{options['classes']} classes"] if "classes" in options else []
    told += [options["vectors"].removesuffix(".txt")] if "vectors" in options else []
    seeds = f"{len(cell['seeds'])} seeds".replace("1 seeds", "1 seed")
    return ", ".join([cell["dataset"], *told, cell["network"], seeds])


def row_of(cell: Cell) -> str:
    """What tells a variant from the others."""
    given = {FLAG_WORDS.get(name, name): cell[name] for name in UNUSUAL if cell.get(name) is not None}
    flags = [f"`--{name.replace('_', '-')} {value}`" for name, value in given.items()]
    return ", ".join([f"`{cell['method']}`", f"`{cell['fidelity']}`", *flags])


def noise_of(cell: Cell) -> str:
    return f"{cell['noise']} {cell['rate']:.0%}".replace("%", " %") if cell["rate"] else cell["noise"]


def value(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    spread = "" if cell["std"] is None else f" ± {cell['std']:.2f}"
    precision = "–" if cell["label_precision"] is None else f"{cell['label_precision']:.0f}"
    return f"{cell['mean']:.2f}{spread} ({precision})"


def in_order(cells: Iterable[Cell], of: Callable[[Cell], object]) -> list:
    return list(dict.fromkeys(map(of, cells)))


if __name__ == "__main__":
    main()
