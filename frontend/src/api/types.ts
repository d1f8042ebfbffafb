/** The generated types under their own names, and the few that only websockets carry. */
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Session = Schemas["Session"];
export type Device = Schemas["Device"];
export type BudgetReport = Schemas["BudgetReport"];
export type BudgetsRequest = Schemas["BudgetsRequest"];
export type BudgetState = Schemas["BudgetState"];
export type BudgetStates = Schemas["BudgetStates"];
export type Capability = Schemas["Capability"];
export type Problem = Schemas["Problem"];
export type ValidationReport = Schemas["ValidationReport"];
export type StagingPhase = Schemas["StagingPhase"];
export type AdapterSummary = Schemas["AdapterSummary"];
export type VersionState = Schemas["VersionState"];
export type VersionSummary = Schemas["VersionSummary"];
export type VersionEffect = Schemas["VersionEffect"];
export type ProbedPrompt = Schemas["ProbedPrompt"];
export type Upload = Schemas["Upload"];
export type Model = Schemas["Model"];
export type Role = Schemas["Role"];
export type Invitation = Schemas["Invitation"];
export type CreatedInvitation = Schemas["CreatedInvitation"];
export type InvitationDetails = Schemas["InvitationDetails"];
export type AuditEvent = Schemas["AuditEvent"];
export type KeyScope = Schemas["KeyScope"];
export type ApiKey = Schemas["ApiKey"];
export type CreatedApiKey = Schemas["CreatedApiKey"];
export type RequestRecord = Schemas["RequestRecord"];
export type Refusal = Schemas["Refusal"];
export type Recording = Schemas["RecordingRequest"];
export type Transcript = Schemas["Transcript"];
export type UsageReport = Schemas["UsageReport"];
export type UsageTotals = Schemas["UsageTotals"];
export type SeriesReport = Schemas["SeriesReport"];
export type SeriesPoint = Schemas["SeriesPoint"];
export type SeriesPart = Schemas["SeriesPart"];
export type Statement = Schemas["Statement"];
export type StatementLine = Schemas["StatementLine"];
export type PriceVersion = Schemas["PriceVersion"];
export type NewPrices = Schemas["NewPricesRequest"];
export type OperatorReport = Schemas["OperatorReport"];
export type Export = Schemas["Export"];
export type ExportSchedule = Schemas["ExportSchedule"];
export type Webhook = Schemas["Webhook"];
export type WebhookSettings = Schemas["WebhookSettingsRequest"];
export type Batch = Schemas["Batch"];
export type BatchEndpoint = Schemas["BatchEndpoint"];
export type StoredFile = Schemas["StoredFile"];
export type Delivery = Schemas["Delivery"];
export type EventType = Schemas["EventType"];
export type Pool = Schemas["Pool"];
export type UsageAgainstLimits = Schemas["UsageAgainstLimits"];
export type KeyUsageAgainstLimits = Schemas["KeyUsageAgainstLimits"];
export type KeyLimits = Schemas["KeyLimitsRequest"];
export type TenantLimits = Schemas["TenantLimitsRequest"];
export type SloReport = Schemas["SloReport"];
export type Attainment = Schemas["Attainment"];
export type LatencyObjectives = Schemas["LatencyObjectivesRequest"];
export type Host = Schemas["Host"];
export type LoadTime = Schemas["LoadTime"];
export type VersionTier = Schemas["VersionTier"];
export type HostPages = Schemas["HostPages"];
export type PageOwner = Schemas["PageOwner"];
export type Share = Schemas["Share"];
export type TenantShare = Schemas["TenantShare"];
export type BurnRate = Schemas["BurnRate"];
export type ResidentAdapter = Schemas["ResidentAdapter"];
export type OperatorHost = Schemas["OperatorHost"];
export type BaseModel = Schemas["BaseModel"];
export type NewBaseModel = Schemas["NewBaseModelRequest"];
export type HostService = Schemas["HostService"];
export type TenantRow = Schemas["TenantRow"];
export type TenantState = Schemas["TenantState"];
export type TenantDetail = Schemas["TenantDetail"];
export type NewTenant = Schemas["NewTenantRequest"];
export type TenantAdapter = Schemas["TenantAdapter"];
export type StagingRow = Schemas["StagingRow"];
export type Member = Schemas["Member"];
export type Overview = Schemas["Overview"];
export type Adapter = Schemas["Adapter"];
export type Alias = Schemas["Alias"];
export type VersionStats = Schemas["VersionStats"];
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
