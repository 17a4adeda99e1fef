"""Load generator: is it on time, and does it have room?"""

from grafana.source.panel import (
    CHOSEN,
    HEAT_COLUMNS,
    OF_A_RUN,
    Board,
    Kind,
    Panel,
    Query,
    Row,
    counts,
    mean,
    quantile,
    rate,
)

_LATENESS = "agentdyno_load_lateness_seconds"
_TIME = Row(
    "On time",
    (
        Panel(
            "Lateness, heat map",
            f"How late arrivals were sent. It is the generator's own error; it is part of the latency. {HEAT_COLUMNS}",
            "s",
            (Query(counts(_LATENESS), "{{le}}"),),
            Kind.HEAT,
        ),
        Panel(
            "Lateness",
            "Mean and p99. Below 1 ms a percentile from buckets says only that.",
            "s",
            (Query(mean(_LATENESS), "mean"), Query(quantile(0.99, _LATENESS), "p99")),
        ),
        Panel(
            "Sent more than 10 ms late",
            "Share of the arrivals. Above 1 % over the measurement the run is invalid (generator_late).",
            "percentunit",
            (Query(f"run:agentdyno_load_late:ratio_rate20s{{{CHOSEN}}}", "{{run}}"),),
            thresholds=(0.005, 0.01),
        ),
    ),
)
_VOLUME = Row(
    "What it sends",
    (
        Panel(
            "Arrivals",
            "The rate asked for, and what has come due.",
            "reqps",
            (
                Query(f"agentdyno_load_schedule_arrivals_per_second{{{CHOSEN}}}", "asked for"),
                Query(rate("agentdyno_load_arrivals_total", "stage"), "due, {{stage}}"),
            ),
        ),
        Panel(
            "In flight",
            "Sent and not yet come to an outcome, over all workers. Each worker has a cap, MAX_IN_FLIGHT.",
            "none",
            (Query(f"agentdyno_load_requests_in_flight{{{CHOSEN}}}", "{{run}}"),),
        ),
        Panel(
            "Dropped",
            "Arrivals a second that were not sent, because the cap was reached.",
            "reqps",
            (Query(rate("agentdyno_load_requests_total", "run", 'outcome="dropped"'), "{{run}}"),),
        ),
    ),
)
_ROOM = Row(
    "Room",
    (
        Panel(
            "CPU of each worker",
            "Share of a core. Above 85 % of the busiest over the measurement the run is invalid (generator_cpu).",
            "percentunit",
            (Query(rate("agentdyno_load_worker_cpu_seconds_total", "worker"), "worker {{worker}}"),),
            thresholds=(0.7, 0.85),
        ),
        Panel(
            "CPU of the rig's other processes",
            "Cores in use by recorder and rig, and by all generators and their coordinator.",
            "percentunit",
            (Query(rate("agentdyno_process_cpu_seconds_total", "role", 'role=~"generator|recorder|rig"'), "{{role}}"),),
        ),
        Panel(
            "Workers and schedule",
            "Workers that have reported; how far the schedule is.",
            "none",
            (
                Query(f"agentdyno_load_workers{{{CHOSEN}}}", "workers"),
                Query(
                    f"100 * agentdyno_load_elapsed_seconds{{{CHOSEN}}} / agentdyno_load_planned_seconds{{{CHOSEN}}}",
                    "percent done",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    "agentdyno-load-generator",
    "AgentDyno: Load generator",
    "The side that sends: whether arrivals go out on time, what is in flight, what is dropped, and what it takes.",
    (_TIME, _VOLUME, _ROOM),
    OF_A_RUN,
)
