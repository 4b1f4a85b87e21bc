// Fields that vLLM adds to the API, and those of OpenAI's that only describe a request. Each case asserts the effect.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import OpenAI from "openai";
import { CHAT, CHAT_URL, feature } from "./cases.mjs";

const client = new OpenAI();
const BRIEF = { model: CHAT, messages: [{ role: "user", content: "Name a colour." }], temperature: 0, max_tokens: 12 };
const TEXT = "The capital of France is Paris, and that of Italy is";
const KEPT = 20; // tokens of a prompt that is cut

const answer = async (fields = {}) => (await client.chat.completions.create({ ...BRIEF, ...fields })).choices[0].message.content;

async function tokenIds(text) {
  const tokenizer = client.withOptions({ baseURL: CHAT_URL });
  return (await tokenizer.post("/tokenize", { body: { model: CHAT, prompt: text } })).tokens;
}

feature("continuous_usage_stats", async () => {
  const stream_options = { include_usage: true, continuous_usage_stats: true };
  const counts = [];
  for await (const event of await client.chat.completions.create({ ...BRIEF, stream: true, stream_options })) {
    counts.push(event.usage.completion_tokens);
  }
  assert.deepEqual(counts, counts.toSorted((one, other) => one - other));
  assert(new Set(counts).size > 2);
  return counts.join(" ");
});

feature("prompt logprobs", async () => {
  const asked = { model: CHAT, prompt: TEXT, temperature: 0 };
  const [scored] = (await client.completions.create({ ...asked, max_tokens: 1, prompt_logprobs: 1 })).choices;
  const [first, ...others] = scored.prompt_logprobs;
  const ids = await tokenIds(TEXT);
  assert.equal(first, null);
  assert.equal(others.length, ids.length - 1);
  const own = others.map((entry, index) => entry[ids[index + 1]]);
  assert(TEXT.endsWith(own.map((entry) => entry.decoded_token).join("")));
  const [echoed] = (await client.completions.create({ ...asked, max_tokens: 0, echo: true, logprobs: 1 })).choices;
  assert.deepEqual([echoed.text, echoed.logprobs.tokens.join("")], [TEXT, TEXT]);
  const [nothing, ...values] = echoed.logprobs.token_logprobs;
  assert.equal(nothing, null);
  assert(values.every((value, index) => Math.abs(value - own[index].logprob) < 0.05));
  const tokens = [];
  let text = "";
  const streamed = { ...asked, max_tokens: 3, echo: true, logprobs: 1, stream: true };
  for await (const { choices: [choice] } of await client.completions.create(streamed)) {
    text += choice.text;
    tokens.push(...(choice.logprobs?.tokens ?? []));
  }
  assert(text.startsWith(TEXT));
  assert.equal(tokens.join(""), text);
});

feature("stop_token_ids", async () => {
  const whole = await answer();
  const ids = await tokenIds(whole);
  const { choices: [cut], usage } = await client.chat.completions.create({ ...BRIEF, stop_token_ids: [ids[3]] });
  assert.equal(cut.finish_reason, "stop");
  assert.equal(usage.completion_tokens, ids.indexOf(ids[3]));
  assert(whole.startsWith(cut.message.content));
});

feature("include_stop_str_in_output", async () => {
  const whole = await answer();
  const word = whole.split(/\s+/)[2];
  const shown = await answer({ stop: [word], include_stop_str_in_output: true });
  assert.equal(shown, whole.slice(0, whole.indexOf(word) + word.length));
});

feature("skip_special_tokens", async () => {
  const endless = { ignore_eos: true, max_tokens: 60 };
  assert(!(await answer(endless)).includes("<|im_end|>"));
  assert((await answer({ ...endless, skip_special_tokens: false })).includes("<|im_end|>"));
});

feature("bad_words", async () => {
  const whole = await answer();
  const word = whole.match(/[A-Za-z]+/g).reduce((longest, each) => (each.length > longest.length ? each : longest));
  const barred = await answer({ bad_words: [word] });
  assert(barred && whole.includes(word) && !barred.includes(word));
  return `"${barred}" without "${word}"`;
});

feature("truncate_prompt_tokens", async () => {
  const prompt = TEXT.repeat(4);
  const ids = await tokenIds(prompt);
  const asked = { model: CHAT, temperature: 0, max_tokens: 5 };
  const cut = await client.completions.create({ ...asked, prompt, truncate_prompt_tokens: KEPT });
  assert.equal(cut.usage.prompt_tokens, KEPT);
  const end = await client.completions.create({ ...asked, prompt: ids.slice(-KEPT) });
  assert.equal(cut.choices[0].text, end.choices[0].text);
  const messages = [{ role: "user", content: "long ".repeat(20_000) }];
  const chat = await client.chat.completions.create({ ...BRIEF, messages, truncate_prompt_tokens: KEPT });
  assert.equal(chat.usage.prompt_tokens, KEPT);
});

feature("cache_salt", async () => {
  const prompt = `${randomUUID()} ${"A salt keeps the cached blocks of one client from those that do not know it. ".repeat(6)}`;
  const counts = [];
  for (const cache_salt of ["a", "b", undefined, "a", undefined]) {
    const { usage } = await client.completions.create({ model: CHAT, prompt, max_tokens: 1, cache_salt });
    counts.push(usage.prompt_tokens_details.cached_tokens);
  }
  assert.deepEqual(counts.map((count) => count > 0), [false, false, false, true, true]);
  return `${counts.join(" ")} cached tokens`;
});

feature("store, metadata", async () => {
  const whole = await answer();
  const metadata = { team: "search" };
  for (const store of [true, false]) {
    const given = await client.chat.completions.create({ ...BRIEF, store, metadata });
    assert.equal(given.choices[0].message.content, whole);
    const response = await client.responses.create({ model: CHAT, input: "Hi", max_output_tokens: 4, store, metadata });
    assert.deepEqual(response.metadata, metadata);
    await assert.rejects(client.chat.completions.retrieve(given.id), OpenAI.NotFoundError);
    await assert.rejects(client.responses.retrieve(response.id), OpenAI.NotFoundError);
  }
  return "accepted, and nothing is stored";
});
