"""URLs of webhooks below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.console.webhooks import views

urlpatterns = [
    path("webhooks", views.WebhooksView.as_view(), name="webhooks"),
    path("webhooks/<uuid:webhook_id>", views.WebhookView.as_view(), name="webhook"),
    path("webhooks/<uuid:webhook_id>/rotate", views.RotateView.as_view(), name="webhook-rotate"),
    path("webhooks/<uuid:webhook_id>/test", views.TestView.as_view(), name="webhook-test"),
    path("webhooks/<uuid:webhook_id>/deliveries", views.DeliveriesView.as_view(), name="webhook-deliveries"),
    path(
        "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/replay",
        views.ReplayView.as_view(),
        name="webhook-replay",
    ),
]
