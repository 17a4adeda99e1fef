import argparse

import pytest

from agentdyno.contract.run import LoadPlan
from agentdyno.load.connection import HostUrlError, Target, check_descriptors
from agentdyno.load.options import OptionsError, add_arguments, plan_of, records_folder


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    parser.set_defaults(master=False, expect_workers=1)
    return parser.parse_args(options)


def test_the_defaults():
    assert plan_of(parsed()) == LoadPlan(
        rate=200.0,
        warmup_s=10.0,
        duration_s=60.0,
        cooldown_s=1.0,
        timeout_s=10.0,
        max_in_flight=1000,
        seed=1,
        scenario="chain",
        workers=1,
    )
    assert records_folder(parsed()) is None


def test_a_master_plans_for_the_workers_that_it_expects_unless_told_otherwise():
    options = parsed()
    options.master, options.expect_workers = True, 3
    assert plan_of(options).workers == 3
    options.plan_workers = "2"
    assert plan_of(options).workers == 2


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("rate", "0", "is zero"),
        ("duration", "nan", "'nan' is not a duration"),
        ("duration", "0s", "is zero"),
        ("request_timeout", "0s", "is zero"),
        ("warmup", "-1s", "is not a duration"),
        ("max_in_flight", "0", "must be one or more"),
        ("max_in_flight", "1.5", "not a whole number"),
        ("seed", "-1", "not a whole number"),
        ("seed", "٣", "not a whole number"),
        ("scenario", "other", "There is no scenario 'other'"),
    ],
)
def test_bad_text_from_the_web_ui_is_a_sentence(name, text, sentence):
    options = parsed()
    setattr(options, name, text)
    with pytest.raises(OptionsError, match=sentence):
        plan_of(options)


def test_bad_text_on_the_command_line_is_argparse_s_to_tell():
    with pytest.raises(argparse.ArgumentError, match="'fast' is not a rate"):
        parsed("--rate", "fast")


def test_targets():
    plain = Target.parse("http://127.0.0.1:8000", "/x")
    assert (plain.host, plain.port, plain.path) == ("127.0.0.1", 8000, "/x")
    prefixed = Target.parse("https://[::1]/deep/", "/x")
    assert (prefixed.host, prefixed.port, prefixed.path, prefixed.authority) == ("::1", 443, "/deep/x", "[::1]")


def test_more_in_flight_than_open_files_is_a_sentence():
    check_descriptors(1)
    with pytest.raises(ValueError, match="open files"):
        check_descriptors(10**9)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://x", "http://", "http://x:99999", "http://u:p@x", "http://x?y"]
)
def test_hosts_that_are_none(url):
    with pytest.raises(HostUrlError, match="--host"):
        Target.parse(url, "/x")
