"""Where a webhook may go: a URL without tricks, and addresses that are public or that the operator allows.

The check is made on the address that is connected to, not on the name: a name may answer differently a moment
later (DNS rebinding), and a redirect leads elsewhere, so redirects are not followed.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from telemetry.core.errors import InvalidWebhook

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LONGEST_URL = 500
PORTS = {"https": 443, "http": 80}
# Old spellings of IPv4 addresses that resolvers accept: 127.1, 0x7f000001, 2130706433, 0177.0.0.1.
NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}", re.IGNORECASE)
# Networks that carry an IPv4 address inside: what they lead to cannot be told from the outside.
TUNNELS = tuple(
    ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


@dataclass(frozen=True)
class Target:
    """A webhook's URL in parts; `path` has the query with it."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The host as it stands in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: Address) -> str:
        """Return the URL with an address in place of the host."""
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def read_target(url: str, allowed: Sequence[Network] = ()) -> Target:
    """Return a URL's parts; raise InvalidWebhook for what is no plain http(s) URL or a refused address."""
    if len(url) > LONGEST_URL:
        raise _fault(f"must be at most {LONGEST_URL} characters long")
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url) or "\\" in url:
        raise _fault("must be plain ASCII without spaces; write an international name as xn--…")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _fault("is not a URL") from None
    if parts.scheme not in PORTS:
        raise _fault("must begin with https://, or with http:// where the operator allows the network")
    if "@" in parts.netloc:
        raise _fault("must not carry a user name or password")
    if parts.fragment or not parts.hostname or port == 0:
        raise _fault("must name a host, and no fragment")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = Target(parts.scheme, parts.hostname.rstrip("."), port or PORTS[parts.scheme], path)
    if not target.host or target.host == "localhost" or target.host.endswith(".localhost"):
        literal: Address | None = ipaddress.ip_address("127.0.0.1")
    else:
        literal = literal_address(target.host)
    if literal is not None and (why := refusal(literal, target.scheme, allowed)):
        raise _fault(why)
    return target


def literal_address(host: str) -> Address | None:
    """Return the address that a host is written as, old spellings included; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not NUMERIC.fullmatch(host):
        return None
    try:
        return ipaddress.ip_address(socket.inet_aton(host))
    except OSError:
        raise _fault("is not a valid address") from None


def refusal(address: Address, scheme: str, allowed: Sequence[Network] = ()) -> str | None:
    """Return why nothing is sent to an address, or None if something may be."""
    plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    subject = plain or address
    if any(subject.version == net.version and subject in net for net in allowed):
        return None
    if scheme != "https":
        return (
            f"must use https: http goes only to networks that the operator allows, and {subject} is in none"
        )
    is_tunnel = any(subject.version == net.version and subject in net for net in TUNNELS)
    if not subject.is_global or subject.is_multicast or subject.is_reserved or is_tunnel:
        return f"{subject} is not a public address, and the operator does not allow its network"
    return None


def _fault(sentence: str) -> InvalidWebhook:
    return InvalidWebhook([("/url", sentence)])
