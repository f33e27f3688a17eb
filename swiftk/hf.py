"""transformers' generate() on this engine: model.generate(**inputs, custom_generate=swiftk.hf.generate).

The weights are those of the torch model: they are packed from where they lie, and read again once they have changed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from . import _core
from .api import LM, load_tensors
from .errors import InvalidArgument, UnsupportedModel
from .options.fields import TextOptions, table
from .running.stream import Stream

if TYPE_CHECKING:
    import torch

_DTYPES = {"torch.float32": "F32", "torch.bfloat16": "BF16", "torch.float16": "F16"}
# Logits processors that the sampler has as well: the attribute, and the option that is the same.
_WARPERS = {one.hf[0]: (one.hf[1], name) for name, one in table(TextOptions).items() if one.hf}
_HARMLESS = ("LogitNormalization",)  # which keep a distribution as it is
# What says how to draft: options of generate() here, and what transformers (5.24) fills in where nobody asked.
_DRAFTING = {"assistant_early_exit": None, "num_assistant_tokens": 20, "assistant_confidence_threshold": 0.4}
_RETURNS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
_loaded: weakref.WeakKeyDictionary[Any, Loaded] = weakref.WeakKeyDictionary()


class Loaded:
    """A torch model's weights as the engine has them."""

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self.options, self.state = options, _state(model)
        self._folder = TemporaryDirectory(prefix="swiftk-hf-")
        model.config.save_pretrained(self._folder.name)
        tensors = {name: t.detach().to("cpu").contiguous() for name, t in model.state_dict().items()}
        own = {name: _memory(name, t) for name, t in tensors.items()}
        device = "cpu" if model.device.type == "cpu" else f"cuda:{model.device.index or 0}"
        options = {"device": device, "dtype": str(model.dtype).removeprefix("torch."), **options}
        kept = tensors if device == "cpu" else None  # whose embedding is read where it lies
        self.lm: LM = load_tensors(Path(self._folder.name), own, kept, options)


def attach(model: Any, **options: Any) -> LM:
    """The torch model on this engine, loaded with load()'s options; generate() does it with the defaults. The same LM
    as long as neither the weights nor the options change."""
    if not hasattr(model, "state_dict"):
        raise InvalidArgument(f"[hf] got {model!r}, want a loaded torch model; swiftk.load(FOLDER) reads a folder")
    found = _loaded.get(model)
    if found is None or found.state != _state(model) or (options and found.options != options):
        options = options or (found.options if found else {})
        if found:
            found.lm.close()
        found = _loaded[model] = Loaded(model, options)
    return found.lm


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Iterable[Any] = (),
    stopping_criteria: Iterable[Any] = (),
    generation_config: Any = None,
    streamer: Any = None,
    **inputs: Any,
) -> Any:
    """The function that transformers calls for custom_generate. In: tokens [B, T], padded on the left. Out: the value
    of its own generate(), tokens [B, T + new], padded after a text's end. InvalidArgument names an option that this
    engine does not have.

    assistant_early_exit=k drafts with the first k layers, num_assistant_tokens and assistant_confidence_threshold limit
    drafts; where they have transformers' defaults, the clock does. None of them changes a token.

    Greedy tokens are the model's own, up to the order of summation. Sampling draws by seeds that come from torch's
    generator: torch.manual_seed() repeats it.
    """
    import torch

    # transformers (5.23, _extract_generation_mode_kwargs) hands a streamer to its own methods alone.
    caller = sys._getframe(1)
    if streamer is None and caller.f_code.co_name == "generate" and "custom_generate" in caller.f_locals:
        streamer = caller.f_locals.get("streamer")
    _refuse(generation_config, inputs, streamer, len(input_ids))
    lm = attach(model)
    options = _sampling(logits_processor, generation_config, input_ids.shape[1])
    most, ends, others = _criteria(stopping_criteria)
    options |= _drafting(generation_config)
    options |= {"max_new_tokens": most - input_ids.shape[1], "stop_token_ids": ends, "ignore_eos": True}
    if options["max_new_tokens"] < 1:
        raise InvalidArgument(f"[hf] max_length is {most}, the inputs have {input_ids.shape[1]} tokens already")
    mask = inputs.get("attention_mask")
    rows = [ids if mask is None else ids[mask[i].bool()] for i, ids in enumerate(input_ids)]
    seeds = torch.randint(2**62, (len(rows),)).tolist()
    streams = lm.submit_many([row.tolist() for row in rows], [{**options, "seed": seed} for seed in seeds])
    try:
        texts = [_text(stream, ids, others, streamer) for stream, ids in zip(streams, input_ids, strict=True)]
    finally:
        for stream in streams:
            stream.close()
    if streamer is not None:
        streamer.end()
    pad = generation_config.pad_token_id
    pad = pad if pad is not None else (ends[0] if ends else 0)
    width = max(map(len, texts))
    new = torch.tensor([text + [pad] * (width - len(text)) for text in texts], device=input_ids.device)
    sequences = torch.cat([input_ids, new.to(input_ids.dtype)], 1)
    if not generation_config.return_dict_in_generate:
        return sequences
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    return GenerateDecoderOnlyOutput(sequences=sequences)


