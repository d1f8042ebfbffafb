"""URLs of accounts and their sessions below /api/."""

from django.urls import path

from control_plane.identity.accounts import oidc_views, session_views, views

urlpatterns = [
    path("session", views.SessionView.as_view(), name="session"),
    path("sessions", session_views.SessionsView.as_view(), name="sessions"),
    path("sessions/<uuid:session_id>", session_views.OneSessionView.as_view(), name="one-session"),
    path("profile", views.ProfileView.as_view(), name="profile"),
    path("password", views.PasswordView.as_view(), name="password"),
    path("password/forgot", views.ForgotPasswordView.as_view(), name="forgot-password"),
    path("password/reset", views.ResetPasswordView.as_view(), name="reset-password"),
    path("oidc/start", oidc_views.start, name="oidc-start"),
    path("oidc/callback", oidc_views.callback, name="oidc-callback"),
]
