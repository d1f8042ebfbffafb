import { namesAnotherBase } from "./base-names";
import type { SafetensorsHeader, TensorInfo } from "./safetensors";

export const TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"] as const;
/** Modules that are several of these in one, in some model families. */
export const FUSED_TARGETS: Record<string, readonly string[]> = {
  qkv_proj: ["q_proj", "k_proj", "v_proj"],
  gate_up_proj: ["gate_proj", "up_proj"],
};
/** Modules of gated delta layers, in hybrid models. Which of all these a base model has, the server knows. */
const DELTA_TARGETS = [
  ...["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj_qkvz", "in_proj_ba", "out_proj"],
  ...["g_proj", "b_proj", "a_proj"],
];
const SERVED_TARGETS = new Set<string>([...TARGETS, ...Object.keys(FUSED_TARGETS), ...DELTA_TARGETS]);
/** Modules whose inputs are the hidden states. */
const READ_HIDDEN_STATES = new Set(
  [...SERVED_TARGETS].filter((name) => !["o_proj", "down_proj", "out_proj"].includes(name)),
);

/** Maximum rank that the server accepts. The server decides; this check saves a futile upload. */
const MAX_RANK = 256;

export interface Finding {
  level: "error" | "warning";
  code: string;
  message: string;
  fix: string;
}

/** Properties of an adapter, from its configuration and the header of its weights. */
export interface AdapterSummary {
  base: string | null;
  rank: number;
  alpha: number | null;
  rslora: boolean;
  targets: string[];
  layers: number;
  dtype: string;
  parameters: number;
  tensors: number;
  /** Hidden size of the base model, from the A matrices of attention inputs; null if there are none. */
  hiddenSize: number | null;
}

export interface Inspection {
  summary: AdapterSummary;
  findings: Finding[];
}

export type AdapterConfig = Record<string, unknown>;

/** Names of LoRA matrices; AdaLoRA's end at `lora_A` and `lora_B`. */
const LORA_NAME = /\.layers\.(\d+)\.(?:self_attn|linear_attn|mlp)\.(\w+)\.lora_([AB])(?:\.(?:[^.]+\.)?weight)?$/;
/** LoRA on the experts or the router of a mixture. Only the server knows whether the base has them. */
const OF_EXPERTS = /\.layers\.\d+\.(?:mlp|block_sparse_moe)\.(?:experts\.|gate\.).*lora_[AB]/;
/** AdaLoRA's values for each rank, and the number of remaining ranks. */
const ADALORA_NUMBERS = /\.(\w+)\.(?:lora_E|ranknum)$/;
/** DoRA's magnitudes, biases of lora_B, and trained biases of the base. */
const VECTOR_NAME =
  /\.layers\.\d+\.(?:self_attn|linear_attn|mlp)\.(\w+)\.(?:lora_magnitude_vector(?:\.\w+)*|lora_B\.(?:[^.]+\.)?bias|(?:base_layer\.)?bias)$/;
/** The vision or audio part of a multimodal model. The server ignores it, because it serves only text. */
const NOT_TEXT =
  /(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|image_encoder|multi_modal_projector|mm_projector|embed_vision|audio_tower|merger)\./;

interface LoraTensor extends TensorInfo {
  layer: number;
  target: string;
  side: "A" | "B";
}

/** Checks an adapter as far as a browser can: unsupported features, ranks, pairs, and the served base model. */
export function inspectAdapter(config: AdapterConfig, header: SafetensorsHeader, servedBase?: string): Inspection {
  const lora = header.tensors.flatMap(asLora);
  return {
    summary: summarise(config, header, lora),
    findings: [
      ...unsupportedFeatures(config),
      ...unknownTensors(header, lora),
      ...brokenPairs(lora),
      ...rankLimits(lora),
      ...baseMismatch(config, servedBase),
    ],
  };
}

function asLora(tensor: TensorInfo): LoraTensor[] {
  const match = LORA_NAME.exec(tensor.name);
  if (!match) return [];
  return [{ ...tensor, layer: Number(match[1]), target: match[2] ?? "", side: match[3] as "A" | "B" }];
}

function summarise(config: AdapterConfig, header: SafetensorsHeader, lora: LoraTensor[]): AdapterSummary {
  const ranks = lora.filter((tensor) => tensor.side === "A").map((tensor) => tensor.shape[0] ?? 0);
  const targets = new Set(lora.map((tensor) => tensor.target));
  const input = lora.find((tensor) => tensor.side === "A" && READ_HIDDEN_STATES.has(tensor.target));
  return {
    base: text(config.base_model_name_or_path),
    rank: Math.max(0, ...ranks) || count(config.r) || 0,
    alpha: count(config.lora_alpha),
    rslora: config.use_rslora === true,
    targets: [
      ...TARGETS.filter((target) => targets.has(target)),
      ...[...targets].filter((name) => !isOneOfSeven(name)),
    ],
    layers: new Set(lora.map((tensor) => tensor.layer)).size,
    dtype: [...new Set(header.tensors.map((tensor) => tensor.dtype))].join(", "),
    parameters: header.tensors.reduce((sum, tensor) => sum + tensor.shape.reduce((a, b) => a * b, 1), 0),
    tensors: header.tensors.length,
    hiddenSize: input?.shape[1] ?? null,
  };
}

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : null);
const count = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null);
const isOneOfSeven = (name: string) => (TARGETS as readonly string[]).includes(name);

