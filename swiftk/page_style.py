"""The style sheet of a report: light and dark by the reader's setting, one column on a phone."""

CSS = """
:root { color-scheme: light dark;
  --page: #f7f7f5; --card: #fff; --ink: #16181d; --soft: #5a6068; --line: #e2e3e0; --edge: #a9adb3;
  --draft: #149468; --verify: #2a78d6; --prefill: #dd9500; --commit: #d9568b; --optimizer: #6a55c2; --other: #9aa0a6;
  --drafted: #c9efdf; --bonus: #cfe2fa; --behind: #a3d8c2; --on: #fff;
  --suffix: #fbe3b0; --recycle: #e4dbfa; --guess: #f7d5e4; }
@media (prefers-color-scheme: dark) { :root {
  --page: #131416; --card: #1c1e21; --ink: #eceef0; --soft: #a3a9b1; --line: #303338; --edge: #5c626a;
  --draft: #2bb583; --verify: #4a93ea; --prefill: #cf9420; --commit: #dd6a9a; --optimizer: #978bec; --other: #7c838b;
  --drafted: #12473a; --bonus: #1b3c66; --behind: #1c5a48; --on: #101113;
  --suffix: #5a4310; --recycle: #3d3168; --guess: #5c2742; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 48px; max-width: 1060px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 20px; margin: 0; }
h2 { font-size: 15px; margin: 0 0 2px; }
p { margin: 0; }
.soft, figcaption, small { color: var(--soft); font-size: 13px; }
header { margin-bottom: 16px; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; margin: 0; }
.off { border-left: 4px solid var(--prefill); margin-bottom: 12px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(max(128px, 22%), 1fr)); gap: 8px;
  margin-bottom: 12px; }
.tiles .card { padding: 9px 12px; }
.tiles b { display: block; font-size: 22px; font-weight: 600; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: 12.5px; line-height: 1.3; display: block; }
.charts { columns: 2 400px; column-gap: 12px; margin-top: 12px; }
.charts .card { break-inside: avoid; margin-bottom: 12px; display: inline-block; width: 100%; }
figcaption { margin-bottom: 8px; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 65vh; overflow: auto; margin-top: 8px;
  font: 14px/1.75 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.text span { border-radius: 3px; padding: 1px 0; }
.text span:hover { outline: 1.5px solid var(--ink); }
.d { background: var(--drafted); }
.b { background: var(--bonus); }
.s { background: var(--suffix); }
.r { background: var(--recycle); }
.g { background: var(--guess); }
.e::before { content: "\\B7"; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; color: var(--soft); margin-top: 6px; }
i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg .label { fill: var(--ink); }
svg .on { fill: var(--on); font-weight: 600; }
path.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
path.dots { fill: none; stroke-width: 5; stroke-linecap: round; }
path.overall { stroke: var(--draft); }
path.dots.overall { stroke-width: 8; }
path.lately, path.tried { stroke: var(--edge); }
path.lately { stroke-width: 1.5; }
path.grid { stroke: var(--line); }
path.axis { stroke: var(--edge); }
path.even { stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }
.runs { fill: var(--line); opacity: .55; }
.skip { fill: var(--draft); }
.exit { fill: var(--behind); }
.set:hover, rect:hover { opacity: .75; }
.k-draft, .k-skip { fill: var(--draft); background: var(--draft); }
.k-verify { fill: var(--verify); background: var(--verify); }
.k-prefill { fill: var(--prefill); background: var(--prefill); }
.k-commit { fill: var(--commit); background: var(--commit); }
.k-optimizer { fill: var(--optimizer); background: var(--optimizer); }
.k-other { fill: var(--other); background: var(--other); }
.k-exit { background: var(--behind); }
.k-runs { background: var(--line); }
.k-tried { background: var(--edge); }
.k-even { height: 0; border-radius: 0; border-top: 2px dashed var(--soft); vertical-align: 4px; }
.k-d { background: var(--drafted); }
.k-b { background: var(--bonus); }
.k-s { background: var(--suffix); }
.k-r { background: var(--recycle); }
.k-g { background: var(--guess); }
.k-p { border: 1px solid var(--edge); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-top: 8px; font-size: 14px; }
td { padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; vertical-align: top; }
.phases td + td { text-align: right; white-space: nowrap; padding-right: 0; padding-left: 12px; }
.phases small { margin-left: 8px; }
summary { cursor: pointer; font-weight: 600; }
"""
