"""Keys and passwords do not stand in texts, whatever form they took on the way."""

from __future__ import annotations

import io
import json
import logging
from base64 import b64encode
from urllib.parse import quote

import pytest

from ragguard.engines.http.http_client import HttpClient
from ragguard.errors import EngineRejected, InvalidInput
from ragguard.text.credentials import checked_headers, checked_key, keep_keys_secret, split_credentials
from ragguard.text.secret_filter import (
    clean_cause,
    keep_secret,
    logger,
    strip_control_characters,
    without_secrets,
)

KEY = "cnry+7/Qx'\"%é\\Zw_0123456789"


@pytest.fixture(autouse=True)
def kept():
    keep_secret(KEY + "\n")


@pytest.mark.parametrize(
    "shown",
    [
        KEY, f"Bearer {KEY}", quote(KEY), quote(KEY, safe=""), repr(KEY), json.dumps(KEY),
        json.dumps(KEY, ensure_ascii=False), f"b'Bearer {KEY}\\n'", b64encode(KEY.encode()).decode(),
        b64encode(KEY.encode()).decode().rstrip("="), KEY[:8], KEY[:9] + "...", KEY[:15] + "…",
    ],
)  # fmt: skip
def test_every_form_is_removed(shown):
    text = without_secrets(f"the server said: <{shown}> and went")
    assert text.startswith("the server said: <")
    assert text.endswith("> and went")
    assert KEY[:8] not in text
    assert b64encode(KEY.encode()).decode()[:10] not in text


def test_ordinary_words_stay():
    keep_secret("ragguard-internal-9", "EMPTY", "abc")
    told = "ragguard: EMPTY abc reply from http://localhost:8000/v1, a basic requirement of bearer shares"
    assert without_secrets(told) == told
    assert without_secrets("with ragguard-internal-9") == "with …"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("GET http://user:pass@host/v1", "GET http://…@host/v1"),
        ("'http://user:pa/ss#w?rd@host/v1'", "'http://…@host/v1'"),
        ("Authorization: Bearer abc-123-xyz-9", "Authorization: Bearer …"),
        ("key sk-proj-abcdefghijkl0123456789", "key …"),
        ("hf_abcdefghijklmnopqrstuv", "…"),
    ],
)
def test_text_in_the_form_of_a_key_is_removed_unregistered(text, clean):
    assert without_secrets(text) == clean


@pytest.mark.parametrize("given", ["key-12345678\n", "\tkey-12345678 ", "key-12345678\r\n"])
def test_a_mounted_secret_loses_its_line_end(given):
    assert checked_key("api_key", given) == "key-12345678"


@pytest.mark.parametrize("given", ["key 12345678 with space", "key-123\n45678", "schlüssel-1234", b"key", 7])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(given):
    with pytest.raises(InvalidInput, match="api_key") as caught:
        checked_key("api_key", given)
    assert "1234" not in str(caught.value)


def test_an_address_loses_its_password():
    bare, credentials = split_credentials("otlp", "https://me:p%2Fw%40d-77@host:4318/x", "…")
    assert bare == "https://host:4318/x"
    assert credentials is not None
    assert credentials.header == "Basic " + b64encode(b"me:p/w@d-77").decode()
    assert without_secrets(f"tried p/w@d-77 and {credentials.header}") == "tried … and Basic …"


@pytest.mark.parametrize(
    "url",
    [
        "http://me:pa/ss-1@host/v1",
        "http://me:12#ss-1@host",
        "http://me:pa?ss-1@host",
        "http://me:1/ss-1@host",
    ],
)
def test_a_password_with_signs_of_its_own_is_refused_and_not_shown(url):
    with pytest.raises(InvalidInput, match="%2F") as caught:
        split_credentials("engine", url, "http://HOST")
    assert "ss-1" not in str(caught.value)


def test_errors_of_the_package_hold_none():
    assert KEY not in str(EngineRejected(f"refused {KEY}"))
    assert KEY[:8] not in str(InvalidInput("engine", f"{KEY}" + "x" * 200, "something else"))
    assert clean_cause(ValueError(f"Illegal header value {KEY!r}")) is None
    plain = ValueError("no route")
    assert clean_cause(plain) is plain


def test_logs_hold_none_tracebacks_included():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log = logger("ragguard.test_secrets")
    log.addHandler(handler)
    try:
        try:
            raise ValueError(f"Illegal header value b'Bearer {KEY}'")
        except ValueError:
            log.exception("asking %s failed", f"http://me:{KEY}@host")
    finally:
        log.removeHandler(handler)
    told = stream.getvalue()
    assert "asking http://…@host failed" in told
    assert "ValueError: Illegal header value b'Bearer …'" in told
    assert KEY[:8] not in told


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("X-Team", "gardening", False),
        ("X-Team", "gardening-7Q", True),
        ("api-key", "gardenparty", True),
        ("Authorization", "Gardener", True),
        ("X-Auth", "gardens", True),
    ],
)
def test_value_of_a_header_is_secret_unless_it_is_an_ordinary_word_of_a_header_without_keys(
    name, value, hidden
):
    checked_headers("headers", {name: value})
    assert without_secrets(f"about {value} now") == (f"about {'…' if hidden else value} now")


@pytest.mark.parametrize(
    ("characters", "shown"),
    [
        (
            "\x1b\x9b\x07\u2028\u2029\u202e\u2066\U000e0041\U000e007f",
            "�",
        ),  # they control a terminal or hide a text
        ("\u200b\u200e\u2060\ufeff\xad", ""),  # they have no width
    ],
)
def test_character_that_is_not_what_it_seems_is_marked_or_left_out(characters, shown):
    for character in characters:
        assert strip_control_characters(f"a{character}b") == f"a{shown}b"


@pytest.mark.parametrize("text", ["plain", "two\nlines", "Zoë", "می‌روم", "👩‍🔬", "東京"])
def test_text_that_people_write_stays(text):
    assert strip_control_characters(text) == text


def test_options_that_hold_keys_by_their_names_are_secret():
    keep_keys_secret(
        {"max_model_len": "8192-blocks", "hf_token": "tk-51-abcdefgh", "hf": {"api_key": "inner-key-77"}}
    )
    shown = without_secrets("tk-51-abcdefgh inner-key-77 8192-blocks")
    assert shown == "… … 8192-blocks"


def test_loggers_of_the_http_client_print_no_key_of_an_address(caplog):
    connection = HttpClient("http://127.0.0.1:9/v1?api_key=query-key-4711")
    assert connection.address
    with caplog.at_level(logging.INFO, "httpx"):
        logging.getLogger("httpx").info(
            'HTTP Request: %s "200"', "http://127.0.0.1:9/v1/models?api_key=query-key-4711"
        )
    assert "query-key-4711" not in caplog.text
    assert "api_key=…" in caplog.text
