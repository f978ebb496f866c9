"""Settings are frozen, strict, closed and finite."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from crowdml.core import Registry, Settings
from crowdml.core.settings import OneOf


class Square(Settings):
    """A choice."""

    kind: Literal["square"] = "square"
    side: float


class Disc(Settings):
    """Another choice."""

    kind: Literal["disc"] = "disc"
    radius: float = 1.0


SHAPES: Registry[type[Any]] = Registry("shape", {"square": Square, "disc": Disc})


class Drawing(Settings):
    """A section with all sorts of keys."""

    pen_width: int = 1
    ratio: float = Field(0.5, ge=0)
    shape: Annotated[Any, OneOf(SHAPES)] = Disc()
    more: list[Annotated[Any, OneOf(SHAPES)]] = Field([])


def kinds_of_error(content: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Drawing.model_validate(content)
    return [item["type"] for item in caught.value.errors()]


def test_files_write_hyphens() -> None:
    assert Drawing.model_validate({"pen-width": 3}).pen_width == 3
    assert Drawing(pen_width=4).model_dump(by_alias=True)["pen-width"] == 4


def test_types_are_not_coerced_but_a_whole_number_is_a_number() -> None:
    assert kinds_of_error({"pen-width": "3"}) == ["int_type"]
    assert kinds_of_error({"pen-width": 3.0}) == ["int_type"]
    assert kinds_of_error({"pen-width": True}) == ["int_type"]
    assert kinds_of_error({"ratio": "0.5"}) == ["float_type"]
    assert kinds_of_error({"ratio": True}) == ["float_type"]
    assert Drawing.model_validate({"ratio": 2}).ratio == 2.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_only_finite_numbers(value: float) -> None:
    assert "finite_number" in kinds_of_error({"ratio": value})


def test_unknown_keys_are_refused_at_every_depth() -> None:
    assert kinds_of_error({"pen": 1}) == ["extra_forbidden"]
    assert kinds_of_error({"shape": {"kind": "disc", "side": 1.0}}) == ["extra_forbidden"]


def test_one_of_builds_the_class_named_by_kind() -> None:
    drawing = Drawing.model_validate({"shape": {"kind": "square", "side": 2}, "more": [{"kind": "disc"}]})
    assert drawing.shape == Square(side=2.0)
    assert drawing.more == [Disc()]
    assert kinds_of_error({"shape": {"kind": "sqare"}}) == ["union_tag_invalid"]
    assert kinds_of_error({"shape": {}}) == ["union_tag_not_found"]


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Drawing().pen_width = 2  # type: ignore[misc]
