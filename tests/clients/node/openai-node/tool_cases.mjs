// Tools: who chooses, several calls, streamed arguments, the history of a conversation, and the agent loop.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction } from "openai/helpers/zod";
import { z } from "zod";
import { ASK_FOR_A_CALL, CALL, CHAT, CITY, feature } from "./cases.mjs";

const client = new OpenAI();
const weather = { name: "get_weather", description: "The current weather of a city.", parameters: CITY };
const tools = [
  { type: "function", function: weather },
  { type: "function", function: { ...weather, name: "get_time", description: "The time in a city." } },
];
const ASKED = { model: CHAT, temperature: 0, max_tokens: 200, messages: [{ role: "user", content: ASK_FOR_A_CALL }], tools };
const QUESTION = { ...ASKED, messages: [{ role: "user", content: "What is the weather in Paris?" }] };
const PARIS = [["get_weather", { city: "Paris" }]];

function called(choice) {
  assert.equal(choice.finish_reason, "tool_calls");
  return choice.message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
}

feature("tools: none", async () => {
  const [choice] = (await client.chat.completions.create({ ...ASKED, tool_choice: "none" })).choices;
  assert(!choice.message.tool_calls && choice.message.content);
});

feature("tools: auto", async () => {
  assert.deepEqual(called((await client.chat.completions.create(ASKED)).choices[0]), PARIS);
});

feature("tools: required", async () => {
  const asked = { ...QUESTION, tool_choice: "required", parallel_tool_calls: false };
  assert.equal(called((await client.chat.completions.create(asked)).choices[0]).length, 1);
});

feature("tools: named", async () => {
  const asked = { ...QUESTION, tool_choice: { type: "function", function: { name: "get_time" } } };
  assert.equal(called((await client.chat.completions.create(asked)).choices[0])[0][0], "get_time");
});

feature("tools: parallel", async () => {
  const content = `${ASK_FOR_A_CALL}\n${CALL.replace("Paris", "Rome")}`;
  const answer = await client.chat.completions.create({ ...ASKED, messages: [{ role: "user", content }] });
  assert.deepEqual(called(answer.choices[0]).map((call) => call[1].city), ["Paris", "Rome"]);
});

feature("tools: streamed", async () => {
  const stream = client.chat.completions.stream(ASKED);
  let deltas = 0;
  stream.on("tool_calls.function.arguments.delta", () => (deltas += 1));
  assert.deepEqual(called((await stream.finalChatCompletion()).choices[0]), PARIS);
  assert(deltas >= 1);
});

feature("tools: parse", async () => {
  const parameters = z.object({ city: z.string().max(20) });
  const tool = zodFunction({ name: "get_weather", description: "The current weather of a city.", parameters });
  const asked = { ...QUESTION, tools: [tool], tool_choice: "required", parallel_tool_calls: false };
  const [call] = (await client.chat.completions.parse(asked)).choices[0].message.tool_calls;
  assert.equal(typeof call.function.parsed_arguments.city, "string");
  return JSON.stringify(call.function.parsed_arguments);
});

feature("tools: history", async () => {
  const { message } = (await client.chat.completions.create(ASKED)).choices[0];
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "18 degrees and rain" };
  const answer = await client.chat.completions.create({ ...ASKED, messages: [...ASKED.messages, message, result] });
  assert(answer.choices[0].message.content);
});

feature("agent", async () => {
  const cities = [];
  const get_weather = {
    type: "function",
    function: { ...weather, parse: JSON.parse, function: ({ city }) => (cities.push(city), "18 degrees and rain") },
  };
  const runner = client.chat.completions.runTools({ ...ASKED, tools: [get_weather] });
  const text = await runner.finalContent();
  assert.equal(cities[0], "Paris");
  return text;
});
