"""Append events to a stream, as fast as it goes or at a steady rate, and print how fast it went."""

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from journal.services import Fact, record
from telemetry.core.streams import parse_stream

KIND = "bench.event"


class Command(BaseCommand):
    help = "Append events to a stream for a benchmark; the last line of the output is one JSON document."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("stream", help="fleet, job:UUID or team:UUID")
        parser.add_argument("--events", type=int, default=1000, help="how many in all")
        parser.add_argument("--batch", type=int, default=1, help="how many per transaction")
        parser.add_argument("--rate", type=float, default=0.0, help="transactions per second; 0: no pause")
        parser.add_argument("--bytes", type=int, default=200, help="size of the text each carries")

    def handle(self, *args: Any, **options: Any) -> None:
        events, batch, rate, size = (options[name] for name in ("events", "batch", "rate", "bytes"))
        if parse_stream(options["stream"]) is None:
            raise CommandError(f"stream: '{options['stream']}' is neither fleet nor job:UUID nor team:UUID")
        if events < 1 or batch < 1 or rate < 0 or not 0 <= size <= 100_000:
            raise CommandError("events, batch: at least 1; rate: at least 0; bytes: 0 to 100000")
        self.stdout.write(json.dumps(append(options["stream"], events, batch, rate, size)))


def append(stream: str, events: int, batch: int, rate: float, size: int) -> dict[str, Any]:
    """Append `events` events in transactions of `batch`; return the rate in events per second."""
    text = "x" * size
    record(stream, [Fact(KIND, {"number": 0, "text": text})])  # opens the connection, which is not measured
    began, done, last = time.perf_counter(), 0, 0
    while done < events:
        if rate:
            due = began + done / batch / rate
            time.sleep(max(0.0, due - time.perf_counter()))
        count = min(batch, events - done)
        last = record(stream, [Fact(KIND, {"number": done + i + 1, "text": text}) for i in range(count)])
        done += count
    seconds = time.perf_counter() - began
    return {"events": done, "seconds": seconds, "per_second": done / seconds, "last_seq": last}
