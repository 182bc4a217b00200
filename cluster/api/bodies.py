"""Bodies of requests in which nothing is overlooked."""

from typing import Any

from rest_framework import serializers


class StrictBody(serializers.Serializer[Any]):
    """A body in which an unknown field is a fault rather than a field that nobody reads.

    `knows` begins the sentence that lists the fields there are.
    """

    knows = "there are"

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse fields that nobody reads."""
        if unknown := set(self.initial_data) - set(self.fields):
            known = ", ".join(self.fields)
            raise serializers.ValidationError(dict.fromkeys(unknown, f"unknown field; {self.knows} {known}"))
        return attrs
