"""Variables of the environment that make no sense are refused loudly."""

from ipaddress import ip_network

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from web.environment import env_networks


def test_networks_are_read(monkeypatch):
    assert env_networks("FOREBAY_SOME_NETWORKS") == []
    monkeypatch.setenv("FOREBAY_SOME_NETWORKS", "10.1.0.0/16, ::1/128,")
    assert env_networks("FOREBAY_SOME_NETWORKS") == [ip_network("10.1.0.0/16"), ip_network("::1/128")]


@pytest.mark.parametrize("text", ["10.1.0.1/16", "all", "10.0.0.0/40"])
def test_what_is_no_network_is_named(monkeypatch, text):
    monkeypatch.setenv("FOREBAY_SOME_NETWORKS", text)
    with pytest.raises(ImproperlyConfigured, match="FOREBAY_SOME_NETWORKS"):
        env_networks("FOREBAY_SOME_NETWORKS")


def test_a_policy_that_there_is_not_keeps_the_platform_from_starting(settings):
    settings.QUEUE_POLICY = "fastest"
    with pytest.raises(ImproperlyConfigured, match="FOREBAY_QUEUE_POLICY is 'fastest': say one of fifo, "):
        apps.get_app_config("cluster").ready()
