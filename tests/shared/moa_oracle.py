"""What a Mixture of Attentions says, by the module that is trained."""

from dataclasses import replace

import numpy as np
import pytest


def trained(target, folder, last):
    """propose(text, drafted) -> logits after the text and each of the drafted tokens, by the module that is trained."""
    torch = pytest.importorskip("torch")
    from swiftk.files.safetensors_io import decode, read_folder
    from swiftk.train.drafter_settings import DrafterSettings
    from swiftk.train.frozen import Frozen
    from swiftk.train.moa import Moa, MoaDrafter, shapes_of
    from swiftk.train.shape import Rope, read_shape

    stored = {name: torch.from_numpy(decode(t).copy()) for name, t in read_folder(folder).items()}
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

    def propose(text, drafted):
        tokens = [*text, *drafted]
        known = np.minimum(np.arange(len(tokens)), len(text) - 2)  # the last token of a text is not verified yet
        with torch.no_grad():
            proposed, _ = kind.states(np.array([tokens]), known[None])
            return kind.logits(proposed.after)[0, len(text) - 1 :].numpy()

    return propose
