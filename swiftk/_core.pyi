"""The native runtime as Python sees it. Every phase releases the GIL. Semantics: csrc/engine/session.h."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Tokens = Sequence[int] | np.ndarray

sources: Any  # sources of tokens without an engine around them; .names, in the order of their numbers

class Model:
    def __init__(
        self,
        dir: str,
        *,
        dtype: str = "auto",
        kv_dtype: str = "auto",
        isa: str = "",
        threads: int = 0,
        device: str = "cpu",
        pack: str = "",
        draft_weights: str = "own",
        draft_tokens: Sequence[int] = (),
        draft_memory: int = 0,
        memory: int = 0,
        kv_memory: int = 0,
        context: int = 0,
        sequences: int = 1,
        drafters: Sequence[str] = (),
        drafter_packs: Sequence[str] = (),
        progress: Callable[[int, int], bool | None] | None = None,
        tensors: Mapping[str, tuple[str, Sequence[int], int, int]] = {},  # (dtype, shape, address, bytes)
        owner: Any = None,  # kept as long as they are read
    ) -> None: ...
    def probe(self) -> tuple[float, float]: ...
    draft_tokens: int  # of the trimmed head; 0: there is none
    trimmed_bytes: int
    trimming_pays: bool  # whether drafts would read much less by one
    config: dict[str, Any]
    isa: str
    device: str
    threads: int
    dtype: str
    kv_dtype: str
    weight_bytes: int
    copies: dict[str, int]  # bytes of memory for each that drafts may read
    # Bytes of its plan: limit (0: none), process, drafts, head, kv, work, ahead, layers that stay, and streamed ones.
    memory: dict[str, int]
    drafters: list[str]  # the kinds of those that were loaded beside the model
    reads: list[tuple[list[int], int]]  # of each: layers that it taps, floats of a token that it is given elsewhere
    drafter_bytes: int
    copy_shares: dict[str, float]  # of the bytes of the model's own that a pass reads, what it reads of each
    streamed_file: str  # which passes read weights from; "" if all are in memory

class Taps:
    """Outputs of some layers over texts, as draft models read them."""

    def __init__(self, model: Model, layers: Sequence[int], context: int) -> None: ...
    def read(self, tokens: Sequence[int], logits: bool = True) -> tuple[np.ndarray, np.ndarray]: ...
    def kv(self) -> np.ndarray: ...  # [n, layers, KV heads, 2, head size] K and V of the text that was read last

class Emitted:
    token: int
    drafted: bool
    source: int  # swiftk.sources.NAMES: who proposed it
    logprob: float
    top: list[tuple[int, float]]

class Sampling:
    """csrc/sampling/sampler.h: what becomes of logits. InvalidArgument names a field that is out of its range."""

    def __init__(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        typical_p: float = 1.0,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logit_bias: Mapping[int, float] = ...,  # of token ids
        min_tokens: int = 0,  # before so many new tokens no stop id comes
        stop_ids: Sequence[int] = (),
        seed: int = 0,
    ) -> None: ...
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: dict[int, float]
    min_tokens: int
    stop_ids: list[int]
    seed: int

class Session:
    def __init__(self, model: Model, context: int = 0, threads: int = 0, poison: bool = False) -> None: ...
    def set_sampling(self, sampling: Sampling = ..., acceptance: str = "coupled") -> None: ...
    def set_logprobs(self, n: int) -> None: ...
    def set_skip(self, skip: DraftSpec) -> None: ...
    def set_kvq(self, on: bool) -> None: ...
    def set_recall(self, recall: bool | None) -> None: ...
    def set_sources(self, settings: SourceSettings) -> None: ...
    def forget_sources(self) -> None: ...
    def reuse(self, tokens: Tokens) -> int: ...
    def extend(self, tokens: Tokens) -> None: ...
    def sample(self) -> Emitted: ...
    def prefill(self, tokens: Tokens) -> Emitted: ...
    def draft(self, rule: TreeRule = ...) -> int: ...
    def set_tree(self, tokens: Tokens, parents: Tokens) -> int: ...
    def verify(self) -> list[Emitted]: ...
    def commit(self, count: int) -> None: ...
    # confidence [rows] float32, rank [rows] int32, seconds
    def score(self, skip: DraftSpec, window: int = 32, end: int = -1) -> tuple[np.ndarray, np.ndarray, float]: ...
    def score_exits(
        self, exits: Sequence[int], window: int = 32, end: int = -1
    ) -> tuple[np.ndarray, np.ndarray, float]: ...  # confidence and rank [exits, rows], seconds
    def propose_skips(self, most: int) -> list[tuple[list[int], list[int]]]: ...  # (attn, mlp)
    def save(self) -> bytes: ...  # csrc/text/state.h
    def load(self, state: bytes) -> None: ...
    def cancel(self) -> None: ...
    def clear_cancel(self) -> None: ...
    tree_tokens: np.ndarray  # [nodes] int32
    tree_parents: np.ndarray  # [nodes] int32
    tree_sources: list[int]  # [nodes] swiftk.sources.NAMES
    proposed: list[tuple[int, int, int]]  # (source, bucket, rank of the right token) along verified text
    history: np.ndarray  # [n] int32
    logits: np.ndarray  # [rows, V] float32
    outcomes: list[tuple[float, int]]  # of the last verify: confidence and rank of each node drafted from on the path
    guide_outcomes: list[tuple[float, int]]  # the same of what the draft model that guides the plan said there
    drafted_from: int
    shared_steps: int
    max_chunk: int
    context: int
    cache_bytes: int
    features: np.ndarray  # [cached tokens, width] what the draft models beside the model read of the text
    kv_rows: np.ndarray  # [cached tokens, floats] K and V of all layers: of each head its K, then its V
    workspace_bytes: int
    run_seconds: float
    fallbacks: str  # lines: what a GPU's driver refused, and is done in a slower way
    last: dict[str, Any]

class DraftSpec:
    """csrc/run/plan.h: what a draft leaves out (exit_layer -1: no exit), and the names of the weights that it reads."""

    def __init__(
        self,
        attn: Sequence[int] = (),
        mlp: Sequence[int] = (),
        exit_layer: int = -1,
        weights: Sequence[str] = (),
        trimmed: bool = False,
        window: int = 0,
        heavy: int = 0,
    ) -> None: ...
    attn: list[int]
    mlp: list[int]
    exit_layer: int
    weights: list[str]
    trimmed: bool
    window: int
    heavy: int

class TreeRule:
    """csrc/draft/tree_rule.h: how far and wide one draft goes."""

    def __init__(
        self,
        *,
        max_draft: int = 25,
        max_depth: int = 63,
        max_nodes: int = 64,
        stop_ids: Sequence[int] = (),
        beam: int = 0,
        min_step_gain: float = 0.0,
        edges: Sequence[float] = ...,  # [15]
        p_top1: Sequence[float] = ...,  # [16]
        p_rank: Sequence[Sequence[float]] = ...,  # [16][9]
        row_price: Sequence[float] = (),
        chain: int = 0,
        min_row_gain: float = 0.0,
        min_own_gain: float = 2.0,
        proposals: int = 0,
        guide: Sequence[float] = ...,  # [16]
        least_proposal: float = 0.0,
        sources: Sequence[tuple[int, Sequence[Sequence[float]]]] = (),  # (source, [bucket][rank])
        confidence: float = 0.8,
        tier: tuple[float, float, float] = (0.5, 0.8, 0.95),
        width: tuple[int, int, int, int] = (10, 5, 3, 1),
    ) -> None: ...
    max_draft: int
    max_depth: int
    max_nodes: int
    stop_ids: list[int]
    beam: int
    min_step_gain: float
    edges: list[float]
    p_top1: list[float]
    p_rank: list[list[float]]
    row_price: list[float]
    chain: int
    min_row_gain: float
    min_own_gain: float
    proposals: int
    guide: list[float]
    least_proposal: float
    sources: list[tuple[int, list[list[float]]]]
    confidence: float
    tier: list[float]
    width: list[int]

class Turn:
    """What a round was for one text (csrc/engine/turn.h)."""

    id: int
    tokens: list[Emitted]
    prompt: list[Emitted]
    cached: int
    queued: float  # seconds that the text waited for its turn; with its first token
    nodes: int
    steps: int
    drafted: int
    draft_nodes: int
    cut: bool
    proposed: list[int]  # [swiftk.sources.NAMES]
    seconds: float
    draft: float
    verify: float
    run: float
    disk: float  # seconds that passes waited for weights from disk; with the first token, all of the prompt's,
    disk_bytes: int  # and bytes that they read of them
    commit: float
    reused_rows: int
    reused_share: float
    saved_weight_bytes: int
    outcomes: list[tuple[float, int]]
    resting: bool
    given_up: float
    plain: float
    why_off: str
    plan: DraftSpec | None  # that drafted
    features: np.ndarray  # [n, floats] of tokens cached since the last turn, if the text asks for it
    tree: list[tuple[int, int, int, float, bool]]  # (token, parent, source, worth, came) of nodes, if asked for
    finish: str  # "", "stop", "length", "cancelled", "failed"
    error: tuple[str, str] | None  # (class in swiftk.errors, message)

class SourceSettings:
    """csrc/draft/sources/source_settings.h."""

    def __init__(
        self,
        *,
        suffix_length: int = 1,
        suffix_matches: int = 12,
        suffix_ranks: int = 4,
        lookup_ngram: int = 2,
        lookup_tokens: int = 10,
        lookahead_ngram: int = 5,
        lookahead_window: int = 7,
        lookahead_guesses: int = 7,
        parallel_tokens: int = 7,
        corpus: sources.Corpus | None = None,
    ) -> None: ...
    suffix_length: int
    suffix_matches: int
    suffix_ranks: int
    lookup_ngram: int
    lookup_tokens: int
    lookahead_ngram: int
    lookahead_window: int
    lookahead_guesses: int
    parallel_tokens: int

class Request:
    """csrc/engine/request.h: what a host asks of an engine."""

    def __init__(
        self,
        *,
        prompt: Tokens = (),
        sampling: Sampling = ...,
        acceptance: str = "coupled",
        logprobs: int = 0,
        prompt_logprobs: int = -1,
        max_new_tokens: int = 128,
        continued: int = 0,  # last tokens of the prompt that were generated
        drafting: str = "planned",  # "planned", "ruled": the planner says only whether, "off"
        plans: str = "any",  # "any" that is offered, "none", "fixed": `skips`, "directed": from round to round
        skips: Sequence[DraftSpec] = (),
        sources: Sequence[int] = (2, 3),  # sources.NAMES, those that cost no step
        settings: SourceSettings = ...,
        recall: bool | None = None,
        max_draft: int = 63,
        always: bool = False,
        kvq: bool = True,
        rule: TreeRule | None = None,
        constraint: Any = None,  # allow(path, address, size), forced(), took(tokens)
        reports: int = -1,  # a draft model by its number: what it reads of the text, turns report
        explain: bool = False,
        outcomes: bool = False,
    ) -> None: ...
    sampling: Sampling
    logprobs: int
    prompt_logprobs: int
    max_new_tokens: int
    continued: int
    skips: list[DraftSpec]
    settings: SourceSettings
    max_draft: int
    always: bool
    kvq: bool
    reports: int
    explain: bool
    outcomes: bool

class AcceptanceRates:
    """csrc/planner/acceptance.h, of a plan's nodes by confidence."""

    def __init__(self, thinned: bool) -> None: ...
    def add(self, outcomes: Sequence[tuple[float, int]]) -> None: ...
    def merge(self, other: AcceptanceRates) -> None: ...
    def scale(self, by: float) -> None: ...
    def restore(self, counts: Sequence[float]) -> None: ...
    counts: list[float]
    odds: tuple[list[float], list[float], list[list[float]]]
    outcomes: float
    matchness: float

