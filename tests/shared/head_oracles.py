"""Slow oracles of what draft models say: EAGLE's row by row in float64, the modules that are trained, and independent
models by themselves.

Each oracle is made of the drafter's folder and the model's, and called with (text, features, path): logits
[1 + len(path), V] after a text and each token of a path that follows it, and how sure the drafter foretells to be there
(None: it does not). features [len(text) - 1, taps * D]: of all tokens of the text but the last. A module is given huge
ones of the others.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

import reference
from decode import open_session
from swiftk import _core
from swiftk.files.safetensors_io import decode, read_folder


def settings(folder):
    """config.json, and the part of it that is of the layers."""
    config = json.loads((folder / "config.json").read_text())
    return config, config.get("transformer_layer_config", config)


def arrays(folder):
    return {n: np.array(t.bits if t.dtype in ("I64", "BOOL") else decode(t)) for n, t in read_folder(folder).items()}


def tensors(folder):
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(array) for name, array in arrays(folder).items()}


def shape_of(c):
    from swiftk.train.shape import Rope, Shape

    rope = Rope(tuple(c["rope_theta"] ** (-2 * i / c["head_dim"]) for i in range(c["head_dim"] // 2)))
    sizes = {"D": "hidden_size", "H": "num_attention_heads", "n_kv": "num_key_value_heads", "d": "head_dim"}
    sizes |= {"L": "num_hidden_layers", "F": "intermediate_size", "V": "vocab_size", "eps": "rms_norm_eps"}
    flags = dict.fromkeys(("qkv_bias", "o_bias", "mlp_bias", "qk_norm"), False)
    return Shape(**{name: c[key] for name, key in sizes.items()}, **flags, tied=True, ropes=(rope,))


def among_all(logits, ids, V):
    """Logits [.., V], of which a drafter has some."""
    out = np.full((len(logits), V), -np.inf)
    out[:, ids] = logits
    return out


def beyond(features, count):
    return np.concatenate([features, np.full((count, features.shape[1]), 1e9, np.float32)])


class EagleOracle:
    """Any format of EAGLE-1, 2 and 3."""

    def __init__(self, folder, target):
        self.w, self.model = arrays(folder), arrays(target)
        config, self.c = settings(folder)
        self.normed = config.get("norm_before_residual", False)
        self.first = next(p for p in ("midlayer.", "layers.0.", "transformer.") if f"{p}mlp.up_proj.weight" in self.w)
        self.fused = f"{self.first}hidden_norm.weight" in self.w
        self.target_eps = settings(target)[0]["rms_norm_eps"]
        self.text, self.rows = [], [[] for _ in range(self.c["num_hidden_layers"])]

    def __call__(self, text, features, path):
        said = [self._follow(text, features)]
        rows = [list(known) for known in self.rows]
        for place, token in enumerate(path, len(text) - 1):
            said.append(self._row(token, said[-1], True, place, rows))
        if not self.fused:
            head = self.model.get("lm_head.weight", self.model["model.embed_tokens.weight"])
            return np.array(said) @ head.T.astype(np.float64), None
        head = self.w["lm_head.weight"].astype(np.float64)
        found = np.array([self._norm(one, "norm.weight") for one in said]) @ head.T
        return among_all(found, np.arange(len(head)) + self.w.get("d2t", 0), self.c["vocab_size"]), None

    def _follow(self, text, features):
        """Rows of the text; those that it shares with the text before stay."""
        both = min(len(text), len(self.text))
        same = next((i for i in range(both) if text[i] != self.text[i]), both)
        kept = max(0, min(same, len(text) - 1) - 1)
        self.text, self.rows = list(text), [known[:kept] for known in self.rows]
        for place in range(kept, len(text) - 1):
            said = self._row(text[place + 1], features[place].astype(np.float64), False, place, self.rows)
        return said

    def _norm(self, x, name):
        return reference.rmsnorm(x, self.w[name], self.c["rms_norm_eps"])

    def _row(self, token, feature, own, place, rows):
        at = self.first
        embedded = self.w.get("embed_tokens.weight", self.model["model.embed_tokens.weight"])[token].astype(np.float64)
        fc, bias = (self.w.get(f"fc.{n}", self.w.get(f"fusion_fc.{n}", 0)) for n in ("weight", "bias"))
        if self.fused:
            x = feature if own else fc @ feature
            normed = self._norm(x, f"{at}hidden_norm.weight")
            read = np.concatenate([self._norm(embedded, f"{at}input_layernorm.weight"), normed])
            x = normed if self.normed else x
        else:
            last = feature if own else reference.rmsnorm(feature, self.model["model.norm.weight"], self.target_eps)
            read = x = fc @ np.concatenate([embedded, last]) + bias
        for layer, known in enumerate(rows):
            at = self.first if layer == 0 else f"layers.{layer}."
            if layer > 0:
                read = self._norm(x, f"{at}input_layernorm.weight")
            x = x + self._attention(read, at, place, known)
            y = self._norm(x, f"{at}post_attention_layernorm.weight")
            gate, up = self.w[f"{at}mlp.gate_proj.weight"] @ y, self.w[f"{at}mlp.up_proj.weight"] @ y
            x = x + self.w[f"{at}mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
        return x

    def _attention(self, read, at, place, known):
        d = self.c["head_dim"]
        q, k, v = ((self.w[f"{at}self_attn.{n}_proj.weight"] @ read).reshape(1, -1, d) for n in "qkv")
        if f"{at}self_attn.q_norm.weight" in self.w:
            q, k = self._norm(q, f"{at}self_attn.q_norm.weight"), self._norm(k, f"{at}self_attn.k_norm.weight")
        angles = place * self.c["rope_theta"] ** (-2 * np.arange(d // 2) / d)
        cos, sin = np.cos(angles)[None], np.sin(angles)[None]
        known.append((reference.rope(k, cos, sin)[0], v[0]))
        keys, values = (np.stack(part) for part in zip(*known, strict=True))
        out = reference.attention(reference.rope(q, cos, sin), [keys], [values], 0, d**-0.5)
        return self.w[f"{at}self_attn.o_proj.weight"] @ out[0].ravel()


def trained_eagle(folder, target):
    """EAGLE-3 of SpecForge's format, or EAGLE-2 of one layer."""
    torch = pytest.importorskip("torch")
    from swiftk.train.eagle import EagleDrafter
    from swiftk.train.eagle2 import Eagle2Drafter

    stored, model, (_, c) = tensors(folder), tensors(target), settings(folder)
    fused, embedding, norm = "d2t" in stored, model["model.embed_tokens.weight"], model["model.norm.weight"]
    ids = stored["d2t"] + torch.arange(len(stored["d2t"])) if fused else np.arange(c["vocab_size"])
    module = EagleDrafter(shape_of(c), 3, ids) if fused else Eagle2Drafter(shape_of(c))
    module.load_state_dict(stored)
    head, eps = model.get("lm_head.weight", embedding), settings(target)[0]["rms_norm_eps"]

    def said(text, features, path):
        read = torch.from_numpy(beyond(features, len(path) + 1))
        if not fused:
            read = torch.nn.functional.rms_norm(read, norm.shape, norm, eps)
        with torch.no_grad():
            steps = module(read[None], torch.tensor([[*text, *path]]), embedding, len(path) + 1)
            found = torch.stack([step[0, len(text) - 2] for step in steps])
            return among_all(found if fused else found @ head.T, ids, c["vocab_size"]), None

    return said


