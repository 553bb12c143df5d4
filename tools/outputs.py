"""Whether what a chapter prints now says the same as what was committed: words exactly, numbers as numbers.

Sums of float32 numbers differ in their last bits with the instruction set, the BLAS and the number of threads. A
probe's accuracy then moves by an item, and a rounded figure by its last digit. Words, their order, the structure of
tables and identifiers do not: they are compared exactly. Numbers are compared with a tolerance that has a reason:

``one unit of the last printed digit``
    half a unit for the rounding of each of the two. Only of numbers printed with decimals, with an exponent or in
    percent and points; a bare whole number is a count, a size or a seed, and is compared exactly.
``a share of a printed interval``
    for ``value [low, high]`` and ``value (low to high)``, 5 % of the interval's width beside the unit.
``what a cell asks for, and why``
    ``"tolerance": {"items": 400, "why": "..."}`` in a cell's metadata adds what two items of 400 make: 0.005, or 0.5
    where the number is a percentage; ``"absolute": 0.02`` and ``"relative": 0.01`` add that, to whole numbers too.
    The lint lists these cells (``python tools/book.py tolerances``).

Pictures inside HTML are left out by structure: the address that holds their bytes is dropped, their place, size and
text alternative are compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser

#: Share of a printed interval's width within which its value and its ends may move.
SHARE_OF_INTERVAL = 0.05
#: How many items of a cell's ``items`` may flip.
ITEMS_THAT_FLIP = 2

_NUMBER = re.compile(
    r"(?<![\w.])(?P<number>(?:(?<![^\s(\[{|>:=,;~+-])[-+\u2212])?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?![\w]|\.\d)"
    r"(?P<percent>\s?%|\s?points?\b|\s?percent\b)?"
)
_INTERVAL = re.compile(r"^\s*[\[(]\s*$"), re.compile(r"^\s*(?:,|to|\u2013)\s*$"), re.compile(r"^\s*[\])]")
_PICTURE = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]*")


@dataclass(frozen=True)
class Number:
    """A printed number: its text, its value, the unit of its last digit, and whether it is a percentage."""

    text: str
    value: float
    unit: float
    percent: bool
    whole: bool
    slack: float = 0.0  # from the interval it stands in


@dataclass(frozen=True)
class Move:
    """A number that is printed otherwise than it was committed; ``share`` is the difference over the tolerance."""

    committed: str
    now: str
    tolerance: float
    share: float

    def __str__(self) -> str:
        return (
            f"{self.committed} is now {self.now}: {self.share:.2f} of the tolerance of {self.tolerance:.3g}"
        )


# --- outputs to words and numbers -------------------------------------------------------------------


class _Flat(HTMLParser):
    """HTML as a row of tags and texts, in order."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.parts.append(
            f"<{tag} " + " ".join(f"{key}={value!r}" for key, value in sorted(attributes)) + ">"
        )

    def handle_endtag(self, tag):
        self.parts.append(f"</{tag}>")

    def handle_data(self, data):
        self.parts.append(data)


def _number(match: re.Match) -> Number:
    text = match["number"].replace("\u2212", "-")
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return Number(
        text=match.group().strip(),
        value=float(text),
        unit=10.0 ** (int(exponent or 0) - decimals),
        percent=match["percent"] is not None,
        whole=not decimals and not exponent,
    )


def tokens(text: str) -> list[str | Number]:
    """Words (white space folded) and numbers in turn."""
    found: list[str | Number] = []
    end = 0
    for match in _NUMBER.finditer(text):
        found += [text[end : match.start()], _number(match)]
        end = match.end()
    found.append(text[end:])
    _widen_intervals(found)
    return [" ".join(part.split()) if isinstance(part, str) else part for part in found]


def _widen_intervals(found: list[str | Number]) -> None:
    """Give the three numbers of ``value [low, high]`` their share of the interval's width."""
    opens, between, closes = _INTERVAL
    for k in range(1, len(found) - 5, 2):
        value, left, low, middle, high, right = found[k : k + 6]
        if opens.match(left) and between.match(middle) and closes.match(right) and low.value <= high.value:
            slack = SHARE_OF_INTERVAL * (high.value - low.value)
            for place, number in ((k, value), (k + 2, low), (k + 4, high)):
                found[place] = Number(**{**vars(number), "slack": max(number.slack, slack)})


