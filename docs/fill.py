"""Writes what was measured into the pages of the methods: `make docs` calls it, a test says if it is due.

A page has a pair of marks, and between them goes a table for each data set, from results/summary.json:

    <!-- measured: coteaching_plus coteaching_plus_own -->
    <!-- end -->
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from coteach.paper.compare import UNUSUAL

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"(<!-- measured: ([a-z_ ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
ELSEWHERE = {"divergence"}  # the same runs with more seeds, and other networks: it has a page of its own

LEGEND = """\
Test accuracy in per cent, mean of the networks over the last ten epochs, ± standard deviation over seeds; in
brackets the share of right labels among those that were learnt from. `authors` and `paper` are values of
`--fidelity`."""

Cell = dict


def main() -> None:
    for page, text in filled().items():
        page.write_text(text, encoding="utf-8")


def filled() -> dict[Path, str]:
    """The pages of the methods as they should be."""
    cells = json.loads((ROOT / "results" / "summary.json").read_text(encoding="utf-8"))
    cells = [cell for cell in cells if cell["experiment"] not in ELSEWHERE]
    pages = sorted((ROOT / "docs" / "methods").glob("*.md"))
    return {page: MARKED.sub(lambda found: with_tables(found, cells), page.read_text("utf-8")) for page in pages}


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


def data_of(cell: Cell) -> str:
    options = cell["data"]
    told = [f"{options['classes']} classes"] if "classes" in options else []
    told += [options["vectors"].removesuffix(".txt")] if "vectors" in options else []
    seeds = f"{len(cell['seeds'])} seeds".replace("1 seeds", "1 seed")
    return ", ".join([cell["dataset"], *told, cell["network"], seeds])


def row_of(cell: Cell) -> str:
    """What tells a variant from the others."""
    flags = [f"`--{name.replace('_', '-')} {cell[name]}`" for name in UNUSUAL if cell.get(name) is not None]
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
