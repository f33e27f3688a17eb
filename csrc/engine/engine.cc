#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/stopwatch.h"
#include "engine/default_plans.h"
#include "engine/score.h"
#include "phases/prompt.h"
#include "text/check.h"
#include "text/prefix.h"

namespace swiftk {
namespace {

static_assert(kMostRows + kBeside <= kPromptRows);

using Steady = std::chrono::steady_clock;

// A device says no by itself. The host hands memory out before it exists.
void check_free(const Model& model, int blocks, int context, int sequences) {
  const size_t wanted = kv_bytes_in_all(model, shared_room(model, blocks, sequences)), free = free_bytes(model);
  if (model.ops->device || wanted <= free) return;
  fail(Status::OutOfMemory, "[engine] K and V of a text of " + std::to_string(context) + " tokens need " +
                                std::to_string(wanted) + " bytes, " + std::to_string(free) +
                                " are free: want a context of at most " +
                                std::to_string(fitting_context(model, sequences)) + " tokens");
}

int blocks_of(const Model& model, int context, const EngineOptions& o) {
  const int whole = whole_blocks(context);
  if (o.kv_memory == 0) {
    check_free(model, whole, context, o.sequences);
    return std::max(whole, std::min(wanted_blocks(context, o.sequences), fitting_blocks(model, o.sequences)));
  }
  const int given = blocks_within(model, o.kv_memory, o.sequences);
  if (given < whole) {
    fail(Status::InvalidArgument, "[engine] kv_memory is " + std::to_string(o.kv_memory) +
                                      " bytes, want at least the " +
                                      std::to_string(kv_bytes(model, shared_room(model, whole, o.sequences))) +
                                      " of one text of " + std::to_string(context) + " tokens, or 0");
  }
  return given;
}

// Blocks that a text still needs to run its prompt.
int missing_blocks(const Text& text) {
  const int wanted = text.decodes() ? 0 : blocks_for(text.due() + TokenTree::kMaxNodes);
  return std::max(0, wanted - static_cast<int>(text.sequence.blocks.size()));
}

uint64_t& ended(Totals& t, Finish finish) {
  return finish == Finish::Stop        ? t.stopped
         : finish == Finish::Length    ? t.full
         : finish == Finish::Cancelled ? t.cancelled
                                       : t.failed;
}

const EngineOptions& checked(const EngineOptions& o) {
  if (o.sequences < 1 || o.sequences > 256) {
    fail(Status::InvalidArgument, "[engine] sequences is " + std::to_string(o.sequences) + ", want 1..256");
  }
  return o;
}

}  // namespace

Engine::Engine(const std::shared_ptr<const Model>& model, const EngineOptions& o)
    : Engine(model, o, checked_context(*model, o.context, "engine", checked(o).sequences)) {}

Engine::Engine(const std::shared_ptr<const Model>& model, const EngineOptions& o, int context)
    : w_(model, {.max_rows = kMostRows + kBeside,
                 .sequences = checked(o).sequences,
                 .outputs = kMostRows + 1,
                 .room = shared_room(*model, blocks_of(*model, context, o), o.sequences),
                 .threads = o.threads,
                 .poison = o.poison}),
      context_(context),
      lanes_(o.sequences) {
  offer_plans(planner_, *w_.model);
  if (modelled_) planner_.untimed_looks();
}

uint64_t Engine::submit(Request r) {
  check(r, *w_.model, context_);
  auto text = std::make_unique<Text>(std::move(r), *w_.model, context_);
  const std::lock_guard lock(orders_);
  text->id = ++last_id_;
  text->submitted = now();
  ++alive_;
  submitted_.push_back(std::move(text));
  return last_id_;
}

void Engine::cancel(uint64_t id) {
  const std::lock_guard lock(orders_);
  cancelled_.push_back(id);
}

void Engine::propose(uint64_t id, Proposal proposal) {
  if (proposal.at < 0)
    fail(Status::InvalidArgument, "[propose] at is " + std::to_string(proposal.at) + ", want at least 0");
  check_tokens(w_.model->config, proposal.tokens, "propose");
  const size_t most = TokenTree::kMaxNodes - 1, given = proposal.parents.size(), tokens = proposal.tokens.size();
  if (given > 0 && (given != tokens || given > most)) {
    fail(Status::InvalidArgument, "[propose] got " + std::to_string(tokens) + " tokens and " + std::to_string(given) +
                                      " parents, want as many of both, at most " + std::to_string(most));
  }
  for (size_t i = 0; i < given; ++i) {
    if (proposal.parents[i] >= 0 && proposal.parents[i] <= static_cast<int32_t>(i)) continue;
    fail(Status::InvalidArgument, "[propose] parent " + std::to_string(i) + " is " +
                                      std::to_string(proposal.parents[i]) + ", want 0.." + std::to_string(i));
  }
  const std::lock_guard lock(orders_);
  proposals_.insert_or_assign(id, std::move(proposal));
}

void Engine::forget_texts() {
  w_.pool.forget_all();
  for (Lane& lane : lanes_) {
    if (!lane.taken) lane = {};
  }
  give_back(0);
}

void Engine::give_back(double share) { w_.give_back(static_cast<int>(share * w_.pool.blocks())); }

int Engine::cached_blocks(std::span<const int32_t> tokens, bool stretched) {
  return swiftk::cached_blocks(w_.pool, tokens, stretched);
}

std::vector<char> Engine::save_block(std::span<const int32_t> tokens, bool stretched, std::string_view identity) {
  return swiftk::save_block(w_, tokens, stretched, identity);
}

SavedBlock Engine::read_block(std::span<const char> file, std::span<const int32_t> tokens, bool stretched,
                              std::string_view identity) const {
  return swiftk::read_block(w_, file, tokens, stretched, identity);
}

int Engine::load_blocks(std::span<const SavedBlock* const> blocks) {
  int n = 0;
  for (const SavedBlock* const block : blocks) {
    if (!load_block(w_, *block)) break;
    ++n;
  }
  return n;
}

bool Engine::idle() const {
  const std::lock_guard lock(orders_);
  return alive_ == 0;
}

void Engine::take_orders() {
  std::vector<uint64_t> cancelled;
  std::map<uint64_t, Proposal> proposals;
  {
    const std::lock_guard lock(orders_);
    for (auto& text : submitted_) {
      const uint64_t id = text->id;
      texts_.emplace(id, std::move(text));
      ++totals_.submitted;
    }
    submitted_.clear();
    cancelled.swap(cancelled_);
    proposals.swap(proposals_);
  }
  for (auto& [id, proposal] : proposals) {
    if (const auto found = texts_.find(id); found != texts_.end())
      found->second->sequence.proposal = std::move(proposal);
  }
  for (const uint64_t id : cancelled) {
    if (const auto found = texts_.find(id); found != texts_.end()) end(*found->second, Finish::Cancelled);
  }
  drop_ended();
}

// The oldest first, so that none waits for ever; one that does not fit holds up those after it.
void Engine::admit() {
  for (auto& [id, text] : texts_) {
    if (!text->stepping && !begin(*text)) return;
  }
}

bool Engine::begin(Text& text) {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& l) { return !l.taken; });
  if (lane == lanes_.end()) return false;
  take_prefix(w_, text);
  Sequence& s = text.sequence;
  int wanted = missing_blocks(text);
  for (const auto& [id, other] : texts_) wanted += other->stepping ? missing_blocks(*other) : 0;
  if (wanted > w_.pool.free()) {
    w_.trim(s, 0);
    s.cached = 0;
    return false;
  }
  s.lane = static_cast<int>(lane - lanes_.begin());
  name_mode(text);
  if (text.generated == 0 && text.mode >= 0) planner_.start_text(text.mode);
  s.sources = std::move(lane->sources);
  // Under rejection a text depends on what is proposed, so nothing that others taught may be.
  s.sources.set_recall(s.rejects() ? Recall::Nothing : text.request.recall);
  s.sources.set(text.request.settings);
  s.sources.restart(0, false);
  text.odds = lane->odds;
  text.odds.start();
  if (!text.admitted) {
    text.queued = now() - text.submitted;
    totals_.queued += text.queued;
    text.admitted = true;
  }
  lane->taken = text.stepping = true;
  text.begun = false;
  return true;
}

