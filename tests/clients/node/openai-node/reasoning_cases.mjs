// Reasoning as a field of its own, and the fields of a request that the chat template of a reasoning model reads.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { ANSWER, ASK_FOR_REASONING, REASON, REASON_URL, THOUGHT, feature } from "./cases.mjs";

const client = new OpenAI({ baseURL: `${REASON_URL}/v1` });
const BRIEF = { model: REASON, messages: [{ role: "user", content: "Name a colour." }], temperature: 0, max_tokens: 12 };
const OPENED = { chat_template_kwargs: { thinking: true } }; // the prompt ends with <think>
const ASKED = { ...BRIEF, ...OPENED, messages: [{ role: "user", content: ASK_FOR_REASONING }], max_tokens: 60 };

const promptTokens = async (fields = {}) =>
  (await client.chat.completions.create({ ...BRIEF, max_tokens: 1, ...fields })).usage.prompt_tokens;

feature("reasoning", async () => {
  const { choices: [{ message }], usage } = await client.chat.completions.create(ASKED);
  assert.deepEqual([message.reasoning_content.trim(), message.content], [THOUGHT, ANSWER]);
  const { reasoning_tokens } = usage.completion_tokens_details;
  assert(reasoning_tokens > 0 && reasoning_tokens < usage.completion_tokens);
  const asked = { ...OPENED, model: REASON, input: ASK_FOR_REASONING, temperature: 0, max_output_tokens: 60 };
  const response = await client.responses.create(asked);
  assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
  assert.deepEqual([response.output[0].content[0].text.trim(), response.output_text], [THOUGHT, ANSWER]);
  return message.reasoning_content;
});

feature("reasoning: stream", async () => {
  const thoughts = [];
  let text = "";
  for await (const { choices: [choice] } of await client.chat.completions.create({ ...ASKED, stream: true })) {
    if (choice.delta.reasoning_content) thoughts.push(choice.delta.reasoning_content);
    text += choice.delta.content ?? "";
  }
  assert(thoughts.length > 1, "the reasoning came at once");
  assert.deepEqual([thoughts.join("").trim(), text], [THOUGHT, ANSWER]);
  return `${thoughts.length} deltas`;
});

feature("reasoning_effort, verbosity", async () => {
  const plain = await promptTokens();
  assert.equal(await promptTokens({ reasoning_effort: "low" }), plain);
  assert.equal(await promptTokens({ verbosity: "high" }), plain);
  // The template adds a sentence for each of these.
  assert((await promptTokens({ reasoning_effort: "high" })) > plain);
  assert((await promptTokens({ verbosity: "low" })) > plain);
});

feature("chat_template_kwargs", async () => {
  const plain = await client.chat.completions.create({ ...BRIEF, chat_template_kwargs: { thinking: false } });
  const opened = await client.chat.completions.create({ ...BRIEF, ...OPENED });
  assert(plain.choices[0].message.content);
  assert.equal(plain.choices[0].message.reasoning_content, undefined);
  assert(opened.choices[0].message.reasoning_content);
  assert(opened.usage.prompt_tokens > plain.usage.prompt_tokens);
  return opened.choices[0].message.reasoning_content;
});
