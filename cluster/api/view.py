"""What every address of the API does the same way."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.views import APIView

from cluster.api.caller import method_of
from cluster.api.query import Parameter, read_query
from cluster.core.roles import Permission


class ApiView(APIView):
    """An address of the API.

    `needs` says what each method asks of its caller at least (somewhere; the team's own answer follows
    where the object is known), `parameters` which query parameters each method knows.
    """

    needs: ClassVar[Mapping[str, Permission]] = {}
    parameters: ClassVar[Mapping[str, Sequence[Parameter]]] = {}
    query: dict[str, Any]
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.query = read_query(request.query_params, self.parameters.get(method_of(request), ()))


class Download(ApiView):
    """An address that answers with a file of one type, whatever the client says it accepts."""

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)
