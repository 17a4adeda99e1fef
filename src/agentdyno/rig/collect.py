"""After the load: ask host and backend what they saw, and turn the raw lines into the files that are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.error import HTTPError

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agentdyno.contract.run import Finding, Reason, WorkerEnd
from agentdyno.host.probes import ProbeReport
from agentdyno.record.collections_paused import no_collections
from agentdyno.record.folder import RunFolder
from agentdyno.record.ledger import read_ledger
from agentdyno.record.manifest import Backend as BackendRecord
from agentdyno.record.manifest import Manifest, Status
from agentdyno.record.span_table import SPAN_SCHEMA, SpanReader, client_table, spans_of
from agentdyno.rig.backends import Backend
from agentdyno.rig.processes import Child, fetch

_FETCH_TIMEOUT_S = 30.0  # an overloaded host may first have to work off what its clients have given up

_EXPORT_S = 10.0


def ask_host(folder: RunFolder, host: Child | None, url: str, manifest: Manifest) -> None:
    """Keep the probes' events and the last /metrics; a host that cannot answer any more leaves a gap."""
    if host is None or host.exit_code() is not None:
        return
    try:
        metrics = _if_offered(f"{url}/metrics")
        probes = _if_offered(f"{url}/debug/probes")
        keep_host_answers(folder, manifest, metrics, probes)
    except (OSError, msgspec.MsgspecError) as error:
        if manifest.status == Status.FINISHED:
            text = f"The host did not answer after the load ({error}): GC pauses and loop lag are not known."
            manifest.findings.append(Finding(Reason.HOST_FAILED, text))


def keep_host_answers(folder: RunFolder, manifest: Manifest, metrics: bytes | None, probes: bytes | None) -> None:
    """What the host said after the load, as files; None for what it does not offer. Raises msgspec.MsgspecError for
    a report that is none of this version's, and OSError.
    """
    report = msgspec.json.decode(probes, type=ProbeReport) if probes is not None else None
    if metrics is not None:
        (folder.path / "logs" / "host-metrics.txt").write_bytes(metrics)
    if report is None:
        return
    if report.lost:
        text = f"The host's probes threw {report.lost} events away: GC pauses and loop lag are not known."
        manifest.findings.append(Finding(Reason.PROBES_LOST, text))
        return
    folder.write_gc(report.gc)
    folder.write_loop(report.loop)


def _if_offered(url: str) -> bytes | None:
    """The body; None where there is no such address: a program that is not our host need not have our probes."""
    try:
        return fetch(url, _FETCH_TIMEOUT_S)
    except HTTPError as error:
        if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_IMPLEMENTED):
            return None
        raise


def ask_backend(folder: RunFolder, backend: Backend | None, manifest: Manifest) -> None:
    """Keep the backend's own count as backend.json; stats null when it has none or cannot say."""
    if backend is None:
        return
    try:
        record = backend.record()
    except OSError as error:
        record = BackendRecord(kind=backend.kind, model=backend.model)
        known = {finding.code for finding in manifest.findings}
        if manifest.status == Status.FINISHED and Reason.BACKEND_FAILED not in known:
            text = f"The backend did not answer after the load ({error}): its own count is not known."
            manifest.findings.append(Finding(Reason.BACKEND_FAILED, text))
    folder.write_json("backend.json", record)


def earliest(ends: Sequence[WorkerEnd], _: pa.Table) -> int:
    """t0 of workers that are on one machine with the host."""
    return min(end.t0_monotonic_ns for end in ends)


def keep_records(
    folder: RunFolder, manifest: Manifest, t0_of: Callable[[Sequence[WorkerEnd], pa.Table], int | None] = earliest
) -> None:
    """The parquet files from the raw lines and frames; the workers' ends into the manifest.

    t0_of: t0 on the host's clock, of the workers' ends and all requests; None when it cannot be told.
    """
    manifest.workers = folder.worker_ends()
    requests = folder.requests()
    if manifest.workers:
        manifest.t0_monotonic_ns = t0_of(manifest.workers, requests)
    folder.write_requests(requests)
    if manifest.plan.trace_every:
        _keep_spans(folder, manifest, requests)
    folder.write_resources(folder.samples())


def _keep_spans(folder: RunFolder, manifest: Manifest, requests: pa.Table) -> None:
    reader = SpanReader(folder.raw, manifest.framework.name)
    with no_collections():
        folder.write_spans(reader.tables(requests, manifest.t0_monotonic_ns), SPAN_SCHEMA)
    manifest.spans_dropped = reader.senders.dropped
    manifest.spans_unreadable = reader.senders.unreadable
    manifest.unix_offset_ns = reader.senders.unix_offset_ns
    manifest.recorder = read_ledger(folder.raw)


def export_clients(folder: RunFolder, manifest: Manifest) -> None:
    """Send the generator's own spans, known only now, to the OTLP endpoint that took the others, where there is one."""
    file, ledger = folder.path / "requests.parquet", manifest.recorder
    t0_ns, offset_ns = manifest.t0_monotonic_ns, manifest.unix_offset_ns
    if ledger is None or ledger.exported is None or t0_ns is None or offset_ns is None or not file.exists():
        return
    from agentdyno.record.export import Encoding, export, otlp_exporter  # a quarter of a second, seldom needed

    spans_to = otlp_exporter()
    if spans_to is None:
        return
    table = client_table(pq.read_table(file), t0_ns)
    deadline = time.monotonic() + _EXPORT_S
    sent = 0
    for taken in export(spans_to, Encoding(resource(manifest)), spans_of(table), offset_ns):
        sent += taken
        if not taken or time.monotonic() > deadline:
            break
    spans_to.shutdown()
    ledger.exported = (ledger.exported or 0) + sent
    ledger.export_dropped = (ledger.export_dropped or 0) + table.num_rows - sent


def resource(manifest: Manifest) -> dict[str, str]:
    """The attributes of a run that each of its exported spans carries."""
    return {
        "agentdyno.run.id": manifest.run_id,
        "agentdyno.framework": manifest.framework.name,
        "agentdyno.framework.version": manifest.framework.version or "",
        "agentdyno.scenario": manifest.plan.scenario,
    }
