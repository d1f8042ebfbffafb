import type { ByteReader } from "./byte-reader";

/** A tensor in a safetensors header: dtype, shape, and [begin, end) in the data part. */
export interface TensorInfo {
  name: string;
  dtype: string;
  shape: number[];
  begin: number;
  end: number;
}

export interface SafetensorsHeader {
  tensors: TensorInfo[];
  metadata: Record<string, string>;
  /** Bytes of the file according to its header. */
  fileBytes: number;
}

/** A header that was refused, with the reason as shown to the user. */
export class HeaderError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly fix: string,
  ) {
    super(message);
  }
}

/** Maximum bytes of a header, the same as in the server's parser. */
const MAX_HEADER_BYTES = 16 * 1024 * 1024;

const DTYPE_BYTES: Record<string, number> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E4M3: 1,
  F8_E5M2: 1,
  U16: 2,
  I16: 2,
  F16: 2,
  BF16: 2,
  U32: 4,
  I32: 4,
  F32: 4,
  U64: 8,
  I64: 8,
  F64: 8,
};

const SAVE_AGAIN =
  "Save the adapter again with model.save_pretrained(folder, safe_serialization=True) and upload that file.";

/**
 * Read and check a safetensors header: 8 bytes of little-endian length, then that much JSON.
 * The data part is never read. `fileBytes`, when known, must equal what the header promises.
 */
export async function readHeader(reader: ByteReader, fileBytes?: number): Promise<SafetensorsHeader> {
  const length = headerLength(await reader.read(8), fileBytes);
  const raw = await reader.read(length);
  if (raw.length < length) throw truncated(length + 8, raw.length + 8);
  const header = parseHeader(raw);
  const promised = 8 + length + header.dataBytes;
  if (fileBytes !== undefined && fileBytes < promised) throw truncated(promised, fileBytes);
  if (fileBytes !== undefined && fileBytes > promised) {
    throw new HeaderError(
      "trailing_bytes",
      `The file has ${fileBytes - promised} bytes after its last tensor.`,
      SAVE_AGAIN,
    );
  }
  return { tensors: header.tensors, metadata: header.metadata, fileBytes: promised };
}

function headerLength(prefix: Uint8Array, fileBytes?: number): number {
  if (prefix.length < 8) throw truncated(8, prefix.length);
  const length = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true);
  const ceiling = Math.min(MAX_HEADER_BYTES, fileBytes ?? MAX_HEADER_BYTES);
  if (length === 0n || length > BigInt(ceiling)) {
    throw new HeaderError(
      "not_safetensors",
      "This is not a safetensors file: its header length is invalid.",
      SAVE_AGAIN,
    );
  }
  return Number(length);
}

function parseHeader(raw: Uint8Array): { tensors: TensorInfo[]; metadata: Record<string, string>; dataBytes: number } {
  const json = parseObject(raw);
  const { __metadata__: metadata, ...entries } = json;
  const tensors = Object.entries(entries).map(([name, entry]) => tensorInfo(name, entry));
  const dataBytes = checkContiguous(tensors);
  return { tensors, metadata: (metadata ?? {}) as Record<string, string>, dataBytes };
}

function parseObject(raw: Uint8Array): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(raw));
  } catch {
    throw new HeaderError("malformed_header", "The safetensors header is not valid JSON.", SAVE_AGAIN);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new HeaderError("malformed_header", "The safetensors header is not a JSON object.", SAVE_AGAIN);
  }
  return value as Record<string, unknown>;
}

function tensorInfo(name: string, entry: unknown): TensorInfo {
  const { dtype, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>;
  if (typeof dtype !== "string" || !isSizes(shape) || !isSizes(offsets) || offsets.length !== 2) {
    throw new HeaderError("malformed_header", `The header entry of tensor ${name} is incomplete.`, SAVE_AGAIN);
  }
  const [begin, end] = offsets as [number, number];
  const expected = shape.reduce((product, size) => product * size, DTYPE_BYTES[dtype] ?? NaN);
  if (end - begin !== expected) {
    throw new HeaderError(
      "wrong_tensor_size",
      `Tensor ${name} (${dtype} [${shape.join(", ")}]) takes ${end - begin} bytes in the file.`,
      SAVE_AGAIN,
    );
  }
  return { name, dtype, shape, begin, end };
}

const isSizes = (value: unknown): value is number[] =>
  Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);

/** Checks that tensors cover the data part without gaps or overlaps, and returns its length in bytes. */
function checkContiguous(tensors: TensorInfo[]): number {
  let expected = 0;
  for (const tensor of tensors.toSorted((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (tensor.begin !== expected) {
      throw new HeaderError(
        "overlapping_tensors",
        `Tensor ${tensor.name} does not start where the one before ends.`,
        SAVE_AGAIN,
      );
    }
    expected = tensor.end;
  }
  return expected;
}

const truncated = (expected: number, actual: number) =>
  new HeaderError(
    "truncated_file",
    `The file ends early: ${expected} bytes expected, ${actual} found.`,
    "Copy the file again from where it was trained; the download or copy was cut short.",
  );
