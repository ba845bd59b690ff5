"""The numbers behind the figures of runs, beside them: table.csv for programs, table.md for texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from coteach.files import as_csv, write_atomically
from coteach.report.run_groups import Group
from coteach.report.run_results import Result, result_of, two_digits

COLUMNS = ("data", "method", "noise", "n", "epochs", "mean", "std", "max", "label_precision")
HEADER = ("data", "method", "noise", "n", "epochs", "test accuracy (%)", "max (%)", "label precision (%)")
ABOUT = (
    "Test accuracy: mean of the networks over the last ten epochs, or all if there are fewer, ± standard "
    "deviation over n seeds. Max: the best of these epochs, mean over seeds."
)

Line = tuple[str, str, str, Result]


def write_tables(groups: list[Group], folder: Path) -> list[Path]:
    """Both tables; files of these names that are not ours are left alone."""
    lines = list(lines_of(groups))
    texts = {
        "table.csv": as_csv([COLUMNS, *map(numbers, lines)]),
        "table.md": "".join(map(in_bars, [HEADER, ["---"] * 3 + ["---:"] * 5, *map(words, lines)]))
        + f"\n{ABOUT}\n",
    }
    paths = [folder / name for name in texts]
    for path, content in zip(paths, texts.values(), strict=True):
        refuse_what_is_not_ours(path, content.partition("\n")[0])
    for path, content in zip(paths, texts.values(), strict=True):
        write_atomically(path, content)
    return paths


def lines_of(groups: list[Group]) -> Iterator[Line]:
    for group in groups:
        for label, run in group.runs.items():
            if result := result_of(run):
                yield group.data, label if run.summary else f"{label}, unfinished", group.noise, result


def numbers(line: Line) -> Sequence[object]:
    *names, r = line
    values = (r.mean, r.std, r.max, r.label_precision)
    return *names, r.n, r.epochs, *("" if value is None else round(value, 4) for value in values)


def words(line: Line) -> Sequence[object]:
    *names, r = line
    return *names, r.n, r.epochs, r.mean_in_words, two_digits(r.max), two_digits(r.label_precision)


def in_bars(cells: Sequence[object]) -> str:
    return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |\n"


def refuse_what_is_not_ours(path: Path, first_line: str) -> None:
    if path.exists() and not (path.is_file() and path.read_bytes().startswith(first_line.encode())):
        raise ValueError(f"{path} is there, and no table of ours: give another folder with --out, or remove it.")
