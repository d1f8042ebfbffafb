"""URLs of transcripts below /api/tenants/{tenant}/."""

from django.urls import path

from control_plane.gateway.transcripts import views

urlpatterns = [
    path("recording", views.RecordingView.as_view(), name="recording"),
    path("transcripts", views.TranscriptsView.as_view(), name="transcripts"),
    path("requests/<str:request_id>/transcript", views.TranscriptView.as_view(), name="transcript"),
]
