"""What an EAGLE head says after any path, row by row in float64, whatever its format."""

import json

import numpy as np

import reference
from swiftk.files.safetensors_io import decode, read_folder


class EagleOracle:
    def __init__(self, folder, target):
        self.w = {name: t.bits if t.dtype in ("I64", "BOOL") else decode(t) for name, t in read_folder(folder).items()}
        self.model = {name: decode(t) for name, t in read_folder(target).items()}
        config = json.loads((folder / "config.json").read_text())
        self.c = config.get("transformer_layer_config", config)
        self.normed = config.get("norm_before_residual", False)
        self.first = next(p for p in ("midlayer.", "layers.0.", "transformer.") if f"{p}mlp.up_proj.weight" in self.w)
        self.fused = f"{self.first}hidden_norm.weight" in self.w
        self.target_eps = json.loads((target / "config.json").read_text())["rms_norm_eps"]

    def logits(self, text, features, path):
        """[V] after `path` of drafted tokens after `text`; features [len(text) - 1, taps * D]: of all but the last."""
        tokens, said, rows = [*text, *path], None, [[] for _ in range(self.c["num_hidden_layers"])]
        for place in range(len(tokens) - 1):
            own = place >= len(text) - 1
            said = self._row(tokens[place + 1], said if own else features[place].astype(np.float64), own, place, rows)
        if not self.fused:
            head = self.model.get("lm_head.weight", self.model["model.embed_tokens.weight"])
            return head.astype(np.float64) @ said
        found = self.w["lm_head.weight"].astype(np.float64) @ self._norm(said, "norm.weight")
        if "d2t" not in self.w:
            return found
        out = np.full(self.c["vocab_size"], -np.inf)
        out[np.arange(len(found)) + self.w["d2t"]] = found
        return out

    def _norm(self, x, name, eps=None):
        return reference.rmsnorm(x, self.w[name], self.c["rms_norm_eps"] if eps is None else eps)

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
