"""Comparisons made by hand, of any size, in which everything that a report can show is there."""

from __future__ import annotations

from random import Random
from statistics import median

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import (
    CheckRow,
    Comparison,
    CurvePoint,
    Difference,
    EntryFacts,
    EntryUnderLoad,
    FigureSet,
    HeapRow,
    LoadStep,
    NullTest,
    PairRow,
    PhaseMean,
    Pooled,
    Ratio,
    RunRow,
    SearchOutcome,
    Tax,
)
from agentdyno.contract.run import Finding, Reason
from agentdyno.contract.summary import Framework

NAMES = (
    "bare",
    "bare#2",
    "lightagent",
    "langchain",
    "llamaindex",
    "autogen",
    "bare-openai",
    "lightagent-llm",
    "crewai",
)
WEIGHTS = dict(zip(NAMES, (1.0, 1.0, 0.82, 15.4, 41.0, 14.9, 9.8, 1.13, 63.0), strict=True))
PHASES = ("parse", "plan", "tool", "reflect", "respond", "framework")
BASE = {
    "goodput": 0.0, "cpu_per_request": 1.63, "p50": 3.1, "p95": 6.2, "p99": 9.4, "latency_max": 22.0,
    "service_p50": 3.0, "service_p99": 9.1, "rss_peak": 44.0, "pss_peak": 33.0, "gc_pause_total": 2.2,
    "tokens": 1_264.0, "prompt_tokens": 1_104.0, "llm_calls": 4.0,
    "tool_calls": 3.0, "prompt_bytes": 7_310.0, "connections": 0.0,
}  # fmt: skip
_WORK = ("tokens", "prompt_tokens", "llm_calls", "tool_calls", "prompt_bytes", "connections", "goodput")


def comparison(*names: str, rounds: int = 5) -> Comparison:
    """A whole one. names: from NAMES or of any other spelling; entries[0] is the control."""
    labels = names or NAMES[:6]
    under = tuple(under_load(label, load, rounds) for load in LoadName for label in labels)
    return Comparison(
        campaign_id="20260102T030405Z-1a2b3c",
        agentdyno="0.1.0",
        commit="4ad8bc6d0f5b2f6f1d6a7f0c1b2a3d4e5f607182",
        started_utc="2026-01-02T03:04:05Z",
        finished_utc="2026-01-02T04:44:11Z",
        complete=True,
        command=("compare", f"--rounds={rounds}"),
        control=labels[0],
        rounds=rounds,
        seed=20_260_102,
        workload={"scenario": "chain", "seed": 1, "timing": {"ttft_ms": "const:0", "tokens_per_s": "const:0"}},
        workload_hash="0123456789abcdef",
        admission=64,
        loads={
            LoadName.STEADY: {"rate": 4.0, "warmup_s": 10.0, "duration_s": 60.0, "cooldown_s": 1.0, "timeout_s": 10.0},
            LoadName.STANDARD: {"rate": 200.0, "warmup_s": 10.0, "duration_s": 60.0, "cooldown_s": 1.0},
        },
        machine={"system": "Linux", "kernel": "6.1", "architecture": "x86_64", "cpu_model": "A CPU @ 2.5 GHz",
                 "cores_usable": 2, "memory_bytes": 8_000_000_000, "python": "3.12.3"},
        cores={"host": [1], "generator": [0], "backend": [0]},
        entries=tuple(entry(label, at) for at, label in enumerate(labels)),
        under_load=under,
        pairs=_pairs(under, labels),
        null_test=_null_test(labels, under) if "bare#2" in labels else None,
        checks=(
            CheckRow(name="conservation", passed=True, sentence="Each arrival of each run is accounted for."),
            CheckRow(name="littles_law", passed=False, sentence="1 run of langchain deviates by 12 %."),
            CheckRow(name="generator_cpu", passed=None, sentence="The generator's CPU was not measured."),
        ),
        runs=_runs(labels, rounds),
        ranking=tuple(sorted((one for one in labels if "#" not in one), key=_weight)),
        not_to_conclude=("One machine, one workload: other work may rank otherwise.", "The mock LLM takes no time."),
    )  # fmt: skip


