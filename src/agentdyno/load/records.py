"""The files that a worker writes: its request records, its live reports, and what it knows at its end."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import gevent
import msgspec
from gevent import monkey

from agentdyno.contract.run import RequestRecord, Second, WorkerEnd

# Not one of contract.run.ExitCode, so that whoever started the worker can tell a full disk from a failed run.
DISK_FULL_EXIT = 74

_encode = msgspec.json.Encoder().encode


class RecordsError(Exception):
    """The records cannot be written. The text says where and what to do; disk_full tells why."""

    def __init__(self, message: str, *, disk_full: bool = False) -> None:
        super().__init__(message)
        self.disk_full = disk_full


class _Lines:
    """JSON lines that are gathered in memory and appended to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer = bytearray()
        self._written_bytes = 0
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise RecordsError(
                f"{path} exists: that folder holds the records of another run. Name another one with --records."
            ) from error
        except OSError as error:
            raise _failure(path, error) from error

    def add(self, line: bytes) -> None:
        """Keep one line for the next write."""
        self._buffer += line
        self._buffer += b"\n"

    def take(self) -> bytes:
        """What is kept; nothing is kept afterwards. Not from another thread than `add`."""
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken

    def write(self, lines: bytes) -> None:
        """Append `lines`, all or nothing: when the disk is full the file does not end in half a line."""
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            with suppress(OSError):  # the failure to write is the one to tell
                os.ftruncate(self._descriptor, self._written_bytes)
            raise _failure(self._path, error) from error
        self._written_bytes += len(lines)

    def close(self) -> None:
        """Close the file without a flush."""
        os.close(self._descriptor)


class Records:
    """A worker's three files in one folder. Nothing touches the disk between two flushes."""

    def __init__(self, folder: Path, worker: int) -> None:
        """Raises RecordsError when the files cannot be made, or exist already."""
        self._end_path = folder / f"end-{worker}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failure(folder, error) from error
        self._requests = _Lines(folder / f"requests-{worker}.jsonl")
        self._seconds = _Lines(folder / f"seconds-{worker}.jsonl")
        self._failure: RecordsError | None = None
        # A native lock, so that `close` can wait for the flush of a thread without letting another greenlet run.
        self._writing = monkey.get_original("threading", "Lock")()

    def add(self, record: RequestRecord) -> None:
        """Keep a request record for the next flush."""
        self._requests.add(_encode(record))

    def add_second(self, second: Second) -> None:
        """Keep a live report for the next flush."""
        self._seconds.add(_encode(second))

    def flush(self) -> None:
        """Write what is kept, on a native thread: a busy disk must not delay an arrival. Raises RecordsError."""
        failure = gevent.get_hub().threadpool.apply(self._try_to_write, (self._requests.take(), self._seconds.take()))
        if failure is not None:
            raise failure

    def close(self, end: WorkerEnd) -> None:
        """Write what is kept and the end file, and close. Raises RecordsError. Lets no other greenlet run."""
        try:
            self._write(self._requests.take(), self._seconds.take())
            try:
                self._end_path.write_bytes(_encode(end) + b"\n")
            except OSError as error:
                self._end_path.unlink(missing_ok=True)  # no end file is honest, half a one is not
                raise _failure(self._end_path, error) from error
        finally:
            self._requests.close()
            self._seconds.close()

    def _write(self, requests: bytes, seconds: bytes) -> None:
        with self._writing:
            if self._failure is not None:
                raise self._failure  # what could not be written is gone, so what comes after it must not follow
            try:
                self._requests.write(requests)
                self._seconds.write(seconds)
            except RecordsError as error:
                self._failure = error
                raise

    def _try_to_write(self, requests: bytes, seconds: bytes) -> RecordsError | None:
        """As _write, but the failure is returned: gevent prints what is raised on one of its threads."""
        try:
            self._write(requests, seconds)
        except RecordsError as error:
            return error
        return None


def _failure(path: Path, error: OSError) -> RecordsError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RecordsError(
            f"The disk is full: {path} cannot be written. Make room, or name another folder with --records.",
            disk_full=True,
        )
    return RecordsError(f"{path} cannot be written: {error.strerror}. Name another folder with --records.")
