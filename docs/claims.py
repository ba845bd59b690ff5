"""The paper's claims and what became of them, from claims.toml: tables for pages, and docs/images/claims.svg."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coteach.figures import GRID, new_figure, save, tell
from coteach.paper.heat import GAIN, LOSS, NEITHER, HeatCell, blended, draw_heat

CLAIMS = Path(__file__).with_name("claims.toml")
DATASETS = ("MNIST", "CIFAR-10", "CIFAR-100", "NEWS", "Tiny-ImageNet", "open set")
VERDICTS = {"holds": "●", "partly": "◐", "no": "○", "open": "–"}
# Told by the word first, by the colour only then; in grey they go from dark to light.
GROUNDS = {
    "holds": GAIN,
    "partly": blended(GAIN, NEITHER, 0.4),
    "no": blended(LOSS, NEITHER, 0.75),
    "open": "#eaeaea",
}
HEADINGS = {
    "number": "",
    "says": "the paper says",
    "measured": "what we measured",
    "verdict": "verdict",
    "why": "because",
    "presets": "`coteach reproduce` …",
}


@dataclass(frozen=True)
class Claim:
    """One claim: in few words, as the paper has it, and what was found, at large and for each data set."""

    number: int
    claim: str
    says: str
    measured: str
    verdict: str
    why: str
    on: dict[str, str]
    presets: list[str]
    ours: bool = False  # not the paper's

    def text(self, column: str) -> str:
        value: Any = getattr(self, column)
        if column == "verdict":
            return f'<span class="verdict {value}">{VERDICTS[value]} {value}</span>'  # coloured by site.css
        return ", ".join(f"`{name}`" for name in value) if column == "presets" else str(value)


def claims() -> list[Claim]:
    return [Claim(**found) for found in tomllib.loads(CLAIMS.read_text("utf-8"))["claim"]]


def claims_table(columns: list[str]) -> str:
    """A line for each claim, with these of its fields."""
    lines = [[HEADINGS[column] for column in columns], ["---"] * len(columns)]
    lines += [[claim.text(column) for column in columns] for claim in claims()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def message(found: list[Claim]) -> str:
    """How the paper's claims came out."""
    theirs = Counter(claim.verdict for claim in found if not claim.ours)
    return (
        f"Of the paper's {theirs.total()} claims, {theirs['holds']} hold, {theirs['partly']} hold in part, "
        f"{theirs['no']} do not, and {theirs['open']} are open"
    )


def draw_claims(path: Path) -> None:
    """A row for each claim, a column for each data set that it was tried on."""
    found = claims()
    rows = list(dict.fromkeys(claim.claim for claim in found))
    cells = {
        (rows.index(row), DATASETS.index(dataset)): HeatCell(verdict, GROUNDS[verdict])
        for (row, dataset), verdict in verdicts(found).items()
    }
    figure, axes = new_figure(1, 1, 0.21 * len(rows) + 1.05)
    labels = [f"{row} ({numbers(found, row)})" for row in rows]
    draw_heat(axes[0, 0], cells, labels, [name.replace("-", "-\n") for name in DATASETS])
    for y in range(1, len(rows)):
        axes[0, 0].axhline(y, color=GRID, linewidth=0.5, zorder=0)
    caption = (
        "Partly: only in some settings, or only with the authors' code. Open: not measured well enough to say."
    )
    tell(figure, message(found), f"{caption} In brackets: the claims' numbers.")
    save(figure, [path])


def numbers(found: list[Claim], row: str) -> str:
    return ", ".join(str(claim.number) for claim in found if claim.claim == row)


def verdicts(found: list[Claim]) -> dict[tuple[str, str], str]:
    """By row and data set; each pair belongs to one claim."""
    return {(claim.claim, dataset): verdict for claim in found for dataset, verdict in claim.on.items()}
