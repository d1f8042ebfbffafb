"""URLs of joining hosts and join tokens below /api/operator/, and below /api/ for machines that are no host yet."""

from django.urls import path

from control_plane.fleet.joining import views

operator_urlpatterns = [
    path("hosts/<str:host_name>", views.OperatorHostView.as_view(), name="operator-host"),
    path("hosts/<str:host_name>/credential", views.HostCredentialView.as_view(), name="host-credential"),
    path("join-tokens", views.JoinTokensView.as_view(), name="join-tokens"),
    path("join-tokens/<uuid:token_id>", views.JoinTokenView.as_view(), name="join-token"),
]
join_urlpatterns = [path("hosts/join", views.JoinView.as_view(), name="join-fleet")]
