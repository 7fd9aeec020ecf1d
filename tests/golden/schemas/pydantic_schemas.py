"""JSON Schemas that pydantic writes, one JSON line each: {"name", "schema"}. Needs pydantic."""
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import typing
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import pydantic
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MultipleOf
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter
from typing_extensions import TypedDict

T = TypeVar("T")
I64, U64, I32 = (-2**63, 2**63 - 1), (0, 2**64 - 1), (-2**31, 2**31 - 1)


class Color(enum.Enum):
    red = "red"
    green = "green"


class Level(enum.IntEnum):
    low = 1
    high = 2


class Mixed(enum.Enum):
    a = 1
    b = "b"


class User(BaseModel):
    id: int = Field(ge=1, le=2**63 - 1)
    name: str = Field(min_length=1, max_length=20)
    tags: list[str] = []


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: Optional[float] = None


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Node(BaseModel):
    value: int
    next: Optional["Node"] = None


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


class Left(BaseModel):
    right: Optional["Right"] = None


class Right(BaseModel):
    left: Optional[Left] = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    weight: float = Field(gt=0)


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int = Field(ge=0)


class Alias(BaseModel):
    first: int = Field(alias="firstName")
    slash: int = Field(alias="a/b")
    percent: int = Field(alias="50%")


class Money(BaseModel):
    amount: decimal.Decimal = Field(max_digits=10, decimal_places=2)
    cents: int = Field(ge=0, le=2**64 - 1)


class Times(BaseModel):
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time


class Long(BaseModel):
    """Bounds that int64 does not hold."""
    big: int = Field(ge=-10**30, le=10**30)
    hash: int = Field(ge=0, lt=2**256)


class Computed(BaseModel):
    a: int

    @pydantic.computed_field
    @property
    def twice(self) -> int:
        return 2 * self.a


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@pydantic.dataclasses.dataclass
class Box:
    a: Point
    size: int = Field(gt=0, default=1)


class Movie(TypedDict):
    title: str
    year: int


class Partial(TypedDict, total=False):
    title: str


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Inherits(User):
    admin: bool = False


class Examples(BaseModel):
    model_config = ConfigDict(title="Renamed", json_schema_extra={"examples": [{"a": 1}]})
    a: int = Field(description="a number", examples=[1, 2])


Animal = Annotated[Union[Cat, Dog], Field(discriminator="kind")]

