"""How a flag looks in a help, as plain data: an experiment says it of its fields, and needs no command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """Of a flag whose default depends on the others, or whose choices are listed elsewhere."""

    metavar: str
    default: str
    text: str | None = None  # else the docstring of the field
