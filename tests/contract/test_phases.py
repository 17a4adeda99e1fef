"""The one rule: the six phases tile a request, whatever its stretches are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.phases import Phase, Stretch, phase_of_call, tile

STRETCHED = (Phase.PLAN, Phase.TOOL, Phase.REFLECT)
moments = st.integers(0, 60)
stretches = st.builds(
    lambda phase, start, length: Stretch(phase, start, start + length),
    st.sampled_from(STRETCHED),
    st.integers(-20, 70),
    st.integers(0, 40),
)


def tile_by_moments(start: int, end: int, given: list[Stretch]) -> dict[Phase, int]:
    """The same rule moment by moment: each belongs to the first phase that runs in it."""
    took = dict.fromkeys(Phase, 0)
    inside = [s for s in given if s.end_ns > start and s.start_ns < end]
    first = min((s.start_ns for s in inside), default=end)
    last = max((s.end_ns for s in inside), default=start)
    ends_with = max(inside, key=lambda s: min(s.end_ns, end)).phase if inside else None
    for moment in range(start, end):
        running = {s.phase for s in inside if s.start_ns <= moment < s.end_ns}
        if running:
            phase = next(p for p in (Phase.TOOL, Phase.PLAN, Phase.REFLECT) if p in running)
        elif inside and moment < first:
            phase = Phase.PARSE
        elif inside and moment >= last and ends_with is Phase.REFLECT:
            phase = Phase.RESPOND
        else:
            phase = Phase.FRAMEWORK
        took[phase] += 1
    return took


@given(moments, moments, st.lists(stretches, max_size=8))
def test_the_phases_add_up_to_the_request_and_none_is_negative(start, length, given):
    took = tile(start, start + length, given)
    assert set(took) == set(Phase)
    assert sum(took.values()) == length
    assert min(took.values()) >= 0


@given(moments, moments, st.lists(stretches, max_size=8))
def test_each_moment_belongs_to_one_phase(start, length, given):
    assert tile(start, start + length, given) == tile_by_moments(start, start + length, given)


@given(st.lists(stretches, max_size=8), st.randoms())
def test_the_order_in_which_stretches_come_is_of_no_account(given, random):
    # Of several that end last together the first decides what follows, so each end here is its own.
    given = list({s.end_ns: s for s in given}.values())
    shuffled = random.sample(given, len(given))
    assert tile(0, 50, shuffled) == tile(0, 50, given)


@given(st.lists(stretches, max_size=8), st.integers(0, 2**62))
def test_only_differences_count(given, by):
    moved = [Stretch(s.phase, s.start_ns + by, s.end_ns + by) for s in given]
    assert tile(by, by + 50, moved) == tile(0, 50, given)


def test_a_chain():
    plan, tool, reflect = Phase.PLAN, Phase.TOOL, Phase.REFLECT
    took = tile(0, 100, [Stretch(plan, 10, 20), Stretch(tool, 25, 40), Stretch(plan, 45, 60), Stretch(reflect, 70, 90)])
    assert took == {
        Phase.PARSE: 10,
        Phase.PLAN: 25,
        Phase.TOOL: 15,
        Phase.REFLECT: 20,
        Phase.RESPOND: 10,
        Phase.FRAMEWORK: 20,
    }


def test_three_tools_at_once_count_as_their_union():
    tools = [Stretch(Phase.TOOL, 20, 50), Stretch(Phase.TOOL, 25, 55), Stretch(Phase.TOOL, 30, 40)]
    took = tile(0, 100, [Stretch(Phase.PLAN, 10, 18), *tools, Stretch(Phase.REFLECT, 60, 90)])
    assert took[Phase.TOOL] == 35
    assert took[Phase.FRAMEWORK] == 2 + 5


def test_a_tool_that_starts_before_the_plans_stream_has_ended_takes_that_time():
    took = tile(0, 100, [Stretch(Phase.PLAN, 10, 50), Stretch(Phase.TOOL, 40, 60)])
    assert (took[Phase.PLAN], took[Phase.TOOL], took[Phase.FRAMEWORK]) == (30, 20, 40)


def test_without_a_call_all_is_framework_time():
    assert tile(5, 30, []) == {**dict.fromkeys(Phase, 0), Phase.FRAMEWORK: 25}


@pytest.mark.parametrize(("wants", "phase"), [(True, Phase.PLAN), (False, Phase.REFLECT), (None, Phase.REFLECT)])
def test_what_an_answer_asks_for_says_which_phase_it_was(wants, phase):
    assert phase_of_call(wants) is phase