def _weight(label: str) -> float:
    return WEIGHTS.get(label, 3.0)


def entry(label: str, at: int) -> EntryFacts:
    weight, rows = _weight(label), at % 2 == 0
    heap = tuple(
        HeapRow(place=f"build_{n} site-packages/{label}/graph.py:{n}", package=label, value=2e6 / n) for n in (1, 2, 3)
    )
    rates = (1.0, 2.0, 4.0, 8.0, 16.0) if at in (2, 3) else ()
    return EntryFacts(
        label=label,
        framework=Framework(label.partition("#")[0], "1.2.3" if at else None, "default", "the LLM"),
        distributions=12 + at,
        environment_sha256=f"{at:x}" * 64,
        sentence=f"Takes {weight:g} times the CPU of the control and as much memory as it likes.",
        control=at == 0,
        null="#" in label,
        capacity_rps=400.0 / weight,
        search=SearchOutcome(
            objective=("p95<2s", "errors<1%"),
            capacity_rps=8.0 if at == 2 else None,
            at_least_rps=None,
            reason="8/s met the objective, and again in 2 of 2 repeats." if at == 2 else "It was not confirmed.",
        )
        if rates
        else None,
        steps=tuple(
            LoadStep(
                rate=rate,
                goodput_rps=min(rate, 9.0),
                p50_ms=3 + rate,
                p95_ms=7 + rate,
                p99_ms=9 + rate**2 if at == 2 else None,  # the other had too few answers for it
                met=rate < 9,
            )
            for rate in rates
        ),
        heap_bytes=heap if rows else None,
        heap_objects=heap if rows else None,
        heap_growth=heap[:1] if rows else None,
    )


def under_load(label: str, load: LoadName, rounds: int) -> EntryUnderLoad:
    weight, chance = _weight(label), Random(f"{label} {load}")
    held = load is LoadName.STEADY
    rate = 4.0 if held else 200.0
    goodput = min(rate, 400 / weight)
    arrivals = int(rate * 60 * rounds)
    ok = int(goodput * 60 * rounds)
    latency = [weight * 3 * (1 + 2.5 * (n / 40) ** 3) for n in range(41)]
    seconds = [n / 2 for n in range(142)]
    return EntryUnderLoad(
        label=label,
        load=load,
        valid_runs=rounds,
        invalid_runs=int(label == "langchain" and held),
        arrivals=arrivals,
        outcomes={"ok": ok, "failed": 0, "timeout": 0, "rejected": arrivals - ok, "dropped": 0},
        overloaded_runs=rounds if ok < arrivals else 0,
        figures=tuple(_figure(name, weight, goodput, rate, rounds, chance, label) for name in BASE),
        latency_curve=tuple(CurvePoint(10 ** (-3 * n / 40), value) for n, value in enumerate(latency)),
        memory_curve=tuple(CurvePoint(at, 40 + 5 * weight**0.5 + 0.05 * at + chance.random()) for at in seconds),
        phases=_phases(weight) if label != "autogen" else None,
    )


def _figure(
    name: str, weight: float, goodput: float, rate: float, rounds: int, chance: Random, label: str
) -> FigureSet:
    if label == "autogen" and name == "gc_pause_total":
        return FigureSet(metric=name, per_round=(None,) * rounds)
    centre = goodput if name == "goodput" else BASE[name] * (1 if name in _WORK else weight**0.9)
    values = tuple(centre * (1 if name in _WORK else 1 + 0.02 * (chance.random() - 0.5)) for _ in range(rounds))
    middle = median(values)
    base = BASE[name] if name != "goodput" else rate
    control = label == "bare"
    ratio = middle / base if base else None
    return FigureSet(
        metric=name,
        per_round=values,
        median=middle,
        low=min(values),
        high=max(values),
        cv=0.01,
        unstable="The rounds differ by 31 %." if name == "latency_max" else None,
        pooled=Pooled(n=1_200, value=middle, low=middle * 0.97, high=middle * 1.04)
        if name in ("p50", "p95", "p99")
        else None,
        ratio_to_control=None if control or ratio is None else _ratio(ratio, rounds),
        tax=None
        if control
        else Tax(pairs=rounds, median=middle - base, low=middle - base * 1.02, high=middle - base * 0.98),
    )


