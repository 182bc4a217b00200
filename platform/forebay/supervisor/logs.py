"""Log files of the parts, and the one log that joins them with a prefix each."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

LARGEST_LOG_BYTES = 20_000_000


class JoinedLog:
    """Follows the parts' files and repeats their lines, prefixed, in one file and, if asked, to a person.

    Parts write to their files directly, so nothing is lost or blocked when the supervisor dies.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None], *, everything: bool = False) -> None:
        self.directory = directory
        self.tell = tell
        self.everything = everything
        self.joined = open(directory / "forebay.log", "a", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._places: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}

    def file_of(self, name: str) -> Path:
        """The file a part writes to; lines from now on are followed."""
        path = self.directory / f"{name}.log"
        if name not in self._places:
            path.touch(mode=0o600)
            self._places[name] = path.stat().st_size
            self._rests[name] = b""
        return path

    def say(self, message: str) -> None:
        """A line of the supervisor's own."""
        self._write("forebay", message)
        if not self.everything:
            self.tell(message)

    def follow(self) -> None:
        """Repeat what has been written since the last time."""
        for name in self._places:
            path = self.directory / f"{name}.log"
            size = path.stat().st_size if path.exists() else 0
            if size < self._places[name]:
                self._places[name] = 0
            if size > self._places[name]:
                self._repeat(name, path)
            if size > LARGEST_LOG_BYTES:
                self._shorten(name, path)
        self.joined.flush()
        if os.fstat(self.joined.fileno()).st_size > LARGEST_LOG_BYTES:
            self._shorten("forebay", self.directory / "forebay.log")

    def close(self) -> None:
        self.follow()
        self.joined.close()

    def _repeat(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._places[name])
            data = self._rests[name] + file.read(1_000_000)
            self._places[name] = file.tell()
        *lines, self._rests[name] = data.split(b"\n")
        for line in lines:
            self._write(name, line.decode(errors="replace"))

    def _write(self, name: str, line: str) -> None:
        text = f"{name:<11} | {line}"
        self.joined.write(f"{text}\n")
        if self.everything:
            self.tell(text)

    def _shorten(self, name: str, path: Path) -> None:
        # The writers append, so a file cut to nothing goes on at its new end.
        shutil.copyfile(path, path.with_suffix(".log.1"))
        os.truncate(path, 0)
        if name in self._places:
            self._places[name] = 0
