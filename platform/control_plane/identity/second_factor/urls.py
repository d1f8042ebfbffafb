"""URLs of second factors below /api/, and of a tenant's requirement below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.identity.second_factor import sign_in_views, views

urlpatterns = [path("security", views.SecurityView.as_view(), name="security")]

person_urlpatterns = [
    path("session/second-factor", sign_in_views.SecondStepView.as_view(), name="second-step"),
    path("session/passkey", sign_in_views.PasskeyRequestView.as_view(), name="passkey-request"),
    path("session/confirmation", sign_in_views.ConfirmationView.as_view(), name="confirmation"),
    path("second-factors", views.SecondFactorsView.as_view(), name="second-factors"),
    path("second-factors/app", views.AppView.as_view(), name="authenticator-app"),
    path("second-factors/app/confirm", views.AppConfirmationView.as_view(), name="confirm-authenticator-app"),
    path("second-factors/passkeys/options", views.PasskeyOptionsView.as_view(), name="passkey-options"),
    path("second-factors/passkeys", views.PasskeysView.as_view(), name="passkeys"),
    path("second-factors/passkeys/<uuid:passkey_id>", views.OnePasskeyView.as_view(), name="passkey"),
    path("second-factors/recovery-codes", views.RecoveryCodesView.as_view(), name="recovery-codes"),
]
