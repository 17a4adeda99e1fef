"""The Markdown, CSV and JSON of a comparison, and the words they share."""

import csv
import json
import shlex
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from agentdyno.contract.campaign import LoadName
from agentdyno.contract.comparison import Comparison, Difference, Ratio
from agentdyno.record.campaign_folder import CampaignFolder
from agentdyno.report.campaign_report import write_report
from agentdyno.report.comparison_csv import COLUMNS, figures_csv
from agentdyno.report.comparison_html import comparison_page
from agentdyno.report.comparison_markdown import comparison_markdown
from agentdyno.report.comparison_words import command_again, percent, times, verdict, within
from agentdyno.report.facts import backend_facts, machine_sentence
from tests.report.comparisons import comparison, empty


def test_all_files_are_written_and_the_json_is_the_comparison(tmp_path: Path) -> None:
    what = comparison()
    write_report(CampaignFolder(tmp_path), what)
    assert {file.name for file in tmp_path.iterdir()} == {"comparison.json", "report.html", "report.md", "figures.csv"}
    text = (tmp_path / "comparison.json").read_bytes()
    json.loads(text, parse_constant=pytest.fail)
    assert msgspec.json.decode(text, type=Comparison) == what


def test_a_figure_that_is_no_number_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    what = comparison("bare")
    broken = msgspec.structs.replace(what, loads={LoadName.STEADY: {"rate": float("nan")}})
    with pytest.raises(ValueError, match="JSON"):
        write_report(CampaignFolder(tmp_path), broken)
    assert list(tmp_path.iterdir()) == []


def test_csv_is_long_exact_and_rfc_4180() -> None:
    what = comparison("bare", 'a "b", c\nd', rounds=3)
    text = figures_csv(what)
    assert text.startswith(",".join(COLUMNS) + "\r\n")
    assert text.endswith("\r\n")
    rows = list(csv.DictReader(StringIO(text, newline="")))
    assert {row["label"] for row in rows} == {"bare", 'a "b", c\nd'}
    assert all(None not in row and None not in row.values() for row in rows)
    figure = next(f for f in what.under_load[1].figures if f.metric == "p99")
    here = [row for row in rows if (row["load"], row["label"], row["metric"]) == ("steady", 'a "b", c\nd', "p99")]
    assert [float(row["value"]) for row in here if row["statistic"] == "round"] == list(figure.per_round)
    assert [row["round"] for row in here if row["statistic"] == "round"] == ["1", "2", "3"]
    pooled = next(row for row in here if row["statistic"] == "pooled")
    assert figure.pooled
    assert (float(pooled["low"]), float(pooled["high"]), pooled["n"]) == (figure.pooled.low, figure.pooled.high, "1200")
    assert pooled["unit"] == "ms"
    assert {row["statistic"] for row in here} == {"round", "median", "cv", "pooled", "ratio_to_control", "tax"}


def test_what_was_not_measured_is_empty_in_the_csv() -> None:
    rows = list(csv.DictReader(StringIO(figures_csv(empty()), newline="")))
    assert rows
    assert {row["value"] for row in rows} == {""}


def test_markdown_has_tables_whose_rows_are_whole_and_names_that_are_text() -> None:
    text = comparison_markdown(comparison("bare", "bare#2", "<b>x</b>", "a|b"))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    columns = {line.replace("\\|", "").count("|") for line in tables if "Goodput" in line or "bare" in line}
    assert len(columns) <= 3  # the headline tables, the capacities and the ledger
    assert "<b>" not in text
    assert "\\<b\\>x\\</b\\>" in text
    assert "a\\|b" in text
    assert "Latency p99, pooled, ms" in text


def test_markdown_says_what_the_capacity_searches_came_to() -> None:
    found = comparison()
    section = comparison_markdown(found).partition("## Capacity\n")[2].partition("\n## ")[0]
    assert "the highest rate at which p95\\<2s and errors\\<1% held" in section
    _, third, fourth = (each.label for each in found.entries[1:4])
    assert "| --- | ---: | --- |" in section
    assert f"| {third} | 8 | 8/s met the objective, and again in 2 of 2 repeats. |" in section
    assert f"| {fourth} | \u2013 | It was not confirmed. |" in section
    assert "| bare | \u2013 | Not searched. |" in section
    assert "Capacity" not in comparison_markdown(empty())


