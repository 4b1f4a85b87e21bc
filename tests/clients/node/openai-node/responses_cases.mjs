// The Responses API: text, events, tools and structured output.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { ASK_FOR_A_CALL, CHAT, CITY, feature } from "./cases.mjs";

const client = new OpenAI();
const BRIEF = { model: CHAT, input: "Name a colour.", instructions: "Be brief.", temperature: 0, max_output_tokens: 60 };
const tool = { type: "function", name: "get_weather", description: "The weather.", parameters: CITY, strict: true };
const ASKED = { model: CHAT, input: ASK_FOR_A_CALL, temperature: 0, max_output_tokens: 100, tools: [tool] };

feature("responses", async () => {
  const answer = await client.responses.create(BRIEF);
  assert(answer.output_text && answer.usage.total_tokens > 0);
  const later = client.responses.create({ ...BRIEF, previous_response_id: answer.id });
  await assert.rejects(later, (error) => error.param === "previous_response_id");
});

feature("responses: stream", async () => {
  const stream = client.responses.stream(BRIEF);
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert(kinds.includes("response.output_text.delta"));
  assert.equal((await stream.finalResponse()).output_text, (await client.responses.create(BRIEF)).output_text);
});

feature("responses: tools", async () => {
  const answer = await client.responses.create(ASKED);
  const call = answer.output.find((item) => item.type === "function_call");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
  const output = { type: "function_call_output", call_id: call.call_id, output: "18 degrees and rain" };
  const input = [{ role: "user", content: ASK_FOR_A_CALL }, ...answer.output, output];
  assert((await client.responses.create({ ...ASKED, input })).output_text);
});

feature("responses: tools streamed", async () => {
  const stream = client.responses.stream(ASKED);
  let text = "";
  stream.on("response.function_call_arguments.delta", (event) => (text += event.delta));
  const final = await stream.finalResponse();
  assert.equal(final.output.find((item) => item.type === "function_call").arguments, text);
});

feature("responses: structured", async () => {
  const Person = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });
  const answer = await client.responses.parse({ ...BRIEF, text: { format: zodTextFormat(Person, "person") } });
  assert.equal(typeof answer.output_parsed.age, "number");
});
