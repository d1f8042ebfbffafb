import { describe, expect, it } from "vitest";
import { tarEntries } from "./archive";
import { tarOf } from "./tar";

describe("tarOf", () => {
  it("makes what the other end reads", async () => {
    const files = [
      new File(['{"r": 8}'], "adapter_config.json"),
      new File(["x".repeat(512)], "adapter_model.safetensors"),
      new File([], "empty"),
    ];
    const tar = tarOf(files, "support.tar");
    expect(tar.size % 512).toBe(0);
    const contents: [string, string][] = [];
    for await (const { name, size, reader } of tarEntries(tar.stream())) {
      contents.push([name, new TextDecoder().decode(await reader.read(size))]);
    }
    expect(contents).toEqual([
      ["adapter_config.json", '{"r": 8}'],
      ["adapter_model.safetensors", "x".repeat(512)],
      ["empty", ""],
    ]);
  });
});
