/** Short names for the generated shapes, and the few that only live on websockets. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Session = Schemas["Session"];
export type Capability = Schemas["Capability"];
export type Problem = Schemas["Problem"];
export type Report = Schemas["Report"];
export type Phase = Schemas["Phase"];
export type AdapterSummary = Schemas["AdapterSummary"];
export type VersionState = Schemas["VersionState"];
export type VersionSummary = Schemas["VersionSummary"];
export type Upload = Schemas["Upload"];
export type Model = Schemas["Model"];
export type Role = Schemas["Role"];
export type Invitation = Schemas["Invitation"];
export type CreatedInvitation = Schemas["CreatedInvitation"];
export type Offer = Schemas["Offer"];
export type AuditEvent = Schemas["AuditEvent"];
export type KeyScope = Schemas["KeyScope"];
export type Key = Schemas["ApiKey"];
export type CreatedKey = Schemas["CreatedApiKey"];
export type RequestRow = Schemas["Request"];
export type RefusalRow = Schemas["Refusal"];
export type Recording = Schemas["RecordingRequest"];
export type Transcript = Schemas["Transcript"];
export type UsageReport = Schemas["Usage"];
export type Totals = Schemas["Totals"];
export type Statement = Schemas["Statement"];
export type StatementLine = Schemas["StatementLine"];
export type Prices = Schemas["PriceVersion"];
export type NewPrices = Schemas["NewPricesRequest"];
export type OperatorReport = Schemas["OperatorReport"];
export type UsageExport = Schemas["Export"];
export type ExportSchedule = Schemas["Schedule"];
export type Webhook = Schemas["Webhook"];
export type WebhookSettings = Schemas["WebhookSettingsRequest"];
export type SecretWebhook = Schemas["SecretWebhook"];
export type Delivery = Schemas["Delivery"];
export type EventType = Schemas["EventType"];
export type Pool = Schemas["Pool"];
export type Standing = Schemas["Standing"];
export type KeyStanding = Schemas["KeyStanding"];
export type KeyLimits = Schemas["KeyLimitsRequest"];
export type TenantLimits = Schemas["TenantLimitsRequest"];
export type Slo = Schemas["Slo"];
export type Attainment = Schemas["Attainment"];
export type Objectives = Schemas["ObjectiveRequest"];
export type Host = Schemas["Host"];
export type HostAdapter = Schemas["ResidentAdapter"];
export type OperatorHost = Schemas["OperatorHost"];
export type BaseModel = Schemas["BaseModel"];
export type NewBaseModel = Schemas["NewBaseModelRequest"];
export type Member = Schemas["Member"];
export type Overview = Schemas["Overview"];
export type AdapterDetail = Schemas["Adapter"];
export type Alias = Schemas["Alias"];
export type VersionStanding = Schemas["VersionStanding"];
export type ArchivedAdapter = Schemas["ArchivedAdapter"];

/** `rate`, bytes per second, comes with live events only. */
export type Placement = Schemas["Placement"] & { rate?: number };
export type Version = Omit<Schemas["Version"], "placements"> & { placements: Placement[] };

/** Data of the live event `adapter.staging`. */
export interface StagingEvent {
  adapter: string;
  version: number;
  state: VersionState;
  placement: Placement;
  bytes_per_second: number;
}
