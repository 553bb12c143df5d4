"""Relation phrases, their axes, and captions taken apart and put together again.

A directed spatial caption says *subject, relation, object*: "a dog to the left of a cup". No tagger
model is needed to find the three: the relation is a phrase of a fixed lexicon, and the nouns are
what stands between determiners and that phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
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


def _lexicon() -> tuple[dict[str, tuple[float, float]], dict[str, str], dict[str, list[str]], dict[str, str]]:
    axes, opposites, synonyms, canonical = {}, {}, {}, {}
    sides = [[side.format(name) for side in _SIDES + _MORE_SIDES] for name in ("left", "right")]
    for axis, phrases, others in [(LEFT, *sides), *_OPPOSITES]:
        negated = tuple(-component + 0.0 for component in axis)
        for same, its_axis, opposite in ((phrases, axis, others), (others, negated, phrases)):
            natural = same[: len(_SIDES)]
            for phrase, other in zip(same, opposite, strict=True):
                axes[phrase], opposites[phrase] = its_axis, other
                synonyms[phrase] = [p for p in natural if p != phrase]
                canonical[phrase] = same[0]
    for phrase in _ALSO_ON:
        axes[phrase], opposites[phrase], synonyms[phrase], canonical[phrase] = UP, "under", [], "on top of"
    return axes, opposites, synonyms, canonical


#: Relation phrase -> axis along which the subject lies from the object; its opposite; the phrases that say the
#: same; the one of them that stands for all.
RELATIONS, OPPOSITES, SYNONYMS, CANONICAL = _lexicon()

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


# --- variants that keep the meaning, and variants that do not -------------------------------------

#: Attribute -> the attribute that says the contrary, and the one that says the same. They go before a noun.
ATTRIBUTE_OPPOSITES = {"big": "small", "small": "big", "large": "little", "little": "large"}
ATTRIBUTE_SYNONYMS = {"big": "large", "large": "big", "small": "little", "little": "small"}

#: Kinds of :func:`variants` that are false of a picture of which the caption is an accurate description.
NEGATIVES = (
    "nouns swapped",
    "relation flipped",
    "attribute bound to the wrong noun",
    "attribute replaced by its opposite",
    "noun replaced",
)
#: Kinds of :func:`variants` that are true wherever the caption is.
POSITIVES = ("relation paraphrased", "roles inverted", "attribute synonym", "conjunction reordered")

# A noun phrase that starts so speaks of another one, and means something else in front of it.
_POINTS_BACK = frozenset(["another", "his", "her", "its", "their"])
# Of what may stand between subject and relation, that which is as true of the object ("walking" is not).
_SAID_OF_BOTH = _BE | frozenset(
    [
        "being",
        "located",
        "positioned",
        "placed",
        "seen",
        "shown",
        "directly",
        "just",
        "immediately",
        "slightly",
        "also",
        "still",
        "now",
        "far",
    ]
)
_SEPARATOR = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+")


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what stands before it: "a big dog".

    ``determiner``, ``attribute`` (one of :data:`ATTRIBUTE_OPPOSITES`) and ``noun`` are lower-case texts, the
    first two perhaps empty. The spans index the caption, accents composed; ``span`` is the whole.
    """

    determiner: str
    attribute: str
    noun: str
    span: tuple[int, int]
    determiner_span: tuple[int, int]
    attribute_span: tuple[int, int]
    noun_span: tuple[int, int]


@dataclass(frozen=True)
class Variant:
    """A caption made of another one, and by what ``kind`` of edit; ``positive`` if it keeps the meaning."""

    kind: str
    text: str
    positive: bool


def attribute_opposite(attribute: str) -> str:
    """The contrary, "small" for "big"; a CaptionError names the known attributes if this is none."""
    return _attribute(ATTRIBUTE_OPPOSITES, attribute)


def attribute_synonym(attribute: str) -> str:
    """Another word for it, "large" for "big"; a CaptionError names the known attributes if this is none."""
    return _attribute(ATTRIBUTE_SYNONYMS, attribute)


def _attribute(lexicon: dict[str, str], attribute: str) -> str:
    if attribute not in lexicon:
        raise CaptionError(f"Unknown attribute {attribute!r}. Known attributes: {', '.join(lexicon)}.")
    return lexicon[attribute]


def _lower(caption: str) -> str:
    """The caption in lower case, if that keeps its spans."""
    return caption.lower() if len(caption.lower()) == len(caption) else caption


