/**
 * Files that contain no adapter, recognised by their names, with the fix that the server would return
 * (`recognised.py`).
 */
const SAVE_SAFE = "Save with model.save_pretrained(folder, safe_serialization=True) and choose that folder.";

interface Kind {
  pattern: RegExp;
  code: string;
  what: string;
  fix: string;
}

const KINDS: Kind[] = [
  {
    pattern: /^adapter_(model|\d+)\.pt$/i,
    code: "torchtune_checkpoint",
    what: "is torchtune's own checkpoint, whose attention is laid out otherwise than Hugging Face's",
    fix: "Choose adapter_model.safetensors (or adapter_model.bin) and adapter_config.json, which torchtune writes beside it with save_adapter_weights_only or a Hugging Face checkpointer.",
  },
  {
    pattern: /^(.*_)?adapters\.npz$/i,
    code: "mlx_npz",
    what: "is of an early mlx-lm",
    fix: "Convert it: mx.save_safetensors('adapters.safetensors', dict(mx.load('adapters.npz'))), and choose that with its adapter_config.json.",
  },
  {
    pattern: /\.gguf$/i,
    code: "gguf",
    what: "is a GGUF file, which llama.cpp reads",
    fix: "Choose the PEFT folder that it was converted from.",
  },
  {
    pattern: /^pytorch_lora_weights\.(safetensors|bin)$/i,
    code: "image_lora",
    what: "is a LoRA of an image model (diffusers)",
    fix: "Only adapters of the served language model can be used here.",
  },
  {
    pattern:
      /^(model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json|pytorch_model.*\.bin(\.index\.json)?|consolidated.*\.(pth|safetensors))$/i,
    code: "merged_model",
    what: "is a whole model, with an adapter merged into it or none",
    fix: "Choose the folder that model.save_pretrained(folder) wrote before merge_and_unload(). If there is only the merged model, an operator can serve it as a base model of its own.",
  },
  {
    pattern: /^((.*_states|mp_rank_\d+.*|zero_pp_rank.*)\.pt|.*\.distcp)$/i,
    code: "training_state",
    what: "is the state of a training (DeepSpeed or FSDP), not its adapter",
    fix: "Gather it first, e.g. with the zero_to_fp32.py in the checkpoint, and save with model.save_pretrained.",
  },
  {
    pattern: /\.(zip|tar|tgz|tar\.gz)$/i,
    code: "nested_archive",
    what: "is an archive within what was chosen",
    fix: "Unpack it, and choose the folder that holds adapter_config.json and adapter_model.safetensors, or that archive itself.",
  },
  {
    pattern: /\.(7z|rar|txz|tbz2?|tzst|xz|bz2|zst|lz4|lz|lzma|gz|z|cab)$/i,
    code: "unsupported_archive",
    what: "is packed in a way that is not read here",
    fix: "Unpack it, and choose the folder, or pack adapter_config.json and adapter_model.safetensors as .zip or .tar.gz.",
  },
  {
    pattern: /^(?!(training_args|optimizer|scheduler|rng_state.*|scaler)\.).*\.(bin|pt|pth|pkl|pickle|ckpt)$/i,
    code: "pickle_refused",
    what: "is a pickle file, which can run code when it is opened",
    fix: SAVE_SAFE,
  },
];

/** Returns the first kind that matches one of the names, or undefined. */
export function recognise(names: string[]): { code: string; message: string; fix: string } | undefined {
  for (const { pattern, code, what, fix } of KINDS) {
    const name = names.find((each) => pattern.test(each.split("/").at(-1) ?? each));
    if (name !== undefined) return { code, message: `There is no adapter here: ${name} ${what}.`, fix };
  }
  return undefined;
}
