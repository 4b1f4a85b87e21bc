// Cases of the AI SDK, the same for each of its providers. A provider of another API than chat names its rows after that.
import assert from "node:assert/strict";
import * as ai from "ai";
import { z } from "zod";
import { ASK_FOR_A_CALL, CALL, feature } from "./cases.mjs";

const NAMES = {
  chat: {
    text: "text", stream: "stream", tools: "tools: auto", streamed: "tools: streamed", structured: "json_schema",
  },
  responses: {
    text: "responses", stream: "responses: stream", tools: "responses: tools", streamed: "responses: tools streamed",
    structured: "responses: structured",
  },
  messages: {
    text: "messages", stream: "messages: stream", tools: "messages: tools", streamed: "messages: tools streamed",
    structured: "json_schema",
  },
};

export function register(model, { api = "chat" } = {}) {
  const names = NAMES[api];
  const brief = { model, prompt: "Name a colour.", system: "Be brief.", temperature: 0, maxOutputTokens: 30, maxRetries: 0 };
  const calls = [];
  const inputSchema = z.object({ city: z.string().max(20) });
  const described = { description: "The current weather of a city.", inputSchema };
  const weather = ai.tool({ ...described, execute: ({ city }) => (calls.push(city), "18 degrees and rain") });
  const asked = { ...brief, system: undefined, prompt: ASK_FOR_A_CALL, maxOutputTokens: 100 };
  const offered = { ...asked, tools: { get_weather: ai.tool(described) } };
  const schema = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });

  feature(names.text, async () => {
    const { text, usage } = await ai.generateText(brief);
    assert(text && usage.inputTokens > 0 && usage.outputTokens > 0);
    return text;
  });

  feature(names.stream, async () => {
    const result = ai.streamText({ ...brief, onError: ({ error }) => { throw error; } });
    let text = "";
    for await (const part of result.textStream) text += part;
    assert.equal(text, (await ai.generateText(brief)).text);
    assert((await result.usage).outputTokens > 0);
  });

  feature(names.tools, async () => {
    const { toolCalls, finishReason } = await ai.generateText(offered);
    assert.deepEqual(toolCalls.map((call) => [call.toolName, call.input]), [["get_weather", { city: "Paris" }]]);
    assert.equal(finishReason, "tool-calls");
  });

  feature("tools: none", async () => {
    const { toolCalls, text } = await ai.generateText({ ...offered, toolChoice: "none" });
    assert(toolCalls.length === 0 && text);
  });

  feature("tools: required", async () => {
    const { toolCalls } = await ai.generateText({ ...offered, prompt: "Weather?", toolChoice: "required" });
    assert.equal(toolCalls[0].toolName, "get_weather");
  });

  feature("tools: named", async () => {
    const toolChoice = { type: "tool", toolName: "get_weather" };
    const { toolCalls } = await ai.generateText({ ...offered, prompt: "Weather?", toolChoice });
    assert.equal(typeof toolCalls[0].input.city, "string");
  });

  feature("tools: parallel", async () => {
    const { toolCalls } = await ai.generateText({ ...offered, prompt: `${ASK_FOR_A_CALL}\n${CALL.replace("Paris", "Rome")}` });
    assert.deepEqual(toolCalls.map((call) => call.input.city), ["Paris", "Rome"]);
  });

  feature(names.streamed, async () => {
    const result = ai.streamText(offered);
    const kinds = [];
    for await (const part of result.fullStream) kinds.push(part.type);
    assert(kinds.includes("tool-input-delta") && kinds.includes("tool-call") && !kinds.includes("error"));
    assert.deepEqual((await result.toolCalls)[0].input, { city: "Paris" });
  });

  feature("agent", async () => {
    const stopWhen = ai.stepCountIs(3);
    const { steps, text } = await ai.generateText({ ...asked, tools: { get_weather: weather }, stopWhen });
    assert.equal(calls[0], "Paris");
    assert(steps.length >= 2);
    return text;
  });

  feature(names.structured, async () => {
    const { output } = await ai.generateText({ ...brief, maxOutputTokens: 100, output: ai.Output.object({ schema }) });
    assert.deepEqual(Object.keys(output), ["name", "age"]);
    const stream = ai.streamText({ ...brief, maxOutputTokens: 100, output: ai.Output.object({ schema }) });
    for await (const _ of stream.partialOutputStream);
    assert.deepEqual(await stream.output, output);
    return JSON.stringify(output);
  });

  feature("parse", async () => {
    const { object } = await ai.generateObject({ ...brief, maxOutputTokens: 100, schema });
    assert.equal(typeof object.age, "number");
  });

  if (api !== "messages") {  // Anthropic's API has no JSON without a schema
    feature("json_object", async () => {
      const prompt = 'Repeat this text:\n{"colour": "red"}';
      const { object } = await ai.generateObject({ ...brief, prompt, maxOutputTokens: 100, output: "no-schema" });
      assert.equal(typeof object, "object");
    });
  }

  feature("errors", async () => {
    await assert.rejects(ai.generateText({ ...brief, temperature: 9 }), (error) => ai.APICallError.isInstance(error) && error.statusCode === 400);
  });

  feature("timeouts", async () => {
    const abortSignal = AbortSignal.timeout(300);
    const long = ai.generateText({ ...brief, prompt: "Write a long story about a river and a mill.", maxOutputTokens: 500, abortSignal });
    await assert.rejects(long, (error) => ["TimeoutError", "AbortError"].includes(error.name));
  });
}
