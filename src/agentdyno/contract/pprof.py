"""Heap profiles in pprof's profile.proto: what they hold, and how they are written and read.

Written by hand on the wire format, with no protobuf library: the encoder runs in the profiled process, where a
distribution of ours could stand in the way of the framework's own version of it. The messages are few and flat.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# Go's names and order for a heap profile, which every pprof reader knows.
ALLOC_OBJECTS = ("alloc_objects", "count")
ALLOC_SPACE = ("alloc_space", "bytes")
INUSE_OBJECTS = ("inuse_objects", "count")
INUSE_SPACE = ("inuse_space", "bytes")
HEAP_TYPES = (ALLOC_OBJECTS, ALLOC_SPACE, INUSE_OBJECTS, INUSE_SPACE)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_64_BITS = (1 << 64) - 1


class PprofError(ValueError):
    """Bytes that are no profile; the text says what is wrong with them."""


class Frame(NamedTuple):
    """One call of a stack: a function, its file, and the line that was running in it."""

    function: str
    file: str
    line: int


Stack = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One stack, leaf first, and a value for each of the profile's types. labels: texts only; others are left out."""

    stack: Stack
    values: tuple[int, ...]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile. types: (name, unit) of each value. period: of `period_type`, how far apart the samples are."""

    types: tuple[tuple[str, str], ...]
    samples: tuple[Sample, ...]
    time_ns: int = 0
    duration_ns: int = 0
    period_type: tuple[str, str] = ("space", "bytes")
    period: int = 0
    program: str = ""
    comments: tuple[str, ...] = ()

    def total(self, type_: tuple[str, str]) -> int:
        """The sum of one value over all samples. Raises ValueError for a type that it does not have."""
        at = self.types.index(type_)
        return sum(sample.values[at] for sample in self.samples)


def write_gzip(profile: Profile) -> bytes:
    """As `go tool pprof` and pprof-reading sites open it; the same profile always gives the same bytes."""
    return gzip.compress(encode(profile), mtime=0)


def read_gzip(content: bytes) -> Profile:
    """The reverse. Raises PprofError."""
    try:
        plain = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise PprofError(f"This is no gzip file, or not a whole one: {error}.") from error
    return decode(plain)


# writing


def encode(profile: Profile) -> bytes:
    """The message, not compressed."""
    return _Encoder().profile(profile)


class _Encoder:
    """The tables of one profile. Ids of locations and functions count from 1, text 0 is empty."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[Frame, int] = {}

    def profile(self, profile: Profile) -> bytes:
        types = [_part(1, self._value_type(*type_)) for type_ in profile.types]
        samples = [_part(2, self._sample(sample)) for sample in profile.samples]
        # One mapping: the interpreter, with the names and lines all there, so that no reader looks for a binary.
        program = self._text(profile.program or "python")
        mapping = _part(3, _number(1, 1) + _number(5, program) + b"".join(_number(flag, 1) for flag in (7, 8, 9)))
        locations = [
            _part(4, _number(1, id_) + _number(2, 1) + _part(4, self._line(frame)))
            for frame, id_ in self._locations.items()
        ]
        functions = [
            _part(5, _number(1, id_) + _number(2, self._text(name)) + _number(3, self._text(name)) + self._file(file))
            for (name, file), id_ in self._functions.items()
        ]
        ends = [_number(9, profile.time_ns), _number(10, profile.duration_ns)]
        ends += [_part(11, self._value_type(*profile.period_type)), _number(12, profile.period)]
        ends += [_number(13, self._text(comment)) for comment in profile.comments]
        if INUSE_SPACE in profile.types:
            ends.append(_number(14, self._text(INUSE_SPACE[0])))
        texts = [_part(6, text.encode("utf-8", "replace")) for text in self._texts]
        return b"".join([*types, *samples, mapping, *locations, *functions, *texts, *ends])

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _value_type(self, name: str, unit: str) -> bytes:
        return _number(1, self._text(name)) + _number(2, self._text(unit))

    def _sample(self, sample: Sample) -> bytes:
        stack = b"".join(_varint(self._location(frame)) for frame in sample.stack)
        values = b"".join(_varint(value) for value in sample.values)
        labels = [
            _part(3, _number(1, self._text(key)) + _number(2, self._text(text))) for key, text in sample.labels.items()
        ]
        return _part(1, stack) + _part(2, values) + b"".join(labels)

    def _location(self, frame: Frame) -> int:
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def _line(self, frame: Frame) -> bytes:
        key = (frame.function, frame.file)
        function = self._functions.setdefault(key, len(self._functions) + 1)
        return _number(1, function) + _number(2, frame.line)

    def _file(self, file: str) -> bytes:
        return _number(4, self._text(file))


