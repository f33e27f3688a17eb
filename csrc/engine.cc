#include "engine.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "accept.h"
#include "check.h"
#include "default_plans.h"
#include "draft.h"
#include "prompt.h"
#include "score.h"
#include "stopwatch.h"
#include "verify.h"

namespace swiftk {
namespace {

constexpr int kMostRows = 512;  // of a pass: compute-bound already, and the workspace stays small
constexpr int kBeside = 128;    // of them a prompt's beside texts that decode, whose next token it delays

int blocks_of(const Model& model, int context, const EngineOptions& o) {
  const size_t block = block_bytes(model);
  const int whole = blocks_for(context + TokenTree::kMaxNodes);
  if (o.kv_memory == 0) {
    const int wanted = whole + (o.sequences - 1) * blocks_for(context / 8 + TokenTree::kMaxNodes);
    return std::max(whole, std::min(wanted, fitting_blocks(model)));
  }
  const int given = static_cast<int>(std::min<size_t>(o.kv_memory / block, 1u << 24));
  if (given < whole) {
    fail(Status::InvalidArgument, "[engine] kv_memory is " + std::to_string(o.kv_memory) +
                                      " bytes, want at least the " + std::to_string(whole * block) +
                                      " of one text of " + std::to_string(context) + " tokens, or 0");
  }
  return given;
}

void tell_tree(const Sequence& s, std::vector<TreeNode>& out) {
  const Draft& d = s.draft;
  for (int i = 1; i < d.tree.size(); ++i) {
    const bool came = std::find(s.verified.path.begin(), s.verified.path.end(), i) != s.verified.path.end();
    out.push_back({d.tree.token(i), d.tree.parent(i), d.source[i], d.candidates.probability_of_node(i), came});
  }
}

const EngineOptions& checked(const EngineOptions& o) {
  if (o.sequences < 1 || o.sequences > 256) {
    fail(Status::InvalidArgument, "[engine] sequences is " + std::to_string(o.sequences) + ", want 1..256");
  }
  return o;
}

}  // namespace

Engine::Engine(const std::shared_ptr<const Model>& model, const EngineOptions& o)
    : Engine(model, o, checked_context(*model, o.context, "engine")) {}

Engine::Engine(const std::shared_ptr<const Model>& model, const EngineOptions& o, int context)
    : w_(model, {.max_rows = kMostRows + kBeside,
                 .sequences = checked(o).sequences,
                 .outputs = kMostRows + 1,  // a prompt's last row
                 .blocks = blocks_of(*model, context, o),
                 .threads = o.threads,
                 .poison = o.poison}),
      context_(context),
      lanes_(o.sequences) {
  offer_plans(planner_, *w_.model);
}

uint64_t Engine::submit(Request r) {
  check(r.sampling);
  if (r.prompt.empty()) fail(Status::InvalidArgument, "[submit] the prompt is empty, want at least one token");
  check_tokens(w_.model->config, r.prompt, "submit");
  if (r.prompt.size() >= static_cast<size_t>(context_)) {
    fail(Status::InvalidArgument, "[submit] the prompt has " + std::to_string(r.prompt.size()) +
                                      " tokens, want fewer than the context of " + std::to_string(context_));
  }
  if (r.max_new_tokens < 1) {
    fail(Status::InvalidArgument,
         "[submit] max_new_tokens is " + std::to_string(r.max_new_tokens) + ", want 1 or more");
  }
  if (r.logprobs < 0 || r.logprobs > kMaxTopk) {
    fail(Status::InvalidArgument,
         "[submit] logprobs is " + std::to_string(r.logprobs) + ", want 0.." + std::to_string(kMaxTopk));
  }
  r.rule.stop_ids = r.stop_ids;
  r.rule.check();
  r.settings.check();
  if (r.plans == Plans::Fixed || r.plans == Plans::Directed) compile_plan(*w_.model, r.skip);
  auto text = std::make_unique<Text>(0, std::move(r), *w_.model, context_);
  Sequence& s = text->sequence;
  s.sampling = text->request.sampling;
  s.acceptance = text->request.acceptance;
  s.logprobs = text->request.logprobs;
  s.kvq = text->request.kvq;
  s.text = text->request.prompt;
  for (const int32_t t : s.text) s.seen.add(t);
  const std::lock_guard lock(orders_);
  text->id = ++last_id_;
  ++alive_;
  submitted_.push_back(std::move(text));
  return last_id_;
}

void Engine::cancel(uint64_t id) {
  const std::lock_guard lock(orders_);
  cancelled_.push_back(id);
}

void Engine::forget_texts() {
  w_.pool.forget_all();
  for (Lane& lane : lanes_) {
    if (!lane.taken) lane = {};
  }
}

bool Engine::idle() const {
  const std::lock_guard lock(orders_);
  return alive_ == 0;
}

void Engine::take_orders() {
  std::vector<uint64_t> cancelled;
  {
    const std::lock_guard lock(orders_);
    for (auto& text : submitted_) {
      const uint64_t id = text->id;
      texts_.emplace(id, std::move(text));
    }
    submitted_.clear();
    cancelled.swap(cancelled_);
  }
  for (const uint64_t id : cancelled) {
    if (const auto found = texts_.find(id); found != texts_.end()) end(*found->second, Finish::Cancelled);
  }
  drop_ended();
}

// The oldest first, so that none waits for ever; one that does not fit holds up those behind it.
void Engine::admit() {
  for (auto& [id, text] : texts_) {
    if (!text->stepping && !begin(*text)) return;
  }
}

bool Engine::begin(Text& text) {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& l) { return !l.taken; });
  if (lane == lanes_.end()) return false;
  share_prefix(text);
  Sequence& s = text.sequence;
  const int wanted = blocks_for(text.due() + TokenTree::kMaxNodes) - static_cast<int>(s.blocks.size());
  if (wanted > w_.pool.free()) {
    w_.trim(s, 0);
    s.cached = 0;
    return false;
  }
  s.lane = static_cast<int>(lane - lanes_.begin());
  name_mode(text);
  if (text.generated == 0 && text.mode >= 0) planner_.start_text(text.mode);
  s.drafters = std::move(lane->drafters);
  s.drafters.set_recall(text.request.recall);
  s.drafters.set(text.request.settings);
  s.drafters.restart(0, false);
  text.odds = lane->odds;
  text.odds.start();
  lane->taken = text.stepping = true;
  text.begun = false;
  return true;
}

