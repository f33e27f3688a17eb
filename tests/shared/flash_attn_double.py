"""What flash_attn_with_kvcache promises, in plain torch: bench/gpu/attention.py's peer where none is installed."""

import torch
import torch.nn.functional as F

__version__ = "of the tests"


def flash_attn_with_kvcache(q, k_cache, v_cache, *, cache_seqlens, causal):
    """q [1, n, H, d], caches [1, slots, KV, d]: the last row sees all `cache_seqlens` keys, each before it one less."""
    n, length = q.shape[1], int(cache_seqlens[0])
    group = q.shape[2] // k_cache.shape[2]
    k, v = (c[0, :length].repeat_interleave(group, 1).transpose(0, 1).float() for c in (k_cache, v_cache))
    seen = torch.arange(length)[None] <= length - n + torch.arange(n)[:, None] if causal else None
    return F.scaled_dot_product_attention(q[0].transpose(0, 1).float(), k, v, attn_mask=seen).transpose(0, 1)[None]
