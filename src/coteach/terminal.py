"""Where lines and progress bars go. No torch here: listing and drawing what was measured takes none."""

import math
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False)


def open_page(path: Path) -> None:
    """In the browser, if there is one."""
    if not webbrowser.open(path.resolve().as_uri()):
        console.print("no browser was found: open the file in one.", markup=False)


class LazyProgress(Progress):
    """Draws nothing before its first bar, not even an empty line."""

    def add_task(self, *words: Any, **more: Any) -> TaskID:
        self.start()
        return super().add_task(*words, **more)

    def stop(self) -> None:
        if self.live.is_started:
            super().stop()


@contextmanager
def progress_bars(where: Console = console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("·"),
        TimeRemainingColumn(),
    )
    # by all epochs: usually those of half a minute count, and where each takes longer there would be no estimate
    progress = LazyProgress(*columns, console=where, speed_estimate_period=math.inf)
    try:
        yield progress
    finally:
        progress.stop()