// The last token due is run in any case: what follows it is drawn from its logits.
void Engine::share_prefix(Text& text) {
  Sequence& s = text.sequence;
  w_.trim(s, 0);
  const int most = text.due() - (text.generated > 0 ? 0 : 1);
  int32_t before = KvPool::kNone;
  while ((s.named + 1) * kKvBlock <= most) {
    const std::span<const int32_t, kKvBlock> tokens(s.text.data() + s.named * kKvBlock, kKvBlock);
    const int32_t found = w_.pool.find(before, tokens);
    if (found == KvPool::kNone) break;
    s.blocks.push_back(before = found);
    ++s.named;
  }
  s.cached = s.named * kKvBlock;
  // Where one more block begins alike, these rows of it are copied into a block of the text's own.
  const int room = std::min(most - s.cached, kKvBlock);
  const auto [other, n] =
      w_.pool.along(before_of(s), {s.text.data() + s.cached, static_cast<size_t>(std::max(0, room))});
  if (n > 0) {
    w_.pool.hold(other);
    if (w_.reserve(s, s.cached + n)) {
      std::vector<int32_t> from(n), to(n);
      std::iota(from.begin(), from.end(), other * kKvBlock);
      std::iota(to.begin(), to.end(), s.blocks.back() * kKvBlock);
      w_.pool.move_rows(w_.executor.ctx(), from, to);
      s.cached += n;
    }
    w_.pool.release(other);
  }
  if (text.generated == 0) text.reused = s.cached;
}

// The last block of the text's that others may share.
int32_t Engine::before_of(const Sequence& s) { return s.named > 0 ? s.blocks[s.named - 1] : KvPool::kNone; }

// Blocks that are full of text by now may be shared.
void Engine::name_blocks(Text& text) {
  Sequence& s = text.sequence;
  for (; (s.named + 1) * kKvBlock <= s.cached; ++s.named) {
    const std::span<const int32_t, kKvBlock> tokens(s.text.data() + s.named * kKvBlock, kKvBlock);
    s.blocks[s.named] = w_.pool.name(s.blocks[s.named], before_of(s), tokens);
  }
}

void Engine::name_end(Text& text) {
  const Sequence& s = text.sequence;
  const int end = s.named * kKvBlock;
  if (end == s.cached) return;
  w_.pool.name_end(s.blocks[s.named], before_of(s), {s.text.data() + end, static_cast<size_t>(s.cached - end)});
}

void Engine::leave(Text& text) {
  Sequence& s = text.sequence;
  if (text.finish != Finish::Failed) name_end(text);
  w_.trim(s, 0);
  s.cached = 0;
  s.forget_tree();
  if (!text.stepping) return;
  lanes_[text.sequence.lane] = {false, std::move(text.sequence.drafters), text.odds};
  text.stepping = false;
}

