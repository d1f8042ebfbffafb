import { ByteReader } from "./byte-reader";

/** A file inside an archive. `reader` is at its first byte. */
export interface ArchiveEntry {
  name: string;
  size: number;
  reader: ByteReader;
}

/** An archive that the browser cannot read. The server decides whether it is valid. */
export class ArchiveError extends Error {}

const isZip = (name: string) => /\.zip$/i.test(name);
const isTarGz = (name: string) => /\.(tar\.gz|tgz)$/i.test(name);
const isTar = (name: string) => /\.tar$/i.test(name);
export const isArchive = (name: string) => isZip(name) || isTarGz(name) || isTar(name);

/** Yields the regular files of an archive that a browser can read. */
export const entriesOf = (file: File): AsyncGenerator<ArchiveEntry> =>
  isZip(file.name) ? zipEntries(file) : tarEntries(unpacked(file));

const unpacked = (file: File): ReadableStream<Uint8Array> =>
  isTarGz(file.name) ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();

/** Yields the files of a .zip in directory order. Each is inflated only as far as it is read. */
async function* zipEntries(file: Blob): AsyncGenerator<ArchiveEntry> {
  for (const entry of await centralDirectory(file)) {
    if (entry.name.endsWith("/")) continue;
    yield { name: entry.name, size: entry.size, reader: new ByteReader(await inflated(file, entry)) };
  }
}

interface ZipRecord {
  name: string;
  method: number;
  compressed: number;
  size: number;
  offset: number;
}

const END_RECORD = 0x06054b50;
const DIRECTORY_RECORD = 0x02014b50;

async function view(file: Blob, begin: number, end: number): Promise<DataView> {
  return new DataView(await file.slice(Math.max(0, begin), end).arrayBuffer());
}

async function centralDirectory(file: Blob): Promise<ZipRecord[]> {
  // The end record is 22 bytes plus a comment of at most 65,535.
  const tail = await view(file, file.size - 65_557, file.size);
  let at = tail.byteLength - 22;
  while (at >= 0 && tail.getUint32(at, true) !== END_RECORD) at--;
  if (at < 0) throw new ArchiveError("This .zip file has no directory at its end. It is probably truncated.");
  const offset = tail.getUint32(at + 16, true);
  const directory = await view(file, offset, offset + tail.getUint32(at + 12, true));
  return [...directoryRecords(directory, tail.getUint16(at + 10, true))];
}

function* directoryRecords(directory: DataView, count: number): Generator<ZipRecord> {
  let at = 0;
  for (let index = 0; index < count; index++) {
    if (at + 46 > directory.byteLength || directory.getUint32(at, true) !== DIRECTORY_RECORD) {
      throw new ArchiveError("The directory of this .zip is damaged.");
    }
    const nameLength = directory.getUint16(at + 28, true);
    const name = new TextDecoder().decode(new Uint8Array(directory.buffer, directory.byteOffset + at + 46, nameLength));
    yield {
      name,
      method: directory.getUint16(at + 10, true),
      compressed: directory.getUint32(at + 20, true),
      size: directory.getUint32(at + 24, true),
      offset: directory.getUint32(at + 42, true),
    };
    at += 46 + nameLength + directory.getUint16(at + 30, true) + directory.getUint16(at + 32, true);
  }
}

async function inflated(file: Blob, entry: ZipRecord): Promise<ReadableStream<Uint8Array>> {
  if (entry.offset === 0xffffffff || entry.compressed === 0xffffffff) {
    throw new ArchiveError("The browser cannot read zip64 archives; the server will check it.");
  }
  const local = await view(file, entry.offset, entry.offset + 30);
  const begin = entry.offset + 30 + local.getUint16(26, true) + local.getUint16(28, true);
  const raw = file.slice(begin, begin + entry.compressed).stream();
  if (entry.method === 0) return raw;
  if (entry.method === 8) return raw.pipeThrough(new DecompressionStream("deflate-raw"));
  throw new ArchiveError(`${entry.name} is compressed with a method the browser does not know.`);
}

/** Yields the regular files of a .tar in archive order. The unread rest of an entry is skipped. */
export async function* tarEntries(stream: ReadableStream<Uint8Array>): AsyncGenerator<ArchiveEntry> {
  const reader = new ByteReader(stream);
  for (let block = await reader.read(512); block.length === 512 && block[0] !== 0; block = await reader.read(512)) {
    const size = octal(block.subarray(124, 136));
    const end = reader.position + Math.ceil(size / 512) * 512;
    const kind = String.fromCharCode(block[156] ?? 0);
    if (kind === "0" || kind === "\0") yield { name: tarName(block), size, reader };
    await reader.skip(end - reader.position);
  }
  await reader.cancel();
}

const text = (field: Uint8Array) => new TextDecoder().decode(field).replace(/\0.*$/s, "");

function tarName(block: Uint8Array): string {
  const prefix = text(block.subarray(257, 262)) === "ustar" ? text(block.subarray(345, 500)) : "";
  const name = text(block.subarray(0, 100));
  return prefix ? `${prefix}/${name}` : name;
}

function octal(field: Uint8Array): number {
  const value = parseInt(text(field).trim() || "0", 8);
  if (!Number.isSafeInteger(value) || value < 0) throw new ArchiveError("A size in this .tar file is invalid.");
  return value;
}
