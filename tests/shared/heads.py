"""Random draft models, in the formats that others publish: they draft badly."""

import json
import re
import zlib

import numpy as np

from swiftk.files.safetensors_io import Tensor, encode, read_folder, write_folder

FORMATS = ("dspark", "dflash", "z-lab")  # speculators' two, and DFlash's own
# SpecForge's; EAGLE's own, which names no layers; speculators'; a narrower one; EAGLE-1 and 2; speculators' of these.
EAGLES = ("specforge", "eagle3", "speculators", "narrow", "eagle1", "fusion")


def block_config(model, form, layers=2, block=5, taps=(0, 2), mask=3, rank=8, draft_vocab=None):
    """config.json for a model's config."""
    shape = {
        "model_type": "qwen3",
        "hidden_size": model["hidden_size"],
        "intermediate_size": 72,
        "num_hidden_layers": layers,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": model["vocab_size"],
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    if form == "z-lab":
        inner = {"mask_token_id": mask, "target_layer_ids": list(taps)}
        return {**shape, "architectures": ["DFlashDraftModel"], "block_size": block, "dflash_config": inner}
    return {
        "speculators_model_type": form,
        "architectures": ["DSparkSpeculator"],
        "block_size": block,
        "mask_token_id": mask,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in taps],
        "draft_vocab_size": draft_vocab or model["vocab_size"],
        "transformer_layer_config": shape,
        **(
            {"markov_rank": rank, "markov_head_type": "vanilla", "enable_confidence_head": True}
            if form == "dspark"
            else {}
        ),
    }


