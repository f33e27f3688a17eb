"""One peer, one model, one process: prints seconds a token as JSON. Weights are noise: for speed only shapes count.

Imports nothing of swiftk but the shapes.
"""

from __future__ import annotations

import argparse
import json
import os
from time import perf_counter
from typing import Any

import models
import torch

WAYS = ("torch, CUDA graph", "torch.compile, CUDA graph", "transformers, generate()",
        "transformers, static cache, compiled")
_PROMPT = 128


def noise(config: dict[str, Any], device: str) -> dict[str, torch.Tensor]:
    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        made = torch.empty(shape, device=device, dtype=torch.bfloat16)
        return made.fill_(1) if len(shape) == 1 else made.normal_(0, 0.02)

    return {name: tensor(shape) for name, shape in models.shapes(config).items()}


def torch_seconds(given: argparse.Namespace, config: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
    from torch_llama import Llama, seconds_per_token

    model = Llama(config, noise(config, given.device), -(-(len(prompt) + given.tokens + 8) // 64) * 64)
    compiled = given.way.startswith("torch.compile")
    return {"seconds": seconds_per_token(model, prompt, given.tokens, compiled), "version": torch.__version__}


def transformers_model(config: dict[str, Any], device: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    fields = {key: value for key, value in config.items() if key not in ("architectures", "torch_dtype")}
    settings = transformers.LlamaConfig(**fields)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).eval()
    for name in ("eos_token_id", "bos_token_id"):
        setattr(model.generation_config, name, None)
    return model


@torch.inference_mode()
def transformers_seconds(given: argparse.Namespace, config: dict[str, Any], prompt: list[int]) -> dict[str, Any]:
    """From the difference of a long and a short text, so that prefill and set-up are not counted."""
    import transformers

    model = transformers_model(config, given.device)
    ids = torch.tensor([prompt], device=given.device)
    options = {"cache_implementation": "static"} if "static" in given.way else {}
    if options and given.device == "cuda":
        options["compile_config"] = transformers.CompileConfig(mode="reduce-overhead", fullgraph=False)

    def taken(count: int) -> float:
        began = perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count,
                       max_new_tokens=count, pad_token_id=0, **options)
        if given.device == "cuda":
            torch.cuda.synchronize()
        return perf_counter() - began

    # The long text comes first: a static cache that is long enough is kept, and with it what was compiled for it.
    for count in (given.tokens, 2, given.tokens, 2):
        taken(count)
    seconds = min(taken(given.tokens) for _ in range(2)) - min(taken(2) for _ in range(2))
    return {"seconds": seconds / (given.tokens - 2), "version": transformers.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the answer
    config = models.config(given.model, given.tiny)
    prompt = [(7919 * i + 13) % config["vocab_size"] for i in range(_PROMPT)]
    run = torch_seconds if given.way.startswith("torch") else transformers_seconds
    answer.write(json.dumps(run(given, config, prompt)))


if __name__ == "__main__":
    main()
