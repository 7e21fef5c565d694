// Asks a model with Vercel's AI SDK, over each API that its providers speak, and prints what came as JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import * as z from "zod";

const [url, model, question] = process.argv.slice(2);
const server = { baseURL: `${url}/v1`, apiKey: "none" };
const openai = createOpenAI(server);
const compatible = createOpenAICompatible({
  ...server,
  name: "slipway",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const apis = { responses: openai(model), chat: openai.chat(model), compatible: compatible(model) };
const schema = z.object({ a: z.int().min(1).max(2) });
const f = tool({ inputSchema: schema, execute: () => "one" });
const common = { prompt: question, maxOutputTokens: 150, maxRetries: 0 };

async function answers(asked) {
  const whole = await generateText(asked);
  const streamed = streamText(asked);
  let pieces = 0;
  for await (const piece of streamed.textStream) {
    pieces += piece !== "";
  }
  return {
    texts: [whole.text, await streamed.text],
    tokens: [whole.usage.outputTokens, (await streamed.usage).outputTokens],
    ends: [whole.finishReason, await streamed.finishReason],
    pieces,
  };
}

async function objects(asked) {
  const streamed = streamObject({ ...asked, schema });
  for await (const _ of streamed.partialObjectStream);
  return [(await generateObject({ ...asked, schema })).object, await streamed.object];
}

// A call that is forced, its result, and what the model says then.
async function conversations(asked) {
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" });
  const turns = { ...asked, prompt: "Hi", tools: { f }, stopWhen: stepCountIs(2), prepareStep };
  const streamed = streamText(turns);
  await streamed.consumeStream();
  return [(await generateText(turns)).steps, await streamed.steps].map((steps) => ({
    call: steps[0].toolCalls[0].input,
    result: steps[0].toolResults[0].output,
    "second turn": steps[1].text,
  }));
}

async function refusal(asked) {
  try {
    return (await generateText(asked)).text;
  } catch (error) {
    return { status: error.statusCode, text: error.message };
  }
}

const found = {};
for (const [name, api] of Object.entries(apis)) {
  const asked = { ...common, model: api };
  found[name] = {
    ...(await answers(asked)),
    objects: await objects(asked),
    conversations: await conversations(asked),
    "too long": await refusal({ ...asked, prompt: "word ".repeat(5000) }),
  };
}
console.log(JSON.stringify(found));
