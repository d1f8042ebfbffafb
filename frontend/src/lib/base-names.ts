/**
 * Suffixes and owners that do not distinguish base models. The server compares names in the same way (`base_names.py`).
 */
const COPY = /(-unsloth)?(-(bnb-)?[48]bit|-gptq.*|-awq.*|-fp8.*|-bf16|-hf)$/;
/** Folders whose name is not a model: a trainer's output, a snapshot of the Hub's cache, a drive's root. */
const NO_NAME = /^((base[-_]?)?model|base|weights|output|final|checkpoint(-\d+)?|[0-9a-f]{40}|\.*)$/;

/** Returns whether a configuration names another base model. Of a path, also of Windows, the last part counts. */
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
