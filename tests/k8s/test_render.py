"""Step 1: the chart lints, every example renders, and a value that cannot work is refused in words."""

import re
import subprocess

import pytest
import yaml

from tests.k8s.conftest import CASES, EXAMPLES
from tests.k8s.programs import CHART, ROOT, Programs, Refused


def test_it_lints(tools: Programs) -> None:
    command = [str(tools.helm), "lint", "--strict", str(CHART), *(word for file in EXAMPLES for word in ("-f", file))]
    for words in (command[:4], command):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_an_example_for_each_kind_of_cluster() -> None:
    names = {file.name for file in EXAMPLES}
    assert names == {"kind-values.yaml", "gpu-values.yaml", "existing-observability-values.yaml"}
    # A kind cluster's configuration is no values file, and tools that look for those go by the name.
    assert (ROOT / "k8s" / "kind-cluster.yaml").exists()


@pytest.mark.parametrize("case", CASES)
def test_it_renders(tools: Programs, case: str) -> None:
    files, arguments = CASES[case]
    text = tools.template(*arguments, values=files)
    assert "<no value>" not in text
    assert not re.search(r"%!\w\(", text)
    text = re.sub(r"\{\{ ?\$(labels|value)\b[^}]*\}\}", "", text)  # Prometheus' own, in alerts
    assert "{{" not in re.sub(r"(?s)  \w[\w-]*\.json: \|.*?(?=\n---|\Z)", "", text)


def test_every_framework_renders_with_its_own_image(tools: Programs) -> None:
    frameworks = yaml.safe_load((CHART / "files" / "frameworks.yaml").read_text())
    for name, facts in frameworks.items():
        objects = tools.objects("--set", f"framework={name}")
        (sut,) = (o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "dyno-sut")
        (host, _) = sut["spec"]["template"]["spec"]["containers"]
        assert host["image"] == f"agentdyno/host-{facts['adapter']}:0.1.0"
        variables = {v["name"]: v.get("value") for v in host["env"]}
        assert variables.items() >= facts.get("env", {}).items()
        assert sut["metadata"]["labels"]["agentdyno.io/framework"] == name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("nosuchvalue=1", "additional properties 'nosuchvalue' not allowed"),
        ("load.nosuch=1", "at '/load': additional properties 'nosuch' not allowed"),
        ("backend.vllm.gpu.nosuch=1", "at '/backend/vllm/gpu': additional properties 'nosuch' not allowed"),
        ("replicas=-1", "at '/replicas': minimum: got -1, want 0"),
        ("replicas=many", "at '/replicas': got string, want integer"),
        ("load.rate=0", "at '/load/rate': exclusiveMinimum"),
        ("load.rate=0.0", "at '/load/rate': '0.0' does not match pattern"),
        ("collector.keepPercent=101", "collector.keepPercent is a share of the traces, at most 100"),
        ("backend.vllm.gpuMemoryUtilization=1.1", "is a share of the GPU's memory, at most 1"),
        (
            "backend.kind=vllm,backend.vllm.model=Qwen/Qwen2.5-7B-Instruct-AWQ",
            "backend.vllm.revision is a commit of Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4. Set it to one of Qwen/Qwen2.5-7B",
        ),
        ("load.duration=long", "at '/load/duration': 'long' does not match pattern"),
        ("sut.resources.cpu=lots", "at '/sut/resources/cpu': 'lots' does not match pattern"),
        ("run.scenario=loop", "at '/run/scenario': value must be one of 'chain', 'parallel'"),
        ("run.timing.ttft_ms=slow", "at '/run/timing/ttft_ms': 'slow' does not match pattern"),
        ("backend.kind=gpt", "at '/backend/kind': value must be one of 'mock', 'vllm', 'url'"),
        ("proof.key=secret", "at '/proof/key': 'secret' does not match pattern"),
        ("placement.ownNode=maybe", "at '/placement/ownNode': value must be one of"),
        ("run.id=A_B", "at '/run/id': 'A_B' does not match pattern"),
        ("framework=nix", 'There is no framework "nix"; there are autogen, bare, bare-openai, langchain'),
        ("prometheus.image.tag=latest", "prometheus.image.tag is `latest`, which is another image tomorrow"),
        ("image.tag=latest", "image.tag is `latest`"),
        ("sut.env.OPENAI_API_KEY=x", "sut.env.OPENAI_API_KEY looks like a secret"),
        ("sut.env.NO_PROXY=x", 'sut.env.NO_PROXY cannot be set: every process of a run has it as "*"'),
        ("sut.env.PYTHONHASHSEED=1", "at '/sut/env/PYTHONHASHSEED': got number, want string"),
        ("backend.kind=url", "backend.url.address must be the server's base URL, ending in /v1"),
        ("backend.kind=url,backend.url.address=http://a/v1", "backend.model must name a model of that server"),
        ("backend.url.address=http://a", "at '/backend/url/address': 'http://a' does not match pattern"),
        ("load.enabled=true", "load.enabled starts a run, which needs a name of its own: set run.id"),
        ("load.keepRecordsSeconds=99999", "must be below load.deadlineSeconds"),
        ("collector.endpoint=http://a:4318", "set collector.enabled to false, or leave it empty"),
    ],
)
def test_a_value_that_cannot_work_is_refused_in_words(tools: Programs, setting: str, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        tools.template("--set", setting)
    assert sentence in str(refused.value)


def test_the_schema_knows_every_value_and_no_other(tools: Programs) -> None:
    """Whatever is an object is closed, or says of what its free part consists."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    open_ones: list[str] = []

    def walk(node: object, path: str) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object" and path != "/properties/global" and "additionalProperties" not in node:
                open_ones.append(path)
            if node.get("additionalProperties") is True:
                open_ones.append(path)
            for key, value in node.items():
                walk(value, f"{path}/{key}")

    walk(schema, "")
    assert open_ones == []
    assert set(schema["properties"]) - {"global"} == set(yaml.safe_load((CHART / "values.yaml").read_text()))
    assert tools.against_schema(yaml.safe_load((CHART / "values.yaml").read_text()), schema) == []


def test_a_framework_of_ones_own_needs_its_folder_and_nothing_else(tools: Programs) -> None:
    objects = tools.objects("--set", "framework=mine,adapter=my-folder,sut.env.MODE=fast")
    (sut,) = (o for o in objects if o["kind"] == "Deployment" and o["metadata"]["name"] == "dyno-sut")
    (host, _) = sut["spec"]["template"]["spec"]["containers"]
    assert host["image"] == "agentdyno/host-my-folder:0.1.0"
    assert {"name": "MODE", "value": "fast"} in host["env"]


@pytest.mark.parametrize(("rate", "workers"), [("0.5", 1), ("200", 1), ("400.5", 2), ("20000", 50), ("1200000", 3000)])
def test_the_number_of_workers_follows_from_the_rate(tools: Programs, rate: str, workers: int) -> None:
    objects = tools.objects("--set", f"load.enabled=true,run.id=a,load.rate={rate}")
    (job,) = (o for o in objects if o["kind"] == "Job" and "load-worker" in o["metadata"]["name"])
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (workers, workers)
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--plan-workers") + 1] == str(workers)
    assert arguments[arguments.index("--rate") + 1] == str(rate)
