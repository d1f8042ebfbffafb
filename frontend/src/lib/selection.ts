import { ArchiveError, entriesOf, isArchive, type ArchiveEntry } from "./archive";
import { ByteReader } from "./byte-reader";
import { type AdapterConfig, type Finding, type Inspection, inspectAdapter } from "./peft";
import { recognise } from "./recognised";
import { HeaderError, readHeader, type SafetensorsHeader } from "./safetensors";

const CONFIG_FILE = "adapter_config.json";
const WEIGHTS_FILE = "adapter_model.safetensors";
/** Names of weights that the server converts: shards and their index, torch.save's file, and mlx-lm's. */
const OTHER_WEIGHTS =
  /^(adapter_model-\d{5}-of-\d{5}\.safetensors|adapter_model\.safetensors\.index\.json|adapter_model\.bin|adapters\.safetensors)$/;
/** Paths of the adapter's own chat template. */
const TEMPLATES = /^(chat_template\.jinja|tokenizer_config\.json|chat_template\.json)$/;
const MAX_CONFIG_BYTES = 1024 * 1024;

/** The selected files, reduced to those that will be sent, and the result of the browser's check. */
export interface Selection {
  /**
   * The files to send: an adapter's configuration and weights, or one archive. Empty if nothing usable was selected.
   */
  files: File[];
  /** Names of selected files that are not sent. */
  ignored: string[];
  bytes: number;
  /** The adapter, or null if the browser could not read it; `findings` then says why. */
  inspection: Inspection | null;
  findings: Finding[];
}

const base = (name: string) => name.split("/").at(-1) ?? name;
const pathOf = (file: File) => file.webkitRelativePath || file.name;
const depth = (file: File) => pathOf(file).split("/").length;
const isWeights = (file: File) => base(file.name) === WEIGHTS_FILE || OTHER_WEIGHTS.test(base(file.name));
const folder = (file: File) => pathOf(file).split("/").slice(0, -1).join("/");

/** Checks the selected files without sending anything. It never rejects: every error becomes a finding. */
export async function inspectSelection(chosen: File[], servedBase?: string): Promise<Selection> {
  const archive = chosen.length === 1 ? chosen.find(({ name }) => isArchive(name)) : undefined;
  const selection = archive ? archiveSelection(archive) : looseSelection(chosen);
  if (selection.findings.length > 0) return selection;
  try {
    const { config, header } = archive ? await readArchive(archive) : await readLoose(selection.files);
    const inspection = inspectAdapter(config, header, servedBase);
    return { ...selection, inspection, findings: [...ofCheckpoint(selection), ...inspection.findings] };
  } catch (cause) {
    return { ...selection, findings: [asFinding(cause)] };
  }
}

const archiveSelection = (file: File): Selection => ({
  files: [file],
  ignored: [],
  bytes: file.size,
  inspection: null,
  findings: [],
});

function looseSelection(chosen: File[]): Selection {
  // A training folder often contains checkpoints below the final adapter: the shallowest configuration and the files
  // beside it are used.
  const configs = chosen.filter((file) => base(file.name) === CONFIG_FILE).toSorted((a, b) => depth(a) - depth(b));
  const complete = configs.filter((file) => chosen.some((other) => isWeights(other) && folder(other) === folder(file)));
  const highest = complete.filter((file) => depth(file) === depth(complete[0] ?? file));
  const config = highest[0] ?? configs[0];
  const beside = chosen.filter((file) => !config || folder(file) === folder(config));
  const weights = beside.find((file) => base(file.name) === WEIGHTS_FILE);
  const others = beside.filter((file) => OTHER_WEIGHTS.test(base(file.name)));
  const templates = config ? beside.filter((file) => TEMPLATES.test(base(file.name))) : [];
  const files = [config, ...(weights ? [weights] : others), ...templates].filter((file) => file !== undefined);
  return {
    files,
    ignored: chosen.filter((file) => !files.includes(file)).map(pathOf),
    bytes: files.reduce((sum, file) => sum + file.size, 0),
    inspection: null,
    findings:
      highest.length > 1
        ? [several(highest.map(folder))]
        : config && !weights && others.length > 0
          ? [converted(others.map((file) => base(file.name)))]
          : missingFiles(chosen, config, weights),
  };
}