def trained_block(folder, target):
    torch = pytest.importorskip("torch")
    from swiftk.train.block import BlockDrafter

    stored, (config, c) = tensors(folder), settings(folder)
    V, size, rank = c["vocab_size"], config["block_size"], config.get("markov_rank", 0)
    ids = stored["d2t"] + torch.arange(len(stored["d2t"])) if "d2t" in stored else None
    foretells = config.get("enable_confidence_head", False)
    if foretells:  # one that reads states alone has nothing to add for the token before
        weight = stored["confidence_head.proj.weight"]
        padding = (0, c["hidden_size"] + rank - weight.shape[1])
        stored["confidence_head.proj.weight"] = torch.nn.functional.pad(weight, padding)
    taps, mask = stored["fc.weight"].shape[1] // c["hidden_size"], {**config, **config.get("dflash_config", {})}
    module = BlockDrafter(shape_of(c), c["num_hidden_layers"], taps, size, rank, mask["mask_token_id"], ids, foretells)
    module.load_state_dict(stored)
    embedding = tensors(target)["model.embed_tokens.weight"]
    opens = config.get("speculators_model_type") == "dspark"  # the first slot says what comes next, else the second

    def said(text, features, path):
        tokens = [*text, *path, *[0] * (size - len(path))]
        read = torch.from_numpy(beyond(features, len(tokens) - len(features)))
        place = torch.tensor([[len(text) - 2]])
        with torch.no_grad():
            found, sure = module(read[None], torch.tensor([tokens]), place, embedding, lambda x: x @ embedding.T)
        slots = slice(not opens, len(path) + 1 + (not opens))
        logits = among_all(found[0, 0, slots], np.arange(V) if ids is None else ids, V)
        return logits, sure[0, 0, slots].sigmoid().numpy() if foretells else None

    return said


