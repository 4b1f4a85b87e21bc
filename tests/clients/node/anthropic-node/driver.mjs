// @anthropic-ai/sdk: the Messages API, whole and streamed, forced tools, errors.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { CHAT, CHAT_URL, CITY, KEY, feature, run } from "./cases.mjs";

const client = new Anthropic({ baseURL: CHAT_URL, apiKey: KEY, maxRetries: 0 });
const BRIEF = { model: CHAT, max_tokens: 30, messages: [{ role: "user", content: "Name a colour." }] };
const tools = [{ name: "get_weather", description: "The weather.", input_schema: CITY }];
const FORCED = { ...BRIEF, max_tokens: 100, tools, tool_choice: { type: "tool", name: "get_weather" } };

feature("messages", async () => {
  const { content, usage } = await client.messages.create(BRIEF);
  assert(content[0].text && usage.output_tokens <= 30);
});

feature("messages: stream", async () => {
  const message = await client.messages.stream(BRIEF).finalMessage();
  assert(["end_turn", "max_tokens"].includes(message.stop_reason) && message.content[0].text);
});

feature("messages: tools", async () => {
  const { content, stop_reason } = await client.messages.create(FORCED);
  assert.equal(stop_reason, "tool_use");
  assert.equal(typeof content[0].input.city, "string");
  const result = { type: "tool_result", tool_use_id: content[0].id, content: "18 degrees and rain" };
  const messages = [...BRIEF.messages, { role: "assistant", content }, { role: "user", content: [result] }];
  assert((await client.messages.create({ ...BRIEF, tools, messages })).content.length > 0);
});

feature("messages: tools streamed", async () => {
  const stream = client.messages.stream(FORCED);
  let text = "";
  stream.on("inputJson", (part) => (text += part));
  const message = await stream.finalMessage();
  assert.deepEqual(JSON.parse(text), message.content[0].input);
});

feature("messages: count tokens", async () => {
  const { input_tokens } = await client.messages.countTokens({ model: CHAT, messages: BRIEF.messages });
  const { usage } = await client.messages.create(BRIEF);
  assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

feature("errors", async () => {
  await assert.rejects(client.messages.create({ ...BRIEF, model: "other" }), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create({ ...BRIEF, max_tokens: 0 }), Anthropic.BadRequestError);
  const other = new Anthropic({ baseURL: CHAT_URL, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(other.messages.create(BRIEF), Anthropic.AuthenticationError);
});

await run();
