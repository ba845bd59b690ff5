"""Helps in groups: what most people need by `--help`, every flag by `--help-all`; and flags that are misspelt."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from coteach import names
from coteach.names import Flag

# The flags of `--help`, by what they are for. Those of a command that is not here are few, and all are shown.
GROUPS = {
    "audit": {
        "your data": "images table npz label text id encoder embeddings",
        "how to find them": "learner noise_rate check",
        "files": "out open apply calibrate",
    },
    "run": {
        "data and labels": "dataset noise rate labels",
        "method": "method loss tau fidelity",
        "training": "recipe network epochs batch_size lr seeds",
        "files": "data_dir out resume device",
    },
}
OTHERS = "everything else"
FLAG_COLUMNS = 22
FLAG_STARTS = ("-", "–", "—")  # the long ones come from word processors
SHORT_TEXTS = {  # names without their meanings
    ("run", "dataset"): "Data set: mnist, cifar10, news, …; coteach data lists all.",
    ("run", "method"): f"Method: {', '.join(names.METHOD_MEANINGS)}.",
    ("run", "loss"): f"Loss: {', '.join(names.LOSS_MEANINGS)}.",
    ("run", "noise"): f"Flips of training labels: {', '.join(names.NOISES)}.",
    ("run", "network"): "Network, such as mlp, small_cnn, cnn7, preact_resnet18 or fast_cnn.",
    ("run", "recipe"): "Sets the defaults: the paper's, or modern ones.",
}
# Words that mean the same: each is taken for the one that a command has.
SYNONYMS = {"seed": "seeds", "seeds": "seed", "module": "network", "tau": "noise_rate", "learning-rate": "lr"}


def command_help(command: str, kind: type, about: str, everything: bool) -> Group:
    """The help of a command, without its examples."""
    flags = {field.name: field for field in fields(kind)}
    grouped = {title: [n for n in words.split() if n in flags] for title, words in GROUPS.get(command, {}).items()}
    named = {name for group in grouped.values() for name in group}
    rest = [name for name in flags if name not in named]
    if everything or not grouped:
        grouped[OTHERS if grouped else "flags"] = rest
    places = "".join(f"{flag_of(field).metavar} " for field in flags.values() if flag_of(field).placed)
    parts: list[Any] = [Text(f"usage: coteach {command} {places}[flags]\n\n{about}")]
    for title, group in grouped.items():
        if group:
            parts += [Text(f"\n{title}", "bold"), flag_table(command, kind, group, everything)]
    if GROUPS.get(command) and not everything:
        parts.append(Text(f"\n{len(rest)} more flags: coteach {command} --help-all"))
    return Group(*parts)


def flag_table(command: str, kind: type, group: list[str], everything: bool) -> Table:
    """A row a flag: its name, what it does, what it is by default."""
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    table.add_column(style="cyan", width=FLAG_COLUMNS)
    table.add_column()
    by_name = {field.name: field for field in fields(kind)}
    for name in group:
        field = by_name[name]
        look = flag_of(field)
        text = look.text or flag_texts(kind).get(name, "")
        default = look.default if look.default else str(field.default)
        if not everything and command in GROUPS:
            text = SHORT_TEXTS.get((command, name), first_sentence(text))
            default = default.split("; ")[0]
        about = Text(text)
        if default not in ("none", "no"):
            about.append(f"{'' if text.endswith(chr(10)) else ' '}({default})", "dim")
        table.add_row(Text(f"{spelling(field)} {look.metavar}".strip()), about)
    return table


def first_sentence(text: str) -> str:
    """Whole, with the mark that ends it."""
    first = text.split(". ")[0]
    return first if first.endswith((".", "…")) else f"{first}."


def flag_of(field: Field) -> Flag:
    """How a field looks: as it says itself, or by its type."""
    for note in getattr(field.type, "__metadata__", ()):
        if isinstance(note, Flag):
            return note
    if isinstance(field.default, bool):
        return Flag("", "no" if not field.default else "yes")
    return Flag(getattr(field.type, "__name__", "NAME").upper() if isinstance(field.type, type) else "NAME", "")


def spelling(field: Field) -> str:
    """The flag of a field, as it is typed; a switch that is on is there to be turned off."""
    if flag_of(field).placed:
        return ""
    flag = as_flag(field.name)
    return f"--no-{flag[2:]}" if field.default is True else flag


def as_flag(name: str) -> str:
    """A field as it is typed."""
    return f"--{names.FLAG_WORDS.get(name, name).replace('_', '-')}"


@cache
def flag_texts(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def with_own_words(kind: type, words: list[str]) -> list[str]:
    """With the command's own flag for a word that means the same."""
    own = {as_flag(field.name) for field in fields(kind)}
    both = {f"--{word}": as_flag(name) for word, name in SYNONYMS.items()}
    other = {word: flag for word, flag in both.items() if word not in own and flag in own}
    found = []
    for word in words:
        flag, equals, value = word.partition("=")
        found.append(other.get(flag.replace("_", "-"), flag) + equals + value)
    return found


def is_flag(word: str) -> bool:
    """And neither a negative number nor a lone dash."""
    return word.startswith(FLAG_STARTS) and not word[1:2].isdigit() and word[1:2] not in ("", ".")


def refuse_unknown_flags(command: str, kind: type, words: Sequence[str]) -> None:
    """Raise a ValueError that names the nearest flag."""
    known = {flag.lstrip("-"): flag for flag in sorted(flags_of(kind))}
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        if not is_flag(word) or flag in known.values():
            continue
        bare = flag.lstrip("".join(FLAG_STARTS))
        begun = [name for name in known if bare and name.startswith(bare)]
        ending = [name for name in known if name.endswith(f"-{bare}")]  # noise-rate for rate
        near = min(begun or ending, key=len, default=None) or names.nearest_name(bare, known)
        hint = f" (did you mean {known[near]!r}?)" if near else ""
        if not hint and (not bare or not word.startswith("--")):
            hint = " (write ./ before a path that begins with a dash)"
        raise ValueError(f"there is no flag {flag}{hint}: coteach {command} --help-all lists them.")


def flags_of(kind: type) -> Iterator[str]:
    for field in fields(kind):
        if not flag_of(field).placed:
            yield as_flag(field.name)
        if isinstance(field.default, bool):
            yield as_flag(f"no-{field.name}")
    yield from ("--help", "--help-all")
