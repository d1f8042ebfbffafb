/** Returns a .tar of files as one Blob of headers and contents; nothing is copied or read. */
export function tarOf(files: File[], name: string): File {
  const parts = files.flatMap((file) => [header(file.name, file.size), file, new Uint8Array(padding(file.size))]);
  return new File([...parts, new Uint8Array(2 * BLOCK)], name);
}

const BLOCK = 512;
const padding = (size: number) => (BLOCK - (size % BLOCK)) % BLOCK;

/** Returns a ustar header. Owner and times are zero, so that the same files always make the same archive. */
function header(name: string, size: number): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const write = (at: number, text: string) => block.set(new TextEncoder().encode(text), at);
  write(0, name);
  write(100, "0000644\0");
  write(108, "0000000\0");
  write(116, "0000000\0");
  write(124, sizeField(size));
  write(136, "00000000000\0");
  write(148, " ".repeat(8)); // the checksum is computed with its field blank
  write(156, "0");
  write(257, "ustar\u000000");
  write(
    148,
    `${block
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0")}\0 `,
  );
  return block;
}

/** Returns eleven octal digits, enough for 8 GiB, which no adapter may exceed. */
function sizeField(size: number): string {
  const digits = size.toString(8);
  if (digits.length > 11) throw new RangeError(`A file of ${size} bytes does not fit into a .tar header.`);
  return `${digits.padStart(11, "0")}\0`;
}
