import { deflateRawSync, gzipSync } from "node:zlib";

export interface TensorSpec {
  name: string;
  shape: number[];
}

const PREFIX = "base_model.model.model.layers.0.self_attn.q_proj";

export const pair = (rank = 8, width = 64): TensorSpec[] => [
  { name: `${PREFIX}.lora_A.weight`, shape: [rank, width] },
  { name: `${PREFIX}.lora_B.weight`, shape: [width, rank] },
];

/** A safetensors file of zeros, F32. */
export function safetensors(tensors: TensorSpec[], extra: Record<string, unknown> = {}): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = {};
  let offset = 0;
  for (const { name, shape } of tensors) {
    const end = offset + shape.reduce((product, size) => product * size, 4);
    header[name] = { dtype: "F32", shape, data_offsets: [offset, end] };
    offset = end;
  }
  return frame(JSON.stringify({ ...header, ...extra }), offset);
}

/** Header text with its length before it and `dataBytes` zeros after it. */
export function frame(header: string, dataBytes: number): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(header);
  const file = new Uint8Array(8 + text.length + dataBytes);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

export const config = (changes: object = {}) =>
  JSON.stringify({
    peft_type: "LORA",
    r: 8,
    lora_alpha: 16,
    bias: "none",
    base_model_name_or_path: "lorikeet-demo",
    ...changes,
  });

export const adapterFiles = (changes: object = {}, tensors = pair()): File[] => [
  new File([config(changes)], "adapter_config.json"),
  new File([safetensors(tensors)], "adapter_model.safetensors"),
];

type Entry = [name: string, content: Uint8Array];

export const entries = (changes: object = {}): Entry[] => [
  ["out/README.md", new TextEncoder().encode("hello")],
  ["out/adapter_model.safetensors", safetensors(pair())],
  ["out/adapter_config.json", new TextEncoder().encode(config(changes))],
];

/** A .zip of the entries, deflated or stored. */
export function zip(files: Entry[], deflate = true): Uint8Array<ArrayBuffer> {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, content] of files) {
    const data = deflate ? deflateRawSync(content) : Buffer.from(content);
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(name.length, 26);
    const record = Buffer.alloc(46);
    record.writeUInt32LE(0x02014b50, 0);
    record.writeUInt16LE(deflate ? 8 : 0, 10);
    record.writeUInt32LE(data.length, 20);
    record.writeUInt32LE(content.length, 24);
    record.writeUInt16LE(name.length, 28);
    record.writeUInt32LE(offset, 42);
    parts.push(local, Buffer.from(name), data);
    directory.push(record, Buffer.from(name));
    offset += 30 + name.length + data.length;
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(Buffer.concat(directory).length, 12);
  end.writeUInt32LE(offset, 16);
  return new Uint8Array(Buffer.concat([...parts, ...directory, end]));
}

/** A .tar.gz of the entries, ustar. */
export function tarGz(files: Entry[]): Uint8Array<ArrayBuffer> {
  const blocks = files.flatMap(([name, content]) => {
    const header = Buffer.alloc(512);
    header.write(name, 0);
    header.write(`${content.length.toString(8).padStart(11, "0")}\0`, 124);
    header.write("0", 156);
    header.write("ustar", 257);
    const padded = Buffer.alloc(Math.ceil(content.length / 512) * 512);
    padded.set(content);
    return [header, padded];
  });
  return new Uint8Array(gzipSync(Buffer.concat([...blocks, Buffer.alloc(1024)])));
}
