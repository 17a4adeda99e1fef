"""The options of a bench: what is accepted becomes checked values, everything else is one sentence and no folder."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.cli import run
from agentdyno.contract.quantities import parse_duration_s, parse_rate_rps
from agentdyno.rig.backend_options import MOCK_MODEL, api_key
from agentdyno.rig.load import _arguments
from agentdyno.rig.option_values import OptionError
from agentdyno.rig.options import OBSERVED, Words, read

BAD = [
    ("rate", ["0", "-1", "abc", "", "1e3", "nan", "inf", "200 /s", "200/h", "٣", "100001", "1" * 400]),
    ("duration", ["0s", "0", "-5s", "", "10x", "1s1m", "60 s", "1h1h", "1e3s", "inf", "31d", "800h", "9" * 400]),
    ("warmup", ["-1s", "x", "", "800h"]),
    ("cooldown", ["-1s", "x", "", "800h"]),
    ("timeout", ["0", "0s", "x", "", "2h"]),
    ("ready_timeout", ["0s", "x", "", "2h"]),
    ("workers", ["0", "-1", "1.5", "65", "", "two", "٢", "9" * 5000]),
    ("seed", ["-1", "1.0", "", "x", "1000000000000000000"]),
    ("admission", ["0", "-1", "OFF", "", "on", "1.5", "100001"]),
    ("max_in_flight", ["0", "", "x", "100001"]),
    ("profile", ["", "soak", "Standard"]),
    ("observe", ["", "a\0b"]),
    ("scenario", ["", "Chain", "chains"]),
    (
        "backend",
        [
            "",
            "vllm",
            "ftp://127.0.0.1/v1",
            "http://",
            "http:///v1",
            "http://key@127.0.0.1/v1",
            "http://u:p@127.0.0.1/v1",
            "http://127.0.0.1:99999/v1",
            "http://127.0.0.1:x/v1",
            "http://[::1/v1",
            "http://127.0.0.1/v1?key=x",
            "http://127.0.0.1/v1 ",
            "http://127.0.0.1/v1",  # and no MODEL
        ],
    ),
    ("ttft", ["", "-1", "x", "const", "const:x", "const:-1", "uniform:5:1", "lognormal:1", "nan", "const:nan", "1e3"]),
    ("tps", ["", "-1", "x", "exp:1:2", "const:inf"]),
    ("tokens", ["", "-1", "x", "gamma:1:0"]),
    ("seats", ["0", "", "-1", "x", "1.5"]),
    (
        "tool_latency",
        [
            "",
            "x",
            "-1",
            "order_status",
            "order_status=",
            "no_tool=1",
            "order_status=1,",
            "order_status=1,order_status=2",
        ],
    ),
    ("out", ["", "a\0b"]),
]


@pytest.mark.parametrize(("option", "text"), [(option, text) for option, texts in BAD for text in texts])
def test_what_cannot_be_meant_is_a_sentence_that_names_the_option(option: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(Words(framework="bare", **{option: text}), environ={})
    said = str(caught.value)
    assert re.search(option.upper() + "|MODEL", said), said
    assert said.endswith(".")
    assert len(said) < 400
    assert "key" not in text or text not in said  # what may hold a secret is not repeated


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "fast"],
        ["--rate=-5"],
        ["--duration", "ten"],
        ["--workers", "0"],
        ["--scenario", "loop"],
        ["--ttft", "sometimes"],
        ["--backend", "http://127.0.0.1:1/v1"],
        ["--no-such-option", "1"],
        ["more"],
    ],
)
def test_on_the_command_line_it_exits_with_2_and_makes_no_folder(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "bare", *arguments, "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("agentdyno: ")
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_defaults() -> None:
    options = read(Words(framework="bare"), environ={"OPENAI_API_KEY": "sk"})
    plan = options.plan
    assert (plan.rate, plan.warmup_s, plan.duration_s, plan.cooldown_s, plan.timeout_s) == (200, 10, 60, 1, 10)
    assert (plan.workers, plan.max_in_flight, plan.seed, plan.scenario) == (1, 1000, 1, "chain")
    assert (options.admission, options.out, options.ready_timeout_s) == (64, Path("runs"), 120)
    assert (options.backend_url, options.model, options.profile) == (None, MOCK_MODEL, "default")
    assert options.api_key is None  # the mock needs none


def test_a_profile_sets_the_load_and_an_option_still_wins() -> None:
    plan = read(Words(framework="bare", profile="standard"), environ={}).plan
    assert (plan.rate, plan.warmup_s, plan.duration_s) == (200, 30, 600)
    assert read(Words(framework="bare", profile="standard", rate="50"), environ={}).plan.rate == 50


def test_every_form_that_is_offered() -> None:
    words = Words(
        framework="bare",
        rate="12000/min",
        duration="1m30s",
        warmup="0s",
        cooldown="500ms",
        admission="off",
        seed="999999999999999999",
        ttft="lognormal:120:0.4",
        tps="80",
        tokens="const:64",
        seats="8",
        tool_latency="order_status=20,resolution=exp:50",
    )
    options = read(words, environ={})
    plan, timing = options.plan, options.workload.timing
    assert (plan.rate, plan.duration_s, plan.warmup_s, plan.cooldown_s) == (200, 90, 0, 0.5)
    assert options.admission is None
    assert (timing.ttft_ms, timing.tokens_per_s, timing.answer_tokens) == ("lognormal:120:0.4", "const:80", "const:64")
    assert timing.max_num_seqs == 8
    assert timing.tool_latency_ms == {"order_status": "const:20", "resolution": "exp:50"}
    everywhere = read(Words(framework="bare", tool_latency="20"), environ={}).workload.timing.tool_latency_ms
    assert everywhere == dict.fromkeys(("order_status", "refund_policy", "resolution"), "const:20")


@pytest.mark.parametrize(
    ("text", "folder"),
    [(None, None), ("off", None), ("0", None), ("1", OBSERVED), ("on", OBSERVED), ("x/y", Path("x/y"))],
)
def test_who_is_told_of_the_run(text: str | None, folder: Path | None) -> None:
    assert read(Words(framework="bare", observe=text)).observe == folder


def test_where_spans_of_a_vllm_of_the_users_own_are_taken() -> None:
    mine = {"framework": "bare", "backend": "vllm", "url": "http://gpu:8000/v1", "model": "m"}
    assert read(Words(**mine), environ={}).otlp is None
    assert read(Words(**mine, otlp="0.0.0.0:4318"), environ={}).otlp == ("0.0.0.0", 4318)
    for text in ("", "4318", ":4318", "x:", "x:y", "x:0", "x:65536"):
        with pytest.raises(OptionError, match=r"^OTLP"):
            read(Words(**mine, otlp=text), environ={})
    for other in ({"backend": "vllm-cpu"}, {}, {**mine, "traces": "off"}):
        with pytest.raises(OptionError, match=r"^OTLP is where spans of a BACKEND=vllm of yours are taken"):
            read(Words(**{"framework": "bare", "otlp": "x:4318", **other}), environ={})


def test_a_backend_of_the_users_own() -> None:
    words = Words(framework="bare", backend="http://127.0.0.1:8001/v1/", model="m")
    options = read(words, environ={"OPENAI_API_KEY": "second", "AGENTDYNO_LLM_API_KEY": "first"})
    assert (options.backend_url, options.model, options.api_key) == ("http://127.0.0.1:8001/v1", "m", "first")


@pytest.mark.parametrize("around", ["{}\n", " {} ", "\t{}\r\n"])
def test_a_key_is_taken_without_the_white_space_around_it(around: str) -> None:
    """A client that cannot send a header shows it whole in its error, which goes to a log."""
    assert api_key({"OPENAI_API_KEY": around.format("sk-1_a.B"), "AGENTDYNO_LLM_API_KEY": " \n"}) == "sk-1_a.B"


@pytest.mark.parametrize("key", ["sk-12 34", "sk-12\n34", "sk-12\u00e934", "sk-12\x7f34", "\u2018sk-1234\u2019"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    words = Words(framework="bare", backend="http://127.0.0.1:8001/v1", model="m")
    with pytest.raises(OptionError, match=r"^The key in OPENAI_API_KEY \(not shown here\)") as caught:
        read(words, environ={"OPENAI_API_KEY": key})
    assert not re.search(r"sk-|\d", str(caught.value))


def test_a_vllm_of_the_users_own() -> None:
    words = Words(framework="bare", backend="vllm", url="http://127.0.0.1:8001/v1/", model="m")
    options = read(words, environ={"OPENAI_API_KEY": "key"})
    assert (options.backend, options.backend_url, options.api_key) == ("vllm", "http://127.0.0.1:8001/v1", "key")


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("http://gpu:8000", "http://gpu:8000/v1"),
        ("http://gpu:8000/", "http://gpu:8000/v1"),
        ("http://gpu:8000/metrics", "http://gpu:8000/v1"),
        ("http://gpu:8000/v1/chat/completions", "http://gpu:8000/v1"),
        ("https://gateway/qwen/v1/models/", "https://gateway/qwen/v1"),
        ("http://gpu:8000/v11", "http://gpu:8000/v11/v1"),
    ],
)
def test_an_address_of_a_vllm_that_is_not_its_apis_is_refused_with_the_one_that_is_meant(url: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"^URL='{url}' is not .* ends in /v1: say URL={meant} instead\\.$"):
        read(Words(framework="bare", backend="vllm", url=url, model="m"), environ={})
    assert read(Words(framework="bare", backend="vllm", url=meant + "/", model="m"), environ={}).backend_url == meant


def test_a_vllm_that_the_rig_starts() -> None:
    options = read(Words(framework="bare", backend="vllm-cpu"), environ={"OPENAI_API_KEY": "key"})
    assert (options.backend, options.backend_url, options.model) == ("vllm-cpu", None, "agentdyno-copying")
    assert options.api_key is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"backend": "vllm", "model": "m"}, "add URL="),
        ({"backend": "vllm", "url": "127.0.0.1:8001", "model": "m"}, "^URL="),
        ({"backend": "vllm", "url": "http://k@127.0.0.1/v1", "model": "m"}, "^URL is a base URL"),
        ({"backend": "vllm", "url": "http://127.0.0.1/v1"}, "needs MODEL"),
        ({"backend": "vllm-cpu", "model": "m"}, "leave MODEL out"),
        ({"backend": "vllm-cpu", "url": "http://127.0.0.1/v1"}, "^URL goes with BACKEND=vllm"),
        ({"backend": "vllm-cpu", "seats": "3"}, "^SEATS shape the mock LLM; with BACKEND=vllm-cpu"),
        ({"url": "http://127.0.0.1/v1"}, "^URL goes with BACKEND=vllm"),
        ({"settings": "--seed 1"}, "^SETTINGS states how a server of yours was started; .* one that the rig starts"),
        ({"backend": "vllm-cpu", "settings": "--seed 1"}, "^SETTINGS states how a server of yours was started"),
    ],
)
def test_what_does_not_go_together(words: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read(Words(framework="bare", **words), environ={})


MINE = {"framework": "bare", "backend": "vllm", "url": "http://gpu:8000/v1", "model": "m"}


@pytest.mark.parametrize("backend", [{}, {"backend": "http://gpu:8000/v1", "url": None}])
def test_what_a_user_states_of_a_server_is_kept_in_their_words(backend: dict[str, str]) -> None:
    said = "  --tool-call-parser hermes\n--chat-template-kwargs '{\"a\": 1}'  quantization=gptq "
    options = read(Words(**{**MINE, **backend}, settings=said), environ={})
    assert options.settings == "--tool-call-parser hermes --chat-template-kwargs '{\"a\": 1}' quantization=gptq"
    assert options.workload.served_by == f"{options.backend} m, stated: {options.settings}"
    assert read(Words(**{**MINE, **backend}), environ={}).settings is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "x" * 1001, "a\0b", "a\x1b[31mb", "caf\udcc3"),
        *("--api-key sk-1", "--api-key=sk-1", "VLLM_API_KEY=sk-1", "HF_TOKEN=hf_1", "--hf-token hf_1", "password=x"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(OptionError, match=r"^SETTINGS: it is .*\.$") as caught:
        read(Words(**MINE, settings=text), environ={})
    assert "sk-1" not in str(caught.value)
    assert "hf_1" not in str(caught.value)


def test_what_only_sounds_like_a_secret_is_a_setting() -> None:
    said = "--tokenizer-mode slow --max-num-batched-tokens 2048 --tokenizer x"
    assert read(Words(**MINE, settings=said), environ={}).settings == said


def test_other_settings_are_another_workload_and_blanks_are_none() -> None:
    def hash_of(settings: str | None) -> str:
        return read(Words(**MINE, settings=settings), environ={}).workload.hash()

    apart = [hash_of(None), hash_of("--tool-call-parser hermes"), hash_of("--tool-call-parser pythonic")]
    assert len(set(apart)) == 3
    assert hash_of(" --tool-call-parser   hermes ") == apart[1]


def test_another_backend_is_another_workload() -> None:
    def hash_of(**words: str) -> str:
        return read(Words(framework="bare", **words), environ={}).workload.hash()

    url = "http://127.0.0.1:8001/v1"
    hashes = [hash_of(), hash_of(backend=url, model="a"), hash_of(backend=url, model="b")]
    hashes.append(hash_of(backend="vllm", url=url, model="a"))
    assert len(set(hashes)) == 4
    # The address is no part of it: the same server may be reached in two ways.
    assert hash_of(backend="http://localhost:9/v1", model="a") == hashes[1]


@pytest.mark.parametrize("command", ["compare", "soak", "profile", "capacity", "sweep"])
def test_a_vllm_without_a_gpu_is_for_no_measurement_of_a_cost(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "bare", "--backend", "vllm-cpu", "--out", str(tmp_path / "runs")]) == 2
    assert f"shows that the path works, not what it costs: {command} needs another" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "text"), [("ttft", "5"), ("tps", "80"), ("tokens", "64"), ("seats", "8")])
def test_what_shapes_the_mock_is_refused_for_another_backend(name: str, text: str) -> None:
    words = Words(framework="bare", backend="http://127.0.0.1:8001/v1", model="m", **{name: text})
    with pytest.raises(OptionError, match=f"^{name.upper()} shape the mock LLM"):
        read(words, environ={})


@given(
    rate=st.floats(min_value=1e-5, max_value=100_000),
    warmup=st.floats(min_value=1e-6, max_value=1e6),
)
def test_locust_is_told_the_very_numbers(rate: float, warmup: float) -> None:
    """Whatever was accepted must be read back as the same plan on the other side, in its own forms."""
    words = Words(framework="bare", rate=f"{rate:.9f}", warmup=f"{warmup:.9f}", duration="700h")
    plan = read(words, environ={}).plan
    told = dict(zip(*[iter(_arguments(plan, Path("records")))] * 2, strict=True))
    assert parse_rate_rps(told["--rate"]) == plan.rate
    assert parse_duration_s(told["--warmup"]) == plan.warmup_s


def test_too_few_arrivals_is_said_at_once() -> None:
    with pytest.raises(OptionError, match=r"^RATE and DURATION: At 0\.01 requests a second, 60 s are too short"):
        read(Words(framework="bare", rate="0.01"), environ={})
