"""Relation phrases, their axes, and captions taken apart and put together again.

A directed spatial caption says *subject, relation, object*: "a dog to the left of a cup". No tagger
model is needed to find the three: the relation is a phrase of a fixed lexicon, and the nouns are
what stands between determiners and that phrase.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

#: Unit vectors in image coordinates: x to the right, y DOWN, as pixels are counted.
RIGHT, LEFT, UP, DOWN = (1.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0)

# Each line holds phrases that mean the same and, at the same place, their opposites. In front of
# and behind are read as lower and higher in the image: a proxy for depth, not depth.
_OPPOSITES: list[tuple[tuple[float, float], list[str], list[str]]] = [
    (UP, ["above", "over"], ["below", "under"]),
    (UP, ["on top of", "on"], ["beneath", "underneath"]),
    (DOWN, ["in front of"], ["behind"]),
]

# Said of left and right alike; the first six are the natural ones, and each other's paraphrases.
_SIDES = ["to the {} of", "on the {} of", "on the {} side of", "at the {} side of", "at the {} of", "{} of"]
_MORE_SIDES = [
    "to the {} side of",
    "in the {} of",
    "in the {} side of",
    "on {} of",
    "on {} side of",
    "to {} of",
]
_MORE_SIDES += [side.replace("{}", "far {}") for side in _SIDES + _MORE_SIDES]

# Words that put the subject above the object; their opposite is "under", whose own opposite is "over".
_ALSO_ON = ("upon", "atop", "riding", "riding on")


def _lexicon() -> tuple[dict[str, tuple[float, float]], dict[str, str], dict[str, list[str]]]:
    axes, opposites, synonyms = {}, {}, {}
    sides = [[side.format(name) for side in _SIDES + _MORE_SIDES] for name in ("left", "right")]
    for axis, phrases, others in [(LEFT, *sides), *_OPPOSITES]:
        negated = tuple(-component + 0.0 for component in axis)
        for same, its_axis, opposite in ((phrases, axis, others), (others, negated, phrases)):
            natural = same[: len(_SIDES)]
            for phrase, other in zip(same, opposite, strict=True):
                axes[phrase], opposites[phrase] = its_axis, other
                synonyms[phrase] = [p for p in natural if p != phrase]
    for phrase in _ALSO_ON:
        axes[phrase], opposites[phrase], synonyms[phrase] = UP, "under", []
    return axes, opposites, synonyms


#: Relation phrase -> axis along which the subject lies from the object.
RELATIONS, OPPOSITES, SYNONYMS = _lexicon()

_DETERMINERS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "some",
        "another",
        "each",
        "every",
        "his",
        "her",
        "its",
        "their",
        "my",
        "your",
        "our",
    ]
)
_BE = frozenset(["is", "are", "was", "were"])
# What may stand between a noun and its relation and is no part of the noun.
_BETWEEN = frozenset(
    [
        "being",
        "located",
        "positioned",
        "placed",
        "parked",
        "seen",
        "shown",
        "standing",
        "sitting",
        "lying",
        "laying",
        "walking",
        "running",
        "hanging",
        "resting",
        "leaning",
        "flying",
        "floating",
        "swimming",
        "jumping",
        "playing",
        "sleeping",
        "facing",
        "looking",
        "directly",
        "just",
        "immediately",
        "slightly",
        "right",
        "also",
        "still",
        "now",
        "far",
    ]
)
_NEGATIONS = frozenset(["not", "never", "no", "isn't", "aren't", "wasn't", "weren't", "isn’t", "aren’t"])
_PREAMBLE = re.compile(r"^(?:an? )?(?:photo|picture|image) of |^there (?:is|are) ")
_NOUN_ENDS = _BE | frozenset(
    [
        "and",
        "or",
        "but",
        "with",
        "which",
        "who",
        "while",
        "in",
        "at",
        "by",
        "near",
        "next",
        "from",
        "into",
        "for",
        "facing",
        "has",
        "have",
    ]
)
#: A noun phrase that starts so is a piece of a relation the lexicon does not know.
_NO_NOUN = frozenset(["left", "right", "top", "side", "far", "bottom", "front", "back"])
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*", re.UNICODE)
_PHRASE = re.compile(
    r"(?<![\w'’-])(?:"
    + "|".join(r"\s+".join(map(re.escape, p.split())) for p in sorted(RELATIONS, key=len, reverse=True))
    + r")(?![\w'’-])"
)


_KNOWN = "Known phrases: " + ", ".join(p for p in RELATIONS if "far" not in p and p not in _MORE_SIDES) + "."


class CaptionError(ValueError):
    """A caption from which subject, relation and object cannot be read."""


@dataclass(frozen=True)
class Relation:
    """One directed relation of a caption.

    ``subject``, ``phrase`` and ``object`` are lower-case texts without determiners; ``axis`` is the
    unit vector (x right, y down) along which the subject lies from the object. The spans index
    the caption: ``subject_span`` and ``object_span`` include the determiner.
    """

    subject: str
    phrase: str
    object: str
    axis: tuple[float, float]
    subject_span: tuple[int, int]
    phrase_span: tuple[int, int]
    object_span: tuple[int, int]


def article(noun: str) -> str:
    """The noun with its indefinite article: "a dog", "an owl"."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def relate(subject: str, phrase: str, obj: str) -> str:
    """The caption that says it: ``relate("dog", "above", "owl")`` is "a dog above an owl"."""
    _axis_of(phrase)
    return f"{article(subject)} {phrase} {article(obj)}"


