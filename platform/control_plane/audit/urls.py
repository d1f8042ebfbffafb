from django.urls import path

from control_plane.audit.views import AuditView, OperatorAuditView

# Below /api/tenants/{tenant}/.
urlpatterns = [path("audit", AuditView.as_view(), name="audit")]
# Below /api/operator/.
operator_urlpatterns = [path("audit", OperatorAuditView.as_view(), name="operator-audit")]
