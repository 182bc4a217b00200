"""Where webhooks may go: every trick of the known attacks, refused before a byte is sent."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.core.errors import InvalidWebhook
from telemetry.core.webhooks.targets import literal_address, read_target, refusal

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://127.1/", "https://0x7f000001/", "https://2130706433/",
        "https://0177.0.0.1/", "https://0/", "https://localhost/", "https://LOCALHOST./",
        "https://a.localhost/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:10.0.0.1]/",
        "https://[::ffff:7f00:1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[::]/",
        "https://10.0.0.1/", "https://172.16.3.4/", "https://192.168.1.1/", "https://100.64.0.1/",
        "https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/", "https://[fe80::1]/",
        "https://[ff02::1]/", "https://224.0.0.1/", "https://255.255.255.255/", "https://192.0.2.1/",
        "http://example.com@127.0.0.1/", "https://user:pw@example.com/", "http://8.8.8.8/",
        "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL",
        "javascript:alert(1)",
        "https://", "https:///path", "//example.com/", "example.com", "", "https://example.com/#fragment",
        "https://example.com:0/", "https://example.com:99999/", "https://exa mple.com/", "https://ex\nample.com/",
        "https://example.com\\@127.0.0.1/", "https://bücher.example/", "https://[::1", "https://256.1.1.1/",
        "https://" + "a" * 500 + ".com/",
    ],
)  # fmt: skip
def test_urls_with_tricks_and_addresses_that_are_not_public_are_refused(url):
    with pytest.raises(InvalidWebhook) as error:
        read_target(url)
    assert error.value.faults[0][0] == "/url"


@pytest.mark.parametrize(
    ("url", "authority", "path", "connected"),
    [
        ("https://hooks.example.com/a/b?c=d", "hooks.example.com", "/a/b?c=d", "https://8.8.8.8:443/a/b?c=d"),
        ("https://example.com:8443", "example.com:8443", "/", "https://8.8.8.8:8443/"),
        ("https://8.8.4.4/x", "8.8.4.4", "/x", "https://8.8.8.8:443/x"),
        ("https://[2001:4860:4860::8888]:9/", "[2001:4860:4860::8888]:9", "/", "https://8.8.8.8:9/"),
    ],
)
def test_public_targets_are_connected_to_by_address_and_keep_their_name(url, authority, path, connected):
    target = read_target(url)
    assert (target.authority, target.path) == (authority, path)
    assert target.at(ipaddress.ip_address("8.8.8.8")) == connected


@pytest.mark.parametrize(
    ("url", "allowed"),
    [("http://127.0.0.1:9/", True), ("http://localhost:9/", True), ("https://[::ffff:127.0.0.9]/", True),
     ("http://10.0.0.1/", False), ("http://[::1]/", False), ("http://8.8.8.8/", False)],
)  # fmt: skip
def test_the_operator_allows_networks_and_nothing_beside_them(url, allowed):
    if allowed:
        assert read_target(url, LOOPBACK).scheme in {"http", "https"}
    else:
        with pytest.raises(InvalidWebhook):
            read_target(url, LOOPBACK)


@given(st.ip_addresses())
def test_no_address_is_sent_to_that_is_not_global(address):
    if refusal(address, "https") is None:
        plain = getattr(address, "ipv4_mapped", None) or address
        assert plain.is_global
        assert not plain.is_multicast
    assert refusal(address, "http") is not None


@given(st.ip_addresses(v=4))
def test_an_old_spelling_means_the_same_address(address):
    number = int(address)
    assert literal_address(str(number)) == literal_address(hex(number)) == address
    assert literal_address("hooks.example.com") is None