const several = (folders: string[]): Finding =>
  finding(
    "several_adapters",
    `The folder holds more than one adapter, in ${folders.slice(0, 5).join(", ")}.`,
    "Choose one of these folders; of a training's checkpoints usually the one with the highest number.",
  );

/** Returns a warning if the selected folder contains no adapter, but a checkpoint in it does. */
function ofCheckpoint({ files }: Selection): Finding[] {
  const place = files[0] ? folder(files[0]).split("/").slice(1).join("/") : "";
  if (!/(^|\/)checkpoint-\d+$/.test(place)) return [];
  return [
    {
      level: "warning",
      code: "from_checkpoint",
      message: `The adapter of ${place} is sent: no other is in this folder.`,
      fix: "If training continued after this checkpoint, choose the folder of the final adapter.",
    },
  ];
}

const converted = (names: string[]): Finding => ({
  level: "warning",
  code: "other_form",
  message: `${names.slice(0, 3).join(", ")}${names.length > 3 ? "…" : ""} will be converted by the server, so the browser cannot check more.`,
  fix: `The report says what was done; what is kept is ${CONFIG_FILE} and ${WEIGHTS_FILE}.`,
});

function missingFiles(chosen: File[], config?: File, weights?: File): Finding[] {
  const known = weights ? undefined : recognise(chosen.map(pathOf).filter((path) => !OTHER_WEIGHTS.test(base(path))));
  if (known) return [finding(known.code, known.message, known.fix)];
  const missing = [config ? null : CONFIG_FILE, weights ? null : WEIGHTS_FILE].filter((name) => name !== null);
  if (missing.length === 0) return [];
  return [
    finding(
      "missing_file",
      `${missing.join(" and ")} ${missing.length === 1 ? "is" : "are"} missing.`,
      "Choose the whole folder that PEFT wrote, both files, or one .zip, .tar or .tar.gz of them.",
    ),
  ];
}

const finding = (code: string, message: string, fix: string): Finding => ({ level: "error", code, message, fix });

async function readLoose(files: File[]): Promise<{ config: AdapterConfig; header: SafetensorsHeader }> {
  const [configFile, weights] = files as [File, File];
  const config = parseConfig(await configFile.slice(0, MAX_CONFIG_BYTES).text());
  const reader = new ByteReader(weights.stream());
  const header = await readHeader(reader, weights.size);
  await reader.cancel();
  return { config, header };
}

async function readArchive(file: File): Promise<{ config: AdapterConfig; header: SafetensorsHeader }> {
  let config: AdapterConfig | undefined;
  let header: SafetensorsHeader | undefined;
  const others: string[] = [];
  const names: string[] = [];
  for await (const entry of entriesOf(file)) {
    names.push(entry.name);
    if (base(entry.name) === CONFIG_FILE) config ??= parseConfig(await entryText(entry));
    if (base(entry.name) === WEIGHTS_FILE) header ??= await readHeader(entry.reader, entry.size);
    if (OTHER_WEIGHTS.test(base(entry.name))) others.push(base(entry.name));
    if (config && header) return { config, header };
  }
  if (config && others.length > 0) throw new OtherForm(others);
  const known = recognise(names);
  if (known) throw new HeaderError(known.code, known.message, known.fix);
  throw new ArchiveError(`${config ? WEIGHTS_FILE : CONFIG_FILE} is not in ${file.name}.`);
}

async function entryText(entry: ArchiveEntry): Promise<string> {
  return new TextDecoder().decode(await entry.reader.read(Math.min(entry.size, MAX_CONFIG_BYTES)));
}

function parseConfig(text: string): AdapterConfig {
  const fix = "Upload the adapter_config.json that PEFT wrote, unchanged.";
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new HeaderError("malformed_config", "adapter_config.json is not valid JSON.", fix);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new HeaderError("malformed_config", "adapter_config.json is not a JSON object.", fix);
  }
  return value as AdapterConfig;
}

/** An archive whose weights the server has to convert. */
class OtherForm extends Error {
  constructor(readonly names: string[]) {
    super(names.join(", "));
  }
}

function asFinding(cause: unknown): Finding {
  if (cause instanceof OtherForm) return converted(cause.names);
  if (cause instanceof HeaderError) return finding(cause.code, cause.message, cause.fix);
  const message = cause instanceof ArchiveError ? cause.message : "The browser could not read this archive.";
  return finding(
    "unreadable_archive",
    message,
    "Make the archive again from the folder that PEFT wrote, or choose the two files themselves.",
  );
}
