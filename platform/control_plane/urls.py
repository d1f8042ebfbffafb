"""Every HTTP address, in the order in which they are tried."""

from django.urls import include, path

handler400 = "control_plane.http.errors.bad_request"
handler404 = "control_plane.http.errors.not_found"
handler500 = "control_plane.http.errors.server_error"

urlpatterns = [
    path("v1/", include("control_plane.gateway.urls")),
]