def said(outputs: Iterable[Mapping]) -> list[tuple[str, list[str | Number]]]:
    """What a reader is told by a cell's outputs: kind and tokens of each, in order; pictures by their kind alone.

    An output's richest text counts: HTML or Markdown rather than plain text. Streams of one name are one.
    """
    found: list[tuple[str, list[str | Number]]] = []
    streams: dict[str, str] = {}
    for output in outputs:
        if output["output_type"] == "stream":
            if output["name"] not in streams:
                found.append((output["name"], []))
            streams[output["name"]] = streams.get(output["name"], "") + _text(output["text"])
        elif output["output_type"] == "error":
            found.append(("error", [output["ename"]]))
        else:
            found += _said_of(output["data"])
    return [(kind, tokens(streams[kind]) if kind in streams else parts) for kind, parts in found]


def _said_of(data: Mapping) -> list[tuple[str, list[str | Number]]]:
    found = [(kind, []) for kind in sorted(data) if kind.startswith("image/")]
    if "text/html" in data:
        flat = _Flat()
        flat.feed(_PICTURE.sub("data:", _text(data["text/html"])))
        flat.close()
        parts = [token for part in flat.parts for token in (tokens(part) if part[:1] != "<" else [part])]
        return [*found, ("text/html", [part for part in parts if part != ""])]
    for kind in ("text/markdown", "text/latex", "text/plain"):
        if kind in data:
            return [*found, (kind, tokens(_text(data[kind])))]
    return [*found, *((kind, []) for kind in sorted(data) if not kind.startswith("image/"))]


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


# --- comparing ------------------------------------------------------------------------------------


def tolerance(number: Number, asked: Mapping | None = None) -> float:
    """How far a committed number may move (see the module's docstring); ``asked`` is a cell's own tolerance."""
    asked = asked or {}
    scale = 100.0 if number.percent or asked.get("percent") else 1.0
    wider = (
        (ITEMS_THAT_FLIP * scale / asked["items"] if "items" in asked else 0.0)
        + asked.get("absolute", 0.0)
        + asked.get("relative", 0.0) * abs(number.value)
    )
    if number.whole and not number.percent and not asked.get("percent"):
        return asked.get("absolute", 0.0) + asked.get("relative", 0.0) * abs(number.value)
    return number.unit + number.slack + wider


def compare(
    committed: Iterable[Mapping], now: Iterable[Mapping], asked: Mapping | None = None
) -> tuple[list[str], list[Move]]:
    """What differs between a cell's committed outputs and its present ones.

    Parameters
    ----------
    committed, now : outputs as nbformat has them.
    asked : the cell's own ``tolerance``.

    Returns
    -------
    faults : in words; none if the two say the same.
    moves : every number that is printed otherwise, those within the tolerance too.
    """
    before, after = said(committed), said(now)
    if [kind for kind, _ in before] != [kind for kind, _ in after]:
        return [
            f"other outputs: {[kind for kind, _ in before]} were committed, now {[kind for kind, _ in after]}"
        ], []
    faults: list[str] = []
    moves: list[Move] = []
    for (kind, old), (_, new) in zip(before, after, strict=True):
        if len(old) != len(new):
            faults.append(
                f"{kind}: {len(old)} words and numbers were committed, now {len(new)}{_first(old, new)}"
            )
            continue
        for one, other in zip(old, new, strict=True):
            if isinstance(one, str) or isinstance(other, str):
                if one != other:
                    faults.append(f"{kind}: {_show(one)} is now {_show(other)}")
            elif one.text != other.text:
                move = _move(one, other, asked)
                moves.append(move)
                if move.share > 1 or one.percent != other.percent:
                    faults.append(f"{kind}: {move}")
    return faults, moves


def _move(one: Number, other: Number, asked: Mapping | None) -> Move:
    allowed = max(tolerance(one, asked), other.unit if other.unit < 1 else 0.0)
    apart = abs(one.value - other.value)
    apart = 0.0 if math.isclose(apart, 0, abs_tol=1e-12) else apart
    share = apart / allowed if allowed else math.inf * (apart > 0) if apart else 0.0
    return Move(one.text, other.text, allowed, float(f"{share:.9g}"))


def _show(token: str | Number) -> str:
    text = token if isinstance(token, str) else token.text
    return repr(text if len(text) < 300 else text[:300] + "...")


def _first(old: list, new: list) -> str:
    for one, other in zip(old, new, strict=False):
        if (one if isinstance(one, str) else one.unit) != (other if isinstance(other, str) else other.unit):
            return f"; first {_show(one)}, now {_show(other)}"
    return ""
