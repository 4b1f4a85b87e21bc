"""openai-python: every feature of the OpenAI API that Sluice serves, whole and streamed."""

import chat_cases
import extension_cases
import reasoning_cases
import responses_cases
import tool_cases
import transport_cases
from cases import run

CASES = (chat_cases, extension_cases, reasoning_cases, tool_cases, responses_cases, transport_cases)

run()
