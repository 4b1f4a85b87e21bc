// Text, sampling, structured output, completions and embeddings.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { CHAT, EMBED, EMBED_URL, PERSON, feature } from "./cases.mjs";

const client = new OpenAI();
const BRIEF = { model: CHAT, messages: [{ role: "user", content: "Name a colour." }], temperature: 0, max_tokens: 12 };
const MORE = { ...BRIEF, max_tokens: 100 };
const Person = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(120) });

feature("text", async () => {
  const answer = await client.chat.completions.create(BRIEF);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert(answer.choices[0].message.content);
  return answer.choices[0].message.content;
});

feature("stream", async () => {
  const whole = (await client.chat.completions.create(BRIEF)).choices[0].message.content;
  let text = "";
  let usage = null;
  const stream = await client.chat.completions.create({ ...BRIEF, stream: true, stream_options: { include_usage: true } });
  for await (const event of stream) {
    text += event.choices[0]?.delta.content ?? "";
    usage = event.usage;
  }
  assert.equal(text, whole);
  assert(usage.completion_tokens <= 12);
  const helper = client.chat.completions.stream(BRIEF);
  assert.equal(await helper.finalContent(), whole);
});

feature("n", async () => {
  const answer = await client.chat.completions.create({ ...BRIEF, temperature: 1.5, n: 3 });
  assert.deepEqual(answer.choices.map((choice) => choice.index), [0, 1, 2]);
});

feature("seed", async () => {
  const drawn = { ...BRIEF, temperature: 1.5, seed: 7 };
  const texts = [await client.chat.completions.create(drawn), await client.chat.completions.create(drawn)];
  assert.equal(texts[0].choices[0].message.content, texts[1].choices[0].message.content);
});

feature("logprobs", async () => {
  const [choice] = (await client.chat.completions.create({ ...BRIEF, logprobs: true, top_logprobs: 3 })).choices;
  assert.equal(choice.logprobs.content.map((each) => each.token).join(""), choice.message.content);
  assert(choice.logprobs.content.every((each) => each.top_logprobs.length === 3));
});

feature("stop", async () => {
  const whole = (await client.chat.completions.create(BRIEF)).choices[0].message.content;
  const word = whole.split(/\s+/)[2];
  const [choice] = (await client.chat.completions.create({ ...BRIEF, stop: [word] })).choices;
  assert.equal(choice.finish_reason, "stop");
  assert(whole.startsWith(choice.message.content) && !choice.message.content.includes(word));
});

feature("json_object", async () => {
  const messages = [{ role: "user", content: 'Repeat this text:\n{"colour": "red"}' }];
  const asked = { ...MORE, messages, response_format: { type: "json_object" } };
  const answer = await client.chat.completions.create(asked);
  assert.equal(typeof JSON.parse(answer.choices[0].message.content), "object");
});

feature("json_schema", async () => {
  const response_format = { type: "json_schema", json_schema: { name: "person", strict: true, schema: PERSON } };
  const answer = await client.chat.completions.create({ ...MORE, response_format });
  assert.deepEqual(Object.keys(JSON.parse(answer.choices[0].message.content)), ["name", "age"]);
});

feature("parse", async () => {
  const asked = { ...MORE, response_format: zodResponseFormat(Person, "person") };
  const answer = await client.chat.completions.parse(asked);
  assert.equal(typeof answer.choices[0].message.parsed.age, "number");
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  assert.equal(typeof streamed.choices[0].message.parsed.age, "number");
  return JSON.stringify(answer.choices[0].message.parsed);
});

feature("regex, choice", async () => {
  const answer = await client.chat.completions.create({ ...BRIEF, structured_outputs: { regex: "[0-9]{4}" } });
  assert.match(answer.choices[0].message.content, /^[0-9]{4}$/);
  const chosen = await client.chat.completions.create({ ...BRIEF, guided_choice: ["red", "blue"] });
  assert(["red", "blue"].includes(chosen.choices[0].message.content));
});

feature("EBNF", async () => {
  const grammar = 'root ::= ("light" | "dark") " " ("red" | "blue")';
  const given = [];
  for (const fields of [{ guided_grammar: grammar }, { structured_outputs: { grammar } }]) {
    given.push((await client.chat.completions.create({ ...BRIEF, ...fields })).choices[0].message.content);
  }
  assert.equal(given[0], given[1]);
  assert(["light red", "light blue", "dark red", "dark blue"].includes(given[0]));
  return given[0];
});

feature("completions", async () => {
  const prompt = ["One, two,", "The sea is"];
  const answer = await client.completions.create({ model: CHAT, prompt, max_tokens: 4, echo: true });
  assert(answer.choices.every((choice, index) => choice.text.startsWith(prompt[index])));
});

feature("embeddings", async () => {
  const embedder = new OpenAI({ baseURL: `${EMBED_URL}/v1` });
  const input = ["a cat", "a kitten", "the stock market"];
  const [near, same, far] = (await embedder.embeddings.create({ model: EMBED, input })).data.map((each) => each.embedding);
  const product = (other) => near.reduce((sum, value, index) => sum + value * other[index], 0);
  assert.equal(near.length, 384);
  assert(product(same) > product(far));
});