void Engine::preempt(Text& text) {
  leave(text);
  ++round_.preempted;
}

bool Engine::make_room(Text& text, int slots) {
  while (!w_.reserve(text.sequence, slots)) {
    Text* youngest = nullptr;
    for (auto& [id, other] : texts_) {
      if (other->stepping) youngest = other.get();
    }
    if (youngest == &text || !youngest) {
      preempt(text);
      return false;
    }
    preempt(*youngest);
  }
  return true;
}

// Who takes part in the round, and blocks for all that it may write. One prompt a round, the oldest.
void Engine::prepare() {
  decoding_.clear();
  prompt_ = nullptr;
  prompt_rows_ = 0;
  bool others = false;
  for (auto& [id, t] : texts_) others |= t->stepping && t->decodes();
  for (auto& [id, t] : texts_) {
    if (!t->stepping) continue;
    Sequence& s = t->sequence;
    if (t->decodes()) {
      if (make_room(*t, s.cached + TokenTree::kMaxNodes)) decoding_.push_back(t.get());
    } else if (!prompt_) {
      if (!t->begun) share_prefix(*t);  // what others have run meanwhile, too
      t->begun = true;
      const int n = std::min(t->due() - s.cached, others ? kBeside : kMostRows);
      if (make_room(*t, s.cached + n)) prompt_ = t.get(), prompt_rows_ = n;
    }
  }
  std::erase_if(decoding_, [](const Text* t) { return !t->stepping; });  // made room for older ones
  if (prompt_ && !prompt_->stepping) prompt_ = nullptr;
}

void Engine::name_mode(Text& text) {
  const Request& r = text.request;
  if (r.drafting == Drafting::Off) return;
  std::optional<DraftRule> rule;
  if (r.drafting == Drafting::Ruled) {
    rule = r.rule;
    rule->stop_ids.clear();
  }
  const bool named = r.plans == Plans::Fixed || r.plans == Plans::Directed;
  if (named) text.plan = plan(r.skip);
  text.mode = planner_.mode({.plan = r.plans == Plans::Any        ? DraftMode::kAny
                                     : r.plans == Plans::None     ? DraftMode::kNone
                                     : r.plans == Plans::Directed ? DraftMode::kDirected
                                                                  : text.plan,
                             .sources = r.sources,
                             .lane = r.plans == Plans::Directed ? text.sequence.lane : 0,
                             .rule = std::move(rule),
                             .always = r.always});
}

int Engine::plan(const SkipSet& skip) {
  const int known = planner_.find(skip);
  return known >= 0 ? known : offer_plan(planner_, *w_.model, skip, false);
}

const Allotment& Engine::allotment_of(const Text& text) const {
  return std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, text); })->allotment;
}

// Within what is left of the text; the bonus token is not drafted.
DraftRule Engine::rule_of(const Text& text) const {
  const Request& r = text.request;
  const int texts = static_cast<int>(decoding_.size());
  DraftRule rule{.max_draft = 0};
  if (text.mode >= 0) {
    const Allotment& a = allotment_of(text);
    if (r.drafting == Drafting::Planned) rule = planner_.rule(a, text.odds, texts);
    if (r.drafting == Drafting::Ruled && (a.drafts || a.guesses)) rule = r.rule;
    if (!a.drafts) rule.max_draft = 0;
  }
  if (groups_.size() > 1) rule.others = 0;
  const int most = std::min(r.max_new_tokens - text.generated, context_ - text.sequence.position()) - 1;
  rule.max_nodes = std::min(rule.max_nodes, kMostRows / texts);
  rule.max_draft = std::min({rule.max_draft, r.max_draft, most});
  rule.max_depth = std::min(rule.max_depth, most);
  rule.stop_ids = r.stop_ids;
  return rule;
}

void Engine::draft_all() {
  groups_.clear();
  if (decoding_.empty()) return;
  for (const Text* const t : decoding_) {
    if (t->mode < 0) continue;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, *t); });
    if (group == groups_.end()) group = groups_.insert(group, Group{t->mode, t->plan, 0, 0, {}});
    ++group->texts;
    group->pace += t->odds.pace();
  }
  for (Group& g : groups_) {
    g.allotment = planner_.allot(g.mode, static_cast<int>(decoding_.size()), g.pace / g.texts, g.plan);
  }
  std::vector<Sequence*> sequences;
  std::vector<DraftRule> rules;
  std::vector<const DraftRule*> pointers;
  rules.reserve(decoding_.size());
  for (Text* const t : decoding_) {
    const Allotment* const a = t->mode < 0 ? nullptr : &allotment_of(*t);
    if (a && a->drafts) t->sequence.plan = planner_.shared_plan(a->plan);
    pointers.push_back(&rules.emplace_back(rule_of(*t)));
    sequences.push_back(&t->sequence);
  }
  draft(w_, sequences, pointers);
}

