"""The style sheet of a report: light and dark by the reader's setting, one column on a phone. A class of what is shown
names its colour, --c, once for areas, bars, swatches and words."""

CSS = """
:root { color-scheme: light dark;
  --page: #f7f7f5; --card: #fff; --ink: #16181d; --soft: #5a6068; --line: #e2e3e0; --edge: #878d95;
  --green: #149468; --blue: #2a78d6; --amber: #c98500; --pink: #d9568b; --violet: #6a55c2; --grey: #9aa0a6; }
@media (prefers-color-scheme: dark) { :root {
  --page: #131416; --card: #1c1e21; --ink: #eceef0; --soft: #a3a9b1; --line: #303338; --edge: #757c86;
  --green: #2bb583; --blue: #4a93ea; --amber: #cf9420; --pink: #dd6a9a; --violet: #978bec; --grey: #7c838b; } }
.plan, .draft, .held, .skip, .kept { --c: var(--green); }
.bonus, .verify { --c: var(--blue); }
.suffix, .prefill, .refused { --c: var(--amber); }
.recycle, .optimizer { --c: var(--violet); }
.source, .commit { --c: var(--pink); }
.plain, .other, .tried { --c: var(--grey); }
.exit { --c: color-mix(in srgb, var(--green) 45%, var(--card)); }
.disk { --c: color-mix(in srgb, var(--blue) 45%, var(--card)); }
.runs { --c: var(--line); }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 48px; max-width: 1060px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 20px; margin: 0; }
h2 { font-size: 15px; margin: 0 0 2px; }
p { margin: 0; }
.soft, figcaption, small { color: var(--soft); font-size: 13px; }
header { margin-bottom: 16px; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; margin: 0; }
.off { border-left: 4px solid var(--amber); margin-bottom: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 8px; }
.tiles .card { padding: 9px 12px; }
.tiles b { display: block; font-size: 22px; font-weight: 600; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 12.5px; line-height: 1.3; display: block; }
.tiles small { display: block; font-size: 11.5px; line-height: 1.3; margin-top: 4px; }
.absent { margin-top: 12px; }
.absent ul { margin: 4px 0 0; padding-left: 20px; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 440px), 1fr)); gap: 12px;
  margin: 12px 0; }
.charts:empty { display: none; }
@media (max-width: 480px) { body { padding: 12px 8px; } .card { padding: 12px; } }
figcaption { margin-bottom: 8px; }
details.card { margin-top: 12px; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 65vh; overflow: auto; margin-top: 8px;
  font: 14px/1.75 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.text span { border-radius: 3px; padding: 1px 0; background: color-mix(in srgb, var(--c) 26%, transparent); }
.text .plain { background: none; }
.text span:hover { outline: 1.5px solid var(--ink); }
.e::before { content: "\\B7"; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; color: var(--soft); margin-top: 6px; }
i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px;
  background: var(--c); }
.bar { display: flex; }
.bar i { height: 24px; margin: 0; border-radius: 0; border-right: 1px solid var(--card); }
i.even { height: 0; border-radius: 0; border-top: 2px dashed var(--soft); vertical-align: 4px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg .label { fill: var(--ink); }
svg path, svg rect { fill: var(--c); }
path.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
path.dots { fill: none; stroke: var(--c); stroke-width: 5; stroke-linecap: round; }
path.dots.kept { stroke-width: 8; }
path.grid { stroke: var(--line); }
path.axis { stroke: var(--edge); }
path.even { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 4; fill: none; }
g:hover > path, g:hover > rect, rect:hover { opacity: .75; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-top: 8px; font-size: 14px; }
td { padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; vertical-align: top; }
.phases td + td { text-align: right; white-space: nowrap; padding-right: 0; padding-left: 12px; }
.phases small { margin-left: 8px; }
summary { cursor: pointer; font-weight: 600; }
"""
