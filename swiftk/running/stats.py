"""The figures of one generation, under the names of vLLM's speculative decoding metrics, and what sums them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..draft.cost import equation_6
from ..draft.sources import NAMES

if TYPE_CHECKING:
    from .trace import PlanStats, TracedRound


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of one text. Counts are of the whole text. Lengths, rates and expected speed-ups leave out a last block
    that the end of the text cut. Draft tokens are those of the plan: a copy, a head or skipped layers. Tokens from
    sources, which cost no draft step, are counted in `proposed_by` and `accepted_by`."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0  # reused from an earlier request's keys and values
    prompt_tokens_from_files: int = 0  # keys and values that this text had read from the prefix cache on disk
    generated_tokens: int = 0
    num_steps: int = 0  # target passes after the prompt's
    num_spec_steps: int = 0  # target passes that had a tree to verify
    num_draft_steps: int = 0
    num_draft_tokens: int = 0  # places of the text that the plan drafted, one a draft step
    num_draft_nodes: int = 0  # nodes that draft steps read: several a step of a beam, or beside sources' chains
    num_accepted_draft_tokens: int = 0  # at most num_draft_tokens
    num_tree_tokens: int = 0  # nodes of all trees, siblings included
    proposed_by: dict[str, int] = field(default_factory=dict)  # number of tree nodes, by source
    accepted_by: dict[str, int] = field(default_factory=dict)  # number of accepted tokens, by source
    num_reused_rows: int = 0  # verified rows that reused the draft's exact first layers
    reused_step_share: float = 0.0  # share of rows x steps of verification that were reused
    saved_weight_bytes: int = 0  # bytes not read because no row ran those steps; siblings and the last token mostly do
    disk_bytes: int = 0  # weights that passes read from disk, the prompt's included
    mean_acceptance_length: float = 1.0  # tokens per spec step from any source, and the model's own after them
    mean_generated_length: float = 1.0  # M of SWIFT: tokens per target pass, plain passes included
    draft_acceptance_rate: float = 0.0  # alpha: num_accepted_draft_tokens / num_draft_tokens
    acceptance_histogram: tuple[int, ...] = ()  # [i]: spec steps that had i tokens accepted

    queue_seconds: float = 0.0  # until the engine took up the prompt
    prefill_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0  # plain steps included
    disk_seconds: float = 0.0  # of prefill, draft and verify: they waited for weights from disk
    commit_seconds: float = 0.0
    optimizer_seconds: float = 0.0
    other_seconds: float = 0.0  # decode time outside passes of the model
    total_seconds: float = 0.0
    time_to_first_token: float = 0.0
    tokens_per_second: float = 0.0  # after the first token

    plain_tokens_per_second: float | None = None  # measured in plain steps of this text or of earlier ones
    speedup_vs_plain: float | None = None
    expected_speedup: float | None = None  # Equation 6 of SWIFT from M, alpha and c, as if the plan had drafted all
    forecast_speedup: float | None = None  # M over the cost of a target pass and its draft steps, for any sources
    draft_cost: float | None = None  # c: a draft step in plain steps
    speculation: str = "off"  # "on", "off", or "mixed"
    reason_off: str | None = None
    skip: str | None = None  # layers that the draft leaves out, or weights that it reads
    plans: Mapping[str, PlanStats] = field(default_factory=dict)  # what each plan brought, by its name in words
    extra_memory_bytes: int = 0  # workspace, and copies of the weights; a draft has no cache of its own
    draft_weight_bytes: int = 0  # the part of it that copies take

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "acceptance_histogram": list(self.acceptance_histogram)}


@dataclass(frozen=True, slots=True)
class Block:
    """One spec step."""

    steps: int  # draft steps
    drafted: int  # places of the text that the plan drafted
    nodes: int  # that draft steps read
    planned: int  # accepted tokens of the plan
    accepted: int  # accepted tokens of any source
    cut: bool  # the text ended inside the block


@dataclass(slots=True)
class Recorder:
    """Sums one generation, round by round."""

    prompt_tokens: int = 0
    cached: int = 0
    from_files: int = 0
    generated: int = 0
    spec: list[Block] = field(default_factory=list)
    plain: int = 0  # steps
    proposed_by: Counter[str] = field(default_factory=Counter)
    accepted_by: Counter[str] = field(default_factory=Counter)
    tree_tokens: int = 0
    tree_rows: int = 0  # verified in spec steps
    reused_rows: int = 0
    row_shares: float = 0.0  # summed over these rows: the share of the target's steps that they did not run again
    saved_bytes: int = 0
    disk_bytes: int = 0
    queued: float = 0.0
    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    disk: float = 0.0
    commit: float = 0.0
    optimizer: float = 0.0
    first_token: float = 0.0
    decode: float = 0.0  # wall time of the rounds, the consumer's own time left out
    run: float = 0.0  # the part of decode inside passes of the model
    rounds: list[TracedRound] = field(default_factory=list)

    def read(self, turn: Any) -> None:
        """What passes of a turn, the prompt's or a round, read from disk."""
        self.disk += turn.disk
        self.disk_bytes += turn.disk_bytes

    def round(self, turn: Any, accepted: Sequence[str], tokens: int, cut: bool) -> None:
        """One round that committed `tokens`, of a block that ended there or was cut. turn: a _core.Turn; accepted: who
        proposed each."""
        self.generated += tokens
        self.read(turn)
        self.draft += turn.draft
        self.verify += turn.verify
        self.commit += turn.commit
        if turn.steps == 0 and turn.nodes == 1:
            self.plain += 1
            return
        planned = sum(source == "plan" for source in accepted)
        self.spec.append(Block(turn.steps, turn.drafted, turn.draft_nodes, planned, len(accepted), cut))
        self.accepted_by.update(accepted)
        self.proposed_by.update({name: n for name, n in zip(NAMES[1:], turn.proposed[1:], strict=True) if n})
        self.tree_tokens += turn.nodes - 1
        self.tree_rows += turn.nodes
        self.reused_rows += turn.reused_rows
        self.row_shares += turn.reused_share * turn.nodes
        self.saved_bytes += turn.saved_weight_bytes

    def _rate(self) -> float:
        """Tokens a second after the first one, or of it, where it is alone."""
        tokens, seconds = (1, self.first_token) if self.generated == 1 else (self.generated - 1, self.decode)
        return tokens / seconds if tokens > 0 and seconds > 0 else 0.0

    def finish(self, plain_seconds: float | None, **extra: Any) -> Stats:
        """The figures. plain_seconds: of a plain step of one text, None if none was measured."""
        steps = sum(block.steps for block in self.spec)
        cost = self.draft / steps / plain_seconds if steps and plain_seconds else None  # c
        whole = [block for block in self.spec if not block.cut]
        passes = len(whole) + self.plain
        accepted, drafted = sum(block.accepted for block in whole), sum(block.drafted for block in whole)
        length = 1 + accepted / passes if passes else 1.0  # M
        alpha = sum(block.planned for block in whole) / drafted if drafted else 0.0
        histogram = [0] * (max(max(block.drafted, block.accepted) for block in whole) + 1 if whole else 0)
        for block in whole:
            histogram[block.accepted] += 1
        known = bool(whole) and not (drafted and cost is None)
        per_pass = (cost or 0.0) * sum(block.steps for block in whole) / passes if passes else 0.0
        rate = self._rate()
        measured = self.generated > 1 and bool(plain_seconds) and self.decode > 0
        speculation = "off" if not self.spec else "mixed" if self.plain else "on"
        return Stats(
            prompt_tokens=self.prompt_tokens,
            cached_prompt_tokens=self.cached,
            prompt_tokens_from_files=self.from_files,
            generated_tokens=self.generated,
            num_steps=len(self.spec) + self.plain,
            num_spec_steps=len(self.spec),
            num_draft_steps=steps,
            num_draft_tokens=sum(block.drafted for block in self.spec),
            num_draft_nodes=sum(block.nodes for block in self.spec),
            num_accepted_draft_tokens=self.accepted_by["plan"],
            num_tree_tokens=self.tree_tokens,
            proposed_by=dict(self.proposed_by),
            accepted_by=dict(self.accepted_by),
            num_reused_rows=self.reused_rows,
            reused_step_share=self.row_shares / self.tree_rows if self.tree_rows else 0.0,
            saved_weight_bytes=self.saved_bytes,
            disk_bytes=self.disk_bytes,
            mean_acceptance_length=1 + accepted / len(whole) if whole else 1.0,
            mean_generated_length=length,
            draft_acceptance_rate=alpha,
            acceptance_histogram=tuple(histogram),
            queue_seconds=self.queued,
            prefill_seconds=self.prefill,
            draft_seconds=self.draft,
            verify_seconds=self.verify,
            disk_seconds=self.disk,
            commit_seconds=self.commit,
            optimizer_seconds=self.optimizer,
            other_seconds=max(0.0, self.decode - self.run),
            total_seconds=self.first_token + self.decode,
            time_to_first_token=self.first_token,
            tokens_per_second=rate,
            plain_tokens_per_second=1 / plain_seconds if plain_seconds else None,
            speedup_vs_plain=(1.0 if not self.spec else plain_seconds * rate if measured else None),
            expected_speedup=equation_6(length, alpha, cost) if alpha > 0 and cost is not None else None,
            forecast_speedup=length / (1 + per_pass) if known else None,
            draft_cost=cost,
            speculation=speculation,
            **extra,
        )