// Rounds with a prompt beside them say nothing of prices.
void Engine::learn() {
  RoundCost r{.texts = static_cast<int>(decoding_.size()),
              .draft_steps = w_.last.draft_steps,
              .seconds = w_.last.draft + w_.last.verify,
              .draft = w_.last.draft,
              .verify = w_.last.verify};
  for (const Text* const t : decoding_) r.rows += t->sequence.draft.tree.size();
  const double step = planner_.clock().step(std::max(r.texts, 1));
  for (Text* const t : decoding_) {
    if (t->mode < 0) continue;
    const Verified& v = t->sequence.verified;
    planner_.heard(allotment_of(*t), v.outcomes);
    t->odds.heard(v.guessed);
    if (step > 0) t->odds.observe(static_cast<double>(v.emitted.size()), r.seconds / step);
  }
  if (prompt_ || decoding_.empty()) return;
  if (groups_.size() == 1 && groups_[0].allotment.drafts) r.drafted_by = groups_[0].allotment.plan;
  planner_.learn(r);
  for (Group& g : groups_) {
    int tokens = 0;
    for (const Text* const t : decoding_) {
      if (alike(g, *t)) tokens += static_cast<int>(t->sequence.verified.emitted.size());
    }
    g.given_up = planner_.settle(g.allotment, r, static_cast<double>(tokens) / g.texts);
  }
}

Engine::Text* Engine::cached_text(uint64_t id) {
  const auto found = texts_.find(id);
  return found != texts_.end() && found->second->stepping && found->second->decodes() ? found->second.get() : nullptr;
}

void Engine::direct(uint64_t id, const SkipSet& skip, const DraftRule* rule) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  Text& text = *found->second;
  text.request.skip = skip;
  if (text.request.plans == Plans::Directed) text.plan = plan(skip);
  if (!rule) return;
  rule->check();
  text.request.rule = *rule;
}

Engine::Text* Engine::drafting_text(uint64_t id) {
  const auto found = texts_.find(id);
  return found != texts_.end() && found->second->mode >= 0 ? found->second.get() : nullptr;
}

void Engine::wake(uint64_t id) {
  if (const Text* const text = drafting_text(id)) planner_.wake(text->mode, std::max(1, round_.sequences));
}

void Engine::go_on(uint64_t id) {
  if (const Text* const text = drafting_text(id)) planner_.go_on(text->mode, std::max(1, round_.sequences));
}

void Engine::charge(uint64_t id, double seconds) {
  if (const Text* const text = drafting_text(id)) planner_.charge(text->mode, std::max(1, round_.sequences), seconds);
}

std::vector<Outcome> Engine::score(uint64_t id, const SkipSet& skip, int window, int end) {
  Text* const text = cached_text(id);
  return text ? swiftk::score(w_, text->sequence, skip, window, end) : std::vector<Outcome>{};
}

std::vector<Outcome> Engine::score_exits(uint64_t id, std::span<const int32_t> exits, int window, int end) {
  Text* const text = cached_text(id);
  return text ? swiftk::score_exits(w_, text->sequence, exits, window, end) : std::vector<Outcome>{};
}

std::vector<SkipSet> Engine::propose_skips(uint64_t id, int most) {
  Text* const text = cached_text(id);
  return text ? swiftk::propose_skips(w_, text->sequence, most) : std::vector<SkipSet>{};
}

std::string Engine::explain() const {
  std::string line = planner_.explain(groups_.empty() ? Allotment{} : groups_[0].allotment, round_.sequences);
  if (groups_.size() > 1) line += "; and " + std::to_string(groups_.size() - 1) + " other ways to draft";
  char more[160];
  std::snprintf(more, sizeof more, "; %d steps, %d rows, %d tokens in %.1f ms (draft %.1f, verify %.1f)",
                round_.draft_steps, round_.nodes, round_.tokens, 1e3 * round_.seconds, 1e3 * round_.draft,
                1e3 * round_.verify);
  return line + more;
}

std::vector<Turn> Engine::step() {
  round_ = {};
  run_round();
  for (Turn& turn : turns_) {
    turn.seconds = round_.seconds;
    turn.draft = round_.draft;
    turn.verify = round_.verify;
    turn.run = round_.run;
  }
  return std::exchange(turns_, {});
}