TYPES = {
    "int": int, "float": float, "str": str, "bool": bool, "none": None, "any": Any, "bytes": bytes, "object": object,
    "int64": Annotated[int, Field(ge=I64[0], le=I64[1])], "uint64": Annotated[int, Field(ge=0, le=U64[1])], "int32": Annotated[int, Field(ge=I32[0], le=I32[1])],
    "int64 open": Annotated[int, Field(gt=I64[0] - 1, lt=I64[1] + 1)], "uint128": Annotated[int, Interval(ge=0, lt=2**128)], "safe": Annotated[int, Interval(ge=-2**53 + 1, le=2**53 - 1)],
    "hundred digits": Annotated[int, Field(ge=0, le=10**100)], "positive": pydantic.PositiveInt, "negative": pydantic.NegativeInt, "nonnegative": pydantic.NonNegativeInt,
    "positive float": pydantic.PositiveFloat, "nonpositive float": pydantic.NonPositiveFloat, "finite": pydantic.FiniteFloat, "strict int": pydantic.StrictInt, "strict float": pydantic.StrictFloat,
    "unit": Annotated[float, Field(ge=0, le=1)], "float32": Annotated[float, Field(ge=-3.4028234663852886e38, le=3.4028234663852886e38)], "float64": Annotated[float, Field(ge=-1.7976931348623157e308, le=1.7976931348623157e308)],
    "tiny": Annotated[float, Gt(5e-324)], "sum": Annotated[float, Le(0.1 + 0.2)], "micro": Annotated[float, Interval(gt=1e-6, lt=1e-3)], "percent": Annotated[float, Ge(0), Lt(100)],
    "multiple": Annotated[int, MultipleOf(5)], "multiple float": Annotated[float, MultipleOf(0.01)], "multiple large": Annotated[int, MultipleOf(3600), Ge(0)], "multiple range": Annotated[float, MultipleOf(0.5), Interval(ge=0, le=10)],
    "conint": pydantic.conint(gt=0, lt=10**18), "confloat": pydantic.confloat(ge=1e-10, le=1e10), "condecimal": pydantic.condecimal(ge=0, max_digits=20, decimal_places=4),
    "decimal": decimal.Decimal, "decimal bounds": Annotated[decimal.Decimal, Field(gt=0, lt=decimal.Decimal("1e20"))], "decimal places": Annotated[decimal.Decimal, Field(decimal_places=2)], "complex": complex,
    "constr": pydantic.constr(min_length=2, max_length=5), "pattern": Annotated[str, Field(pattern=r"^[a-z]+$")], "pattern digits": Annotated[str, Field(pattern=r"^\d{5}(-\d{4})?$")], "lower": pydantic.constr(to_lower=True), "strict str": pydantic.StrictStr,
    "pattern open": Annotated[str, Field(pattern=r"ab+")], "length": Annotated[str, Len(3, 3)], "date": datetime.date, "datetime": datetime.datetime, "time": datetime.time, "timedelta": datetime.timedelta,
    "aware": pydantic.AwareDatetime, "naive": pydantic.NaiveDatetime, "past": pydantic.PastDate, "future": pydantic.FutureDatetime, "uuid": uuid.UUID, "uuid4": pydantic.UUID4, "path": pathlib.Path, "re.Pattern": re.Pattern,
    "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address, "ipv4 network": ipaddress.IPv4Network, "ip any": pydantic.IPvAnyAddress, "url": pydantic.AnyUrl, "http url": pydantic.HttpUrl, "postgres": pydantic.PostgresDsn, "file url": pydantic.FileUrl,
    "secret": pydantic.SecretStr, "json": pydantic.Json, "json int": pydantic.Json[int], "base64": pydantic.Base64Str, "byte size": pydantic.ByteSize, "literal": Literal["a", 1, None, True], "literal large": Literal[9007199254740993], "enum": Color, "int enum": Level, "mixed enum": Mixed,
    "optional": Optional[int], "union": Union[int, str], "union three": Union[bool, int, list[int]], "list": list[int], "list bounds": Annotated[list[str], Len(1, 3)], "set": set[int], "set enum": set[Color], "frozenset": frozenset[str], "deep": list[list[dict[str, int]]],
    "sequence": typing.Sequence[int], "iterable": typing.Iterable[int], "tuple": tuple[int, str], "tuple any": tuple[int, ...], "tuple empty": tuple[()], "dict": dict[str, int], "dict any": dict, "dict enum": dict[Color, int], "dict int": dict[int, str], "dict pattern": dict[Annotated[str, Field(pattern="^a")], int],
    "dict bounds": Annotated[dict[str, int], Len(1, 2)], "counter": typing.Counter[str], "default dict": typing.DefaultDict[str, int], "typed dict": Movie, "typed dict partial": Partial, "named tuple": Pair, "dataclass": Point, "pydantic dataclass": Box,
    "model": User, "model strict": Strict, "model loose": Loose, "model alias": Alias, "model inherits": Inherits, "model money": Money, "model times": Times, "model long": Long, "model computed": Computed, "model examples": Examples,
    "model list": list[User], "model dict": dict[str, User], "model optional": Optional[User], "generic": Page[int], "generic model": Page[User], "generic nested": Page[Page[str]], "recursive": Node, "tree": Tree, "mutual": Left, "discriminated": Animal, "discriminated list": list[Animal],
    "root": RootModel[list[int]], "root dict": RootModel[dict[str, Animal]], "root int": RootModel[Annotated[int, Field(le=2**63 - 1)]], "not none": Annotated[Union[User, Strict], Field(union_mode="left_to_right")], "json value": pydantic.JsonValue, "email-like": Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$")],
    "annotated default": Annotated[int, Field(default=5, ge=0)], "callable free": list[Any], "type alias": list[Annotated[int, Field(multiple_of=10, ge=-10**18, le=10**18)]],
}


def main():
    for name, of in TYPES.items():
        adapter = TypeAdapter(of)
        made = {}
        for mode in "validation", "serialization":
            try:
                made[mode] = adapter.json_schema(mode=mode)
            except pydantic.errors.PydanticInvalidForJsonSchema:
                continue
        if made.get("validation") is not None:
            print(json.dumps({"name": name, "schema": made["validation"]}))
        if made.get("serialization") not in (None, made.get("validation")):
            print(json.dumps({"name": f"{name} serialization", "schema": made["serialization"]}))


main()
