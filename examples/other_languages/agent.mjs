// An agent in JavaScript. It asks `ragguard serve` which passages to read and whether to search on, and sends it the run.
//
//     ragguard serve -e nano
//     node examples/other_languages/agent.mjs

const service = process.env.RAGGUARD_URL ?? "http://127.0.0.1:4318";
const token = process.env.RAGGUARD_TOKEN;

async function ask(path, body) {
  const headers = { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const reply = await fetch(service + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${await reply.text()}`);
  return reply.json();
}

const texts = [
  "Zantek Foods is based in East Dundale.",
  "Corwell Mills was founded by Ursula Almberg.",
];
const question = "Who founded Corwell Mills?";

const { kept, status } = await ask("/v1/prune", { query: question, passages: texts });
console.log(`guard: ${status}, reads passages ${kept.join(", ")}`);

const passages = kept.map((place) => texts[place]);
const run = { id: crypto.randomUUID(), question, steps: [{ query: question, passages }] };
const { action, reasons } = await ask("/v1/advise", { run, budget_ms: 60000 });
console.log(`advice: ${action}${reasons.length ? ` (${reasons[0]})` : ""}`);

const { accepted } = await ask("/v1/runs", { ...run, answer: "Ursula Almberg" });
await ask("/v1/feedback", { run: run.id, thumb: "up", note: "that is right" });
console.log(`${accepted} run sent; it is scored in the background and shown at ${service}`);
