// @ai-sdk/openai by its default provider, which speaks the Responses API; chat and completions by name.
import assert from "node:assert/strict";
import { createOpenAI, openai } from "@ai-sdk/openai";
import * as ai from "ai";
import { z } from "zod";
import { ASK_FOR_A_CALL, CALL, CHAT, EMBED, EMBED_URL, feature, run } from "./cases.mjs";
import { register } from "./ai_cases.mjs";

register(openai(CHAT), { api: "responses" });

feature("completions", async () => {
  const { text } = await ai.generateText({ model: openai.completion(CHAT), prompt: "One, two,", maxOutputTokens: 4 });
  assert(text);
});

feature("json_schema", async () => {
  const schema = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
  const asked = { model: openai.chat(CHAT), prompt: "Name a person.", output: ai.Output.object({ schema }), temperature: 0 };
  const { output } = await ai.generateText(asked);
  assert.equal(typeof output.age, "number");
});

feature("tools: auto", async () => {
  const inputSchema = z.object({ city: z.string().max(20) });
  const tools = { get_weather: ai.tool({ description: "The weather of a city.", inputSchema }) };
  const { toolCalls } = await ai.generateText({ model: openai.chat(CHAT), prompt: ASK_FOR_A_CALL, tools, temperature: 0 });
  assert.deepEqual(toolCalls[0].input, { city: "Paris" });
});

feature("embeddings", async () => {
  const model = createOpenAI({ baseURL: `${EMBED_URL}/v1` }).embedding(EMBED);
  const { embeddings } = await ai.embedMany({ model, values: ["a cat", "a kitten"] });
  assert.equal(embeddings[1].length, 384);
});

await run();
