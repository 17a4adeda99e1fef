"""After the load: ask host and backend what they saw, and turn the raw lines into the files that are kept."""

from __future__ import annotations

import msgspec

from agentdyno.contract.run import Finding, Reason
from agentdyno.host.probes import ProbeReport
from agentdyno.record.folder import RunFolder
from agentdyno.record.manifest import Backend as BackendRecord
from agentdyno.record.manifest import Manifest
from agentdyno.rig.processes import Child, fetch
from agentdyno.rig.servers import Backend

_FETCH_TIMEOUT_S = 10.0


def ask_host(folder: RunFolder, host: Child | None, url: str, manifest: Manifest) -> None:
    """Keep the probes' events and the last /metrics; a host that cannot answer any more leaves a gap."""
    if host is None or host.exit_code() is not None:
        return
    try:
        report = msgspec.json.decode(fetch(f"{url}/debug/probes", _FETCH_TIMEOUT_S), type=ProbeReport)
        (folder.path / "logs" / "host-metrics.txt").write_bytes(fetch(f"{url}/metrics", _FETCH_TIMEOUT_S))
    except OSError as error:
        if manifest.status == "finished":
            text = f"The host did not answer after the load ({error}): GC pauses and loop lag are not known."
            manifest.findings.append(Finding(Reason.HOST_FAILED, text))
        return
    folder.write_gc(report.gc)
    folder.write_loop(report.loop)


def ask_backend(folder: RunFolder, backend: Backend | None, manifest: Manifest) -> None:
    """Keep the backend's own count as backend.json; stats null when it has none or cannot say."""
    if backend is None:
        return
    try:
        record = backend.record()
    except OSError as error:
        record = BackendRecord(kind=backend.kind, model=backend.model)
        if manifest.status == "finished":
            text = f"The backend did not answer after the load ({error}): its own count is not known."
            manifest.findings.append(Finding(Reason.BACKEND_FAILED, text))
    folder.write_json("backend.json", record)


def keep_records(folder: RunFolder, manifest: Manifest) -> None:
    """requests.parquet and resources.parquet from the raw lines; the workers' ends into the manifest."""
    manifest.workers = folder.worker_ends()
    if manifest.workers:
        manifest.t0_monotonic_ns = min(end.t0_monotonic_ns for end in manifest.workers)
    folder.write_requests(folder.requests())
    folder.write_resources(folder.samples())
