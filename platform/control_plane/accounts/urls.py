"""Addresses below /api/."""

from django.urls import path

from control_plane.accounts import views

urlpatterns = [
    path("session", views.SessionView.as_view(), name="session"),
    path("password", views.PasswordView.as_view(), name="password"),
    path("password/forgot", views.ForgotPasswordView.as_view(), name="forgot-password"),
    path("password/reset", views.ResetPasswordView.as_view(), name="reset-password"),
]
