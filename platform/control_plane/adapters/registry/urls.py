"""URLs of adapters, versions and aliases below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.adapters.imports import views as imports
from control_plane.adapters.registry import views

_VERSION = "adapters/<str:name>/versions/<int:number>"

urlpatterns = [
    path("adapters", views.AdaptersView.as_view(), name="adapters"),
    path("adapters/<str:name>", views.AdapterView.as_view(), name="adapter"),
    path(_VERSION, views.VersionView.as_view(), name="version"),
    path(f"{_VERSION}/promote", views.PromoteView.as_view(), name="version-promote"),
    path(f"{_VERSION}/confirm-base", views.ConfirmBaseView.as_view(), name="version-confirm-base"),
    path(f"{_VERSION}/confirm-effect", views.ConfirmEffectView.as_view(), name="version-confirm-effect"),
    path(f"{_VERSION}/archive", views.ArchiveVersionView.as_view(), name="version-archive"),
    path(f"{_VERSION}/restore", views.RestoreVersionView.as_view(), name="version-restore"),
    path("adapters/<str:name>/aliases/<str:alias>", views.AliasView.as_view(), name="alias"),
    path("adapters/<str:name>/aliases/<str:alias>/rollback", views.RollbackView.as_view(), name="alias-rollback"),
    path("archived-adapters", views.ArchivedAdaptersView.as_view(), name="archived-adapters"),
    path("archived-adapters/<uuid:adapter_id>", views.ArchivedAdapterView.as_view(), name="archived-adapter"),
    path("archived-adapters/<uuid:adapter_id>/restore", views.RestoreAdapterView.as_view(), name="adapter-restore"),
    path("storage", views.StorageView.as_view(), name="storage"),
    path("uploads", views.UploadsView.as_view(), name="uploads"),
    path("uploads/<uuid:upload_id>", views.UploadView.as_view(), name="upload"),
    path("imports", imports.ImportsView.as_view(), name="imports"),
    path("hub-token", imports.HubTokenView.as_view(), name="hub-token"),
    path("follows", imports.FollowsView.as_view(), name="follows"),
    path("follows/<uuid:follow_id>", imports.FollowView.as_view(), name="follow"),
    path("hub-models", imports.HubModelsView.as_view(), name="hub-models"),
    path("bucket-credentials", imports.BucketsView.as_view(), name="bucket-credentials"),
    path("bucket-credentials/<str:bucket>", imports.BucketView.as_view(), name="bucket-credentials-of"),
    path("models", views.ModelsView.as_view(), name="models"),
]
