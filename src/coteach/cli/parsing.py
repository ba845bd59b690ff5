"""The words after a command, read into the dataclass of its flags; whatever is wrong becomes one sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from coteach import names
from coteach.cli.help import as_flag, flag_of, is_flag, refuse_unknown_flags

NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}
MOST_NAMED = 3  # flags


def read_words(command: str, kind: type, words: Sequence[str]) -> Any:
    """Raise a ValueError for what cannot be read."""
    refuse_unknown_flags(command, kind, words)
    by_flag = {as_flag(field.name): field for field in fields(kind)}
    given: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not is_flag(word):
            put_in_place(command, kind, word, given)
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        field = by_flag.get(flag) or by_flag[flag.replace("--no-", "--", 1)]
        if isinstance(field.default, bool):
            if equals:
                raise ValueError(f"{flag} takes no value: leave ={value} out.")
            given[field.name] = flag in by_flag
            continue
        read = read_values(field, [value] if equals else values_first_in(left, field))
        if takes_many(field.type):
            read = (*given.get(field.name, ()), *read)
        elif field.name in given:
            raise ValueError(f"{as_flag(field.name)} is given twice: leave one out.")
        given[field.name] = read
    for field in fields(kind):
        if field.default is MISSING and field.name not in given:
            raise ValueError(f"coteach {command} needs {flag_of(field).metavar}: its --help has examples.")
    return kind(**given)


def values_first_in(left: list[str], field: Field) -> list[str]:
    """What follows a flag, which is taken off the words that are left."""
    n = next((i for i, word in enumerate(left) if is_flag(word)), len(left))
    n = n if takes_many(field.type) else min(n, 1)
    values, left[:n] = left[:n], []
    return values


def read_values(field: Field, words: list[str]) -> Any:
    flag, look = as_flag(field.name), flag_of(field)
    if not words and look.alone is None:
        raise ValueError(f"{flag} needs a value: {flag} {look.metavar}.")
    values = tuple(value_of(field, word) for word in words or [str(look.alone)])
    return values if takes_many(field.type) else values[0]


def put_in_place(command: str, kind: type, word: str, given: dict[str, Any]) -> None:
    """A word without a flag belongs to the first field that is known by its place and has room."""
    placed = [field for field in fields(kind) if flag_of(field).placed]
    for field in placed:
        if takes_many(field.type):
            given[field.name] = (*given.get(field.name, ()), value_of(field, word))
            return
        if field.name not in given:
            given[field.name] = value_of(field, word)
            return
    if placed:
        raise ValueError(f"coteach {command} takes one name: leave {word!r} out.")
    some = ", ".join(as_flag(field.name) for field in fields(kind)[:MOST_NAMED])
    raise ValueError(
        f"{word!r} stands after no flag: put one before it, such as {some}, or quotes round a name with spaces."
    )


def value_of(field: Field, word: str) -> Any:
    """One of the choices there are, or a number, path or text."""
    flag = as_flag(field.name)
    known = list(types_and_choices(field.type))
    choices = {str(one): one for one in known if not isinstance(one, type)}
    if word in choices:
        return choices[word]
    kind = next((one for one in known if isinstance(one, type)), None)
    if kind is None:
        raise ValueError(f"{flag} is {word!r}{names.nearest(word, choices)}: choose one of {', '.join(choices)}.")
    if kind is Path and not word:  # else it would be the folder one is in
        raise ValueError(f"{flag if not flag_of(field).placed else 'a path'} is empty: give a file or folder.")
    try:
        return kind(word)
    except ValueError:
        if takes_many(field.type) and "," in word:
            raise ValueError(f"{flag} is {word!r}: put spaces between the numbers, as in {flag} 1 2 3.") from None
        raise ValueError(f"{flag} is {word!r}: give {' or '.join([NUMBERS[kind], *choices])}.") from None


def types_and_choices(hint: Any) -> Iterator[Any]:
    """Those of a field: `float | Literal["auto"]` has float and "auto"."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from types_and_choices(get_args(hint)[0])
    elif origin is Literal:
        yield from get_args(hint)
    elif origin is not None:  # several types, or a tuple of one
        for part in get_args(hint):
            yield from types_and_choices(part)
    elif hint not in (NoneType, Ellipsis):
        yield hint


def takes_many(hint: Any) -> bool:
    """Whether there is a tuple in it."""
    return get_origin(hint) is tuple or any(map(takes_many, get_args(hint)))
