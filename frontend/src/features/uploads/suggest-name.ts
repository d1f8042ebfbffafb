import { isArchive } from "@/lib/archive";

/** Returns a valid adapter name from the name of a folder or an archive, or an empty string. */
export function suggestName(files: File[]): string {
  const [first] = files;
  if (!first) return "";
  const folder = first.webkitRelativePath.split("/").at(-2) ?? "";
  const source = isArchive(first.name) ? first.name.replace(/\.(zip|tgz|tar|tar\.gz)$/i, "") : folder;
  return source
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .slice(0, 64)
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, "");
}
