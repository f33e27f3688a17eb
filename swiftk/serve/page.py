"""The page at /: a model to try, its text coloured by who proposed each token."""

from __future__ import annotations

from ..pages.page_style import CSS

_BODY = """
<header><h1 id="name">swiftk</h1><p class="soft">Coloured tokens were drafted, and then verified by the model. The
text is the same without drafting.</p></header>
<form class="card" id="form">
<textarea id="prompt" rows="5" placeholder="A prompt" aria-label="Prompt" required></textarea>
<div class="row">
<label>as <select id="kind"><option value="chat/completions">a message</option>
<option value="completions">raw text</option></select></label>
<label>tokens <input id="tokens" type="number" min="1" value="200"></label>
<label>temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0"></label>
<label>seed <input id="seed" type="number" min="0" value="1"></label>
<label><input id="speculate" type="checkbox" checked> drafting</label>
<label>key <input id="key" type="password" autocomplete="off" size="8"></label>
<button id="go">Go</button> <button id="stop" type="button" disabled>Stop</button>
</div><p class="soft" id="how">&nbsp;</p></form>
<div class="card" style="margin-top:12px"><p class="soft" id="reported">&nbsp;</p><p class="soft" id="disk"></p>
<div class="legend" id="legend"></div><div class="text" id="text" aria-live="polite"></div></div>
"""

_FORM_STYLE = """
textarea { width: 100%; font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; padding: 8px; }
.row { display: flex; flex-wrap: wrap; gap: 8px 14px; align-items: center; margin-top: 8px; color: var(--soft); }
input, select, button { font: inherit; color: var(--ink); background: var(--page); border: 1px solid var(--line);
  border-radius: 6px; padding: 3px 8px; }
input[type=number] { width: 5.5em; }
"""

_SCRIPT = """
"use strict";
const at = id => document.getElementById(id);
const colours = {plan: "plan", suffix: "suffix", recycle: "recycle", grammar: "verify"};
const NOTHING = {
  raw: "this model answers messages, and got raw text: choose \\u201ca message\\u201d",
  chat: "the model has nothing to say to that: ask otherwise, or raise the temperature",
  text: "to the model the prompt is a whole text: leave its last sentence unfinished"};
let running = null, model = null;

async function know() {  // the model, once the server says what it is
  const response = await fetch("v1/models", {headers: headers()}), found = await response.json();
  if (!response.ok) throw new Error(found.error.message);
  model = found.data[0];
  at("name").textContent = model.id;
  at("kind").options[0].disabled = !model.chat_template;
  at("kind").value = model.chat_template ? "chat/completions" : "completions";
  explain();
}

function explain() {
  const chat = at("kind").value !== "completions";
  at("how").textContent = chat ? "The model answers the prompt, by its chat template (v1/chat/completions)."
    : (model.chat_template ? "The model continues the prompt, without its chat template (v1/completions)."
      : "The model continues the prompt: it has no chat template (v1/completions).");
}

function headers() {
  const key = at("key").value;
  return {"Content-Type": "application/json", ...(key ? {"Authorization": "Bearer " + key} : {})};
}

function show(text, source) {
  const span = document.createElement("span");
  span.className = source ? colours[source] || "source" : "plain";
  span.title = source || "the model";
  span.textContent = text;
  at("text").append(span);
}

function legend(counts) {
  at("legend").replaceChildren(...Object.entries(counts).map(([source, n]) => {
    const one = document.createElement("span"), colour = document.createElement("i");
    colour.className = source === "the model" ? "plain" : colours[source] || "source";
    one.append(colour, source + " " + n);
    return one;
  }));
}

async function disk() {  // prompts on disk, where the server keeps some
  const said = await (await fetch("metrics")).text(), found = {};
  for (const [, name, value] of said.matchAll(/^swiftk:prefix_files(\\w*)\\{.*\\} (\\S+)$/gm)) found[name] = +value;
  if ("" in found)
    at("disk").textContent = `Prompts on disk: ${found[""]} files of ${(found._bytes / 1e6).toFixed(1)} MB, ` +
      `${found._hits_total} tokens read, ${found._written_total} written, ` +
      `${found._failures_total} files damaged or not written`;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\\n\\n");
    rest = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: /, "");
      if (data !== "[DONE]" && !line.startsWith(":")) yield JSON.parse(data);
    }
  }
}

async function run() {
  if (!model) await know();
  let ended = null;
  const kind = at("kind").value, said = at("prompt").value, counts = {};
  const asked = {max_tokens: +at("tokens").value, temperature: +at("temperature").value, seed: +at("seed").value,
    speculate: at("speculate").checked, stream: true, stream_options: {include_usage: true, include_sources: true}};
  if (kind === "completions") asked.prompt = said; else asked.messages = [{role: "user", content: said}];
  at("text").replaceChildren();
  at("reported").textContent = "\\u2026";
  const began = performance.now();
  const response = await fetch("v1/" + kind, {method: "POST", headers: headers(), body: JSON.stringify(asked),
    signal: running.signal});
  if (!response.ok) throw new Error((await response.json()).error.message);
  for await (const one of events(response)) {
    if (one.error) throw new Error(one.error.message);
    for (const choice of one.choices) {
      ended = choice.finish_reason || ended;
      for (const [text, source] of choice.pieces || []) {
        show(text, source);
        counts[source || "the model"] = (counts[source || "the model"] || 0) + 1;
      }
    }
    legend(counts);
    if (one.usage) {
      const seconds = (performance.now() - began) / 1000;
      const {speculative_decoding: drafting, seconds: took} = one.metrics;
      at("reported").textContent = `${one.usage.completion_tokens} tokens in ${seconds.toFixed(2)} s, ` +
        `${(one.usage.completion_tokens / seconds).toFixed(1)} a second, ` +
        `${drafting.mean_generated_length.toFixed(2)} for each pass of the model` +
        Object.entries(drafting.accepted_by_plan).map(([plan, n]) => `; ${n} by the plan: ${plan}`).join("") +
        (took.disk ? `; drafting ${took.draft.toFixed(2)} s, verifying ${took.verify.toFixed(2)} s, passes waited ` +
          `${took.disk.toFixed(2)} s for weights from disk` : "");
      const why = !model.chat_template ? "text" : kind === "completions" ? "raw" : "chat";
      if (ended === "stop" && !at("text").textContent.trim())
        at("reported").textContent += `. Nothing to show: ${NOTHING[why]}`;
    }
  }
}

at("form").addEventListener("submit", async event => {
  event.preventDefault();
  running = new AbortController();
  at("go").disabled = true;
  at("stop").disabled = false;
  try { await run(); } catch (error) {
    at("reported").textContent = error.name === "AbortError" ? "stopped" : error.message;
  }
  at("go").disabled = false;
  at("stop").disabled = true;
  disk().catch(() => {});
});
at("stop").addEventListener("click", () => running.abort());
at("kind").addEventListener("change", () => model && explain());
know().catch(error => { at("how").textContent = error.message; });
"""


def page() -> str:
    """One document that loads nothing from elsewhere."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>swiftk</title>'
        f"<style>{CSS}{_FORM_STYLE}</style></head><body>{_BODY}<script>{_SCRIPT}</script></body></html>"
    )