def _noun_phrase(text: str, span: tuple[int, int]) -> NounPhrase:
    """Take text[span] apart; it holds at least one word after its determiners."""
    words = list(_WORD.finditer(text, *span))
    determiner = attribute = None
    while words[0].group() in _DETERMINERS and len(words) > 1:
        determiner = words.pop(0)
    if words[0].group() in ATTRIBUTE_OPPOSITES and len(words) > 1:
        attribute = words.pop(0)
    spans = [match.span() if match else (span[0], span[0]) for match in (determiner, attribute)]
    spans.append((words[0].start(), words[-1].end()))
    texts = (" ".join(text[slice(*part)].split()) for part in spans)
    return NounPhrase(*texts, span, *spans)


def parse_conjunction(caption: str) -> tuple[NounPhrase, ...]:
    """The noun phrases of a caption that only lists them: "a photo of a big dog, a cup and a tree".

    Every noun phrase must start with a determiner: in "a black and white dog and a cup" the first "and" joins
    no nouns, and without a tagger nothing else tells.

    Raises
    ------
    CaptionError : no "and", a relation phrase or another word that is part of no noun phrase.
    """
    caption = _normal(caption)
    text = _lower(caption)

    def refuse(why: str) -> CaptionError:
        return CaptionError(f"{caption!r} is no conjunction of noun phrases: {why}.")

    if relation := _PHRASE.search(text):
        raise refuse(f"it states a relation ({relation.group()!r})")
    preamble = _PREAMBLE.match(text)
    start = preamble.end() if preamble else 0
    end = len(text.rstrip().removesuffix(".").rstrip())
    separators = list(_SEPARATOR.finditer(text, start, end))
    if not separators or "and" not in separators[-1].group():
        raise refuse("no 'and' joins its nouns")
    edges = [start, *(edge for separator in separators for edge in separator.span()), end]
    phrases = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        piece = text[first:last].strip()
        words = piece.split()
        if not words or words[0] not in _DETERMINERS:
            raise refuse(f"{piece!r} does not start with a determiner")
        for word in words:
            if not _WORD.fullmatch(word):
                raise refuse(f"{word!r} is no word")
        if strange := [w for w in words[1:] if w in _DETERMINERS | _NOUN_ENDS | _BE | _NEGATIONS]:
            raise refuse(f"{strange[0]!r} in {piece!r} belongs to no noun")
        if len(words) == 1 or words[1] in _NO_NOUN:
            raise refuse(f"{piece!r} names nothing")
        first = text.index(piece, first)
        phrases.append(_noun_phrase(text, (first, first + len(piece))))
    return tuple(phrases)


def _read(caption: str) -> tuple[Relation | None, tuple[NounPhrase, ...]]:
    """The caption's relation and its two noun phrases, or None and those that it lists."""
    text = _lower(_normal(caption))
    if not _PHRASE.search(text):
        return None, parse_conjunction(caption)
    relation = parse_relation(caption)
    spans = (relation.subject_span, relation.object_span)
    return relation, tuple(_noun_phrase(text, span) for span in spans)


def _like(old: str, new: str) -> str:
    """The new text with a capital where the old one has it."""
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _words_between(caption: str) -> list[str]:
    """Words between subject and relation; refused where the two noun phrases cannot change places.

    In "the man in the red shirt is behind the dog" the subject found is only the end of the true one; in "a
    man left of his dog" the object needs its subject.
    """
    relation, text = parse_relation(caption), _lower(_normal(caption))
    between = _WORD.findall(text, relation.subject_span[1], relation.phrase_span[0])
    around = _PREAMBLE.sub("", text[: relation.subject_span[0]]) + " " + text[relation.object_span[1] :]
    if rest := _WORD.findall(around) + [word for word in between if word not in _BE | _BETWEEN]:
        raise CaptionError(f"{caption!r} says more than its one relation ({rest[0]!r}); its nouns stay put.")
    _refuse_pointing_back(caption, _read(caption)[1])
    return between


def _refuse_pointing_back(caption: str, phrases: tuple[NounPhrase, ...]) -> None:
    for phrase in phrases:
        if phrase.determiner in _POINTS_BACK:
            raise CaptionError(f"{phrase.determiner!r} in {caption!r} points back; its nouns stay put.")


