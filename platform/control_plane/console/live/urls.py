"""URLs of the live connection's tickets below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.console.live.views import TicketView

urlpatterns = [path("socket-ticket", TicketView.as_view(), name="socket-ticket")]
