/** The generated types under short names, and the few types that only websockets carry. */
import type * as Schema from "./schema";

export type * from "./schema";

export type EvaluationScore = Schema.Score;
export type ApiSettings = Schema.ApiSettingsRequest;
export type Recording = Schema.RecordingRequest;
export type EndPrices = Schema.EndPricesRequest;
export type NewPrices = Schema.NewPricesRequest;
export type WebhookSettings = Schema.WebhookSettingsRequest;
export type KeyLimits = Schema.KeyLimitsRequest;
export type TenantLimits = Schema.TenantLimitsRequest;
export type LatencyObjectives = Schema.LatencyObjectivesRequest;
export type NewPrefix = Schema.NewPrefixRequest;
export type NewJoinToken = Schema.NewJoinTokenRequest;
export type NewBaseModel = Schema.NewBaseModelRequest;
export type NewTenant = Schema.NewTenantRequest;

/** A placement as live events carry it, with its `rate` in bytes per second. */
export type Placement = Schema.Placement & { rate?: number };
export type Version = Omit<Schema.Version, "placements"> & { placements: Placement[] };

export type AdapterDtype = Version["adapter_dtype"];

/** Data of the live event `adapter.staging`. */
export interface StagingEvent {
  adapter: string;
  version: number;
  state: Schema.VersionState;
  placement: Placement;
  bytes_per_second: number;
}
