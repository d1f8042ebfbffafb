import { AuditLog } from "@/features/audit/audit-page";

export function OperatorAuditPage() {
  return (
    <AuditLog
      scope="everybody"
      title="Audit of all tenants"
      note="Every change of everybody, and who signed in. Nothing here can be edited or removed."
    />
  );
}
