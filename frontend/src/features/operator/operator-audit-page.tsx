import { AuditLog } from "@/features/audit/audit-page";

export function OperatorAuditPage() {
  return (
    <AuditLog
      scope="everybody"
      title="Platform audit log"
      note="All changes and sign-ins of all tenants. Entries cannot be edited or deleted."
    />
  );
}