def forecast(rates: AcceptanceRates, draft: float, rows: Sequence[float], pace: float = 1.0) -> tuple[float, float]: ...

class SavedBlock:
    """csrc/text/saved_block.h: K and V of a block of tokens, read from a file."""

    TOKENS: int  # of a block
    IDENTITY: int  # bytes of what tells models and builds apart

class Engine:
    """csrc/engine/engine.h, for any number of threads: each waits in step(), and one of them steps."""

    def __init__(
        self,
        model: Model,
        context: int = 0,
        sequences: int = 16,
        kv_memory: int = 0,
        threads: int = 0,
        poison: bool = False,
    ) -> None: ...
    def submit(self, boxes: dict[int, Any], request: Request) -> int: ...
    # Calls that concern one text under way, between two rounds.
    def direct(self, id: int, skip: DraftSpec, rule: TreeRule | None = None) -> None: ...
    def wake(self, id: int) -> None: ...
    def go_on(self, id: int) -> None: ...
    def charge(self, id: int, seconds: float) -> None: ...
    def score(self, id: int, skip: DraftSpec, window: int, end: int = -1) -> tuple[Any, Any, float]: ...
    def score_exits(self, id: int, exits: Sequence[int], window: int, end: int = -1) -> tuple[Any, Any, float]: ...
    def propose_skips(self, id: int, most: int) -> list[tuple[list[int], list[int]]]: ...
    # The planner's knowledge of a plan.
    def price(self, skip: DraftSpec) -> float: ...
    def rates(self, skip: DraftSpec) -> AcceptanceRates: ...
    def learned(self, skip: DraftSpec, rates: AcceptanceRates) -> None: ...
    def forecast(self, rates: AcceptanceRates, price: float) -> float: ...
    def row_prices(self, n: int) -> list[float]: ...
    def step(self, boxes: dict[int, Any]) -> None: ...
    def cancel(self, id: int) -> None: ...
    def propose(self, id: int, at: int, tokens: Sequence[int], parents: Sequence[int] = ...) -> None: ...
    def idle(self) -> bool: ...
    def leave_behind(self) -> None: ...
    def forget_texts(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...
    # Gives memory of K and V that no text holds back to the system; prefixes of ended texts stay in `share` of the
    # blocks. Nothing on a GPU.
    def give_back(self, share: float = 0.0) -> None: ...
    # Blocks of prompts as files. Tokens: whole blocks, of which the last one is meant. stretches(): what texts that end
    # before a position take for `stretched`.
    def stretches(self, end: int) -> bool: ...
    def model_digest(self) -> int: ...
    def saved_bytes(self, blocks: int) -> int: ...
    def cached_blocks(self, tokens: np.ndarray, stretched: bool) -> int: ...
    def save_block(self, tokens: np.ndarray, stretched: bool, identity: bytes) -> bytes: ...  # empty: not cached
    def read_block(self, file: bytes, tokens: np.ndarray, stretched: bool, identity: bytes) -> SavedBlock: ...
    def load_blocks(self, blocks: Sequence[SavedBlock]) -> int: ...  # how many there was memory for
    last: dict[str, Any]  # of the last round
    # Since the engine was made. Texts: submitted, stopped, full (at max_new_tokens or the context), cancelled, failed;
    # preempted, queued_seconds; tokens of prompts that were looked up and found: prefix_queries, prefix_hits.
    totals: dict[str, Any]
    # As of the last round: bytes (the most that K and V may take), used_bytes (of running texts), resident_bytes;
    # blocks, used_blocks, cached_blocks (of ended texts, for prompts that begin alike); block_tokens.
    kv: dict[str, int]
    kv_bytes: int  # kv["bytes"]
    sequences: int  # texts that run together
    explained: str
    fallbacks: str  # as Session.fallbacks
    plain_seconds: float
    plans: int  # that the planner knows
    now: float  # seconds by which searches are timed
    context: int
    workspace_bytes: int

class GgufTensors:
    def __init__(self, path: str) -> None: ...
    divides_angles: bool  # rotary frequencies by a tensor, which no such folder has
    def names(self) -> list[str]: ...  # those that a Hugging Face folder has
    def read(self, name: str) -> np.ndarray: ...  # float32, as it is in such a folder

class RemoteHead:
    """csrc/heads/remote_head.h: a head whose model's layers are at a server."""

    def __init__(
        self,
        target: str,
        head: str,
        dtype: str = "auto",
        draft_weights: str = "own",
        threads: int = 0,
        context: int = 0,
    ) -> None: ...
    def begin(self, sampling: Sampling, prompt: int) -> None: ...  # tokens of the text's prompt
    def know(self, first: int, reported: np.ndarray) -> None: ...  # [n, width] of tokens from `first` on
    def propose(self, text: Sequence[int], count: int) -> list[int]: ...
    def grow(self, text: Sequence[int], rule: TreeRule) -> tuple[list[int], list[int]]: ...  # tokens, parents
    def next(self, text: Sequence[int]) -> int: ...  # the token after it, without a server
    alone: bool  # whether next() can
    last_layers: int  # of the model that are here
    kind: str  # "block", "eagle" or "moa"
    taps: list[int]
    width: int  # floats that are given of each token
    known: int  # leading tokens of the text that were
    context: int

def isas() -> list[str]: ...
def probe(dtype: str = "bfloat16", isa: str = "", threads: int = 0) -> tuple[float, float]: ...
def gpu_info(ordinal: int = 0) -> dict[str, Any]: ...
def survey(
    dir: str,
    context: int = 0,  # of a text whose keys and values are counted; 0: the model's
    *,
    dtype: str = "auto",
    kv_dtype: str = "auto",
    isa: str = "",
    threads: int = 0,
    draft_weights: str = "own",
    draft_tokens: Sequence[int] = (),
    draft_memory: int = 0,
    drafters: Sequence[str] = (),
    memory: int = 0,
    kv_memory: int = 0,
    sequences: int = 1,
) -> dict[str, Any]: ...  # what Model() with these would have and take, by the headers alone
def convert(
    dir: str,
    path: str,
    *,
    dtype: str = "auto",
    draft_weights: str = "own",
    draft_memory: int = 0,
    isa: str = "",
    threads: int = 0,
    progress: Callable[[int, int], bool | None] | None = None,
) -> None: ...  # writes what Model() with these would have; path: a file, or a folder that is there
def draft_formats() -> list[str]: ...  # of copies that drafts may read
def read_speed(path: str, bytes: int) -> float: ...  # bytes/s of its first bytes, past the page cache
def panel_layout() -> int: ...  # of the kernels, and of converted models
def compressions() -> list[str]: ...  # values of quantization_config.quant_method that are read
def families() -> dict[str, dict[str, Any]]: ...  # the table of them, by model_type
def read_config(dir: str) -> dict[str, Any]: ...  # as it is in a Hugging Face folder, whatever the file's order of rows
def frequencies(dir: str, head_dim: int) -> tuple[list[float], float]: ...  # of rotary pairs; scale of their tables
def gguf_metadata(path: str) -> dict[str, Any]: ...
def gguf_config(path: str) -> str: ...  # config.json, as the metadata stand for it
def token_ids(dir: str, token: str) -> list[int]: ...
def kernel_shape(dir: str, dtype: str = "auto") -> dict[str, Any]: ...
def drafter_kernel_shapes(dir: str, target: str, dtype: str = "auto") -> list[dict[str, Any]]: ...
def gpu_free_bytes(ordinal: int = 0) -> int: ...