def _axis_of(phrase: str) -> tuple[float, float]:
    if phrase not in RELATIONS:
        raise CaptionError(f"Unknown relation phrase {phrase!r}. {_KNOWN}")
    return RELATIONS[phrase]


@lru_cache(maxsize=65536)
def parse_relations(caption: str) -> tuple[Relation, ...]:
    """All directed relations of a caption, in reading order.

    The longest phrase of the lexicon wins. The subject is the noun phrase that ends before the
    relation, the object the one that starts after it; both keep every word ("dining table", "tv").

    Raises
    ------
    CaptionError : no known relation phrase, or no noun phrase on one of its sides.
    """
    caption = _normal(caption)
    text = caption.lower()
    if len(text) != len(caption):  # a few letters change length with case: spans would slip
        text = caption
    found = list(_PHRASE.finditer(text))
    if not found:
        raise CaptionError(f"No relation phrase in {caption!r}. {_KNOWN}")
    preamble = _PREAMBLE.match(text)
    relations, start = [], preamble.end() if preamble else 0
    for match in found:
        phrase = " ".join(match.group().split())
        if negated := _NEGATIONS & {word.group() for word in _WORD.finditer(text, start, match.start())}:
            raise CaptionError(f"{caption!r} is negated ({min(negated)!r}); its direction is not read.")
        subject_span, subject = _noun_before(text, start, match.start())
        object_span, obj = _noun_after(text, match.end())
        for side, words in (("before", subject), ("after", obj)):
            if not words or words.split()[0] in _NO_NOUN:
                raise CaptionError(f"No noun phrase {side} {phrase!r} in {caption!r}.")
        relations.append(
            Relation(subject, phrase, obj, RELATIONS[phrase], subject_span, match.span(), object_span)
        )
        start = match.end()
    return tuple(relations)


def _normal(caption: str) -> str:
    """The caption with accents composed; spans of a :class:`Relation` index this form."""
    if not isinstance(caption, str) or not caption.strip():
        raise CaptionError(f"A caption is a non-empty text, not {caption!r}.")
    return unicodedata.normalize("NFC", caption)


def parse_relation(caption: str) -> Relation:
    """The one relation of a caption; a CaptionError if there is none or more than one."""
    relations = parse_relations(caption)
    if len(relations) > 1:
        phrases = ", ".join(repr(relation.phrase) for relation in relations)
        raise CaptionError(f"{caption!r} holds {len(relations)} relations ({phrases}), not one.")
    return relations[0]


def _noun_before(text: str, start: int, end: int) -> tuple[tuple[int, int], str]:
    """The last noun phrase of text[start:end], its span with the determiner."""
    words = list(_WORD.finditer(text, start, end))
    verbs = [i for i, word in enumerate(words) if word.group() in _BE]
    if verbs:  # "the man is walking behind": the noun ends before the verb
        words = words[: verbs[-1]]
    while len(words) > 1 and words[-1].group() in _BETWEEN:
        words.pop()
    noun: list[re.Match] = []
    while words and words[-1].group() not in _DETERMINERS | _NOUN_ENDS:
        noun.insert(0, words.pop())
        if words and re.search(r"[^\s\w'’-]", text[words[-1].end() : noun[0].start()]):
            break  # punctuation: another phrase
    return _span_and_text(text, words[-1:], noun)


