"""One run's summary, recomputed from its raw files and nothing else."""

from __future__ import annotations

from agentdyno.analysis import figures
from agentdyno.analysis.critical_path import usual_path
from agentdyno.analysis.phases import phase_table, phase_times, span_ledger, split_times
from agentdyno.analysis.run_data import RunData
from agentdyno.analysis.served import backend_times
from agentdyno.analysis.verdict import generator, is_overloaded, verdict
from agentdyno.contract.summary import Ledger, Summary


def summarise(data: RunData) -> Summary:
    """Every figure of the run, and the verdict on them."""
    manifest, requests = data.manifest, data.requests
    counted = len(requests) > 0 if requests is not None else False
    load = figures.load(requests, manifest.plan.rate, data.window()) if requests is not None and counted else None
    latencies = figures.latencies(requests) if requests is not None and counted else None
    ledger = figures.ledger(requests, data.backend) if requests is not None and counted else Ledger()
    spans = span_ledger(data)  # before the traces are there: both at once take half as much memory again
    traces = phase_table(data)
    phases = phase_times(traces)
    claimed = any(phase is not None for phase in phases.values())
    return Summary(
        run_id=manifest.run_id,
        framework=manifest.framework,
        scenario=manifest.workload.scenario,
        workload_hash=manifest.workload_hash,
        backend=manifest.backend,
        load=load,
        latency_ms=latencies,
        goodput_rps=load.ok / data.window().seconds if load is not None and load.arrivals else None,
        cpu_ms_per_request=figures.cpu_ms_per_request(data),
        idle_cpu_ms_per_s=figures.idle_cpu_ms_per_s(data),
        cold_start_ms=manifest.cold_start_ms,
        memory_mb=figures.memory(data),
        gc=figures.gc(data),
        loop_lag_ms=figures.loop_lag(data),
        phases_ms=phases,
        time_split_ms=split_times(traces),
        critical_path=None if traces is None else usual_path(traces.traces),
        backend_ms=backend_times(data),
        ledger=ledger,
        spans=spans,
        generator=generator(data, load),
        overloaded=is_overloaded(load) if load is not None and load.arrivals else None,
        verdict=verdict(data, load, latencies, spans, phases_claimed=claimed),
    )
