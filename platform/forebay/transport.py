"""Requests to a server: sent again where the way failed, and told apart by what went wrong."""

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

# Waiting times before each new try; about four seconds in all.
PAUSES_S = (0.2, 0.5, 1.0, 2.0)
LONGEST_PAUSE_S = 30.0
TRY_AGAIN = {429, 502, 503, 504}
IN_FLIGHT = "urn:forebay:problem:in-flight"


class Unreachable(Exception):
    """There is no server at the address, or it does not answer."""


class ApiError(Exception):
    """The server refuses; `status` and `problem` (RFC 9457) say why."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(_words(status, problem))
        self.status = status
        self.problem = problem


class Transport:
    """HTTP with a token, retries and errors in words."""

    def __init__(self, url: str, token: str, timeout_s: float = 30.0) -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "forebay"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a GET."""
        return self._send("GET", path, params=dict(query) if query else None)

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        version: int | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a POST; with a key it is done once, however often it is sent.

        `version` is the one that the caller has seen: a newer one is refused.
        """
        headers = {"Idempotency-Key": key} if key else {}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        return self._send("POST", path, json=dict(body) if body is not None else None, headers=headers)

    def delete(self, path: str) -> None:
        """Delete something; doing it again changes nothing."""
        self._send("DELETE", path)

    def download(self, path: str, target: Path) -> Path:
        """Write an answer into a file, whole or not at all."""
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with (
                self._reaching(),
                self.http.stream("GET", self._own(path), headers={"Accept": "*/*"}) as response,
            ):
                if response.status_code >= 400:
                    response.read()
                    raise _error(response)
                with draft.open("wb") as file:
                    for block in response.iter_bytes():
                        file.write(block)
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        return target

    def fetch(self, path: str) -> bytes:
        """Return an answer as it is."""
        with self._reaching():
            response = self.http.get(self._own(path), headers={"Accept": "*/*"})
        if response.status_code >= 400:
            raise _error(response)
        return response.content

    def _send(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        can_repeat = method != "POST" or "Idempotency-Key" in request.get("headers", {})
        pauses = list(PAUSES_S) if can_repeat else []
        while True:
            try:
                with self._reaching():
                    response = self.http.request(method, self._own(path), **request)
            except Unreachable:
                if not pauses:
                    raise
                time.sleep(_jittered(pauses.pop(0)))
                continue
            if pauses and _is_passing(response):
                time.sleep(_pause(response, pauses.pop(0)))
                continue
            return _document(response)

    def _own(self, path: str) -> str:
        """Keep the token on this server: of an absolute address only the path is followed."""
        if "://" not in path:
            return path
        return httpx.URL(path).raw_path.decode()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise Unreachable(f"{self.url} does not answer in time") from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self.url} cannot be reached: {error}") from None


def _document(response: httpx.Response) -> dict[str, Any]:
    if response.status_code >= 400:
        raise _error(response)
    if response.status_code == 204:
        return {}
    try:
        document = response.json()
    except ValueError:
        document = None
    if response.status_code >= 300 or not isinstance(document, dict):
        raise Unreachable(f"{response.request.url} does not answer like a Forebay server")
    return document


def _error(response: httpx.Response) -> Exception:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "status" not in problem:
        problem = {
            "detail": f"{response.request.url} answers {response.status_code} {response.reason_phrase}"
        }
    if response.status_code >= 500:
        return Unreachable(f"the server cannot serve this now: {problem.get('detail')}")
    return ApiError(response.status_code, problem)


def _words(status: int, problem: dict[str, Any]) -> str:
    rows = problem.get("errors") or []
    faults = [f"{_path(row)}: {row.get('detail')}" for row in rows if isinstance(row, dict)]
    return "; ".join(faults) or str(problem.get("detail") or f"the server answers {status}")


def _path(row: dict[str, Any]) -> str:
    pointer = str(row.get("pointer") or row.get("parameter") or "job")
    return pointer.strip("/").replace("/", ".").replace("~1", "/").replace("~0", "~")


def _is_passing(response: httpx.Response) -> bool:
    if response.status_code == 409 and "json" in response.headers.get("content-type", ""):
        return bool(response.json().get("type") == IN_FLIGHT)
    return response.status_code in TRY_AGAIN


def _pause(response: httpx.Response, usual_s: float) -> float:
    asked = response.headers.get("Retry-After", "")
    return min(max(float(asked), usual_s), LONGEST_PAUSE_S) if asked.isdigit() else _jittered(usual_s)


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.7, 1.3)
