// Models, errors, retries, timeouts and headers.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { CHAT, LIMITED_KEY, feature } from "./cases.mjs";

const client = new OpenAI({ maxRetries: 0 });
const BRIEF = { model: CHAT, messages: [{ role: "user", content: "Hi" }], max_tokens: 1 };
const AT_ONCE = 14; // the limited key has 12 requests per minute

feature("models", async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, [CHAT]);
  assert.equal((await client.models.retrieve(CHAT)).id, CHAT);
});

feature("errors", async () => {
  const refused = (fields, kind, code) =>
    assert.rejects(client.chat.completions.create({ ...BRIEF, ...fields }), (error) => error instanceof kind && error.code === code);
  await refused({ temperature: 9 }, OpenAI.BadRequestError, "invalid_value");
  await refused({ model: "gpt-5" }, OpenAI.NotFoundError, "model_not_found");
  const other = new OpenAI({ apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(other.models.list(), (error) => error instanceof OpenAI.AuthenticationError);
});

feature("context overflow", async () => {
  const messages = [{ role: "user", content: "long ".repeat(20_000) }];
  const refused = client.chat.completions.create({ ...BRIEF, messages });
  await assert.rejects(refused, (error) => {
    assert(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, "context_length_exceeded");
    assert.match(error.message, /This model's maximum context length is [0-9]+ tokens/);
    return true;
  });
});

feature("retries", async () => {
  const limited = new OpenAI({ apiKey: LIMITED_KEY, maxRetries: 0 });
  const settled = await Promise.allSettled(Array.from({ length: AT_ONCE }, () => limited.chat.completions.create(BRIEF)));
  const errors = settled.filter((each) => each.status === "rejected").map((each) => each.reason);
  assert(errors.length > 0 && errors.every((error) => error instanceof OpenAI.RateLimitError));
  assert(errors.every((error) => Number(error.headers.get("retry-after")) >= 1));
  const patient = new OpenAI({ apiKey: LIMITED_KEY, maxRetries: 2 });
  assert.equal((await patient.chat.completions.create(BRIEF)).usage.completion_tokens, 1);
});

feature("timeouts", async () => {
  const long = client.chat.completions.create({ ...BRIEF, max_tokens: 500, ignore_eos: true }, { timeout: 300 });
  await assert.rejects(long, (error) => error instanceof OpenAI.APIConnectionTimeoutError);
});

feature("headers", async () => {
  const { response, request_id } = await client.chat.completions.create(BRIEF).withResponse();
  assert.equal(response.headers.get("x-request-id"), request_id);
});
