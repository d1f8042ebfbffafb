// tus-js-client against the upload endpoint: pieces, pauses, broken connections, wrong offsets, and what is not served.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import net from "node:net";
import process from "node:process";
import { Upload } from "tus-js-client";

const ok = (feature) => console.log(`ok: ${feature}`);
const { LORIKEET_URL, LORIKEET_KEY, LORIKEET_TENANT, ARCHIVE } = process.env;
const base = `${LORIKEET_URL}/api/tenants/${LORIKEET_TENANT}`;
const headers = { Authorization: `Bearer ${LORIKEET_KEY}` };
const bytes = readFileSync(ARCHIVE);
const PIECE = 64 * 1024;
assert.ok(bytes.length > 3 * PIECE);

/** Runs an upload to its end. Rejects with what the client says. */
const sent = (options, use = () => {}, data = bytes) =>
  new Promise((resolve, reject) => {
    const upload = new Upload(data, {
      endpoint: `${base}/uploads/resumable`,
      headers,
      metadata: { adapter: `by-tus-${options.name}`, filename: "adapter.zip", description: "für Ada" },
      chunkSize: PIECE,
      retryDelays: [0, 50, 100],
      onError: reject,
      onSuccess: () => resolve(upload),
      ...options,
    });
    use(upload);
    upload.start();
  });

/** What the upload has become, once it was looked at. */
async function outcome(upload) {
  const id = upload.url.split("/").at(-1);
  for (;;) {
    const answer = await fetch(`${base}/uploads/${id}`, { headers });
    assert.equal(answer.status, 200);
    const { state } = await answer.json();
    if (!["arriving", "received", "validating"].includes(state)) return state;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const head = async (url) => Number((await fetch(url, { method: "HEAD", headers: { ...headers, "Tus-Resumable": "1.0.0" } })).headers.get("upload-offset"));

/** The problem in the answer that made the client give up. */
async function refused(promise) {
  const error = await promise.then(() => assert.fail("it was taken"), (problem) => problem);
  assert.ok(error.originalResponse, error);
  const { error: problem } = JSON.parse(error.originalResponse.getBody());
  assert.ok(problem.message && problem.fix, problem);
  return { status: error.originalResponse.getStatus(), ...problem };
}

// Pieces, and progress.
let progress = [];
const whole = await sent({ name: "whole", onProgress: (at) => progress.push(at) });
assert.equal(progress.at(-1), bytes.length);
assert.equal(await outcome(whole), "accepted");
ok("pieces become a version");

const creation = await sent({ name: "creation", uploadDataDuringCreation: true });
assert.equal(await outcome(creation), "accepted");
ok("creation with the first piece");

// A pause in the middle, then on from where it stopped.
let paused, pausing;
const resumed = await sent({
  name: "pause",
  onChunkComplete: async (_size, accepted) => {
    if (paused || accepted === bytes.length) return;
    paused = accepted;
    await pausing.abort();
    setTimeout(() => pausing.start(), 50);
  },
}, (upload) => (pausing = upload));
assert.ok(paused > 0 && paused < bytes.length);
assert.equal(await outcome(resumed), "accepted");
ok("pause and resume");

// Another program goes on with what this one began.
let begun;
await new Promise((resolve) => {
  void sent({
    name: "later",
    onChunkComplete: async () => {
      await begun.abort();
      resolve();
    },
  }, (upload) => (begun = upload));
});
const from = await head(begun.url);
assert.ok(from > 0 && from < bytes.length);
const firsts = [];
const later = await sent({ name: "later", uploadUrl: begun.url, onProgress: (at) => firsts.push(at) });
assert.ok(firsts[0] >= from, "what was there was sent again");
assert.equal(await outcome(later), "accepted");
ok("resume from the address");

// A proxy that breaks the connection in the middle of a body, twice: the server has seen some of it.
const target = new URL(LORIKEET_URL);
const budgets = [100_000, 40_000]; // bytes of a connection that carries a body, before it breaks
const proxy = net.createServer((client) => {
  const server = net.connect(Number(target.port), target.hostname);
  let [passed, broken] = [0, false];
  const end = () => [client, server].forEach((socket) => socket.destroy());
  client.on("data", (data) => {
    if (broken) return;
    const [budget = Infinity] = budgets;
    broken = passed + data.length > budget;
    server.write(broken ? data.subarray(0, budget - passed) : data);
    passed += data.length;
    if (broken) {
      budgets.shift();
      setTimeout(end, 20);
    }
  });
  server.on("data", (data) => client.write(data));
  for (const socket of [client, server]) socket.on("close", end).on("error", end);
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const endpoint = `http://127.0.0.1:${proxy.address().port}/api/tenants/${LORIKEET_TENANT}/uploads/resumable`;
const asked = [];
const broken = await sent({ name: "broken", endpoint, chunkSize: Infinity, onBeforeRequest: (request) => void asked.push(request.getMethod()) });
proxy.close();
assert.deepEqual(budgets, []);
assert.ok(asked.filter((method) => method === "HEAD").length >= 2, asked);
assert.equal(await outcome(broken), "accepted");
ok("broken connections");

// An offset that is not the server's: told where to go on.
const wrong = await refused(sent({
  name: "wrong-offset",
  retryDelays: null,
  onBeforeRequest: (request) => request.getMethod() === "PATCH" && request.setHeader("Upload-Offset", "7"),
}));
assert.deepEqual([wrong.status, wrong.code], [409, "offset_conflict"]);
ok("wrong offset");

// Cancelled: gone from the server too.
let cancelled, address;
await new Promise((resolve) => {
  void sent({
    name: "cancelled",
    onChunkComplete: async () => {
      address = cancelled.url;
      await cancelled.abort(true);
      resolve();
    },
  }, (upload) => (cancelled = upload));
});
const gone = await fetch(address, { method: "HEAD", headers: { ...headers, "Tus-Resumable": "1.0.0" } });
assert.ok([404, 410].includes(gone.status), gone.status);
const { state } = await (await fetch(`${base}/uploads/${address.split("/").at(-1)}`, { headers })).json();
assert.equal(state, "cancelled");
ok("cancel");

// What is not served says so by its name, before a byte is taken.
for (const [options, param] of [[{ name: "parallel", parallelUploads: 2 }, "Upload-Concat"], [{ name: "deferred", uploadLengthDeferred: true }, "Upload-Defer-Length"]]) {
  const problem = await refused(sent({ retryDelays: null, ...options }));
  assert.deepEqual([problem.status, problem.code, problem.param], [400, "extension_not_served", param]);
}
ok("parallel uploads and deferred lengths are refused by name");

const strange = await refused(sent({ name: "strange", retryDelays: null, headers: { Authorization: "Bearer lk_nobody" } }));
assert.equal(strange.status, 401);
ok("keys");
