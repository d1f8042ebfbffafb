"""URLs of base models below /api/operator/."""

from django.urls import path

from control_plane.fleet.base_models.api import views

operator_urlpatterns = [
    path("base-model", views.OperatorBaseModelView.as_view(), name="base-model"),
    path("base-models", views.OperatorBaseModelsView.as_view(), name="base-models"),
    path("base-models/<str:digest>", views.OperatorServedBaseModelView.as_view(), name="served-base-model"),
]
