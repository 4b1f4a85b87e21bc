// openai-node: every feature of the OpenAI API that Sluice serves, whole and streamed.
import "./chat_cases.mjs";
import "./extension_cases.mjs";
import "./reasoning_cases.mjs";
import "./tool_cases.mjs";
import "./responses_cases.mjs";
import "./transport_cases.mjs";
import { run } from "./cases.mjs";

await run();
