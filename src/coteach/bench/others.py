"""Whether the machine was ours alone while something was timed, where the system tells (Linux)."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
IDLE = (3, 4)  # columns of /proc/stat's first line: idle, and waiting for a disk
GUESTS = 8  # from here on columns repeat what is counted in the first


class Others:
    """How much of the processors has gone to other processes since this was made."""

    def __init__(self) -> None:
        self.before = self.now()

    def share(self) -> float | None:
        """From 0 to 1, of all cores; None where the system does not tell."""
        spent, busy, mine = (after - before for after, before in zip(self.now(), self.before, strict=True))
        if not STAT.exists():
            return None
        return max(0.0, busy - mine) / (spent * (os.cpu_count() or 1))

    def now(self) -> tuple[float, float, float]:
        """Seconds: on the clock, of all cores at work, and of this process and its workers that have ended."""
        return time.perf_counter(), seconds_at_work(), sum(os.times()[:4])


def seconds_at_work() -> float:
    if not STAT.exists():
        return 0.0
    ticks = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:]][:GUESTS]
    return sum(n for column, n in enumerate(ticks) if column not in IDLE) / os.sysconf("SC_CLK_TCK")
