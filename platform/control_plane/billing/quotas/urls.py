"""URLs of budgets and quotas below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.quotas import budget_views, views

urlpatterns = [
    path("limits", views.LimitsView.as_view(), name="limits"),
    path("keys/<uuid:key_id>/limits", views.KeyLimitsView.as_view(), name="key-limits"),
    path("budgets", budget_views.BudgetsView.as_view(), name="budgets"),
    path("keys/<uuid:key_id>/budgets", budget_views.KeyBudgetsView.as_view(), name="key-budgets"),
]
operator_urlpatterns = [
    path("tenants/<slug:tenant>/limits", views.OperatorLimitsView.as_view(), name="operator-limits"),
    path("tenants/<slug:tenant>/budgets", budget_views.OperatorBudgetsView.as_view(), name="operator-budgets"),
]
