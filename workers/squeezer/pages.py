"""Files of 64-bit words that processes of one node share by mapping them.

Every word has one writer. A word is stored by one instruction, and the order of stores is the order of the
program on the processors we run on (x86-64; on others the system call that wakes a reader orders them).
"""

import ctypes
import mmap
import os
from pathlib import Path

from workers.squeezer import futex
from workers.squeezer.errors import SqueezerError

WORD = 8


class Page:
    """`words[i]` is word i, a signed integer."""

    def __init__(self, path: Path, size: int, kind: int) -> None:
        self.path = path
        try:
            with open(path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), size * WORD)
        except (OSError, ValueError) as error:
            raise SqueezerError(f"{path}: cannot be mapped: {error}") from None
        self.words = memoryview(self._map).cast("q")
        if self.words[0] != kind:
            raise SqueezerError(f"{path}: is not a page of this kind and version")

    @classmethod
    def create(cls, path: Path, size: int, kind: int) -> None:
        """Write a page of zeros; readers see all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(kind.to_bytes(WORD, "little") + bytes((size - 1) * WORD))
        os.replace(part, path)

    def low(self, index: int) -> ctypes.c_uint32:
        """The lower half of a word, to wait for."""
        return ctypes.c_uint32.from_buffer(self._map, index * WORD)

    def await_change(self, word: ctypes.c_uint32, value: int, timeout_s: float) -> None:
        """Sleep while a word is what it was, at most `timeout_s`."""
        futex.wait_while(word, value, timeout_s)
