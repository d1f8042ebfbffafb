// @vitest-environment node
import { describe, expect, it } from "vitest";
import { adapterFiles, entries, pair, safetensors, config, tarGz, zip } from "../../tests/adapter-files";
import { inspectSelection } from "./selection";

const inFolder = (folder: string) => (file: File) =>
  Object.defineProperty(file, "webkitRelativePath", { value: `run/${folder}/${file.name}` });
const checkpoints = (...folders: string[]) => folders.flatMap((folder) => adapterFiles().map(inFolder(folder)));

const codes = async (files: File[], base = "lorikeet-demo") =>
  (await inspectSelection(files, base)).findings.map(({ code }) => code);

describe("inspectSelection", () => {
  it("summarises the two files", async () => {
    const { inspection, findings, bytes, files } = await inspectSelection(adapterFiles(), "org/Lorikeet-Demo");
    expect(findings).toEqual([]);
    expect(files).toHaveLength(2);
    expect(bytes).toBeGreaterThan(4096);
    expect(inspection?.summary).toMatchObject({
      base: "lorikeet-demo",
      rank: 8,
      alpha: 16,
      targets: ["q_proj"],
      layers: 1,
      dtype: "F32",
      parameters: 1024,
      hiddenSize: 64,
    });
  });

  it.each([
    ["deflated .zip", () => new File([zip(entries())], "my.zip")],
    ["stored .zip", () => new File([zip(entries(), false)], "my.zip")],
    [".tar.gz", () => new File([tarGz(entries())], "my.tar.gz")],
  ])("looks into a %s", async (_, make) => {
    const { inspection, findings } = await inspectSelection([make()]);
    expect(findings).toEqual([]);
    expect(inspection?.summary.rank).toBe(8);
  });

  it("takes the shallowest pair of a training folder and leaves the rest", async () => {
    const deep = adapterFiles();
    deep.forEach((file) =>
      Object.defineProperty(file, "webkitRelativePath", { value: `run/checkpoint-10/${file.name}` }),
    );
    const top = adapterFiles();
    top.forEach((file) => Object.defineProperty(file, "webkitRelativePath", { value: `run/${file.name}` }));
    const { files, ignored } = await inspectSelection([...deep, ...top]);
    expect(files).toEqual(top);
    expect(ignored).toEqual(["run/checkpoint-10/adapter_config.json", "run/checkpoint-10/adapter_model.safetensors"]);
  });

  it.each([
    ["adapter_model.bin", ["adapter_model.bin"]],
    ["mlx-lm's file", ["adapters.safetensors"]],
    [
      "shards",
      [
        "adapter_model-00001-of-00002.safetensors",
        "adapter_model-00002-of-00002.safetensors",
        "adapter_model.safetensors.index.json",
      ],
    ],
  ])("sends %s, which the server converts", async (_, names) => {
    const chosen = [adapterFiles()[0]!, ...names.map((name) => new File(["x"], name)), new File(["x"], "optimizer.pt")];
    const { files, findings, ignored } = await inspectSelection(chosen);
    expect(files.map(({ name }) => name)).toEqual(["adapter_config.json", ...names]);
    expect(findings).toMatchObject([{ level: "warning", code: "other_form" }]);
    expect(ignored).toEqual(["optimizer.pt"]);
  });

  it("finds them in an archive too", async () => {
    const archive = entries().map(([name, content]): [string, Uint8Array] => [
      name.replace("adapter_model.safetensors", "adapter_model.bin"),
      content,
    ]);
    const { findings, files } = await inspectSelection([new File([zip(archive)], "a.zip")]);
    expect(findings).toMatchObject([{ level: "warning", code: "other_form" }]);
    expect(files).toHaveLength(1);
  });

  it.each([
    ["nothing usable", [new File(["x"], "notes.txt")], ["missing_file"]],
    ["weights without their config", [new File(["x"], "adapter_model.bin")], ["missing_file"]],
    ["a whole model", [adapterFiles()[0]!, new File(["x"], "pytorch_model.bin")], ["merged_model"]],
    ["a damaged zip", [new File(["PK not really"], "a.zip")], ["unreadable_archive"]],
    ["a damaged tar.gz", [new File(["nope"], "a.tar.gz")], ["unreadable_archive"]],
    ["a zip without weights", [new File([zip(entries().slice(2))], "a.zip")], ["unreadable_archive"]],
    [
      "a broken config",
      [new File(["{"], "adapter_config.json"), new File([safetensors(pair())], "adapter_model.safetensors")],
      ["malformed_config"],
    ],
    ["saved modules", adapterFiles({ modules_to_save: ["norm"] }), ["unsupported_modules_to_save"]],
    ["another method", adapterFiles({ peft_type: "IA3" }), ["unsupported_peft_type"]],
    ["checkpoints beside each other", checkpoints("checkpoint-10", "checkpoint-20"), ["several_adapters"]],
    ["a rank over the limit", adapterFiles({}, pair(300)), ["rank_too_large"]],
    ["half a pair", adapterFiles({}, pair().slice(0, 1)), ["missing_tensor"]],
    ["another base", adapterFiles({ base_model_name_or_path: "meta-llama/Llama-3.2-1B" }), ["different_base"]],
    [
      "a foreign tensor",
      adapterFiles({}, [...pair(), { name: "model.norm.weight", shape: [2, 2] }]),
      ["unexpected_tensor"],
    ],
  ])("names the trouble with %s", async (_, files, expected) => {
    expect(await codes(files)).toEqual(expected);
  });

  it("takes the only checkpoint that holds an adapter, and says so", async () => {
    const chosen = checkpoints("checkpoint-20");
    chosen.push(
      ...[new File(["{}"], "adapter_config.json"), new File(["x"], "optimizer.pt")].map(inFolder("checkpoint-10")),
    );
    const { files, findings } = await inspectSelection(chosen);
    expect(files).toEqual(chosen.slice(0, 2));
    expect(findings).toMatchObject([{ level: "warning", code: "from_checkpoint" }]);
  });

  it("takes AdaLoRA, which the server multiplies out", async () => {
    const tensors = pair().map(({ name, shape }) => ({ name: name.replace(".weight", ""), shape }));
    tensors.push({ name: tensors[0]!.name.replace("lora_A", "lora_E"), shape: [8, 1] });
    expect(await codes(adapterFiles({ peft_type: "ADALORA" }, tensors))).toEqual([]);
  });

  it.each([
    ["DoRA", { use_dora: true }, "lora_magnitude_vector"],
    ["biases of lora_B", { lora_bias: true }, "lora_B.bias"],
    ["biases", { bias: "all" }, "base_layer.bias"],
  ])("takes %s", async (_, config, suffix) => {
    const [a] = pair();
    const vector = { name: a!.name.replace("lora_A.weight", suffix), shape: [8] };
    expect(await codes(adapterFiles(config, [...pair(), vector]))).toEqual([]);
  });

  it.each([
    ["gated delta layers", "linear_attn", "in_proj_qkv", ["in_proj_qkv"]],
    ["gated delta layers with fused projections", "linear_attn", "in_proj_qkvz", ["in_proj_qkvz"]],
    ["gated delta layers with separate projections", "linear_attn", "g_proj", ["g_proj"]],
    ["fused attention", "self_attn", "qkv_proj", ["qkv_proj"]],
    ["fused gates", "mlp", "gate_up_proj", ["gate_up_proj"]],
  ])("takes adapters of %s", async (_, block, module, targets) => {
    const tensors = pair().map(({ name, shape }) => ({
      name: name.replace("self_attn.q_proj", `${block}.${module}`),
      shape,
    }));
    const { findings, inspection } = await inspectSelection(adapterFiles({}, tensors), "lorikeet-demo");
    expect(findings).toEqual([]);
    expect(inspection?.summary).toMatchObject({ targets, hiddenSize: 64, layers: 1 });
  });

  it("says that ranks of a pair disagree", async () => {
    const [a] = pair(8);
    const [, b] = pair(4);
    expect(await codes(adapterFiles({}, [a!, b!]))).toEqual(["rank_mismatch"]);
  });

  it("only warns about the name of the base", async () => {
    const { findings } = await inspectSelection(adapterFiles({ base_model_name_or_path: "other" }), "lorikeet-demo");
    expect(findings.map(({ level }) => level)).toEqual(["warning"]);
    expect(config()).toContain("lorikeet-demo");
  });
});
