"""The base of every view of the API: query parameters that its schema does not declare are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.views import APIView

from control_plane.core.http.known_names import require_known

_declared: dict[tuple[type[APIView], str], frozenset[str]] = {}


class ApiView(APIView):
    """A view whose query parameters are those that `extend_schema` declares for the method."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.admit_caller(request, **kwargs)  # before anything else: a refused caller learns nothing
        if request.query_params:
            require_known(request.query_params, query_names(self, request.method or ""), "query parameter")

    def admit_caller(self, request: Request, **kwargs: Any) -> None:
        """Authenticate the caller.

        Raises LorikeetError for a caller without access. kwargs: the parameters of the path.
        """


def query_names(view: APIView, method: str) -> frozenset[str]:
    """Return the query parameters of a method. `view` must have its request."""
    key = type(view), method
    if key not in _declared:
        _declared[key] = frozenset(_read_declared(view, method))
    return _declared[key]


def _read_declared(view: APIView, method: str) -> Iterator[str]:
    handler = getattr(view, method.lower(), None)
    kind = getattr(handler, "kwargs", {}).get("schema")  # where drf-spectacular stores the class of extend_schema
    if kind is None:
        return
    schema = kind()
    schema.view = view
    for parameter in schema.get_override_parameters():
        if not isinstance(parameter, OpenApiParameter):
            yield from (parameter if not isinstance(parameter, type) else parameter()).fields
        elif parameter.location == OpenApiParameter.QUERY:
            yield parameter.name
