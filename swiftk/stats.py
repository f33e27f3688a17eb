"""The figures of one generation, under the names of vLLM's speculative decoding metrics, and what sums them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .sources import NAMES

if TYPE_CHECKING:
    from .trace import TracedRound


@dataclass(frozen=True, slots=True)
class Stats:
    """mean_acceptance_length counts the bonus token. Draft tokens are the spine's: siblings, and what sources guess,
    cost no draft step. Acceptance rate and cost are of draft steps."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0  # taken over from the call before
    generated_tokens: int = 0
    num_steps: int = 0  # target passes after the prompt's
    num_spec_steps: int = 0  # of these with a tree to verify
    num_draft_tokens: int = 0
    num_accepted_draft_tokens: int = 0
    num_tree_tokens: int = 0  # siblings included
    proposed_by: dict[str, int] = field(default_factory=dict)  # nodes of trees, by what proposed them
    accepted_by: dict[str, int] = field(default_factory=dict)
    num_reused_rows: int = 0  # verified rows whose first steps were the draft's, exact, and did not run again
    reused_step_share: float = 0.0  # of rows x steps in verifying drafts: what was not run again
    saved_weight_bytes: int = 0  # not read again, where no row ran those steps: mostly siblings and the last token do
    mean_acceptance_length: float = 1.0  # 1 + accepted / num_spec_steps
    draft_acceptance_rate: float = 0.0
    acceptance_histogram: tuple[int, ...] = ()  # [i]: spec steps that had i draft tokens accepted

    prefill_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # plain steps included
    commit_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    other_seconds: float = 0.0  # decode time outside passes of the model
    total_seconds: float = 0.0
    time_to_first_token: float = 0.0
    tokens_per_second: float = 0.0  # behind the first token

    plain_tokens_per_second: float | None = None  # measured in plain steps of this text or the ones before
    speedup_vs_plain: float | None = None
    expected_speedup: float | None = None  # Equation 6 of SWIFT at the measured c, M and alpha
    draft_cost: float | None = None  # c: a draft step in plain steps
    speculation: str = "off"  # "on", "off", or "mixed"
    reason_off: str | None = None
    skip: str | None = None  # what the draft leaves out
    extra_memory_bytes: int = 0  # workspace, and copies of the weights; a draft has no cache of its own
    draft_weight_bytes: int = 0  # of these copies

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "acceptance_histogram": list(self.acceptance_histogram)}


@dataclass(slots=True)
class Recorder:
    """Sums one generation, round by round."""

    prompt_tokens: int = 0
    cached: int = 0
    generated: int = 0
    steps: int = 0
    drafted: list[int] = field(default_factory=list)  # spine tokens of each spec step
    accepted: list[int] = field(default_factory=list)  # tokens, whoever proposed them
    proposed_by: Counter[str] = field(default_factory=Counter)
    accepted_by: Counter[str] = field(default_factory=Counter)
    tree_tokens: int = 0
    tree_rows: int = 0  # verified in spec steps
    reused_rows: int = 0
    row_shares: float = 0.0  # summed over these rows: the share of the target's steps that they did not run again
    saved_bytes: int = 0
    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    optimizer: float = 0.0
    first_token: float = 0.0
    decode: float = 0.0  # wall time of the rounds, the consumer's own time left out
    run: float = 0.0  # of that, inside passes of the model
    rounds: list[TracedRound] = field(default_factory=list)

    def round(self, phases: dict[str, Any], spine: int, nodes: int, accepted: Sequence[str], tokens: int) -> None:
        """One round that committed `tokens`; a cut block counts what was committed. accepted: who proposed each."""
        self.steps += 1
        self.generated += tokens
        self.draft += phases["draft"]
        self.verify += phases["verify"]
        self.commit += phases["commit"]
        if spine or nodes > 1:
            self.drafted.append(spine)
            self.accepted.append(len(accepted))
            self.accepted_by.update(accepted)
            self.proposed_by.update({name: n for name, n in zip(NAMES[1:], phases["proposed"][1:]) if n})
            self.tree_tokens += nodes - 1
            self.tree_rows += nodes
            self.reused_rows += int(phases["reused_rows"])
            self.row_shares += phases["reused_share"] * nodes
            self.saved_bytes += int(phases["saved_weight_bytes"])

    def finish(self, plain_seconds: float | None, **extra: Any) -> Stats:
        """The figures. plain_seconds: of one plain step, None if none was measured."""
        steps, drafted, accepted = len(self.drafted), sum(self.drafted), sum(self.accepted)
        planned = self.accepted_by["plan"]
        draft_cost = self.draft / drafted / plain_seconds if drafted and plain_seconds else None
        histogram = [0] * (max(*self.drafted, *self.accepted, 0) + 1 if steps else 0)
        for n in self.accepted:
            histogram[n] += 1
        behind = self.generated - 1
        rate = behind / self.decode if behind > 0 and self.decode > 0 else 0.0
        if behind == 0 and self.first_token > 0:
            rate = 1 / self.first_token
        measured = behind > 0 and bool(plain_seconds) and self.decode > 0
        speculation = "off" if not steps else "on" if steps == self.steps else "mixed"
        return Stats(
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.cached,
            generated_tokens=self.generated,
            num_steps=self.steps,
            num_spec_steps=steps,
            num_draft_tokens=drafted,
            num_accepted_draft_tokens=accepted,
            num_tree_tokens=self.tree_tokens,
            proposed_by=dict(self.proposed_by),
            accepted_by=dict(self.accepted_by),
            num_reused_rows=self.reused_rows,
            reused_step_share=self.row_shares / self.tree_rows if self.tree_rows else 0.0,
            saved_weight_bytes=self.saved_bytes,
            mean_acceptance_length=1 + accepted / steps if steps else 1.0,
            draft_acceptance_rate=planned / drafted if drafted else 0.0,
            acceptance_histogram=tuple(histogram),
            prefill_seconds=self.prefill,
            draft_seconds=self.draft,
            verify_seconds=self.verify,
            commit_seconds=self.commit,
            optimizer_seconds=self.optimizer,
            other_seconds=max(0.0, self.decode - self.run),
            total_seconds=self.first_token + self.decode,
            time_to_first_token=self.first_token,
            tokens_per_second=rate,
            plain_tokens_per_second=1 / plain_seconds if plain_seconds else None,
            speedup_vs_plain=(1.0 if not steps else plain_seconds * rate if measured else None),
            expected_speedup=_equation_6(steps, drafted, accepted, draft_cost),
            draft_cost=draft_cost,
            speculation=speculation,
            **extra,
        )


def _equation_6(steps: int, drafted: int, accepted: int, c: float | None) -> float | None:
    """M alpha / ((M - 1) c + alpha), written as tokens over cost per round so that alpha = 0 has its limit."""
    if not steps or (c is None and drafted):
        return None
    return (1 + accepted / steps) / (1 + (c or 0.0) * drafted / steps)