def trained_moa(folder, target):
    torch = pytest.importorskip("torch")
    from swiftk.train.drafter_settings import DrafterSettings
    from swiftk.train.frozen import Frozen
    from swiftk.train.moa import Moa, MoaDrafter, shapes_of
    from swiftk.train.shape import Rope, read_shape

    stored, last = tensors(folder), settings(folder)[0]["target_layer_inference"]
    shape, model = read_shape(target, 400), Frozen(target, torch.device("cpu"))
    model.config["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}  # this drafter's, not the model's
    kind = Moa(DrafterSettings(kind="moa", target_layers=last, context=400), shape, model, np.zeros(0, np.int32))
    sizes = []
    for name, s in zip(("self_attention", "layer_self_attention", "cross_attention"), shapes_of(shape, model)):
        units = stored[f"{name}.mlp.gate_proj.weight"].shape[0]
        kv_heads = stored[f"{name}.self_attn.k_proj.weight"].shape[0] // s.d
        turns = tuple(10000.0 ** (-2 * i / s.d) for i in range(s.d // 2))
        biased = f"{name}.self_attn.q_proj.bias" in stored
        sizes.append(replace(s, F=units, n_kv=kv_heads, ropes=(Rope(turns),), qkv_bias=biased))
    kind.module = MoaDrafter(*sizes)
    kind.module.load_state_dict(stored)

    def said(text, _, path):
        tokens = [*text, *path]
        known = np.minimum(np.arange(len(tokens)), len(text) - 2)  # the last token of a text is not verified yet
        with torch.no_grad():
            proposed, _ = kind.states(np.array([tokens]), known[None])
            return kind.logits(proposed.after)[0, len(text) - 1 :].double().numpy(), None

    return said


def alone(folder, target):
    """An independent model, by passes of its own over the whole text."""
    session = open_session(_core.Model(str(folder), dtype="float32"))
    own, V = (settings(one)[0]["vocab_size"] for one in (folder, target))
    both = np.arange(min(own, V))

    def said(text, _, path):
        known, rows = [token if token < own else 0 for token in (*text, *path)], []
        for end in range(len(text), len(known) + 1):
            session.prefill(np.int32(known[:end]))
            rows.append(session.logits[0][both])
        return among_all(rows, both, V), None

    return said