void Engine::run_round() {
  const Stopwatch watch(round_.seconds);
  const double ran = w_.executor.seconds();
  turns_.clear();
  take_orders();
  admit();
  prepare();
  draft_all();
  std::vector<Sequence*> trees;
  std::vector<Chunk> chunks;
  for (Text* const t : decoding_) {
    trees.push_back(&t->sequence);
    round_.nodes += t->sequence.draft.tree.size();
  }
  if (prompt_) chunks.push_back({&prompt_->sequence, prompt_rows_});
  if (!trees.empty() || prompt_) verify(w_, trees, chunks);
  round_.sequences = static_cast<int>(trees.size());
  round_.prompts = static_cast<int>(chunks.size());
  round_.prompt_rows = prompt_rows_;
  round_.draft = trees.empty() ? 0 : w_.last.draft;
  round_.verify = w_.last.verify;
  round_.draft_steps = trees.empty() ? 0 : w_.last.draft_steps;
  round_.run = w_.executor.seconds() - ran;
  learn();
  for (Text* const t : decoding_) hear(*t);
  if (prompt_) hear_prompt(*prompt_, round_.nodes);
  drop_ended();
  for (auto& [id, text] : texts_) round_.waiting += !text->stepping;
}

// What verification found becomes text, up to where it ends.
void Engine::hear(Text& text) {
  Sequence& s = text.sequence;
  const Draft& d = s.draft;
  if (s.verified.failed) return end(text, Finish::Failed, s.verified.failed->status(), s.verified.failed->what());
  Turn& turn = turns_.emplace_back(Turn{.id = text.id, .nodes = d.tree.size(), .steps = d.steps, .drafted = d.grown});
  if (d.steps > 0) turn.plan = s.plan;
  if (text.request.outcomes) turn.outcomes = s.verified.outcomes;
  turn.plain = planner_.clock().step(round_.sequences);
  if (text.mode >= 0) {
    turn.resting = planner_.resting(text.mode, round_.sequences);
    const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return alike(g, text); });
    if (group->given_up) turn.given_up = planner_.lost_rate(text.mode, round_.sequences);
  }
  if (w_.last.reused_rows > 0) {
    turn.reused_rows = d.reused;
    turn.reused_share = w_.last.reused_share;
    turn.saved_weight_bytes = w_.last.saved_weight_bytes;
  }
  for (int i = 1; i < d.tree.size(); ++i) ++turn.proposed[static_cast<int>(d.source[i])];
  if (text.request.explain) tell_tree(s, turn.tree);
  for (const Emitted& e : s.verified.emitted) {
    if (!hand_out(text, turn, e)) break;
  }
  const int count = static_cast<int>(turn.tokens.size());
  turn.cut = count < static_cast<int>(s.verified.emitted.size());
  {
    const Stopwatch watch(turn.commit);
    commit(w_, s, count);
  }
  name_blocks(text);
  w_.trim(s, s.cached + TokenTree::kMaxNodes);
  round_.tokens += count;
}

void Engine::hear_prompt(Text& text, int row) {
  name_blocks(text);
  if (text.generated > 0 || text.sequence.cached < text.due()) return;
  name_end(text);
  try {
    const Emitted first = sample(w_, text.sequence, row);
    hand_out(text, turns_.emplace_back(Turn{.id = text.id, .cached = text.reused}), first);
  } catch (const Error& e) {
    end(text, Finish::Failed, e.status(), e.what());
  }
}

// False: it was the last one.
bool Engine::hand_out(Text& text, Turn& turn, const Emitted& e) {
  const Request& r = text.request;
  ++text.generated;
  const bool full = static_cast<int>(r.prompt.size()) + text.generated >= context_;
  if (std::find(r.stop_ids.begin(), r.stop_ids.end(), e.token) != r.stop_ids.end()) {
    text.finish = Finish::Stop;
  } else if (full || text.generated >= r.max_new_tokens) {
    text.finish = Finish::Length;
  }
  turn.tokens.push_back(e);
  turn.finish = text.finish;
  if (text.finish != Finish::None && text.mode >= 0) turn.why_off = planner_.reason_off(text.mode);
  return text.finish == Finish::None;
}

void Engine::end(Text& text, Finish finish, Status status, const char* what) {
  text.finish = finish;
  turns_.push_back({.id = text.id, .finish = finish, .status = status, .error = what});
}

void Engine::drop_ended() {
  for (auto at = texts_.begin(); at != texts_.end();) {
    if (at->second->finish == Finish::None) {
      ++at;
      continue;
    }
    leave(*at->second);
    at = texts_.erase(at);
    const std::lock_guard lock(orders_);
    --alive_;
  }
}

}  // namespace swiftk
