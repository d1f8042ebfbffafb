import {
  Activity,
  Boxes,
  Building2,
  ChartNoAxesColumn,
  ChartNoAxesCombined,
  CircleUser,
  Gauge,
  HardDriveDownload,
  KeyRound,
  Layers,
  LayoutDashboard,
  type LucideIcon,
  MessagesSquare,
  Scale,
  ScrollText,
  Server,
  Settings,
  ShieldCheck,
  Users,
  Webhook,
} from "lucide-react";
import type { Capability } from "@/api/types";

export interface Destination {
  to:
    | "/t/$tenant"
    | "/t/$tenant/playground"
    | "/t/$tenant/adapters"
    | "/t/$tenant/batches"
    | "/t/$tenant/requests"
    | "/t/$tenant/usage"
    | "/t/$tenant/limits"
    | "/t/$tenant/slo"
    | "/t/$tenant/hosts"
    | "/t/$tenant/keys"
    | "/t/$tenant/members"
    | "/t/$tenant/audit"
    | "/t/$tenant/webhooks"
    | "/t/$tenant/settings"
    | "/t/$tenant/account"
    | "/t/$tenant/operator"
    | "/t/$tenant/operator/tenants"
    | "/t/$tenant/operator/hosts"
    | "/t/$tenant/operator/audit";
  label: string;
  icon: LucideIcon;
  /** The capability that a person needs to see the link. */
  needs?: Capability | "operator";
}

export const NAVIGATION: { title: string; items: Destination[] }[] = [
  {
    title: "Build",
    items: [
      { to: "/t/$tenant", label: "Overview", icon: LayoutDashboard },
      { to: "/t/$tenant/playground", label: "Playground", icon: MessagesSquare },
      { to: "/t/$tenant/adapters", label: "Adapters", icon: Boxes },
      { to: "/t/$tenant/batches", label: "Batches", icon: Layers },
    ],
  },
  {
    title: "Observe",
    items: [
      { to: "/t/$tenant/requests", label: "Requests", icon: Activity },
      { to: "/t/$tenant/usage", label: "Usage", icon: ChartNoAxesColumn },
      { to: "/t/$tenant/limits", label: "Limits", icon: Gauge },
      { to: "/t/$tenant/slo", label: "Fairness & SLO", icon: Scale },
      { to: "/t/$tenant/hosts", label: "Hosts & GPUs", icon: Server },
    ],
  },
  {
    title: "Manage",
    items: [
      { to: "/t/$tenant/keys", label: "API keys", icon: KeyRound },
      { to: "/t/$tenant/members", label: "Members", icon: Users },
      { to: "/t/$tenant/webhooks", label: "Webhooks", icon: Webhook, needs: "webhooks.write" },
      { to: "/t/$tenant/audit", label: "Audit log", icon: ScrollText, needs: "audit.read" },
      { to: "/t/$tenant/settings", label: "Settings", icon: Settings },
      { to: "/t/$tenant/account", label: "Your account", icon: CircleUser },
    ],
  },
  {
    title: "Operate",
    items: [
      { to: "/t/$tenant/operator", label: "Platform usage", icon: ChartNoAxesCombined, needs: "operator" },
      { to: "/t/$tenant/operator/tenants", label: "Tenants", icon: Building2, needs: "operator" },
      { to: "/t/$tenant/operator/hosts", label: "Hosts & staging", icon: HardDriveDownload, needs: "operator" },
      { to: "/t/$tenant/operator/audit", label: "Platform audit log", icon: ShieldCheck, needs: "operator" },
    ],
  },
];
