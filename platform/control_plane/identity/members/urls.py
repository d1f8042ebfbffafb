"""URLs of members and invitations below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.identity.members import views
from control_plane.identity.members.invitation_views import AcceptView, OfferView

urlpatterns = [
    path("members", views.MembersView.as_view(), name="members"),
    path("members/<uuid:user_id>", views.MemberView.as_view(), name="member"),
    path("membership", views.MembershipView.as_view(), name="membership"),
    path("invitations", views.InvitationsView.as_view(), name="invitations"),
    path("invitations/<uuid:invitation_id>", views.InvitationView.as_view(), name="invitation"),
]

# Addresses below /api/, for people who are not in the tenant yet.
offer_urlpatterns = [
    path("invitations/read", OfferView.as_view(), name="read-invitation"),
    path("invitations/accept", AcceptView.as_view(), name="accept-invitation"),
]
