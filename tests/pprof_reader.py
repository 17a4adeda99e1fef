"""A reader of profile.proto that shares nothing with ours: Google's protobuf, from the published field numbers."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_INT64, _UINT64, _STRING, _MESSAGE, _BOOL = 3, 4, 9, 11, 8
_MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "ValueType": [("type", 1, _INT64, False), ("unit", 2, _INT64, False)],
    "Label": [("key", 1, _INT64, False), ("str", 2, _INT64, False), ("num", 3, _INT64, False)],
    "Sample": [("location_id", 1, _UINT64, True), ("value", 2, _INT64, True), ("label", 3, "Label", True)],
    "Mapping": [("id", 1, _UINT64, False), ("filename", 5, _INT64, False), ("has_functions", 7, _BOOL, False)],
    "Line": [("function_id", 1, _UINT64, False), ("line", 2, _INT64, False)],
    "Location": [("id", 1, _UINT64, False), ("mapping_id", 2, _UINT64, False), ("line", 4, "Line", True)],
    "Function": [("id", 1, _UINT64, False), ("name", 2, _INT64, False), ("filename", 4, _INT64, False)],
    "Profile": [
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("mapping", 3, "Mapping", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, _STRING, True),
        ("time_nanos", 9, _INT64, False),
        ("duration_nanos", 10, _INT64, False),
        ("period_type", 11, "ValueType", False),
        ("period", 12, _INT64, False),
        ("comment", 13, _INT64, True),
        ("default_sample_type", 14, _INT64, False),
    ],
}


def _profile_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, many in fields:
            made = message.field.add(name=field, number=number, label=3 if many else 1)
            if isinstance(kind, str):
                made.type, made.type_name = _MESSAGE, f".perftools.{kind}"
            else:
                made.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.Profile"))


_Profile = _profile_class()


class Read:
    """A profile as protobuf reads it, with its texts looked up."""

    def __init__(self, content: bytes) -> None:
        self.message = _Profile.FromString(gzip.decompress(content))
        self.texts = list(self.message.string_table)
        self.types = [(self.texts[type_.type], self.texts[type_.unit]) for type_ in self.message.sample_type]
        functions = {each.id: each for each in self.message.function}
        self.locations = {
            each.id: [
                (
                    self.texts[functions[line.function_id].name],
                    self.texts[functions[line.function_id].filename],
                    line.line,
                )
                for line in each.line
            ]
            for each in self.message.location
        }

    @classmethod
    def file(cls, path: Path) -> Read:
        return cls(path.read_bytes())

    def total(self, name: str) -> int:
        at = [type_ for type_, _ in self.types].index(name)
        return sum(sample.value[at] for sample in self.message.sample)

    def by_function(self, name: str) -> Counter[str]:
        """The value of each function with all that it called; a recursive one once."""
        at = [type_ for type_, _ in self.types].index(name)
        found: Counter[str] = Counter()
        for sample in self.message.sample:
            for function in {line[0] for id_ in sample.location_id for line in self.locations[id_]}:
                found[function] += sample.value[at]
        return found

    def labels(self) -> list[dict[str, str]]:
        return [
            {self.texts[label.key]: self.texts[label.str] for label in sample.label} for sample in self.message.sample
        ]
