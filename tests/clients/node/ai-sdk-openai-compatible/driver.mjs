// @ai-sdk/openai-compatible, which speaks chat completions.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai from "ai";
import { CHAT, CHAT_URL, EMBED, EMBED_URL, KEY, feature, run } from "./cases.mjs";
import { register } from "./ai_cases.mjs";

const more = { supportsStructuredOutputs: true, includeUsage: true };
const provider = createOpenAICompatible({ name: "sluice", baseURL: `${CHAT_URL}/v1`, apiKey: KEY, ...more });

register(provider(CHAT));

feature("completions", async () => {
  const model = provider.completionModel(CHAT);
  assert((await ai.generateText({ model, prompt: "One, two,", maxOutputTokens: 4 })).text);
});

feature("embeddings", async () => {
  const other = createOpenAICompatible({ name: "sluice", baseURL: `${EMBED_URL}/v1`, apiKey: KEY });
  const { embeddings } = await ai.embedMany({ model: other.textEmbeddingModel(EMBED), values: ["a cat", "a kitten"] });
  assert.equal(embeddings[1].length, 384);
});

await run();
