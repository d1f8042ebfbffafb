import type { ChatMessage } from "./conversation";

export interface Sampling {
  system: string;
  temperature: number;
  topP: number;
  maxTokens: number;
  /** Empty for a different answer each time. */
  seed: string;
}

export const DEFAULTS: Sampling = { system: "", temperature: 0.3, topP: 1, maxTokens: 256, seed: "" };

export function requestBody(model: string, messages: ChatMessage[], sampling: Sampling): object {
  return {
    model,
    messages,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    max_tokens: sampling.maxTokens,
    ...(sampling.seed.trim() === "" ? {} : { seed: Number(sampling.seed) }),
  };
}
