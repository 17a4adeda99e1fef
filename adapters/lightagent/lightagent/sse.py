"""Server-sent events, decoded from pieces of bytes that may be cut anywhere."""

from __future__ import annotations

from lightagent.errors import LlmResponseError

_MAX_LINE_BYTES = 4 * 1024 * 1024


class SseDecoder:
    """Feed it the pieces of a body; it returns the data of each event that is complete.

    Lines end in LF, CR LF or CR, as the standard has it. Comments and fields other than `data` are passed over.
    """

    __slots__ = ("_after_cr", "_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece, return the finished events' data. Raises LlmResponseError for an endless line."""
        if not piece:
            return []
        if self._after_cr and piece.startswith(b"\n"):
            piece = piece[1:]  # the second half of a CR LF whose CR has ended its line already
        self._after_cr = False
        lines = (self._rest + piece).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            self._rest = lines.pop()
            if len(self._rest) > _MAX_LINE_BYTES:
                raise LlmResponseError(f"A line of the LLM's event stream is longer than {_MAX_LINE_BYTES} bytes.")
        elif lines:
            self._after_cr = lines[-1].endswith(b"\r")
        events = []
        for line in lines:
            line = line.rstrip(b"\r\n")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data = []
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        return events
