from django.urls import path

from control_plane.identity.audit.views import AuditCsvView, AuditView, OperatorAuditCsvView, OperatorAuditView

# Addresses below /api/tenants/{tenant}/.
urlpatterns = [
    path("audit", AuditView.as_view(), name="audit"),
    path("audit.csv", AuditCsvView.as_view(), name="audit-csv"),
]
# Addresses below /api/operator/.
operator_urlpatterns = [
    path("audit", OperatorAuditView.as_view(), name="operator-audit"),
    path("audit.csv", OperatorAuditCsvView.as_view(), name="operator-audit-csv"),
]
