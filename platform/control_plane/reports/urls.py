"""Addresses below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.reports import views

urlpatterns = [
    path("usage.csv", views.UsageCsvView.as_view(), name="usage-csv"),
    path("statement", views.StatementView.as_view(), name="statement"),
]

operator_urlpatterns = [
    path("report", views.OperatorReportView.as_view(), name="operator-report"),
    path("usage.csv", views.OperatorCsvView.as_view(), name="operator-csv"),
    path("tenants/<slug:slug>/statement", views.OperatorStatementView.as_view(), name="tenant-statement"),
]