void Engine::leave(Text& text) {
  Sequence& s = text.sequence;
  if (text.finish != Finish::Failed) name_end(w_.pool, s);
  w_.trim(s, 0);
  s.cached = 0;
  s.forget_tree();
  if (!text.stepping) return;
  lanes_[text.sequence.lane] = {false, std::move(text.sequence.sources), text.odds};
  text.stepping = false;
}

void Engine::preempt(Text& text) {
  leave(text);
  ++w_.last.preempted;
  ++totals_.preempted;
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

// Chooses the texts of the round, and gives them blocks for all that it may write. A text that makes room for an older
// one leaves the round.
void Engine::prepare() {
  decoding_.clear();
  std::vector<Text*> prompts;
  for (auto& [id, t] : texts_) {
    if (!t->stepping) continue;
    if (!t->decodes()) {
      prompts.push_back(t.get());
    } else if (make_room(*t, t->sequence.cached + TokenTree::kMaxNodes)) {
      decoding_.push_back(t.get());
    }
  }
  std::erase_if(prompts, [](const Text* t) { return !t->stepping; });
  prompts_ = allot_rows(w_, prompts, static_cast<int>(decoding_.size()));
  for (const auto& [t, rows] : prompts_) {
    if (t->stepping) make_room(*t, t->sequence.cached + rows);
  }
  std::erase_if(prompts_, [](const PromptRows& p) { return !p.text->stepping; });
  std::erase_if(decoding_, [](const Text* t) { return !t->stepping; });
}

void Engine::name_mode(Text& text) {
  const Request& r = text.request;
  if (r.draft_by == DraftBy::Nothing) return;
  std::optional<TreeRule> rule;
  if (r.draft_by == DraftBy::Rule) {
    rule = r.rule;
    rule->stop_ids.clear();
  }
  std::vector<int> fixed;
  if (r.plans == Plans::Directed) text.plan = plan(r.skips[0]);
  if (r.plans == Plans::Fixed) {
    for (const DraftSpec& skip : r.skips) fixed.push_back(plan(skip));
  }
  text.mode = planner_.mode({.plans = r.plans,
                             .fixed = std::move(fixed),
                             .sources = r.sources,
                             .lane = r.plans == Plans::Directed ? text.sequence.lane : 0,
                             .rule = std::move(rule),
                             .always = r.always},
                            in_use());
}

std::vector<InUse> Engine::in_use() const {
  std::vector<InUse> texts;
  for (const auto& [id, text] : texts_) texts.push_back({text->mode, text->plan});
  return texts;
}

int Engine::plan(const DraftSpec& skip) {
  const int known = planner_.find(skip);
  return known >= 0 ? known : offer_plan(planner_, *w_.model, skip, false, in_use());
}

// With room for as many rows as a tree has: the last round's may be full of what it committed.
Text* Engine::cached_text(uint64_t id) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return nullptr;
  Text& text = *found->second;
  const bool cached = text.stepping && text.decodes();
  return cached && w_.reserve(text.sequence, text.sequence.cached + TokenTree::kMaxNodes) ? &text : nullptr;
}

