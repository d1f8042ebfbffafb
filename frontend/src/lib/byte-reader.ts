/** Reads exact byte counts from a stream and buffers at most one chunk more than requested. */
export class ByteReader {
  #reader: ReadableStreamDefaultReader<Uint8Array>;
  #held: Uint8Array = new Uint8Array(0);
  #position = 0;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = stream.getReader();
  }

  /** Bytes read or skipped so far. */
  get position(): number {
    return this.#position;
  }

  /** Returns exactly `count` bytes, or fewer if the stream ends first. */
  async read(count: number): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    let missing = count;
    while (missing > 0 && (await this.#fill())) {
      const part = this.#take(missing);
      parts.push(part);
      missing -= part.length;
    }
    return join(parts, count - missing);
  }

  /** Skips `count` bytes and returns how many there were. */
  async skip(count: number): Promise<number> {
    let missing = count;
    while (missing > 0 && (await this.#fill())) missing -= this.#take(missing).length;
    return count - missing;
  }

  async cancel(): Promise<void> {
    await this.#reader.cancel();
  }

  async #fill(): Promise<boolean> {
    while (this.#held.length === 0) {
      const { done, value } = await this.#reader.read();
      if (done) return false;
      this.#held = value;
    }
    return true;
  }

  #take(limit: number): Uint8Array {
    const part = this.#held.subarray(0, limit);
    this.#held = this.#held.subarray(part.length);
    this.#position += part.length;
    return part;
  }
}

function join(parts: Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1 && parts[0]) return parts[0];
  const whole = new Uint8Array(length);
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}
