"""Addresses below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.adapters import views

urlpatterns = [
    path("adapters", views.AdaptersView.as_view(), name="adapters"),
    path("adapters/<str:name>", views.AdapterView.as_view(), name="adapter"),
    path("adapters/<str:name>/versions/<int:number>", views.VersionView.as_view(), name="version"),
    path("adapters/<str:name>/versions/<int:number>/promote", views.PromoteView.as_view(), name="version-promote"),
    path("adapters/<str:name>/versions/<int:number>/restage", views.RestageView.as_view(), name="version-restage"),
    path("adapters/<str:name>/aliases/<str:alias>", views.AliasView.as_view(), name="alias"),
    path("adapters/<str:name>/aliases/<str:alias>/canary", views.CanaryView.as_view(), name="alias-canary"),
    path("adapters/<str:name>/aliases/<str:alias>/rollback", views.RollbackView.as_view(), name="alias-rollback"),
    path("uploads", views.UploadsView.as_view(), name="uploads"),
    path("uploads/<uuid:upload_id>", views.UploadView.as_view(), name="upload"),
    path("models", views.ModelsView.as_view(), name="models"),
]
