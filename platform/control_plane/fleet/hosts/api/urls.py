"""URLs of hosts below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.fleet.hosts.api import views

urlpatterns = [
    path("hosts", views.HostsView.as_view(), name="hosts"),
    path("hosts/<str:host_name>/pages", views.HostPagesView.as_view(), name="host-pages"),
    path("adapters/<str:name>/versions/<int:number>/tiers", views.TiersView.as_view(), name="version-tiers"),
]
operator_urlpatterns = [
    path("hosts", views.OperatorHostsView.as_view(), name="operator-hosts"),
    path("hosts/<str:host_name>/pages", views.OperatorHostPagesView.as_view(), name="operator-host-pages"),
    path("hosts/<str:host_name>/service", views.OperatorHostServiceView.as_view(), name="host-service"),
    path("hosts/<str:host_name>/restart", views.OperatorHostRestartView.as_view(), name="host-restart"),
]
