"""URLs of the platform's administration below /api/operator/."""

from django.urls import path

from control_plane.console.administration import views

operator_urlpatterns = [
    path("tenants", views.TenantsView.as_view(), name="operator-tenants"),
    path("tenants/<slug:tenant>", views.OneTenantView.as_view(), name="operator-tenant"),
    path("tenants/<slug:tenant>/suspension", views.SuspensionView.as_view(), name="operator-suspension"),
    path("tenants/<slug:tenant>/adapters", views.TenantAdaptersView.as_view(), name="operator-adapters"),
    path("tenants/<slug:tenant>/members", views.TenantMembersView.as_view(), name="operator-members"),
    path(
        "tenants/<slug:tenant>/members/<uuid:user_id>/second-factor",
        views.MemberSecondFactorView.as_view(),
        name="operator-second-factor",
    ),
    path(
        "tenants/<slug:tenant>/members/<uuid:user_id>/identities/<int:identity_id>",
        views.MemberIdentityView.as_view(),
        name="operator-identity",
    ),
    path("tenants/<slug:tenant>/invitations", views.TenantInvitationsView.as_view(), name="operator-invitations"),
    path("tenants/<slug:tenant>/objectives", views.TenantObjectivesView.as_view(), name="operator-objectives"),
]
