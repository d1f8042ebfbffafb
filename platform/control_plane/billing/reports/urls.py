"""URLs of reports below /api/tenants/{tenant}/ and below /api/operator/."""

from django.urls import path

from control_plane.billing.reports import export_views, views

urlpatterns = [
    path("usage.csv", views.UsageCsvView.as_view(), name="usage-csv"),
    path("exports", export_views.ExportsView.as_view(), name="exports"),
    path("exports/<uuid:export_id>", export_views.ExportView.as_view(), name="export"),
    path("exports/<uuid:export_id>/file", export_views.ExportFileView.as_view(), name="export-file"),
    path("export-schedules", export_views.SchedulesView.as_view(), name="export-schedules"),
    path("export-schedules/<uuid:schedule_id>", export_views.ScheduleView.as_view(), name="export-schedule"),
    path("statement", views.StatementView.as_view(), name="statement"),
]

operator_urlpatterns = [
    path("report", views.OperatorReportView.as_view(), name="operator-report"),
    path("usage.csv", views.OperatorCsvView.as_view(), name="operator-csv"),
    path("tenants/<slug:slug>/statement", views.OperatorStatementView.as_view(), name="tenant-statement"),
]
