"""For tyro: how the flags of a command look in its help, and how numbers are read from them."""

from collections.abc import Sequence
from dataclasses import replace
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from coteach.names import FLAG_WORDS, Flag

NUMBER_WORDS: dict[Any, str] = {int: "whole number", float: "number"}
REGISTRY = ConstructorRegistry()


def describe_flags(command: type) -> None:
    """Let tyro know how the flags of a dataclass look, which its fields say as `Flag`."""
    for name, hint in get_type_hints(command, include_extras=True).items():
        for flag in getattr(hint, "__metadata__", ()):
            if isinstance(flag, Flag):
                default = f"(default: {flag.default})"
                look = tyro.conf.arg(
                    name=FLAG_WORDS.get(name), metavar=flag.metavar, help=flag.text, help_behavior_hint=default
                )
                command.__annotations__[name] = Annotated[hint, look]


@REGISTRY.primitive_rule
def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads a number or one of a few words, such as auto; None is a default, which nobody types.

    The message about any other word is ours: tyro's would list Python's types.
    """
    types = set() if get_origin(info.type) is Literal else set(get_args(info.type)) or {info.type}
    words = [word for one in types if get_origin(one) is Literal for word in get_args(one)]
    kinds = {one for one in types if get_origin(one) is not Literal} - {NoneType}
    if len(kinds) != 1 or kinds.isdisjoint(NUMBER_WORDS):
        return None
    kind = kinds.pop()

    def read(given: Sequence[str]) -> Any:
        if given[0] in words:
            return given[0]
        try:
            return kind(given[0])
        except ValueError:
            raise ValueError(f"{given[0]!r} is no {' or '.join([NUMBER_WORDS[kind], *words])}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: value is None or value in words or isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )


@REGISTRY.primitive_rule
def whole_numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Reads several whole numbers, such as --seeds; the message about any other word is ours."""
    if tuple[int, ...] not in (info.type, *get_args(info.type)):
        return None
    one = number(replace(info, type=int))
    assert isinstance(one, PrimitiveConstructorSpec)
    return replace(
        one,
        nargs="*",
        instance_from_str=lambda given: tuple(one.instance_from_str([word]) for word in given),
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda values: list(map(str, values or ["None"])),
    )
