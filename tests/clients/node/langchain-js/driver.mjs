// @langchain/openai: ChatOpenAI by both APIs, tools, streams and structured output.
import assert from "node:assert/strict";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";
import { ASK_FOR_A_CALL, CHAT, EMBED, EMBED_URL, feature, run } from "./cases.mjs";

const schema = z.object({ city: z.string().max(20) });
const weather = tool(() => "18 degrees and rain", { name: "get_weather", description: "The weather.", schema });
const Person = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
const model = (useResponsesApi) => new ChatOpenAI({ model: CHAT, temperature: 0, maxTokens: 80, useResponsesApi, maxRetries: 0 });
const chat = model(false);
const responses = model(true);

async function called(bound) {
  const { tool_calls } = await bound.invoke(ASK_FOR_A_CALL);
  assert.deepEqual(tool_calls.map((call) => [call.name, call.args]), [["get_weather", { city: "Paris" }]]);
}

async function streamed(bound) {
  let whole = null;
  for await (const chunk of await bound.stream(ASK_FOR_A_CALL)) whole = whole === null ? chunk : whole.concat(chunk);
  assert.deepEqual(whole.tool_calls[0].args, { city: "Paris" });
}

async function filled(from, method) {
  const person = await from.withStructuredOutput(Person, { method }).invoke("Name a person.");
  assert.equal(typeof person.age, "number");
  return JSON.stringify(person);
}

feature("text", async () => assert((await chat.invoke("Name a colour.")).text));
feature("tools: auto", async () => called(chat.bindTools([weather])));
feature("tools: streamed", async () => streamed(chat.bindTools([weather])));
feature("json_schema", async () => filled(chat, "jsonSchema"));
feature("parse", async () => filled(chat, "functionCalling"));
feature("responses", async () => assert((await responses.invoke("Name a colour.")).text));
feature("responses: tools", async () => called(responses.bindTools([weather])));
feature("responses: tools streamed", async () => streamed(responses.bindTools([weather])));
feature("responses: structured", async () => filled(responses, "jsonSchema"));
feature("embeddings", async () => {
  const embedder = new OpenAIEmbeddings({ model: EMBED, configuration: { baseURL: `${EMBED_URL}/v1` } });
  assert.equal((await embedder.embedDocuments(["a cat", "a kitten"]))[1].length, 384);
});

await run();