def _safe_swap(caption: str) -> str:
    """:func:`swap`, refused where it would tear a noun phrase apart."""
    _words_between(caption)
    return swap(caption)


def invert_roles(caption: str) -> str:
    """The same statement with the object as its subject: (a r b) to (b r' a).

    Raises
    ------
    CaptionError : the caption is no single relation, or says something besides it that would then be said of
        the other noun ("a man walking behind a bus").
    """
    if moved := [word for word in _words_between(caption) if word not in _SAID_OF_BOTH]:
        raise CaptionError(f"{moved[0]!r} in {caption!r} is said of the subject alone.")
    return flip(swap(caption))


def reorder(caption: str) -> str:
    """The same conjunction from its end: "a dog and a cup" to "a cup and a dog".

    Raises
    ------
    CaptionError : no conjunction, one that reads the same from its end, one with "his" or "another".
    """
    phrases, caption = parse_conjunction(caption), _normal(caption)
    _refuse_pointing_back(caption, phrases)
    texts = [caption[slice(*phrase.span)] for phrase in phrases]
    if texts[0][0].isupper() and phrases[0].span[0] == 0:
        texts[0] = texts[0][0].lower() + texts[0][1:]
        texts[-1] = texts[-1][0].upper() + texts[-1][1:]
    made = _rebuild(caption, [(phrase.span, t) for phrase, t in zip(phrases, texts[::-1], strict=True)])
    if made == caption:
        raise CaptionError(f"{caption!r} reads the same from its end.")
    return made


def rebind(caption: str) -> str:
    """Exchange two attributes: "a big dog and a small cup" to "a small dog and a big cup".

    The first attribute of the caption, and the first after it that does not mean the same.

    Raises
    ------
    CaptionError : no two attributes that differ in meaning, or a conjunction in which both are of the same
        noun, so that nothing changes.
    """
    relation, phrases = _read(caption)
    with_one = [phrase for phrase in phrases if phrase.attribute]
    others = [p for p in with_one if _sense(p.attribute) != _sense(with_one[0].attribute)]
    if not others:
        raise CaptionError(
            f"{caption!r} has no two attributes that differ in meaning. "
            f"Known attributes: {', '.join(ATTRIBUTE_OPPOSITES)}."
        )
    one, two = with_one[0], others[0]
    if relation is None and one.noun == two.noun:
        raise CaptionError(f"{caption!r} has both attributes at {one.noun!r}: exchanged, it says the same.")
    return _with_attributes(caption, {one: two.attribute, two: one.attribute})


def _sense(attribute: str) -> str:
    """One attribute for all that mean the same."""
    return min(attribute, ATTRIBUTE_SYNONYMS[attribute]) if attribute else ""


def _with_attributes(caption: str, changes: dict[NounPhrase, str]) -> str:
    """The caption with other attributes in noun phrases that have one."""
    caption, pieces = _normal(caption), []
    for phrase, attribute in changes.items():
        pieces.append((phrase.attribute_span, _like(caption[slice(*phrase.attribute_span)], attribute)))
        pieces += _article(caption, phrase, attribute)
    return _rebuild(caption, pieces)


def _article(caption: str, phrase: NounPhrase, following: str) -> list[tuple[tuple[int, int], str]]:
    """What to replace so that "a" or "an" agrees with the word that now follows it."""
    if phrase.determiner not in ("a", "an"):
        return []
    agreeing = article(following).split()[0]
    return [(phrase.determiner_span, _like(caption[slice(*phrase.determiner_span)], agreeing))]


def _phrases_with_attribute(caption: str) -> list[NounPhrase]:
    phrases = [phrase for phrase in _read(caption)[1] if phrase.attribute]
    if not phrases:
        raise CaptionError(
            f"No noun of {caption!r} has an attribute. Known attributes: {', '.join(ATTRIBUTE_OPPOSITES)}."
        )
    return phrases


def replace_attributes_by_synonyms(caption: str) -> str:
    """The same statement with every attribute's synonym; a CaptionError if the caption has no attribute."""
    phrases = _phrases_with_attribute(caption)
    return _with_attributes(caption, {phrase: attribute_synonym(phrase.attribute) for phrase in phrases})


def replace_attribute_by_opposite(caption: str) -> list[str]:
    """The caption with one attribute's opposite, for each of them; a CaptionError if it has no attribute."""
    phrases = _phrases_with_attribute(caption)
    return [_with_attributes(caption, {phrase: attribute_opposite(phrase.attribute)}) for phrase in phrases]


