/** Copies in another type or under a trainer's name are the same model: as the server compares names (`base_names.py`). */
const COPY = /(-unsloth)?(-(bnb-)?[48]bit|-gptq.*|-awq.*|-fp8.*|-bf16|-hf)$/;
/** Folders that name no model: a trainer's output, a snapshot of the Hub's cache, a drive's root. */
const NO_NAME = /^((base[-_]?)?model|base|weights|output|final|checkpoint(-\d+)?|[0-9a-f]{40}|\.*)$/;

/** Whether a configuration's base model is another one, as far as names say; a path, also of Windows, counts by its last part. */
export function namesAnotherBase(named: string, served: string): boolean {
  const name = plain(named);
  return !NO_NAME.test(name) && name !== plain(served);
}

function plain(name: string): string {
  const path = name
    .trim()
    .toLowerCase()
    .replace(/^[a-z]:/, "")
    .replaceAll("\\", "/")
    .replace(/\/+$/, "");
  return (path.split("/").at(-1) ?? "").replace(COPY, "");
}
