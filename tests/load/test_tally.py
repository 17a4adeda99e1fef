from hypothesis import given
from hypothesis import strategies as st

from agentdyno.contract.proof import Stage
from agentdyno.contract.run import Outcome
from agentdyno.load.tally import InFlight, Tally


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted), max_size=20),
    st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted),
)
def test_the_integral_is_the_sum_of_what_each_request_spends_in_the_window(flights, window):
    in_flight = InFlight(*window)
    for moment, by in sorted((m, by) for sent, done in flights for m, by in ((sent, 1), (done, -1))):
        in_flight.change(by, moment)
    overlaps = [max(0, min(done, window[1]) - max(sent, window[0])) for sent, done in flights]
    assert in_flight.area_s(100) == sum(overlaps) / 1e9
    assert in_flight.count == 0


def test_there_is_no_integral_before_the_window_has_passed():
    in_flight = InFlight(10, 20)
    in_flight.change(+1, 12)
    assert in_flight.area_s(19) is None
    assert in_flight.area_s(20) == 8e-9


def test_live_reports_count_from_the_start_and_time_since_the_last_one():
    tally = Tally(InFlight(0, 10))
    for service_ms in range(1, 101):
        tally.finished(Outcome.OK, service_ms * 1_000_000)
    tally.finished(Outcome.DROPPED, None)
    first = tally.report(2_000_000_000, Stage.MEASURE)
    assert (first.ok, first.dropped, first.p50_ms, first.p99_ms, first.elapsed_s) == (100, 1, 50.0, 99.0, 2.0)
    second = tally.report(3_000_000_000, Stage.COOLDOWN)
    assert (second.ok, second.dropped, second.p50_ms, second.p99_ms) == (100, 1, None, None)
