import { describe, expect, it } from "vitest";
import { recognise } from "./recognised";

describe("what holds no adapter", () => {
  it.each([
    [["out/config.json", "out/model-00001-of-00002.safetensors"], "merged_model"],
    [["model.Q4_K_M.gguf"], "gguf"],
    [["adapters.npz", "adapter_config.json"], "mlx_npz"],
    [["adapter_0.pt", "recipe_state.pt"], "torchtune_checkpoint"],
    [["pytorch_lora_weights.safetensors"], "image_lora"],
    [["global_step10/mp_rank_00_model_states.pt"], "training_state"],
    [["weights.pkl"], "pickle_refused"],
    [["run/adapter.zip", "run/optimizer.pt"], "nested_archive"],
    [["adapter.7z"], "unsupported_archive"],
    [["adapter.tar.xz"], "unsupported_archive"],
  ])("%s is recognised as the server does", (names, code) => {
    const problem = recognise(names);
    expect(problem?.code).toBe(code);
    expect(problem?.fix).toBeTruthy();
  });

  it("says nothing of files that come with every training", () => {
    expect(recognise(["training_args.bin", "optimizer.pt", "README.md", "adapter_config.json"])).toBeUndefined();
  });
});
