"""Waiting for a word of shared memory to change: the kernel's futex, or short sleeps where there is none."""

import ctypes
import platform
import sys
import time

_NUMBERS = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE, _EVERYBODY = 0, 1, 2**31 - 1
_NUMBER = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
_syscall = ctypes.CDLL(None, use_errno=True).syscall if _NUMBER else None
_POLL_S = 0.0002


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def wait_while(word: ctypes.c_uint32, value: int, timeout_s: float) -> None:
    """Sleep while the word has this value (32 bits), at most `timeout_s`; may return early."""
    if word.value != value & 0xFFFFFFFF:
        return
    if _syscall is None:
        deadline = time.monotonic() + timeout_s
        while word.value == value & 0xFFFFFFFF and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return
    whole = int(timeout_s)
    limit = _Time(whole, int((timeout_s - whole) * 1e9))
    _syscall(
        _NUMBER, ctypes.byref(word), _WAIT, ctypes.c_uint32(value & 0xFFFFFFFF), ctypes.byref(limit), None, 0
    )


def wake(word: ctypes.c_uint32) -> None:
    """Wake everybody who waits for this word; a few microseconds, never blocks."""
    if _syscall is not None:
        _syscall(_NUMBER, ctypes.byref(word), _WAKE, _EVERYBODY, None, None, 0)
