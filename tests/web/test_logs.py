import io
import logging

import pytest

from web.logs import clean, logging_settings, redact
from web.secrets import new_token


@pytest.mark.parametrize(
    "name", ["authorization", "Authorization", "cookie", "password", "api_token", "ticket", "key"]
)
def test_a_field_with_a_secret_name_is_not_written(name):
    assert redact(None, "", {name: "value", "path": "/x"}) == {name: "[redacted]", "path": "/x"}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("GET /ws/streams/fleet?ticket=abc&after=1", "GET /ws/streams/fleet?ticket=[redacted]&after=1"),
        ("GET /login/abcdefghijklmnopqrstuvwxyz", "GET /login/[redacted]"),
        ("postgresql://forebay:hunter2@db/forebay", "postgresql://forebay:[redacted]@db/forebay"),
        ("fb_0123456789ab_" + "c" * 64, "fb_0123456789ab_[redacted]"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_a_secret_inside_a_text_is_not_written(text, written):
    assert clean(text) == written
    assert clean({"list": [text], "password": text}) == {"list": [written], "password": "[redacted]"}


def test_no_log_line_of_a_request_holds_its_token(world, caplog):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    config = logging_settings("DEBUG")["formatters"]["json"]
    handler.setFormatter(
        config["()"](foreign_pre_chain=config["foreign_pre_chain"], processors=config["processors"])
    )
    logging.getLogger().addHandler(handler)
    try:
        text = new_token().text
        known = world.token("viewer").text
        for token in (text, known):
            world.send("GET", f"/api/v1/me?token={token}", Authorization=f"Bearer {token}")
            logging.getLogger("anything").error(
                "failed with %s", {"headers": f"Authorization: Bearer {token}"}
            )
    finally:
        logging.getLogger().removeHandler(handler)
    written = stream.getvalue()
    assert written.count('"event": "request"') == 2
    for token in (text, known):
        assert token.rpartition("_")[2] not in written


@pytest.mark.parametrize("name", ["uvicorn", "uvicorn.error", "uvicorn.access"])
def test_the_web_server_writes_through_the_same_form(name):
    logger = logging_settings("INFO")["loggers"][name]
    assert (logger["handlers"], logger["propagate"]) == ([], True)
