"""A backend of the user's own that is not what the options say it is."""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agentdyno.rig.backends import start_backend
from agentdyno.rig.options import Words, read
from agentdyno.rig.processes import ChildFailed, Children, free_port

SAID: dict[str, bytes] = {"/other/metrics": b"up 1\n", "/noise/metrics": b"\xff\xfe", "/html/metrics": b"<html>{"}


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = SAID.get(self.path)
        self.send_response(404 if said is None else 200)
        self.end_headers()
        self.wfile.write(said or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "HTTP Error 404: Not Found"),
        ("/other", "it has no vllm:request_success_total.*: that is not vLLM, or not the version that this knows"),
        ("/noise", "of its /metrics: 'utf-8' codec can't decode"),
        ("/html", "of its /metrics: "),
    ],
)
def test_a_server_that_is_no_vllm_is_to_blame_and_the_way_out_is_said(
    port: int, tmp_path: Path, path: str, why: str
) -> None:
    url = f"http://127.0.0.1:{port}{path}/v1"
    backend = start_backend(_options(url), None, tmp_path / "log", Children())
    with pytest.raises(ChildFailed) as caught:
        backend.begin()
    assert caught.value.role == "backend"
    said = str(caught.value)
    assert re.match(rf"http://127.0.0.1:{port}{path} does not say .* as vLLM does at /metrics \(.*{why}", said), said
    assert said.endswith(f"another server's address is BACKEND itself: BACKEND={url}")


def test_one_that_does_not_answer_is_too(tmp_path: Path) -> None:
    backend = start_backend(_options(f"http://127.0.0.1:{free_port()}/v1"), None, tmp_path / "log", Children())
    with pytest.raises(ChildFailed, match="Connection refused"):
        backend.begin()


def _options(url: str):
    return read(Words(framework="bare", backend="vllm", url=url, model="m"), environ={})
