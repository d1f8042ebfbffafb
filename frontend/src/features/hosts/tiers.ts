import type { VersionTier } from "@/api/types";
import type { Tone } from "@/components/badge";

/** The tiers that may hold an adapter, nearest to the device first. */
export const TIERS: Record<VersionTier["tier"], { label: string; from: string; tone: Tone }> = {
  device: { label: "Device", from: "On the device", tone: "green" },
  host: { label: "Host memory", from: "From host memory", tone: "blue" },
  disk: { label: "Disk", from: "From disk", tone: "neutral" },
  store: { label: "Artifact store", from: "From the store", tone: "neutral" },
};
