"""Optimistic versions: `ETag` is the quoted version, `If-Match` proves that the caller saw it."""

import re

from rest_framework import status
from rest_framework.exceptions import APIException
from rest_framework.request import Request

TAGS = re.compile(r'^\s*(?:W/)?"[^"]*"(?:\s*,\s*(?:W/)?"[^"]*")*\s*$')


class PreconditionRequired(APIException):
    """The change could overwrite what the caller has not seen."""

    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = "send If-Match with the ETag of what you read"
    default_code = "precondition-required"


class PreconditionFailed(APIException):
    """The object changed after the caller read it."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_detail = "this changed after you read it: read it again"
    default_code = "stale-version"


class MalformedCondition(APIException):
    """If-Match holds something else than entity tags."""

    status_code = status.HTTP_400_BAD_REQUEST
    default_detail = 'If-Match: must be the quoted version, such as "3", or *'
    default_code = "invalid-header"


def etag(version: int) -> str:
    """Return the entity tag of a version."""
    return f'"{version}"'


def seen_version(request: Request, present: int, *, required: bool = False) -> int | None:
    """Return the version that the caller saw, or None where they do not mind.

    Raises PreconditionFailed if none of the tags is the present version, which the service checks again
    under the lock, and PreconditionRequired if there has to be one.
    """
    given = request.headers.get("If-Match")
    if given is None:
        if required:
            raise PreconditionRequired
        return None
    if given.strip() == "*":
        return None
    if not TAGS.match(given):
        raise MalformedCondition
    # Weak tags never match here (RFC 9110, section 13.1.1).
    tags = [tag.strip() for tag in given.split(",")]
    if etag(present) not in tags:
        raise PreconditionFailed
    return present
