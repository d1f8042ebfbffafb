import type { AdapterSummary, StagingPhase, VersionState } from "@/api/types";
import { Status, type Tone } from "@/components/badge";

const TONES: Record<AdapterSummary["status"] | VersionState, Tone> = {
  empty: "neutral",
  validated: "blue",
  staging: "blue",
  ready: "green",
  failed: "danger",
  archived: "neutral",
  deleted: "neutral",
};

export const PHASE_TONES: Record<StagingPhase, Tone> = {
  queued: "neutral",
  downloading: "blue",
  verifying: "blue",
  loading: "blue",
  ready: "green",
  failed: "danger",
};

export function AdapterState({ state }: { state: AdapterSummary["status"] | VersionState }) {
  return <Status tone={TONES[state]} label={state} live={state === "staging" || state === "validated"} />;
}
