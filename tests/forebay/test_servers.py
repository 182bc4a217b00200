import json
import stat

import pytest

from forebay.servers import BadAddress, NoServer, NoToken, Server, find_server, remember
from forebay.supervisor.directory import DataDirectory
from forebay.supervisor.runtime import Runtime, own_identity


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch, tmp_path):
    for name in ("FOREBAY_URL", "FOREBAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FOREBAY_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def running_here(tmp_path):
    """What `forebay up` leaves in the data directory; this very process plays the supervisor."""
    data = DataDirectory(tmp_path / "data")
    data.create()
    url = "http://127.0.0.1:8642"
    Runtime(own_identity(), "ready", url, 8642, str(data.path)).write(data.runtime)
    data.token.write_text("local-token\n")
    return url


def test_where_nothing_is_known_the_message_says_what_to_do():
    with pytest.raises(NoServer, match="forebay up"):
        find_server()


def test_the_platform_that_runs_here_is_found(running_here):
    assert find_server() == Server(running_here, "local-token")
    assert find_server(url=running_here + "/") == Server(running_here, "local-token")


def test_a_platform_that_has_stopped_is_not_found(running_here, tmp_path):
    path = tmp_path / "data" / "runtime.json"
    document = json.loads(path.read_text())
    document["supervisor"]["pid"] = 2**22 + 1
    path.write_text(json.dumps(document))
    with pytest.raises(NoServer):
        find_server()


def test_the_last_login_comes_before_the_platform_here(running_here):
    remember(Server("https://a", "ta"))
    path = remember(Server("https://b", "tb"))
    assert find_server() == Server("https://b", "tb")
    assert find_server(url="https://a") == Server("https://a", "ta")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_login_replaces_the_token_of_the_first():
    remember(Server("https://a", "old"))
    remember(Server("https://a", "new"))
    assert find_server() == Server("https://a", "new")


def test_the_environment_comes_before_logins_and_options_before_all(monkeypatch):
    remember(Server("https://a", "ta"))
    monkeypatch.setenv("FOREBAY_URL", "https://env/")
    monkeypatch.setenv("FOREBAY_TOKEN", "te")
    assert find_server() == Server("https://env", "te")
    assert find_server("https://given", "tg") == Server("https://given", "tg")


def test_an_address_without_a_token_is_not_enough(monkeypatch):
    monkeypatch.setenv("FOREBAY_URL", "https://env")
    with pytest.raises(NoToken, match="forebay login https://env"):
        find_server()


@pytest.mark.parametrize("url", ["foo", "ftp://x", "http://", "127.0.0.1:8000", "https:///x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(BadAddress):
        find_server(url, "t")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"servers": [1]}', '{"servers": [{}]}'])
def test_a_broken_file_of_logins_counts_as_none(nothing_known, content):
    path = nothing_known / "config" / "forebay" / "servers.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(NoServer):
        find_server()
