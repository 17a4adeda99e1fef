"""Reading rendered objects: pods, containers, and what a set of NetworkPolicies lets through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
COMPONENT = "app.kubernetes.io/component"


@dataclass(frozen=True)
class Pod:
    """A pod as a workload makes it. owner: kind and name of the workload."""

    owner: str
    labels: dict[str, str]
    spec: Object
    workload: Object

    @property
    def component(self) -> str:
        return self.labels[COMPONENT]

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def pods(objects: list[Object]) -> list[Pod]:
    """One for each workload."""
    found = []
    for o in objects:
        name = f"{o['kind']}/{o['metadata']['name']}"
        if o["kind"] == "Pod":
            found.append(Pod(name, o["metadata"]["labels"], o["spec"], o))
        elif o["kind"] in ("Deployment", "Job"):
            template = o["spec"]["template"]
            found.append(Pod(name, template["metadata"]["labels"], template["spec"], o))
        else:
            assert "template" not in o.get("spec", {}), f"{name} makes pods that these tests do not look at"
    return found


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """By name."""
    return {o["metadata"]["name"]: o for o in objects if o["kind"] == kind}


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """A label selector; empty selects all."""
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def quantity(text: str) -> float:
    """A Kubernetes quantity as a number."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text).groups()
    return float(number) * {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9}.get(
        unit, 1024 ** ("", "Ki", "Mi", "Gi", "Ti").index(unit) if unit.endswith("i") else 1
    )


class Network:
    """What the policies allow, by the rules of Kubernetes: nothing for a selected pod but what one of them says."""

    def __init__(self, objects: list[Object]) -> None:
        self._policies = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]

    def allows(self, source: dict[str, str], target: dict[str, str], port: int) -> bool:
        """A connection from a pod to another, both ends asked."""
        return self._one_way("Egress", "egress", "to", source, target, port) and self._one_way(
            "Ingress", "ingress", "from", target, source, port
        )

    def leaves(self, source: dict[str, str]) -> list[tuple[str, list[int]]]:
        """Where a pod may go that is no pod of ours, for names aside: blocks of addresses or namespaces, and ports."""
        return [
            (_outside(peer), [p["port"] for p in rule["ports"]])
            for policy in self._policies
            if matches(policy["podSelector"], source)
            for rule in policy.get("egress", [])
            if {p["protocol"] for p in rule["ports"]} == {"TCP"}
            for peer in rule["to"]
            if "podSelector" not in peer
        ]

    def _one_way(self, way: str, rules: str, peers: str, own: dict[str, str], other: dict[str, str], port: int) -> bool:
        selecting = [p for p in self._policies if matches(p["podSelector"], own) and way in p["policyTypes"]]
        if not selecting:
            return True
        return any(
            any("podSelector" in peer and matches(peer["podSelector"], other) for peer in rule[peers])
            and any(allowed["port"] == port and allowed["protocol"] == "TCP" for allowed in rule["ports"])
            for policy in selecting
            for rule in policy.get(rules, [])
        )


def _outside(peer: Object) -> str:
    """A peer that is no pod of ours, in a word."""
    if "ipBlock" in peer:
        return peer["ipBlock"]["cidr"]
    ((_, name),) = peer["namespaceSelector"]["matchLabels"].items()
    return name
