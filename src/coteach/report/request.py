"""What `coteach report` is asked for. Nothing heavy here, so that a mistake is told at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from coteach.flags import flag
from coteach.names import check_name

PANELS = ("test_accuracy", "label_precision", "disagreement", "total_variation", "keep_rate")
PANELS_HELP = f"Curves of the runs to draw with --figures, below each other: {', '.join(PANELS)}."


@dataclass(frozen=True)
class Report:
    """Show runs on one page that works offline and in print, or write figures for a paper."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, flag("[RUN ...]", "none")] = ()
    """Run folders, or folders with runs in them; with --figures also names as `coteach reproduce` lists them."""
    open: bool = False
    """Open the page in the browser."""
    figures: bool = False
    """Write SVG, PDF and PNG instead: the curves of the runs, and tables, or the paper's figures as measured."""
    panels: Annotated[tuple[str, ...], flag("NAME [NAME ...]", "test_accuracy label_precision", PANELS_HELP)] = ()
    out: Annotated[Path | None, flag("PATH", "report.html, in the folder of a single run; figures")] = None
    """File to write, or with --figures the folder."""
    results: Path = Path("results")
    """Folder of what `coteach reproduce` measured, for --figures."""

    def check(self) -> None:
        """Raise a ValueError for what does not go together."""
        if self.figures and self.open:
            raise ValueError("--open is for the page, and --figures writes none: leave one of them out.")
        if self.panels and not self.figures:
            raise ValueError(
                "--panels is for figures, and the page has all curves: add --figures, or leave it out."
            )
        for name in self.panels:
            check_name("panel", name, PANELS)
        if not self.runs and not self.figures:
            raise ValueError("no run is named: give run folders, or a folder with runs in it, such as runs/demo.")