def _ratio(value: float, pairs: int) -> Ratio:
    low, high = value * 0.985, value * 1.015
    word = Difference.NONE if low <= 1 <= high else Difference.LOWER if value < 1 else Difference.HIGHER
    return Ratio(pairs=pairs, median=value, low=low, high=high, difference=word)


def _phases(weight: float) -> tuple[PhaseMean, ...]:
    shares = (0.04, 0.38, 0.02, 0.13, 0.03, 0.40)
    return tuple(PhaseMean(phase=p, mean_ms=3.3 * weight * s, share=s) for p, s in zip(PHASES, shares, strict=True))


def _pairs(under: tuple[EntryUnderLoad, ...], labels: tuple[str, ...]) -> tuple[PairRow, ...]:
    found = []
    for load in LoadName:
        for name in ("cpu_per_request", "p99"):
            value = {
                u.label: next(f for f in u.figures if f.metric == name).median or 1 for u in under if u.load is load
            }
            found += [
                PairRow(load=load, metric=name, a=a, b=b, ratio=_ratio(value[a] / value[b], 5))
                for n, a in enumerate(labels) for b in labels[n + 1 :]
            ]  # fmt: skip
    return tuple(found)


def _null_test(labels: tuple[str, ...], under: tuple[EntryUnderLoad, ...]) -> NullTest:
    rows = tuple(row for row in _pairs(under, (labels[0], "bare#2")))
    return NullTest(a=labels[0], b="bare#2", passed=True, rows=rows, found=(), sentence="It finds no difference.")


def _runs(labels: tuple[str, ...], rounds: int) -> tuple[RunRow, ...]:
    chance, rows = Random(3), []
    for number in range(1, rounds + 1):
        places = [(load, label) for load in LoadName for label in labels]
        chance.shuffle(places)
        for load, label in places:
            bad = label == "langchain" and number == 2 and load is LoadName.STEADY
            at = len(rows) + 1
            rows.append(
                RunRow(
                    number=at,
                    round=number,
                    load=load,
                    label=label,
                    run_id=f"20260102T03{at:04d}Z-{label}-{at:06x}",
                    started_utc=f"2026-01-02T03:{at % 60:02d}:00Z",
                    counted=not bad,
                    reasons=(Finding(Reason.GENERATOR_LATE, "12 arrivals were sent late."),) if bad else (),
                    notes=() if at % 7 else (Finding(Reason.NOISY, "The host waited for its own core."),),
                    calibration_ms=(10.1, 10.2) if at % 5 else (None, None),
                    files={"requests.parquet": "ab" * 32, "manifest.json": "cd" * 32},
                )
            )
    return tuple(rows)


def empty(*names: str) -> Comparison:
    """A campaign in which nothing succeeded: no run counts, nothing was measured."""
    whole = comparison(*(names or ("bare", "langchain")), rounds=1)
    labels = tuple(one.label for one in whole.entries)
    finding = Finding(Reason.NO_SUCCESS, "Not one request succeeded.")
    values = {
        **{name: getattr(whole, name) for name in whole.__struct_fields__},
        "complete": False,
        "finished_utc": None,
        "commit": None,
        "entries": tuple(
            EntryFacts(label=one.label, framework=one.framework, distributions=None, environment_sha256="",
                       sentence="Nothing was measured.", control=one.control)
            for one in whole.entries
        ),
        "under_load": tuple(
            EntryUnderLoad(label=label, load=load, valid_runs=0, invalid_runs=1, arrivals=0, outcomes={},
                           overloaded_runs=0, figures=tuple(FigureSet(metric=n, per_round=(None,)) for n in BASE))
            for load in LoadName for label in labels
        ),
        "pairs": (), "null_test": None, "checks": (), "ranking": (), "machine": {}, "cores": {}, "loads": {},
        "runs": tuple(
            RunRow(number=n, round=1, load=LoadName.STEADY, label=label, run_id=None, started_utc=None, counted=False,
                   reasons=(finding,))
            for n, label in enumerate(labels, 1)
        ),
    }  # fmt: skip
    return Comparison(**values)
