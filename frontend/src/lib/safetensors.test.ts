// @vitest-environment node
import { describe, expect, it } from "vitest";
import { frame, pair, safetensors } from "../../tests/adapter-files";
import { ByteReader } from "./byte-reader";
import { readHeader } from "./safetensors";

const read = (file: Uint8Array<ArrayBuffer>, size = file.length) =>
  readHeader(new ByteReader(new Blob([file]).stream()), size);

describe("readHeader", () => {
  it("reads names, types and shapes without the data", async () => {
    const header = await read(safetensors(pair(4, 32), { __metadata__: { format: "pt" } }));
    expect(header.tensors.map(({ dtype, shape }) => [dtype, shape])).toEqual([
      ["F32", [4, 32]],
      ["F32", [32, 4]],
    ]);
    expect(header.metadata).toEqual({ format: "pt" });
  });

  it("stops reading after the header", async () => {
    const file = safetensors(pair(8, 4096));
    const reader = new ByteReader(new Blob([file]).stream());
    await readHeader(reader, file.length);
    expect(reader.position).toBeLessThan(1000);
  });

  const entry = (changes: object) =>
    JSON.stringify({ t: { dtype: "F32", shape: [2], data_offsets: [0, 8], ...changes } });
  it.each([
    ["an empty file", new Uint8Array(0), "truncated_file"],
    ["a header longer than the file", frame("{}", 0).fill(0xff, 0, 7), "not_safetensors"],
    ["a zip that was renamed", new Uint8Array([0x50, 0x4b, 3, 4, 20, 0, 0, 0, 8, 0]), "not_safetensors"],
    ["a header that is no JSON", frame("{nope", 0), "malformed_header"],
    ["a header that is a list", frame("[]", 0), "malformed_header"],
    ["an entry without a shape", frame(entry({ shape: undefined }), 8), "malformed_header"],
    ["a negative offset", frame(entry({ data_offsets: [-8, 0] }), 8), "malformed_header"],
    ["an unknown type", frame(entry({ dtype: "F99" }), 8), "wrong_tensor_size"],
    ["a size that contradicts the shape", frame(entry({ data_offsets: [0, 12] }), 12), "wrong_tensor_size"],
    ["a hole before the first tensor", frame(entry({ data_offsets: [4, 12] }), 12), "overlapping_tensors"],
    ["data that was cut off", frame(entry({}), 4), "truncated_file"],
    ["bytes after the last tensor", frame(entry({}), 16), "trailing_bytes"],
  ])("refuses %s", async (_, file, code) => {
    await expect(read(file)).rejects.toMatchObject({ code, fix: expect.stringMatching(/\w/) as string });
  });
});
