import { ApiError } from "@/api/errors";
import { MAX_COLUMNS } from "./conversation";
import { DEFAULTS, readSampling, type Sampling } from "./sampling";

/** The part of a board that a link restores: columns and settings, but no messages. */
export interface Setup {
  models: string[];
  sampling: Sampling;
}

/** Maximum characters of an address: some software between sender and receiver cuts longer ones. */
const MAX_LINK_LENGTH = 8000;
/** Maximum bytes of a decompressed link, so that a short link cannot fill the memory. */
const MAX_BYTES = 256 * 1024;
const MAX_NAME_LENGTH = 200;
const PLAIN = "0";
const DEFLATED = "1";
/** API keys of Lorikeet and of OpenAI. */
const API_KEY = /\blk_[a-z2-7]{4,16}_[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9_-]{20,}/;

const problem = (code: string, message: string, fix: string) => new ApiError({ code, message, fix }, 0);

/**
 * Returns the address of `page` with this setup in the fragment, which browsers do not send to servers. Raises
 * ApiError.
 */
export async function linkTo(page: string, { models, sampling }: Setup): Promise<string> {
  const names = Object.keys(DEFAULTS) as (keyof Sampling)[];
  const changed = Object.fromEntries(
    names.filter((name) => sampling[name] !== DEFAULTS[name]).map((name) => [name, sampling[name]]),
  );
  const json = JSON.stringify({ models, ...(Object.keys(changed).length > 0 ? { sampling: changed } : {}) });
  if (API_KEY.test(json)) {
    throw problem(
      "playground_link_secret",
      "The settings seem to contain an API key, which must not be part of a link.",
      "Remove the key from the system prompt, the schema or the tools, then copy the link again.",
    );
  }
  const link = `${page}#${await packed(json)}`;
  if (link.length > MAX_LINK_LENGTH) {
    const size = `${link.length.toLocaleString("en-US")} characters`;
    throw problem(
      "playground_link_too_long",
      `The link would be ${size} long, more than the ${MAX_LINK_LENGTH.toLocaleString("en-US")} that work in all browsers.`,
      "Shorten the system prompt, the schema or the tools, or send the request as code instead.",
    );
  }
  return link;
}

async function packed(json: string): Promise<string> {
  const bytes = new TextEncoder().encode(json);
  const plain = PLAIN + base64(bytes);
  const deflated = DEFLATED + base64(await through(new CompressionStream("deflate-raw"), bytes, Infinity));
  return deflated.length < plain.length ? deflated : plain;
}

/** Returns the setup in the fragment of a link. Raises ApiError. */
export async function readLink(hash: string): Promise<Setup> {
  try {
    const bytes = fromBase64(hash.slice(1));
    const json = hash.startsWith(DEFLATED)
      ? await through(new DecompressionStream("deflate-raw"), bytes, MAX_BYTES)
      : bytes;
    const { models, sampling } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(json)) as Record<
      string,
      unknown
    >;
    const names = (models as unknown[]).filter(
      (name): name is string => typeof name === "string" && name !== "" && name.length <= MAX_NAME_LENGTH,
    );
    if (names.length === 0) throw new Error("The link names no model.");
    return { models: names.slice(0, MAX_COLUMNS), sampling: readSampling(sampling) };
  } catch {
    throw problem(
      "playground_link_damaged",
      "This link is damaged: its settings cannot be read.",
      "Request the link again, and copy all of it.",
    );
  }
}

/** Returns the output of a compressor or decompressor. Raises when it has more than `limit` bytes. */
async function through(
  stream: CompressionStream | DecompressionStream,
  bytes: Uint8Array<ArrayBuffer>,
  limit: number,
): Promise<Uint8Array<ArrayBuffer>> {
  const writer = stream.writable.getWriter();
  // Writing damaged input also fails; the reader below reports it.
  void writer
    .write(bytes)
    .then(() => writer.close())
    .catch(() => {});
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  const reader = stream.readable.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    parts.push(next.value);
    size += next.value.length;
    if (size > limit) {
      await reader.cancel();
      throw new Error("The link's contents are too large.");
    }
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Encodes bytes as base64url without padding (RFC 4648, section 5). */
function base64(bytes: Uint8Array): string {
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const fromBase64 = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
