"""URLs of evaluations below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.adapters.evaluations import views

urlpatterns = [
    path("evaluation-sets", views.SetsView.as_view(), name="evaluation-sets"),
    path("evaluation-sets/<str:set_name>", views.SetView.as_view(), name="evaluation-set"),
    path("evaluations", views.EvaluationsView.as_view(), name="evaluations"),
    path("evaluations/<uuid:evaluation_id>", views.EvaluationView.as_view(), name="evaluation"),
    path("adapters/<str:name>/promotion-rule", views.PromotionRuleView.as_view(), name="promotion-rule"),
]
