"""URLs of prices below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.prices import views

urlpatterns = [path("prices", views.PricesView.as_view(), name="prices")]
operator_urlpatterns = [
    path("prices", views.OperatorPricesView.as_view(), name="operator-prices"),
    path("prices/end", views.OperatorPricesEndView.as_view(), name="operator-prices-end"),
]
