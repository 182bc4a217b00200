"""Reading request bodies: JSON or YAML, strict, and never more than the limit."""

from collections.abc import Callable, Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser

from jobs.core.document import parse_json, parse_yaml, refused


class TooLarge(APIException):
    """The body is over the limit."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_detail = "a body may have at most 1 MB"
    default_code = "too-large"


class TextParser(BaseParser):
    """Reads a body as UTF-8 text and hands it to a reader of its format."""

    read: Callable[[str], Any]

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise TooLarge
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise refused(f"is not UTF-8 at byte {error.start}") from None
        return type(self).read(text) if text.strip() else {}


class JsonParser(TextParser):
    """`application/json`."""

    media_type = "application/json"
    read = staticmethod(parse_json)


class YamlParser(TextParser):
    """`application/yaml` (RFC 9512)."""

    media_type = "application/yaml"
    read = staticmethod(parse_yaml)