def make_block(folder, target, form="dspark", seed=0, dtype="F32", changes=None, **shape):
    """A random block head for the model in `target`. changes: of its config.json."""
    model = json.loads((target / "config.json").read_text())
    config = block_config(model, form, **shape)
    config.update(changes or {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    inner = config.get("transformer_layer_config", config)
    taps = config.get("aux_hidden_state_layer_ids") or config["dflash_config"]["target_layer_ids"]
    own = config.get("draft_vocab_size", inner["vocab_size"])
    shapes = _shapes(inner, len(taps), config.get("markov_rank", 0), own)
    if config.get("enable_confidence_head"):
        width = inner["hidden_size"] + config["markov_rank"] * config.get("confidence_head_with_markov", True)
        shapes |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    others = _tables(inner["vocab_size"], own, seed) if shape.get("draft_vocab") else {}
    return _written(folder, shapes, seed, dtype, others)


def make_bigrams(folder, target, texts, rank=600, block=7):
    """A block head that knows how often tokens of these texts followed each of the `rank` most frequent ones: its
    layers say nothing, and its bias says that."""
    changes = {"enable_confidence_head": False}
    random = make_block(folder / "random", target, layers=1, block=block, taps=(0,), rank=rank, changes=changes)
    tensors = dict(read_folder(random))
    before, after = (f"markov_head.markov_w{i}.weight" for i in (1, 2))
    followed = np.zeros((len(tensors[before].bits),) * 2, np.float32)
    for text in texts:
        np.add.at(followed, (text[:-1], text[1:]), 1)
    frequent = np.argsort(-followed.sum(1), kind="stable")[:rank]
    one_each = np.arange(len(followed))[:, None] == frequent
    tensors["norm.weight"] = Tensor("F32", np.zeros_like(tensors["norm.weight"].bits))
    tensors[before] = Tensor("F32", encode(one_each.astype(np.float32), "F32"))
    tensors[after] = Tensor("F32", encode(np.log1p(1000 * followed[frequent].T), "F32"))
    (folder / "config.json").write_text((random / "config.json").read_text())
    for _ in write_folder(folder, tensors):
        pass
    return folder


def _tables(V, own, seed):
    """Of a draft vocabulary: where its tokens are among the model's."""
    ids = np.sort(np.random.default_rng(seed).permutation(V)[:own])
    return {"d2t": Tensor("I64", ids - np.arange(own)), "t2d": Tensor("BOOL", np.isin(np.arange(V), ids))}


def _written(folder, shapes, seed, dtype, others=None):
    """Random weights of these shapes; others: tensors as they are."""
    tensors = dict(others or {})
    for name, shape in shapes.items():
        noise = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, np.float32)
        gain = 1 if "embed_tokens" in name else 1.5 / shape[-1] ** 0.5
        is_norm = len(shape) == 1 and not name.endswith("bias")
        tensors[name] = Tensor(dtype, encode(1 + noise / 8 if is_norm else noise * gain, dtype))
    for _ in write_folder(folder, tensors):
        pass
    return folder


def eagle_config(model, form, taps=(0, 2, 5), draft_vocab=100):
    """config.json for a model's config."""
    shape = {
        "model_type": "qwen3" if form == "speculators" else "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32 if form == "narrow" else model["hidden_size"],
        "intermediate_size": 72,
        "num_hidden_layers": 2 if form in ("speculators", "eagle1") else 1,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": model["vocab_size"],
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    key = "eagle_aux_hidden_state_layer_ids"
    if form == "eagle1":
        return shape
    if form == "eagle3":
        return {**shape, "draft_vocab_size": draft_vocab}
    if form in ("specforge", "narrow"):
        own = {"draft_vocab_size": draft_vocab, "eagle_config": {"use_aux_hidden_state": True, key: list(taps)}}
        narrow = {"target_hidden_size": model["hidden_size"]} if form == "narrow" else {}
        return {**shape, "architectures": ["LlamaForCausalLMEagle3"], **own, **narrow}
    inner = {"transformer_layer_config": shape}
    if form == "fusion":
        return {"speculators_model_type": "eagle", "architectures": ["EagleSpeculator"], "layernorms": False, **inner}
    own = {"draft_vocab_size": model["vocab_size"], "norm_before_residual": True, key: [tap + 1 for tap in taps]}
    return {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"], **own, **inner}


def make_eagle(folder, target, form="specforge", seed=0, dtype="F32", changes=None, drop=(), **options):
    """A random EAGLE head for the model in `target`. changes: of its config.json; drop: tensors to leave out."""
    model = json.loads((target / "config.json").read_text())
    config = eagle_config(model, form, **options)
    config.update(changes or {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    inner, others = config.get("transformer_layer_config", config), {}
    own = config.get("draft_vocab_size", inner["vocab_size"])
    if own < inner["vocab_size"]:
        others = _tables(inner["vocab_size"], own, seed)
    shapes = _eagle_shapes(inner, form, model["hidden_size"], own)
    kept = {name: shape for name, shape in shapes.items() if name not in drop}
    return _written(folder, kept, seed, dtype, {name: t for name, t in others.items() if name not in drop})


def _eagle_shapes(c, form, width, own):
    D, F, V, d = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    fused = form not in ("eagle1", "fusion")
    out = {f"{'fusion_' if form == 'fusion' else ''}fc.weight": (D, 3 * width if fused else 2 * D)}
    if form == "eagle1":
        out["fc.bias"] = (D,)
    if form in ("speculators", "narrow", "eagle1"):
        out["embed_tokens.weight"] = (V, D)
    if fused:
        out |= {"norm.weight": (D,), "lm_head.weight": (own, D)}
    first = {"specforge": "midlayer.", "eagle3": "midlayer.", "narrow": "midlayer.", "fusion": "transformer."}
    for i in range(c["num_hidden_layers"]):
        at = first.get(form, "layers.0.") if i == 0 else f"layers.{i}."
        read = 2 * D if fused and i == 0 else D
        out |= {f"{at}self_attn.{n}_proj.weight": (rows, read) for n, rows in (("q", q), ("k", kv), ("v", kv))}
        out |= {f"{at}self_attn.o_proj.weight": (D, q), f"{at}post_attention_layernorm.weight": (D,)}
        out |= {f"{at}mlp.{n}_proj.weight": (F, D) for n in ("gate", "up")} | {f"{at}mlp.down_proj.weight": (D, F)}
        out |= {f"{at}input_layernorm.weight": (D,)} if fused or i > 0 else {}
        out |= {f"{at}hidden_norm.weight": (D,)} if fused and i == 0 else {}
        if c["model_type"] == "qwen3":
            out |= {f"{at}self_attn.q_norm.weight": (d,), f"{at}self_attn.k_norm.weight": (d,)}
    return out


def _shapes(c, taps, rank, own):
    D, F, V, d = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {"fc.weight": (D, taps * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    for i in range(c["num_hidden_layers"]):
        at = f"layers.{i}."
        out |= _layer(at, D, q, kv, F)
        out |= {f"{at}self_attn.{n}_norm.weight": (d,) for n in ("q", "k")}
    if own < V:
        out["lm_head.weight"] = (own, D)
    if rank:
        out |= {"markov_head.markov_w1.weight": (V, rank), "markov_head.markov_w2.weight": (own, rank)}
    return out


def make_moa(
    folder, target, last=0, seed=0, dtype="F32", own=True, changes=None, kv_heads=(1, 2, 2), heads=None, form="Llama"
):
    """A random Mixture of Attentions for the model in `target`. last: its layers that run after; own: config.json says
    what its authors' leaves out. kv_heads: of the layers over tokens, over states, and between; heads: over states.
    form: "Qwen2" has biases of q, k and v."""
    model = json.loads((target / "config.json").read_text())
    D, F, H = model["hidden_size"], 40, model["num_attention_heads"]
    d = model.get("head_dim") or D // H
    wide = 2 * model["num_key_value_heads"] * d
    config = {**model, "architectures": [f"MOASpec{form}ForCausalLM"], "model_type": form.lower(), "head_dim": d}
    config["rope_theta"] = 10000.0
    if own:
        config |= {"target_layer_inference": last, "layer_self_attention_num_attention_heads": heads or H}
    config.pop("rope_parameters", None)
    config.update(changes or {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    of_tokens, of_states, between = kv_heads
    shapes = {"Ekv2E.weight": (D, wide), "Ekv2E.bias": (D,)}
    shapes |= _layer("self_attention.", D, H * d, of_tokens * d, F)
    shapes |= _layer("layer_self_attention.", wide, wide, of_states * (wide // (heads or H)), F + 7)
    shapes |= _layer("cross_attention.", D, H * d, between * d, F + 8)
    if form == "Qwen2":
        shapes |= {
            name.replace("weight", "bias"): rows[:1] for name, rows in shapes.items() if re.search(r"[qkv]_proj", name)
        }
    return _written(folder, shapes, seed, dtype)


def _layer(at, D, q, kv, F):
    out = {f"{at}input_layernorm.weight": (D,), f"{at}post_attention_layernorm.weight": (D,)}
    out |= {f"{at}self_attn.{n}_proj.weight": (rows, D) for n, rows in (("q", q), ("k", kv), ("v", kv))}
    out |= {f"{at}self_attn.o_proj.weight": (D, q), f"{at}mlp.down_proj.weight": (D, F)}
    return out | {f"{at}mlp.{n}_proj.weight": (F, D) for n in ("gate", "up")}
