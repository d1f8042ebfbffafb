import { Check, X } from "lucide-react";
import { Card } from "@/components/card";
import { CodeBlock } from "@/components/code-block";

const SERVED = [
  "LoRA and rsLoRA, ranks from 1 to what the operator allows (256 by default, 512 at most)",
  "Any of q, k, v, o, gate, up and down projections",
  "LoRA on embed_tokens and lm_head, full copies of them, and trained tokens",
  "DoRA, lora_bias and trained biases",
  "AdaLoRA, OLoRA and block-diagonal LoRA (use_bdlora)",
  "Activated LoRA (alora_invocation_tokens)",
  "rank_pattern, alpha_pattern, layers_to_transform",
  "float32, float16 and bfloat16",
  "Whole training folders, shards, adapter_model.bin, mlx-lm: converted",
];
const REFUSED = ["modules_to_save with other modules", "Merged models and GGUF files"];

const SAVE = `model.save_pretrained(
    "my-adapter",
    safe_serialization=True,
)`;

/** A list of the supported adapters, beside the form. */
export function SupportedAdapters() {
  return (
    <Card aria-label="Supported adapters" title="Supported adapters">
      <ul className="grid gap-2 p-4 text-sm text-ink-2">
        {SERVED.map((rule) => (
          <li key={rule} className="flex gap-2.5">
            <Check className="mt-0.5 size-4 shrink-0 text-accent-text" aria-label="served:" />
            {rule}
          </li>
        ))}
        {REFUSED.map((rule) => (
          <li key={rule} className="flex gap-2.5">
            <X className="mt-0.5 size-4 shrink-0 text-ink-3" aria-label="not served:" />
            {rule}
          </li>
        ))}
      </ul>
      <div className="border-t p-4">
        <p className="mb-2 text-xs text-ink-3">How PEFT writes the two files</p>
        <CodeBlock code={SAVE} label="Python" />
      </div>
    </Card>
  );
}
