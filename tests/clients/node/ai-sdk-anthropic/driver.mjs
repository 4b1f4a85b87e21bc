// @ai-sdk/anthropic, which speaks the Messages API; its tools are marked for eager streaming.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import * as ai from "ai";
import { CHAT, CHAT_URL, KEY, feature, lacks, run } from "./cases.mjs";
import { register } from "./ai_cases.mjs";

const provider = createAnthropic({ baseURL: `${CHAT_URL}/v1`, apiKey: KEY });

register(provider(CHAT), { api: "messages" });

// The provider lowers a temperature that is too high, so that a wrong one never arrives.
feature("errors", async () => {
  const asked = { prompt: "Hello.", maxOutputTokens: 8, maxRetries: 0 };
  for (const [model, status] of [
    [provider("claude-opus-4"), 404],
    [createAnthropic({ baseURL: `${CHAT_URL}/v1`, apiKey: "wrong" })(CHAT), 401],
  ]) {
    await assert.rejects(ai.generateText({ ...asked, model }), (error) => error.statusCode === status);
  }
});

feature("context overflow", async () => {
  const asked = { model: provider(CHAT), maxOutputTokens: 8, maxRetries: 0, prompt: "many words ".repeat(9000) };
  await assert.rejects(ai.generateText(asked), /prompt is too long/);
});

lacks("json_object", "Anthropic's API has no JSON without a schema");
await run();
