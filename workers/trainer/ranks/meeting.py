"""Where the ranks of a target meet: a store that one of their processes keeps open."""

import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

FORM_S = 60.0  # within which all ranks must have come


@dataclass(frozen=True)
class Meeting:
    """An open store; it is gone when this object is."""

    store: Any
    port: int


def open_meeting(host: str = "127.0.0.1") -> Meeting:
    """Open a store that listens at this address of the machine only, on a free port."""
    import torch.distributed as dist

    listener = socket.create_server((host, 0))
    port = int(listener.getsockname()[1])
    store = dist.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=FORM_S),
        master_listen_fd=listener.detach(),
    )
    return Meeting(store, port)
