"""`/livez`: the process answers. `/readyz`: it can do its work."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse

from control_plane import drain
from control_plane.http.access import public
from control_plane.http.errors import error_response


@public
def livez(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "alive"})


@public
def readyz(request: HttpRequest) -> JsonResponse:
    if drain.is_draining():
        return error_response(503, "draining", "This process is about to stop.", "Send requests to another one.")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM django_migrations LIMIT 1")
    except DatabaseError as error:
        return error_response(
            503,
            "database_unavailable",
            f"The database does not answer: {type(error).__name__}.",
            "Check LORIKEET_DATABASE_URL, that the server runs, and that `manage.py migrate` has been run.",
        )
    return JsonResponse({"status": "ready"})