def test_markdown_of_nothing_says_so() -> None:
    text = comparison_markdown(empty())
    assert "Runs that do not count" in text
    assert "no\\_success: Not one request succeeded." in text
    assert not {"nan", "None", "inf"} & set(text.split())


@pytest.mark.parametrize(
    ("value", "difference", "words"),
    [
        (15.42, Difference.HIGHER, "15.4 times as much"),
        (1.052, Difference.HIGHER, "5.2 % more"),
        (0.82, Difference.LOWER, "18 % less"),
        (0.2, Difference.LOWER, "0.2 times as much"),
        (1.001, Difference.NONE, "no difference"),
        (1.3, Difference.UNCLEAR, "30 % more"),
        (None, Difference.UNCLEAR, "\u2013"),
    ],
)
def test_a_ratio_in_words(value: float | None, difference: Difference, words: str) -> None:
    assert times(Ratio(pairs=3, median=value, difference=difference)) == words


def test_the_interval_of_a_ratio_or_why_there_is_none() -> None:
    assert within(Ratio(pairs=5, median=1.3, low=1.25, high=1.36, difference=Difference.HIGHER)) == "1.25 to 1.36"
    assert within(Ratio(pairs=2, median=1.3)) == "unclear: too few rounds, 2"


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.123, "12 %"), (0.0489, "4.9 %"), (0.9994, "99.9 %"), (1, "100 %")]
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


def test_the_verdict_is_three_sentences_and_tells_of_failures() -> None:
    sentences = verdict(comparison())
    assert len(sentences) == 3
    assert "59 of 60 runs count" in sentences[0]
    assert "lightagent with 16.1 % less" in sentences[1]
    assert "littles_law" in sentences[2]
    assert "not complete" in verdict(empty())[0]
    null = comparison().null_test
    failed = msgspec.structs.replace(null, passed=False, found=("p99",))
    assert "do not trust" in verdict(msgspec.structs.replace(comparison(), null_test=failed))[2]


def test_the_cores_are_those_that_the_runs_were_kept_on() -> None:
    what = comparison()
    one = {**what.machine, "cores_usable": 1}
    assert ", 2 cores, " in machine_sentence(msgspec.structs.replace(what, machine=one))
    assert ", 1 core, " in machine_sentence(msgspec.structs.replace(what, machine=one, cores={"host": None}))


def test_the_command_to_run_it_again_leaves_nothing_to_be_found() -> None:
    found = comparison("bare", "bare#2", "x")
    said = command_again(found)
    assert said == f".venv/bin/agentdyno compare --rounds={found.rounds} bare x --steady-rate=4"
    given = ("compare", "x", "--rounds=3", "--steady-rate=2")
    assert command_again(msgspec.structs.replace(found, command=given)) == f".venv/bin/agentdyno {' '.join(given)}"


@pytest.mark.parametrize("option", [("--settings=--parser x",), ("--settings", "--parser x")])
def test_a_name_in_the_words_of_an_option_is_no_framework_to_run_again(option: tuple[str, ...]) -> None:
    found = msgspec.structs.replace(comparison("bare", "bare#2", "x"), command=("compare", *option, "--rounds", "5"))
    said = command_again(found)
    assert said == f".venv/bin/agentdyno compare {shlex.join(option)} --rounds 5 bare x --steady-rate=4"
    given = msgspec.structs.replace(found, command=("compare", *option, "--", "bare x"))
    assert command_again(given).endswith(" -- 'bare x' --steady-rate=4")


MINE = {
    "kind": "vllm",
    "model": "m",
    "served_by": "vllm m, stated: --parser <x>",
    "told": {"version": "0.31.0", "enforce_eager": False},
    "stated": "--parser <x>",
    "revision": None,
    "weights": "Qwen/w",
}


def test_a_backend_is_described_by_who_says_so_and_the_mock_not_at_all() -> None:
    assert backend_facts(MINE) == [
        ("Backend", "vllm, model m"),
        ("Backend's weights", "Qwen/w"),
        ("Backend, as its user states", "--parser <x>"),
        ("Backend, as it tells of itself", "version 0.31.0, enforce_eager False"),
    ]
    assert backend_facts({"kind": "mock", "model": "agentdyno-mock", "url": None}) == []
    page = comparison_page(msgspec.structs.replace(comparison(), backend=MINE))
    assert '<th scope="row">Backend, as its user states</th><td>--parser &lt;x&gt;</td>' in page
    assert "as its user states" not in comparison_page(comparison())
    assert "backend" not in msgspec.to_builtins(comparison())
