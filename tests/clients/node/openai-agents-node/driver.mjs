// @openai/agents: the Agents SDK by its default (the Responses API) and by chat completions.
import assert from "node:assert/strict";
import { Agent, OpenAIChatCompletionsModel, handoff, run as runAgent, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { ASK_FOR_A_CALL, CHAT, feature, run } from "./cases.mjs";

setTracingDisabled(true);
const settings = { temperature: 0, maxTokens: 200 };
const forced = { ...settings, toolChoice: "required", parallelToolCalls: false };
const chat = new OpenAIChatCompletionsModel(new OpenAI(), CHAT);
const outputType = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
const called = [];
const weather = tool({
  name: "get_weather",
  description: "The current weather of a city.",
  parameters: z.object({ city: z.string().max(20) }),
  execute: async ({ city }) => (called.push(city), "18 degrees and rain"),
});
const made = (model, more) => new Agent({ name: "helper", instructions: "Be brief.", model, modelSettings: settings, ...more });

async function text(model) {
  const { finalOutput } = await runAgent(made(model), "Name a colour.");
  assert(finalOutput);
  return finalOutput;
}

async function stream(model) {
  const result = await runAgent(made(model), "Name a colour.", { stream: true });
  let written = "";
  for await (const part of result.toTextStream()) written += part;
  await result.completed;
  assert.equal(written, await text(model));
}

async function tools(model, question = "What is the weather in Paris?", more = {}) {
  called.length = 0;
  const { finalOutput } = await runAgent(made(model, { tools: [weather], modelSettings: forced, ...more }), question);
  assert(called.length > 0);
  return finalOutput;
}

async function toolsStreamed(model) {
  called.length = 0;
  const result = await runAgent(made(model, { tools: [weather], modelSettings: forced }), "Weather?", { stream: true });
  for await (const _ of result);
  await result.completed;
  assert(called.length > 0);
}

async function structured(model) {
  const { finalOutput } = await runAgent(made(model, { outputType }), "Name a person.");
  assert.equal(typeof finalOutput.age, "number");
  return JSON.stringify(finalOutput);
}

feature("text", async () => text(chat));
feature("stream", async () => stream(chat));
feature("tools: auto", async () => {
  await tools(chat, ASK_FOR_A_CALL, { instructions: undefined, modelSettings: settings });
  assert.equal(called[0], "Paris");
});
feature("tools: required", async () => tools(chat));
feature("tools: named", async () => tools(CHAT, undefined, { modelSettings: { ...settings, toolChoice: "get_weather" } }));
feature("tools: streamed", async () => toolsStreamed(chat));
feature("json_schema", async () => structured(chat));
feature("responses", async () => text(CHAT));
feature("responses: stream", async () => stream(CHAT));
feature("responses: tools", async () => tools(CHAT));
feature("responses: tools streamed", async () => toolsStreamed(CHAT));
feature("responses: structured", async () => structured(CHAT));
feature("agent", async () => {
  const expert = new Agent({ name: "expert", instructions: "Be brief.", model: CHAT, modelSettings: settings });
  const first = made(CHAT, { handoffs: [handoff(expert)], modelSettings: forced });
  const { lastAgent, finalOutput } = await runAgent(first, "Ask the expert for a colour.");
  assert.equal(lastAgent.name, "expert");
  return finalOutput;
});
feature("errors", async () => {
  await assert.rejects(runAgent(made("gpt-5"), "Hello."), (error) => error.status === 404);
});
feature("context overflow", async () => {
  await assert.rejects(runAgent(made(CHAT), "many words ".repeat(9000)), /maximum context length/);
});

await run();
