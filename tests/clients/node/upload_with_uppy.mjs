// Uppy with its tus plugin: several adapters at once, a pause, and a refusal that it shows.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import process from "node:process";
import Uppy from "@uppy/core";
import Tus from "@uppy/tus";

const ok = (feature) => console.log(`ok: ${feature}`);
const { LORIKEET_URL, LORIKEET_KEY, LORIKEET_TENANT, ARCHIVE } = process.env;
const base = `${LORIKEET_URL}/api/tenants/${LORIKEET_TENANT}`;
const headers = { Authorization: `Bearer ${LORIKEET_KEY}` };
const bytes = readFileSync(ARCHIVE);

async function outcome(url) {
  for (;;) {
    const { state } = await (await fetch(`${base}/uploads/${url.split("/").at(-1)}`, { headers })).json();
    if (!["arriving", "received", "validating"].includes(state)) return state;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const uppyFor = (names) => {
  const uppy = new Uppy({ allowMultipleUploadBatches: false }).use(Tus, {
    endpoint: `${base}/uploads/resumable`, headers, chunkSize: 64 * 1024, retryDelays: [0, 50], limit: 2, allowedMetaFields: ["adapter", "filename"],
  });
  for (const name of names) uppy.addFile({ name: `${name}.zip`, type: "application/zip", data: bytes, meta: { adapter: name, filename: "adapter.zip" } });
  return uppy;
};

const several = uppyFor(["by-uppy-one", "by-uppy-two", "by-uppy-three"]);
const { successful, failed } = await several.upload();
assert.deepEqual(failed, []);
assert.equal(successful.length, 3);
for (const { uploadURL } of successful) assert.equal(await outcome(uploadURL), "accepted");
ok("several at once");

const held = uppyFor(["by-uppy-paused"]);
const [{ id }] = held.getFiles();
let pauses = 0;
held.on("upload-progress", (_file, { bytesUploaded }) => {
  if (pauses || !bytesUploaded) return;
  pauses += 1;
  held.pauseResume(id);
  setTimeout(() => held.pauseResume(id), 100);
});
const after = await held.upload();
assert.equal(pauses, 1);
assert.equal(await outcome(after.successful[0].uploadURL), "accepted");
ok("pause and resume");

const refused = uppyFor(["No such name!"]);
const { failed: [file] } = await refused.upload();
assert.match(file.error, /adapter|name/i);
ok("a refusal says why");
