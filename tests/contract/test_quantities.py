import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentdyno.contract.quantities import parse_duration_s, parse_percent, parse_rate_rps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60.0),
        ("10m", 600.0),
        ("500ms", 0.5),
        ("1h", 3600.0),
        ("1m30s", 90.0),
        ("45", 45.0),
        ("0.1", 0.1),
        ("1h1m1s1ms", 3661.001),
        ("1m500ms", 60.5),
        ("1.5m", 90.0),
    ],
)
def test_durations(text, seconds):
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "rps"), [("200", 200.0), ("200/s", 200.0), ("12000/min", 200.0), ("0.5", 0.5), ("20/min", 1 / 3)]
)
def test_rates(text, rps):
    assert parse_rate_rps(text) == rps


@pytest.mark.parametrize(("text", "percent"), [("20%", 20.0), ("+20%", 20.0), ("0%", 0.0), ("2.5%", 2.5)])
def test_percentages(text, percent):
    assert parse_percent(text) == percent


REFUSED = ["", " ", "nan", "inf", "-1", "-1s", "1e3", "+5", "1,5", ".5", "5.", "٣s", "²", "1_000", "5 s", "s", "0x1"]
REFUSED += ["1s\n", "1s1m", "1s1s", "1d", "200/h", "/s", "9" * 400, "0." + "0" * 400 + "1"]


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("parse", [parse_duration_s, parse_rate_rps, parse_percent])
def test_other_forms_are_refused_with_the_accepted_ones(parse, text):
    with pytest.raises(ValueError, match=r"accepted forms|Accepted forms") as refused:
        parse(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("text", ["0", "0s", "0ms", "0h0m", "0.0"])
def test_a_zero_duration_is_refused_unless_it_makes_sense(text):
    with pytest.raises(ValueError, match="is zero"):
        parse_duration_s(text)
    assert parse_duration_s(text, allow_zero=True) == 0.0


def test_a_zero_rate_is_refused():
    with pytest.raises(ValueError, match="is zero"):
        parse_rate_rps("0/s")


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_a_number_or_a_sentence(text):
    for parse in (parse_duration_s, parse_rate_rps, parse_percent):
        try:
            value = parse(text)
        except ValueError as error:
            assert re.search("ccepted forms", str(error))  # noqa: PT017
        else:
            assert 0 <= value < float("inf")
            assert text.isascii()