def _varint(value: int) -> bytes:
    value &= _64_BITS  # a negative one, in a difference, is written as its two's complement
    pieces = bytearray()
    while value > 0x7F:
        pieces.append(value & 0x7F | 0x80)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _number(field_: int, value: int) -> bytes:
    return _varint(field_ << 3 | _VARINT) + _varint(value)


def _part(field_: int, content: bytes) -> bytes:
    return _varint(field_ << 3 | _BYTES) + _varint(len(content)) + content


# reading


def decode(content: bytes) -> Profile:
    """Read a message, whoever wrote it; inlined lines become frames of their own. Raises PprofError."""
    try:
        return _decode(_Message(content))
    except (IndexError, KeyError, UnicodeDecodeError, TypeError) as error:
        raise PprofError(f"This is no profile.proto message: {type(error).__name__}: {error}.") from error


class _Message:
    """The fields of one message, in the order in which they stand."""

    def __init__(self, content: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _fields(content):
            self._fields.setdefault(number, []).append(value)

    def number(self, field_: int) -> int:
        """The last value of the field; 0 where it is not there."""
        value = self._fields.get(field_, [0])[-1]
        if not isinstance(value, int):
            raise TypeError(f"field {field_} is not a number")
        return value

    def numbers(self, field_: int) -> list[int]:
        """All values, packed or one by one."""
        found: list[int] = []
        for value in self._fields.get(field_, []):
            found += [value] if isinstance(value, int) else _packed(value)
        return found

    def pieces(self, field_: int) -> list[bytes]:
        found = self._fields.get(field_, [])
        pieces = [value for value in found if isinstance(value, bytes)]
        if len(pieces) != len(found):
            raise TypeError(f"field {field_} is a number")
        return pieces

    def messages(self, field_: int) -> list[_Message]:
        return [_Message(piece) for piece in self.pieces(field_)]


def _decode(message: _Message) -> Profile:
    texts = [piece.decode("utf-8") for piece in message.pieces(6)] or [""]
    functions = {each.number(1): (texts[each.number(2)], texts[each.number(4)]) for each in message.messages(5)}
    locations = {
        each.number(1): tuple(
            Frame(*functions[line.number(1)], _signed(line.number(2)))  # an inlined call stands before its caller
            for line in each.messages(4)
        )
        for each in message.messages(4)
    }
    samples = []
    for each in message.messages(2):
        stack = tuple(frame for id_ in each.numbers(1) for frame in locations[id_])
        labels = {texts[label.number(1)]: texts[label.number(2)] for label in each.messages(3) if label.number(2)}
        samples.append(Sample(stack, tuple(_signed(value) for value in each.numbers(2)), labels))
    mappings = message.messages(3)
    period_type = message.messages(11)
    return Profile(
        types=tuple(_type(each, texts) for each in message.messages(1)),
        samples=tuple(samples),
        time_ns=message.number(9),
        duration_ns=message.number(10),
        period_type=_type(period_type[0], texts) if period_type else ("", ""),
        period=_signed(message.number(12)),
        program=texts[mappings[0].number(5)] if mappings else "",
        comments=tuple(texts[number] for number in message.numbers(13)),
    )


def _type(message: _Message, texts: list[str]) -> tuple[str, str]:
    return texts[message.number(1)], texts[message.number(2)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _packed(content: bytes) -> list[int]:
    found, at = [], 0
    while at < len(content):
        value, at = _read_varint(content, at)
        found.append(value)
    return found


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, at
        shift += 7


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(content, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(content, at)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise PprofError(f"This is no profile.proto message: wire type {kind} at byte {at}.")
        if at + size > len(content):
            raise PprofError("This is not a whole profile.proto message: it ends within a field.")
        yield key >> 3, content[at : at + size]
        at += size


def difference(later: Profile, earlier: Profile) -> Profile:
    """`later` minus `earlier`, stack by stack; what did not change is left out, the labels are the later one's."""
    values: dict[Stack, list[int]] = {}
    labels: dict[Stack, Mapping[str, str]] = {}
    for sign, samples in ((-1, earlier.samples), (1, later.samples)):
        for sample in samples:
            known = values.setdefault(sample.stack, [0] * len(later.types))
            values[sample.stack] = [was + sign * now for was, now in zip(known, sample.values, strict=True)]
            labels[sample.stack] = sample.labels
    changed = tuple(Sample(stack, tuple(now), labels[stack]) for stack, now in values.items() if any(now))
    return Profile(
        types=later.types,
        samples=changed,
        time_ns=later.time_ns,
        duration_ns=later.time_ns - earlier.time_ns,
        period_type=later.period_type,
        period=later.period,
        program=later.program,
        comments=later.comments,
    )


def merged(samples: Iterable[Sample]) -> dict[Stack, list[int]]:
    """The values of each stack, summed over the samples that share it."""
    found: dict[Stack, list[int]] = {}
    for sample in samples:
        known = found.setdefault(sample.stack, [0] * len(sample.values))
        for at, value in enumerate(sample.values):
            known[at] += value
    return found