def _noun_after(text: str, start: int) -> tuple[tuple[int, int], str]:
    """The first noun phrase of text[start:], its span with the determiner."""
    words = list(_WORD.finditer(text, start))
    determiners: list[re.Match] = []
    while words and words[0].group() in _DETERMINERS:
        determiners.append(words.pop(0))
    noun: list[re.Match] = []
    for word in words:
        if word.group() in _DETERMINERS | _NOUN_ENDS or _PHRASE.match(text, word.start()):
            break
        if noun and re.search(r"[^\s\w'’-]", text[noun[-1].end() : word.start()]):
            break
        noun.append(word)
    while noun and noun[-1].group() in {"of", "to"}:
        noun.pop()
    return _span_and_text(text, determiners, noun)


def _span_and_text(text, before, noun) -> tuple[tuple[int, int], str]:
    if not noun:
        return (0, 0), ""
    first = noun[0]
    if before and before[-1].group() in _DETERMINERS:
        first = before[0] if before[0].group() in _DETERMINERS else before[-1]
    phrase = " ".join(text[noun[0].start() : noun[-1].end()].split())
    return (first.start(), noun[-1].end()), phrase


def _rebuild(caption: str, pieces: list[tuple[tuple[int, int], str]]) -> str:
    """Replace spans of a caption by texts."""
    for (start, end), text in sorted(pieces, reverse=True):
        caption = caption[:start] + text + caption[end:]
    return caption


def swap(caption: str) -> str:
    """Exchange subject and object, each with its determiner: (a r b) to (b r a)."""
    relation, caption = parse_relation(caption), _normal(caption)
    subject, obj = (caption[slice(*span)] for span in (relation.subject_span, relation.object_span))
    capital = relation.subject_span[0] == 0 and caption[0].isupper()
    if capital:
        subject, obj = subject[:1].lower() + subject[1:], obj[:1].upper() + obj[1:]
    return _rebuild(caption, [(relation.subject_span, obj), (relation.object_span, subject)])


def flip(caption: str) -> str:
    """Replace the relation by its opposite: (a r b) to (a r' b)."""
    relation = parse_relation(caption)
    return _rebuild(_normal(caption), [(relation.phrase_span, OPPOSITES[relation.phrase])])


def paraphrases(caption: str) -> list[str]:
    """The same statement with each synonym of its relation phrase (perhaps none)."""
    relation, caption = parse_relation(caption), _normal(caption)
    return [_rebuild(caption, [(relation.phrase_span, p)]) for p in SYNONYMS[relation.phrase]]


def orbit(caption: str) -> tuple[str, str, str, str]:
    """The four variants (a r b), (a r' b), (b r a), (b r' a) of a caption."""
    return caption, flip(caption), swap(caption), flip(swap(caption))


# --- which words are aligned ---------------------------------------------------------------------

# Words that name nothing to look for. The published kit has a list of its own.
_STOP_WORDS = (
    _DETERMINERS
    | _BE
    | (_BETWEEN - {"right"})
    | frozenset(["and", "or", "but", "with", "from", "into", "onto", "near", "there", "photo", "picture", "image"])
    | frozenset(["has", "have", "had", "side", "for", "who", "which", "while", "not", "very"])
)  # fmt: skip
_MOST_WORDS = 12


def noun_phrases(caption: str) -> tuple[str, ...]:
    """The distinct subjects and objects of a caption, in reading order."""
    return tuple(dict.fromkeys(noun for r in parse_relations(caption) for noun in (r.subject, r.object)))


def content_words(caption: str) -> tuple[str, ...]:
    """The published choice of words: alphabetic, longer than two letters, no stop word, the first 12.

    Words of the relation phrase ("left", "above") stay in.
    """
    words = (match.group() for match in _WORD.finditer(caption.lower()))
    kept = (w for w in words if w.isalpha() and len(w) > 2 and w not in _STOP_WORDS)
    return tuple(dict.fromkeys(kept))[:_MOST_WORDS]
