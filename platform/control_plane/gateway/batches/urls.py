"""URLs of batches below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.gateway.batches import views

urlpatterns = [
    path("batches", views.BatchesView.as_view(), name="tenant-batches"),
    path("batches/<str:batch_id>", views.BatchView.as_view(), name="tenant-batch"),
    path("batches/<str:batch_id>/cancel", views.CancelView.as_view(), name="tenant-batch-cancel"),
    path("batches/<str:batch_id>/errors", views.BatchErrorsView.as_view(), name="tenant-batch-errors"),
    path("files", views.FilesView.as_view(), name="tenant-files"),
    path("files/<str:file_id>", views.FileView.as_view(), name="tenant-file"),
    path("files/<str:file_id>/content", views.FileContentView.as_view(), name="tenant-file-content"),
]