void Engine::direct(uint64_t id, const DraftSpec& skip, const TreeRule* rule) {
  const auto found = texts_.find(id);
  if (found == texts_.end()) return;
  Text& text = *found->second;
  text.request.skips = {skip};
  if (text.request.plans == Plans::Directed) text.plan = plan(skip);
  if (!rule) return;
  rule->check();
  text.request.rule = *rule;
}

Text* Engine::drafting_text(uint64_t id) {
  const auto found = texts_.find(id);
  return found != texts_.end() && found->second->mode >= 0 ? found->second.get() : nullptr;
}

void Engine::wake(uint64_t id) {
  if (const Text* const text = drafting_text(id)) planner_.wake(text->mode, std::max(1, w_.last.texts));
}

void Engine::go_on(uint64_t id) {
  if (const Text* const text = drafting_text(id)) planner_.go_on(text->mode, std::max(1, w_.last.texts));
}

void Engine::charge(uint64_t id, double seconds) {
  if (const Text* const text = drafting_text(id)) planner_.charge(text->mode, std::max(1, w_.last.texts), seconds);
}

std::vector<Outcome> Engine::score(uint64_t id, const DraftSpec& skip, int window, int end) {
  Text* const text = cached_text(id);
  return text ? priced(swiftk::score(w_, text->sequence, skip, window, end)) : std::vector<Outcome>{};
}

std::vector<Outcome> Engine::score_exits(uint64_t id, std::span<const int32_t> exits, int window, int end) {
  Text* const text = cached_text(id);
  return text ? priced(swiftk::score_exits(w_, text->sequence, exits, window, end)) : std::vector<Outcome>{};
}

