// What every Node driver shares: a case per feature, and one JSON line per outcome. Needs Node only.
// A driver ends with `await run()`. The first line lists all features, so that the runner sees which had no outcome.
const { CHAT_URL, REASON_URL, EMBED_URL, RERANK_URL, LIMITED_KEY } = process.env;
export { CHAT_URL, REASON_URL, EMBED_URL, RERANK_URL, LIMITED_KEY };
export const KEY = process.env.OPENAI_API_KEY;
export const CHAT = "smollm2";
export const REASON = "reasoner";
export const EMBED = "minilm";
const LONGEST_DETAIL = 400;

const cases = new Map();
const lacking = new Map();

// Registers the async function as the case of a feature. It throws if the feature does not work.
export function feature(name, work) {
  cases.set(name, work);
}

// Says that this client has no such feature, or that a fault of its own stops it, with the reason.
export function lacks(name, why) {
  lacking.set(name, why);
}

export async function run() {
  const named = process.argv.slice(2);
  const chosen = [...cases].filter(([name]) => named.length === 0 || named.includes(name));
  console.log(JSON.stringify({ planned: chosen.map(([name]) => name) }));
  for (const [name, why] of lacking) console.log(JSON.stringify({ feature: name, ok: null, detail: why }));
  for (const [name, work] of chosen) {
    try {
      const detail = String((await work()) ?? "").slice(0, LONGEST_DETAIL);
      console.log(JSON.stringify({ feature: name, ok: true, detail }));
    } catch (error) {
      console.error(error);
      console.log(JSON.stringify({ feature: name, ok: false, detail: String(error).slice(0, LONGEST_DETAIL) }));
    }
  }
}

// SmolLM2 has 135 M parameters and does not choose tools on its own; it copies what it is told to. cases.py says why so.
export const CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>';
export const ASK_FOR_A_CALL = `Copy this text, word for word. Your answer must begin with <tool_call>.\n\n${CALL}`;
export const THOUGHT = "I think of the sky.";
export const ANSWER = "The colour is blue.";
export const ASK_FOR_REASONING =
  `Copy this text, word for word. Your answer must begin with <think>.\n\n<think>\n${THOUGHT}\n</think>\n${ANSWER}`;
export const CITY = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 } },
  required: ["city"],
  additionalProperties: false,
};
export const PERSON = {
  type: "object",
  properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 120 } },
  required: ["name", "age"],
  additionalProperties: false,
};