interface Rule {
  applies: (config: AdapterConfig) => boolean;
  finding: (config: AdapterConfig) => Finding;
}

const error = (code: string, message: string, fix: string): Finding => ({ level: "error", code, message, fix });
const filled = (value: unknown) =>
  Array.isArray(value) ? value.length > 0 : value !== null && value !== undefined && value !== false;

const ENDS = ["embed_tokens", "lm_head"];
const OF_AN_END = /(?:^|\.)(?:embed_tokens|lm_head)\./;

function otherModules(config: AdapterConfig): string[] {
  if (!filled(config.modules_to_save)) return [];
  const names = Array.isArray(config.modules_to_save)
    ? config.modules_to_save.map(String)
    : [JSON.stringify(config.modules_to_save)];
  return names.filter((name) => !ENDS.includes(name.split(".").at(-1) ?? ""));
}

const RULES: Rule[] = [
  {
    applies: (config) => !["LORA", "ADALORA"].includes(String(config.peft_type)),
    finding: (config) =>
      error(
        "unsupported_peft_type",
        `adapter_config.json says peft_type ${JSON.stringify(config.peft_type ?? null)}; only LORA and ADALORA can be served.`,
        "Train with peft.LoraConfig and save again.",
      ),
  },
  {
    applies: (config) => otherModules(config).length > 0,
    finding: (config) =>
      error(
        "unsupported_modules_to_save",
        `This adapter carries full copies of ${otherModules(config).join(", ")} (modules_to_save).`,
        "Train again without modules_to_save, or with embed_tokens and lm_head only.",
      ),
  },
];

const unsupportedFeatures = (config: AdapterConfig) =>
  RULES.filter((rule) => rule.applies(config)).map((rule) => rule.finding(config));

function unknownTensors(header: SafetensorsHeader, lora: LoraTensor[]): Finding[] {
  const known = new Set(lora.filter((tensor) => SERVED_TARGETS.has(tensor.target)).map((tensor) => tensor.name));
  const isVector = (name: string) =>
    SERVED_TARGETS.has((VECTOR_NAME.exec(name) ?? ADALORA_NUMBERS.exec(name))?.[1] ?? "");
  const strange = header.tensors.filter(
    ({ name }) =>
      !known.has(name) && !isVector(name) && !NOT_TEXT.test(name) && !OF_AN_END.test(name) && !OF_EXPERTS.test(name),
  );
  if (header.tensors.length === 0) {
    return [
      error(
        "no_tensors",
        "The weights file holds no tensors.",
        "Save the adapter again after training and upload that file.",
      ),
    ];
  }
  if (strange.length === 0) return [];
  const more = strange.length > 1 ? ` and ${strange.length - 1} more` : "";
  return [
    error(
      "unexpected_tensor",
      `${strange[0]?.name}${more} cannot be served: only LoRA on the linear projections of attention, gated delta layers, MLP and experts, and changes of embed_tokens and lm_head, can.`,
      "Train with target_modules limited to those projections.",
    ),
  ];
}

function brokenPairs(lora: LoraTensor[]): Finding[] {
  return groupBy(lora, (tensor) => `${tensor.layer}.${tensor.target}`).flatMap((tensors) => {
    const a = tensors.find((tensor) => tensor.side === "A");
    const b = tensors.find((tensor) => tensor.side === "B");
    const where = `layer ${tensors[0]?.layer} ${tensors[0]?.target}`;
    if (!a || !b) {
      return [
        error(
          "missing_tensor",
          `lora_${a ? "B" : "A"} is missing for ${where}.`,
          "Save the adapter again; the file lost tensors.",
        ),
      ];
    }
    if (a.shape[0] === b.shape[1]) return [];
    return [
      error(
        "rank_mismatch",
        `lora_A and lora_B of ${where} disagree about the rank (${a.shape[0]} and ${b.shape[1]}).`,
        "Save the adapter again from the trained model.",
      ),
    ];
  });
}

function groupBy<T>(items: T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

function rankLimits(lora: LoraTensor[]): Finding[] {
  const rank = Math.max(0, ...lora.filter((tensor) => tensor.side === "A").map((tensor) => tensor.shape[0] ?? 0));
  if (rank <= MAX_RANK) return [];
  return [
    error(
      "rank_too_large",
      `Rank ${rank} is above the limit of ${MAX_RANK}.`,
      `Train with r ≤ ${MAX_RANK}, or reduce the rank with an SVD of B·A.`,
    ),
  ];
}

/** Names are compared, not digests, and folders are often renamed: a difference is a warning, not a refusal. */
function baseMismatch(config: AdapterConfig, servedBase?: string): Finding[] {
  const base = text(config.base_model_name_or_path);
  if (!servedBase || !base || !namesAnotherBase(base, servedBase)) return [];
  return [
    {
      level: "warning",
      code: "different_base",
      message: `Trained on ${base}, but this installation serves ${servedBase}.`,
      fix: "Upload it only if that is the same model under another name; the server compares every shape.",
    },
  ];
}
