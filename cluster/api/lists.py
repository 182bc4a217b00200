"""Lists: `{"items": [...], "next": "URL or null"}`, page after page by keyset."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any
from urllib.parse import urlencode

from django.db.models import Model, Q, QuerySet
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.core.keyset import Reader, decode_cursor, encode_cursor

ToJson = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Column:
    """A column that a list is sorted by; the last one of an order is unique."""

    field: str
    read: Reader
    descending: bool = False


@dataclass(frozen=True)
class Order:
    """In which order a list comes; `name` keeps cursors of other lists out."""

    name: str
    columns: tuple[Column, ...]

    def sort(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows in this order."""
        return rows.order_by(*(f"-{c.field}" if c.descending else c.field for c in self.columns))

    def after(self, cursor: str) -> Q:
        """Return the condition for rows that come after a cursor; raise InvalidQuery for a foreign one."""
        key = decode_cursor(cursor, self.name, [column.read for column in self.columns])
        steps = []
        for index, column in enumerate(self.columns):
            same = {c.field: value for c, value in zip(self.columns[:index], key, strict=False)}
            beyond = "lt" if column.descending else "gt"
            steps.append(Q(**same, **{f"{column.field}__{beyond}": key[index]}))
        return reduce(or_, steps)

    def key_of(self, row: Model) -> list[Any]:
        """Return the values of a row that a cursor keeps."""
        return [reduce(getattr, column.field.split("__"), row) for column in self.columns]


def list_answer(
    request: Request, rows: QuerySet[Any], order: Order, query: Mapping[str, Any], to_json: ToJson
) -> Response:
    """Return one page of rows; `query` holds `limit` and `cursor`."""
    if query["cursor"]:
        rows = rows.filter(order.after(query["cursor"]))
    limit: int = query["limit"]
    page = list(order.sort(rows)[: limit + 1])
    cursor = encode_cursor(order.name, order.key_of(page[limit - 1])) if len(page) > limit else None
    items = [to_json(row) for row in page[:limit]]
    return Response({"items": items, "next": next_url(request, cursor=cursor) if cursor else None})


def next_url(request: Request, **changes: Any) -> str:
    """Return this request's address with some query parameters changed."""
    query = {**request.query_params.dict(), **changes}
    return request.build_absolute_uri(f"{request.path}?{urlencode(query)}")


def page_of(item: type[serializers.Serializer[Any]], **more: serializers.Field[Any, Any, Any, Any]) -> Any:
    """Return the serializer that describes a page of such items."""
    name = item.__name__.removesuffix("Answer") + "Page"
    following = serializers.URLField(allow_null=True, help_text="address of the next page, or null")
    return inline_serializer(name, {"items": item(many=True), "next": following, **more})
