/** Returns all dropped files, including those in folders, with paths relative to the dropped item. */
export async function filesFromDrop(transfer: DataTransfer): Promise<File[]> {
  // Entries must be read before the first await: the browser empties the list afterwards.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return [...transfer.files];
  return (await Promise.all(entries.map(filesIn))).flat();
}

async function filesIn(entry: FileSystemEntry): Promise<File[]> {
  if (entry.isFile) return [await openFile(entry as FileSystemFileEntry)];
  const children = await listFolder((entry as FileSystemDirectoryEntry).createReader());
  return (await Promise.all(children.map(filesIn))).flat();
}

async function openFile(entry: FileSystemFileEntry): Promise<File> {
  const file = await new Promise<File>((resolve, reject) => entry.file(resolve, reject));
  Object.defineProperty(file, "webkitRelativePath", { value: entry.fullPath.replace(/^\//, "") });
  return file;
}

/** Reads all children. Browsers return at most 100 per call; an empty result is the end. */
async function listFolder(reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> {
  const all: FileSystemEntry[] = [];
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return all;
    all.push(...batch);
  }
}
