"""The HTTP client: `forebay.Client(url, token).submit("study.yaml").wait()`."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from forebay.job_files import read_job_file
from forebay.servers import find_server
from forebay.transport import ApiError, Transport, Unreachable

ENDED = {"completed", "failed", "cancelled"}
FIRST_POLL_S, LAST_POLL_S = 0.3, 3.0
# A server that is restarted is back within a minute.
PATIENCE_S = 120.0

__all__ = ["ApiError", "Client", "Job", "JobTimeout", "Unreachable"]


class JobTimeout(Exception):
    """The job has not ended within the time given; it goes on."""

    def __init__(self, job_id: str, seconds: float) -> None:
        super().__init__(f"job {job_id} has not ended after {seconds:g} s; it goes on")


class Client:
    """A connection to a Forebay server.

    Without arguments the server is found as the command line finds it. Requests that fail on the way are
    sent again, those that create or act under the same idempotency key, so that nothing is done twice.
    Raises ApiError for what the server refuses and Unreachable where there is none.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout_s: float = 30.0) -> None:
        server = find_server(url, token)
        self.url = server.url
        self.transport = Transport(server.url, server.token, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def submit(self, job: str | Path | Mapping[str, Any], *, key: str | None = None) -> "Job":
        """Submit a job: the path of a job file, or its content. `key` makes the submission unrepeatable."""
        body = dict(job) if isinstance(job, Mapping) else read_job_file(Path(job))
        return Job(self, self.transport.post("/api/v1/jobs", body, key=key or str(uuid4())))

    def job(self, job_id: str) -> "Job":
        """Return a job by its id."""
        return Job(self, self.transport.get(f"/api/v1/jobs/{job_id}"))

    def jobs(self, **filters: str) -> Iterator["Job"]:
        """Yield jobs, newest first; filters are those of the API, for example `state="running"`."""
        for row in self.pages("/api/v1/jobs", filters):
            yield Job(self, row)

    def reconfiguration(self, reconfiguration_id: str) -> dict[str, Any]:
        """Return a plan for a training job by its id."""
        return self.transport.get(f"/api/v1/reconfigurations/{reconfiguration_id}")

    def approve(self, seen: Mapping[str, Any], *, comment: str = "", break_glass: str = "") -> dict[str, Any]:
        """Approve a plan as it was read; refused where it has changed since, or is one's own.

        An admin who asked for it says with `break_glass` why nobody else can approve it.
        """
        body = {"comment": comment, "break_glass": break_glass}
        return self._decide(seen, "approve", body)

    def reject(self, seen: Mapping[str, Any], *, comment: str = "") -> dict[str, Any]:
        """Reject a plan as it was read; refused where it has changed since."""
        return self._decide(seen, "reject", {"comment": comment})

    def _decide(self, seen: Mapping[str, Any], verb: str, body: Mapping[str, str]) -> dict[str, Any]:
        path = f"/api/v1/reconfigurations/{seen['id']}/{verb}"
        given = {name: text for name, text in body.items() if text}
        return self.transport.post(path, given, key=str(uuid4()), version=seen["version"])

    def inject(
        self, job_id: str, mode: str, rank: int, *, factor: float = 2.0, seconds: float | None = None
    ) -> dict[str, Any]:
        """Slow down, halt or kill a rank of a running training job, really."""
        body = {"mode": mode, "rank": rank, "factor": factor, "seconds": seconds}
        return self.transport.post(f"/api/v1/jobs/{job_id}/inject", body, key=str(uuid4()))

    def lend(self, job_id: str, lending: bool, reason: str = "") -> dict[str, Any]:
        """Stop the lending of a training job's bubbles at once, or allow it again."""
        body = {"lending": lending, "reason": reason}
        return self.transport.post(f"/api/v1/jobs/{job_id}/lending", body, key=str(uuid4()))

    def me(self) -> dict[str, Any]:
        """Return who the token belongs to and what it is good for."""
        return self.transport.get("/api/v1/me")

    def pages(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page after page."""
        page = self.transport.get(path, {"limit": 500, **(query or {})})
        while True:
            yield from page["items"]
            if page["next"] is None:
                return
            page = self.transport.get(page["next"])


class Job:
    """A job on a server, as it was last read; `refresh` and `wait` read it again."""

    def __init__(self, client: Client, data: dict[str, Any]) -> None:
        self.client = client
        self.data = data

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} {self.state}>"

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def state(self) -> str:
        """`queued`, `running`, `completed`, `failed` or `cancelled`."""
        return str(self.data["state"])

    @property
    def ended(self) -> bool:
        """Whether the job has come to an end."""
        return self.state in ENDED

    @property
    def summary(self) -> dict[str, Any]:
        return dict(self.data["summary"])

    @property
    def best(self) -> dict[str, Any] | None:
        """The best trial with a full model: `trial`, `metric`, `config`; None while there is none."""
        best: dict[str, Any] | None = self.data["summary"].get("best")
        return best

    def refresh(self) -> Self:
        """Read the job again."""
        self.data = self.client.transport.get(f"/api/v1/jobs/{self.id}")
        return self

    def wait(self, timeout_s: float | None = None, on_change: Callable[["Job"], None] | None = None) -> Self:
        """Wait until the job has ended; raise JobTimeout where it does not within `timeout_s`.

        `on_change` is called whenever the job's state or summary has changed. A server that is away for
        a while is waited for.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause, away_since = FIRST_POLL_S, None
        while not self.ended:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise JobTimeout(self.id, timeout_s or 0.0)
            time.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.3, LAST_POLL_S)
            before = self.data
            try:
                self.refresh()
                away_since = None
            except Unreachable:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > PATIENCE_S:
                    raise
            if on_change and self.data != before:
                on_change(self)
        return self

    def cancel(self) -> Self:
        """Cancel the job; a running one ends as soon as its driver has let go."""
        self.data = self.client.transport.post(f"/api/v1/jobs/{self.id}/cancel", key=str(uuid4()))
        return self

    def resume(self) -> Self:
        """Queue a failed or cancelled job again."""
        self.data = self.client.transport.post(f"/api/v1/jobs/{self.id}/resume", key=str(uuid4()))
        return self

    def trials(self, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of the trial table; `sort` and filters are those of the API."""
        return self.client.pages(f"/api/v1/jobs/{self.id}/trials", query)

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """Return the events after a sequence number that are there now."""
        return list(self.client.pages(f"/api/v1/jobs/{self.id}/events", {"after": after}))

    def export(self, path: str | Path, format: str = "csv") -> Path:
        """Write all trials into a file, as `csv` or `parquet`."""
        if format not in {"csv", "parquet"}:
            raise ValueError(f"format: '{format}' is neither csv nor parquet")
        return self.client.transport.download(f"/api/v1/jobs/{self.id}/trials.{format}", Path(path))

    def download_model(self, path: str | Path) -> Path:
        """Write the target model into a file, as safetensors; raise LookupError while there is none."""
        address = self.data["links"]["model"]
        if address is None:
            raise LookupError(f"job {self.id} has no target model")
        return self.client.transport.download(address, Path(path))