std::vector<Outcome> Engine::priced(std::vector<Outcome> found) {
  if (modelled_ && !found.empty()) {
    w_.last.score = modelled_->score(static_cast<int>(found.size()));
    modelled_seconds_ += w_.last.score;
  }
  return found;
}

double Engine::now() const {
  return modelled_ ? modelled_seconds_.load() : std::chrono::duration<double>(Steady::now().time_since_epoch()).count();
}

std::vector<DraftSpec> Engine::propose_skips(uint64_t id, int most) {
  Text* const text = cached_text(id);
  return text ? swiftk::propose_skips(w_, text->sequence, most) : std::vector<DraftSpec>{};
}

std::string Engine::explain() const {
  const RoundRecord& r = w_.last;
  char more[160];
  std::snprintf(more, sizeof more, "; %d steps, %d rows, %d tokens in %.1f ms (draft %.1f, verify %.1f)", r.draft.steps,
                r.verify.rows, r.tokens, 1e3 * r.seconds, 1e3 * r.draft.seconds, 1e3 * r.verify.seconds);
  return round_.explain() + more;
}

std::vector<Turn> Engine::step() {
  w_.last = {};
  run_round();
  RoundRecord& r = w_.last;
  if (modelled_) {
    r.seconds = r.draft.seconds + r.verify.seconds;
    modelled_seconds_ += r.seconds;
  }
  for (Turn& turn : turns_) {
    turn.round = r;
    turn.disk = turn.disk + r.disk;
  }
  return std::exchange(turns_, {});
}

void Engine::run_round() {
  const Stopwatch watch(w_.last.seconds);
  turns_.clear();
  take_orders();
  admit();
  prepare();
  std::vector<Chunk> chunks;
  int prompted = 0, outputs = 0;  // rows of prompts, and those with logits
  for (const auto& [text, rows] : prompts_) {
    chunks.push_back({&text->sequence, rows, text->reports_prompt()});
    prompted += rows;
    outputs += outputs_of(chunks.back());
  }
  const int most = std::min(kMostRows + 1 - std::max(outputs, 1), w_.model->memory.rows - prompted);
  round_.run(w_, decoding_, chunks, most, modelled_ ? &*modelled_ : nullptr);
  for (Text* const t : decoding_) report(*t);
  for (size_t i = 0, row = w_.last.verify.rows; i < chunks.size(); row += outputs_of(chunks[i++])) {
    finish_prompt_rows(prompts_[i], static_cast<int>(row));
  }
  drop_ended();
  for (auto& [id, text] : texts_) w_.last.waiting += !text->stepping;
  if (idle()) give_back(.5);
}

void Engine::report(Text& text) {
  Sequence& s = text.sequence;
  if (s.verified.failed) return end(text, Finish::Failed, s.verified.failed->status(), s.verified.failed->what());
  Turn& turn = turns_.emplace_back(round_.report(w_, text));
  say_why(text, turn);
  report_features(w_, text, turn);
  name_blocks(w_.pool, s);
  w_.trim(s, s.cached + TokenTree::kMaxNodes);
}

void Engine::say_why(const Text& text, Turn& turn) const {
  if (text.finish != Finish::None && text.mode >= 0) turn.why_off = planner_.reason_off(text.mode);
}

// row: the first row of logits of its rows.
void Engine::finish_prompt_rows(const PromptRows& ran, int row) {
  Text& text = *ran.text;
  Sequence& s = text.sequence;
  name_blocks(w_.pool, s);
  w_.trim(s, s.cached);
  if (text.generated > 0) return;
  try {
    if (text.reports_prompt()) row = report_prompt(w_, text, ran.rows, row);
    if (s.cached < text.due()) return void(text.disk = text.disk + w_.last.disk);
    name_end(w_.pool, s);
    const Emitted first = sample(w_, s, row);
    Turn& turn =
        turns_.emplace_back(Turn{.id = text.id, .cached = text.reused, .queued = text.queued, .disk = text.disk});
    if (text.request.prompt_logprobs < 0) totals_.prefix_queries += text.request.prompt.size();
    totals_.prefix_hits += text.reused;
    turn.prompt = std::move(text.prompt_reported);
    text.take(first, turn);
    say_why(text, turn);
    report_features(w_, text, turn);
  } catch (const Error& e) {
    end(text, Finish::Failed, e.status(), e.what());
  }
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
    ++ended(totals_, at->second->finish);
    at = texts_.erase(at);
    const std::lock_guard lock(orders_);
    --alive_;
  }
}

}  // namespace swiftk
