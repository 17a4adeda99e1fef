"""The client of an OpenAI-compatible chat completions endpoint: one keep-alive session, retries, streaming."""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import orjson
from yarl import URL

from lightagent.errors import (
    LightAgentError,
    LlmConnectionError,
    LlmError,
    LlmResponseError,
    LlmStatusError,
    LlmTimeoutError,
)
from lightagent.reply import Reply, ReplyBuilder, read_reply
from lightagent.retry import Random, Retry, Sleep
from lightagent.sse import SseDecoder

OnText = Callable[[str], None]


class ChatClient:
    """Sends messages to an LLM and returns its reply.

    base_url: up to and with `/v1`. timeout_s: for one attempt, from sending to the last byte. retry: for
    connection errors, 429 and 5xx. parameters: more fields for each request, such as temperature. sleep and
    random stand between this and the world, for tests.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str = "",
        *,
        timeout_s: float = 60.0,
        retry: Retry | None = None,
        parameters: Mapping[str, Any] | None = None,
        sleep: Sleep = asyncio.sleep,
        random: Random = random_module.random,
    ) -> None:
        self.sleep = sleep
        self.random = random
        # A URL object, so that aiohttp need not parse and quote it in each call.
        self._url = URL(base_url.rstrip("/") + "/chat/completions")
        self._fields = {"model": model, **(parameters or {})}
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> aiohttp.ClientSession:
        """The session, made on first use; needs a running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                trust_env=False,
                # An LLM's server sets no cookies, and looking for some costs CPU in each call.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close the session and its connections. A later call would open another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], tools: orjson.Fragment | None = None, on_text: OnText | None = None
    ) -> Reply:
        """Ask for the next message; with on_text, as a stream whose text is handed over piece by piece.

        tools: the encoded list of tools to offer. Raises LlmError when the last attempt failed.
        """
        fields: dict[str, Any] = {**self._fields, "messages": messages}
        if tools is not None:
            fields["tools"] = tools
        if on_text is not None:
            fields["stream"] = True
            fields["stream_options"] = {"include_usage": True}
        try:
            body = orjson.dumps(fields)
        except orjson.JSONEncodeError as error:
            raise LightAgentError(f"The messages cannot be written as JSON: {error}.") from error
        failures = 0
        while True:
            try:
                reply = await self._attempt(body, on_text)
            except LlmError as error:
                failures += 1
                wait_s = self._retry.wait_s(failures, self.random, error.retry_after_s) if error.retryable else None
                if wait_s is None:
                    raise
            else:
                reply.retries = failures
                return reply
            await self.sleep(wait_s)

    async def _attempt(self, body: bytes, on_text: OnText | None) -> Reply:
        builder = ReplyBuilder(on_text) if on_text is not None else None
        try:
            async with self.open().post(self._url, data=body, allow_redirects=False) as response:
                if response.status != 200:
                    raise await _status_error(response)
                if builder is None:
                    return read_reply(await response.read())
                return await _read_stream(response, builder)
        except TimeoutError as error:  # before ClientError: some of aiohttp's timeouts are both
            raise LlmTimeoutError(f"The LLM did not finish its answer within {self._timeout_s:g} s.") from error
        except aiohttp.ClientError as error:
            broken = isinstance(error, (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError))
            raise LlmConnectionError(
                f"The connection to the LLM at {self._url.origin()} failed: {type(error).__name__}: {error}",
                # Text that was handed over cannot be taken back.
                retryable=broken and not (builder and builder.has_text),
            ) from error


async def _read_stream(response: aiohttp.ClientResponse, builder: ReplyBuilder) -> Reply:
    if response.content_type != "text/event-stream":
        raise LlmResponseError(f"The LLM was asked for an event stream and answered {response.content_type}.")
    decoder = SseDecoder()
    # To the end of the body and not only to [DONE]: only then is the connection free for the next call.
    async for piece in response.content.iter_any():
        for event in decoder.feed(piece):
            builder.add(event)
    return builder.build()


async def _status_error(response: aiohttp.ClientResponse) -> LlmStatusError:
    start = (await response.content.read(2000)).decode(errors="replace")[:300]
    return LlmStatusError(
        response.status,
        f"The LLM's server answered {response.status}: {start}",
        retry_after_s=read_retry_after(response.headers.get("Retry-After"), datetime.now(UTC)),
    )


def read_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait by a Retry-After header, which holds seconds or a date; None when it says neither."""
    if not value:
        return None
    try:
        return max(0.0, float(value)) if value.strip().replace(".", "", 1).isdigit() else _until(value, now)
    except ValueError:
        return None


def _until(value: str, now: datetime) -> float:
    date = parsedate_to_datetime(value)
    if date.tzinfo is None:  # by RFC 9110 the date is in GMT whatever it says
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())