def replace_noun(caption: str, noun: str, replacement: str) -> str:
    """The caption about another thing; attributes stay: ("a big dog above a cup", "dog", "owl").

    Raises
    ------
    CaptionError : the caption does not name the noun, or names the replacement already; a replacement that
        is no noun.
    """
    phrases, caption = _read(caption)[1], _normal(caption)
    nouns, new = [phrase.noun for phrase in phrases], " ".join(replacement.lower().split())
    if noun not in nouns:
        raise CaptionError(f"{caption!r} names no {noun!r}, only {', '.join(map(repr, nouns))}.")
    if new in nouns:
        raise CaptionError(f"{caption!r} names {replacement!r} already; replace {noun!r} by something else.")
    pieces = []
    for phrase in phrases:
        if phrase.noun == noun:
            pieces.append((phrase.noun_span, _like(caption[slice(*phrase.noun_span)], replacement)))
            pieces += [] if phrase.attribute else _article(caption, phrase, replacement)
    made = _rebuild(caption, pieces)
    try:
        read = [phrase.noun for phrase in _read(made)[1]]
    except CaptionError:
        read = []
    if read != [new if name == noun else name for name in nouns]:
        raise CaptionError(f"{replacement!r} is no noun that could replace {noun!r} in {caption!r}.")
    return made


def variants(caption: str, replacement: str | Callable[[str], str | None] | None = None) -> list[Variant]:
    """Hard negatives and hard positives of a caption with one relation, or of a conjunction.

    The kinds that apply, in the order of :data:`NEGATIVES` and :data:`POSITIVES`; some of them several times
    (each synonym of a relation, each attribute, each noun). A negative says something else than the caption:
    never something that follows from it. So swapping the nouns of a conjunction, which states nothing that
    has a direction, is no negative but a positive, and "a dog left of a dog" is neither swapped nor flipped.
    A positive follows from the caption: a relation phrase means its axis, "far left" may lose its "far".

    Parameters
    ----------
    caption : with one relation phrase, or a conjunction as :func:`parse_conjunction` reads it; with
        attributes or without.
    replacement : the noun for "noun replaced", or a function from the noun that goes to the one that comes
        (None: that noun stays). Without it the kind is left out. Whether the new noun is absent from the
        picture, the caller must know.

    Raises
    ------
    CaptionError : the caption is neither; a replacement that :func:`replace_noun` refuses.

    Notes
    -----
    Kinds as in Kamath et al. 2024 (SWAP, REPLACE; hard positives), made without a language model.
    """
    said = _statement(caption)
    makers = {
        "nouns swapped": _safe_swap,
        "relation flipped": flip,
        "attribute bound to the wrong noun": rebind,
        "attribute replaced by its opposite": replace_attribute_by_opposite,
        "relation paraphrased": paraphrases,
        "roles inverted": invert_roles,
        "attribute synonym": replace_attributes_by_synonyms,
        "conjunction reordered": reorder,
    }

    def texts(kind: str) -> list[str]:
        if kind == "noun replaced":
            return _replaced(caption, replacement)
        try:
            made = makers[kind](caption)
        except CaptionError:  # the caption parses: the kind does not apply to it
            return []
        return [made] if isinstance(made, str) else made

    negatives = [Variant(kind, text, False) for kind in NEGATIVES for text in texts(kind)]
    positives = [Variant(kind, text, True) for kind in POSITIVES for text in texts(kind)]
    return [negative for negative in negatives if not _statement(negative.text) <= said] + positives


def _replaced(caption: str, replacement: str | Callable[[str], str | None] | None) -> list[str]:
    made = []
    for noun in dict.fromkeys(phrase.noun for phrase in _read(caption)[1]):
        new = replacement(noun) if callable(replacement) else replacement
        if new is not None:
            made.append(replace_noun(caption, noun, new))
    return made


def _statement(caption: str) -> frozenset:
    """What a caption says, as a set of facts: a subset of another caption's where it follows from that."""
    relation, phrases = _read(caption)
    things = [(_sense(phrase.attribute), phrase.noun) for phrase in phrases]
    if relation is None:
        return frozenset(things)
    if relation.axis in (RIGHT, DOWN):
        return frozenset([(tuple(-c + 0.0 for c in relation.axis), *things[::-1])])
    return frozenset([(relation.axis, *things)])