def _text(stream: Stream, ids: torch.Tensor, criteria: list[Callable[..., Any]], streamer: Any) -> list[int]:
    """New tokens, up to where one of the criteria says stop; they see the inputs and the text so far, as [1, n]."""
    import torch

    tokens: list[int] = []
    for event in stream:
        tokens.append(event.token)
        if streamer is not None:
            streamer.put(torch.tensor([event.token]))
        if criteria:
            so_far = torch.cat([ids, torch.tensor(tokens, dtype=ids.dtype, device=ids.device)])[None]
            if any(bool(torch.as_tensor(one(so_far, None)).all()) for one in criteria):
                break
    return tokens


def _refuse(config: Any, inputs: dict[str, Any], streamer: Any, batch: int) -> None:
    asked = [name for name in _RETURNS if getattr(config, name, None)]
    if asked:
        raise InvalidArgument(f"[hf] {asked[0]}=True is not supported: drafts have no such values for every token")
    for name in ("num_beams", "num_beam_groups", "penalty_alpha"):
        if (value := getattr(config, name, None)) not in (None, 1):
            raise InvalidArgument(f"[hf] {name}={value} is not supported, want greedy search or sampling")
    if inputs.get("inputs_embeds") is not None:
        raise InvalidArgument("[hf] inputs_embeds are not supported, want input_ids")
    cache = inputs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise InvalidArgument("[hf] past_key_values are not supported: the engine reuses common beginnings by itself")
    if streamer is not None and batch > 1:
        raise InvalidArgument(f"[hf] a streamer takes one text, got {batch}")


def _drafting(config: Any) -> dict[str, Any]:
    asked = {name: getattr(config, name, None) for name in _DRAFTING}
    return {name: value for name, value in asked.items() if value not in (None, _DRAFTING[name])}


def _sampling(processors: Iterable[Any], config: Any, inputs: int) -> dict[str, Any]:
    """inputs: tokens of each text's inputs, padding included."""
    options: dict[str, Any] = {option: getattr(_core.Sampling(), option) for _, option in _WARPERS.values()}
    options["temperature"] = 1.0 if config.do_sample else 0.0
    least = 0
    for one in processors:
        kind = type(one).__name__
        if kind in _HARMLESS:
            continue
        if kind == "MinLengthLogitsProcessor":  # counts the inputs, too
            least = max(least, one.min_length - inputs)
            continue
        if kind not in _WARPERS:
            raise InvalidArgument(f"[hf] logits processor {kind} is not supported, want only {', '.join(_WARPERS)}")
        attribute, option = _WARPERS[kind]
        options[option] = getattr(one, attribute)
    return {**options, "min_tokens": max(least, options.get("min_tokens", 0))}


def _criteria(criteria: Iterable[Any]) -> tuple[int, list[int], list[Callable[..., Any]]]:
    """(most tokens in all, tokens that end a text, what else is asked after every token)."""
    most, ends, others = 0, [], []
    for one in criteria:
        kind = type(one).__name__
        if kind == "MaxLengthCriteria":
            most = min(most or one.max_length, one.max_length)
        elif kind == "EosTokenCriteria":
            ends += one.eos_token_id.flatten().tolist()
        else:
            others.append(one)
    if not most:
        raise InvalidArgument("[hf] neither max_length nor max_new_tokens is known, want one of them")
    return most, ends, others


def _memory(name: str, t: torch.Tensor) -> tuple[str, list[int], int, int]:
    if str(t.dtype) not in _DTYPES:
        raise UnsupportedModel(f"[hf] {name} is {t.dtype}, want {', '.join(_DTYPES)}")
    return _DTYPES[str(t.dtype)], list(t.shape), t.data_ptr(), t.numel() * t.element_size()


def _state(model: Any) -> tuple[Any, ...]:
    """Another one where a weight is at another place, or was written since."""
    return tuple((t.data_ptr(), t._version) for t in model.state_dict().values())
