"""How the words of a command become numbers: a word that is none is told so, without Python's types."""

from collections.abc import Sequence
from types import NoneType
from typing import Any, get_args

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

KINDS: dict[Any, str] = {int: "whole number", float: "number"}
REGISTRY = ConstructorRegistry()


@REGISTRY.primitive_rule
def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Of a flag that is a number, or by default None, which nobody has to type."""
    types = (set(get_args(info.type)) or {info.type}) - {NoneType}
    if len(types) > 1 or types.isdisjoint(KINDS):
        return None
    kind = types.pop()

    def read(words: Sequence[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"{words[0]!r} is no {KINDS[kind]}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, (int, float)),
        str_from_instance=lambda value: [str(value)],
    )
