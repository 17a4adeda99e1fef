"""Names and words as the API takes them, whatever the values are that they are made of."""

import re
from collections import Counter

import pytest

from agentdyno.cluster.settings import new_run_id
from tests.k8s.pods import of_kind, pods
from tests.k8s.programs import Programs, Refused
from tests.k8s.test_valid import VERSIONS

LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LONGEST = "a" * 24
# What YAML would read as a number, a truth value or something else than a word.
WORDS = (
    *("--set-string", "framework=1,adapter=2,backend.model=3,placement.label=4,image.pullSecrets[0]=5"),
    *("--set-string", "load.warmup=6,load.duration=7,load.cooldown=8,load.requestTimeout=9,sut.env.on=no"),
    *("--set-string", "proof.existingSecret=10,grafana.admin.existingSecret=11,grafana.admin.userKey=12"),
    *("--set-string", "rbac.subjects[0].kind=User,rbac.subjects[0].name=14"),
    *("--set-string", "rbac.subjects[1].kind=ServiceAccount,rbac.subjects[1].name=ci,rbac.subjects[1].namespace=15"),
    *("--set-string", "run.id=16,networkPolicy.dns.namespace=17,networkPolicy.outside.namespaces[0]=18"),
    *("--set", "load.enabled=true,tempo.storage.persistent=true"),
    *("--set-string", "tempo.storage.storageClass=19"),
)
VLLM = (
    *("--set-string", "backend.kind=vllm,backend.vllm.model=20,backend.vllm.revision=21 #x"),
    *("--set-string", "backend.vllm.toolCallParser=a: b,backend.vllm.cache.existingClaim=22"),
    *("--set-string", "backend.vllm.tokenSecret.name=23,backend.vllm.tokenSecret.key=24"),
)
URL = (
    *("--set-string", "backend.kind=url,backend.url.address=http://25/v1,backend.url.apiKey.existingSecret=26"),
    *("--set-string", "backend.url.apiKey.key=27"),
)


@pytest.mark.parametrize("backend", [(), VLLM, URL], ids=["mock", "vllm", "url"])
def test_words_stay_words_that_look_like_something_else(tools: Programs, backend: tuple[str, ...]) -> None:
    objects = tools.objects(*WORDS, *backend)
    assert tools.validate(objects, VERSIONS[-1]) == []
    said = {c["name"]: c.get("args", []) for pod in pods(objects) for c in pod.containers}
    assert said["host"][said["host"].index("--model") + 1] == "3"
    if backend is VLLM:
        assert {"--served-model-name=3", "--revision=21 #x", "--tool-call-parser=a: b"} <= set(said["vllm"])
    assert said["locust"][said["locust"].index("--duration") + 1] == "7"


def test_a_release_on_the_limit_has_names_that_kubernetes_takes(tools: Programs) -> None:
    settings = f"load.enabled=true,load.workers=1000,run.id={new_run_id()}"
    objects = tools.objects("--set", settings, release=LONGEST)
    jobs = of_kind(objects, "Job")
    (worker,) = (name for name in jobs if "worker" in name)
    # An indexed Job's pods have its name and their number as their host name, which the API sees to at once.
    assert len(f"{worker}-{jobs[worker]['spec']['completions'] - 1}") == 63
    for name in (*jobs, *of_kind(objects, "Service"), f"{worker}-999"):
        assert LABEL.fullmatch(name), name


@pytest.mark.parametrize(
    ("release", "settings", "sentence"),
    [
        (f"{LONGEST}a", "replicas=1", "is too long: it can have 24 characters"),
        (LONGEST, "load.workers=1001", "is too long: it can have 23 characters"),
        ("9a", "replicas=1", "must begin with a letter"),
        ("a.b", "replicas=1", "have lower-case letters, digits and dashes alone"),
    ],
)
def test_a_release_whose_names_kubernetes_would_refuse_is_refused_at_install(
    tools: Programs, release: str, settings: str, sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        tools.template("--set", settings, release=release)
    assert sentence in str(refused.value)


def test_no_variable_is_there_twice(tools: Programs) -> None:
    objects = tools.objects("--set-string", "framework=langchain,sut.env.LANGSMITH_TRACING=true,sut.env.MODE=fast")
    for pod in pods(objects):
        for container in pod.containers:
            names = Counter(variable["name"] for variable in container.get("env", []))
            assert set(names.values()) <= {1}, (pod.owner, names)
    (sut,) = (pod for pod in pods(objects) if pod.component == "sut")
    assert {"name": "LANGSMITH_TRACING", "value": "true"} in sut.containers[0]["env"]
