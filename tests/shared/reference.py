"""The one oracle: every op, slow and plain, in float64. Takes the numbers as stored, so only arithmetic may differ."""

import numpy as np

from cases import EPS

MASK64 = (1 << 64) - 1


def to_bf16(x):
    """float32 -> uint16 bits, rounded to nearest even."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def stored(x, dtype):
    """x as an array of a stored dtype; bf16 as its bits."""
    if dtype == "bfloat16":
        return to_bf16(x)
    return np.ascontiguousarray(x, np.float16 if dtype == "float16" else np.float32)


def value(a):
    """A stored array as float64."""
    if a.dtype == np.uint16:
        return (a.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return a.astype(np.float64)


def codes(x):
    """x [.., d] as int8 and its scales [.., 1]: largest magnitudes / 127, cut to 16 significant bits."""
    x = np.ascontiguousarray(x, np.float32)
    scale = ((np.abs(x).max(-1, keepdims=True) / np.float32(127)).view(np.uint32) & 0xFFFFFF00).view(np.float32)
    scale = np.where(scale < 2.0**-110, np.float32(0), scale)
    return np.rint(x * (np.float32(1) / np.where(scale > 0, scale, np.inf))).astype(np.int8), scale


def cached(x, dtype):
    """Keys or values [.., d] as floats, as a cache stores them."""
    if dtype == "int8":
        code, scale = codes(x)
        return code * scale
    return value(stored(x, dtype)).astype(np.float32)


def rmsnorm(x, weight, eps):
    x = np.asarray(x, np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope(x, cos, sin):
    """x [n, heads, d]; cos, sin [n, d / 2]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.asarray(cos, np.float64)[:, None], np.asarray(sin, np.float64)[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def qkv(x, norm, eps, wq, wk, wv, d, cos, sin, bias=None, q_norm=None, k_norm=None, over="heads", of_q=None):
    """q [n, H, d], k and v [n, n_kv, d]. of_q: the tables of q, where they are others."""
    y = rmsnorm(x, norm, eps)
    out = y @ np.concatenate([value(wq), value(wk), value(wv)]).T
    if bias is not None:
        out = out + bias
    q, k, v = np.split(out, [len(wq), len(wq) + len(wk)], axis=1)
    if over == "whole" and q_norm is not None:
        q, k = rmsnorm(q, q_norm, eps), rmsnorm(k, k_norm, eps)
    q, k, v = (t.reshape(len(x), -1, d) for t in (q, k, v))
    if over == "heads":
        q = q if q_norm is None else rmsnorm(q, q_norm, eps)
        k = k if k_norm is None else rmsnorm(k, k_norm, eps)
    if cos is not None:
        q, k = rope(q, *(of_q or (cos, sin))), rope(k, cos, sin)
    if over == "rotated heads" and q_norm is not None:
        q, k = rmsnorm(q, q_norm, eps), rmsnorm(k, k_norm, eps)
    return q, k, v


def capped(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def attention(q, keys, values, window, scale, soft_cap=0):
    """q [n, H, d]; keys, values: per row [positions, n_kv, d], in order, the row's own last."""
    out = np.empty(q.shape)
    for i, (k, v) in enumerate(zip(keys, values)):
        k, v = (np.asarray(t[-window:] if window else t, np.float64) for t in (k, v))
        group = q.shape[1] // k.shape[1]
        for h in range(q.shape[1]):
            s = capped(k[:, h // group] @ np.asarray(q[i, h], np.float64) * scale, soft_cap)
            p = np.exp(s - s.max())
            out[i, h] = p @ v[:, h // group] / p.sum()
    return out


def residual(x, inp, w, bias=None, scale=1, norm=None, eps=EPS):
    out = np.asarray(inp, np.float64) @ value(w).T + (0 if bias is None else bias)
    return np.asarray(x, np.float64) + scale * (out if norm is None else rmsnorm(out, norm, eps))


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gate_up(x, norm, eps, gate, up, bias=None, activation=silu):
    """bias: of gate, then of up. norm None: x as it is."""
    y = np.asarray(x, np.float64) if norm is None else rmsnorm(x, norm, eps)
    g, u = y @ value(gate).T, y @ value(up).T
    if bias is not None:
        g, u = g + bias[: len(gate)], u + bias[len(gate) :]
    return activation(g) * u


def lm_head(x, norm, eps, w, scale=1, soft_cap=0):
    return capped(scale * (rmsnorm(x, norm, eps) @ value(w).T), soft_cap)


def philox(key, low, high):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    c = [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def gumbel(seed, pos, vocab, stream):
    """Noise of every token at a position."""
    blocks = (philox(seed & MASK64, i, stream << 32 | pos & 0xFFFFFFFF) for i in range((vocab + 3) // 4))
    u = (np.array([w for b in blocks for w in b][:vocab], np.float64) + 0.5) / 2**32
    return -np.log(-np.log(u))


def topk(logits, k, scores=None, scale=1.0, noise=None):
    """ids [n, k], their logits [n, k], log sum exp [n], sum exp(scale * logits - the largest) [n]."""
    keys = (np.asarray(logits if scores is None else scores, np.float32) * np.float32(scale)).astype(np.float64)
    logits = np.asarray(logits, np.float64)
    if noise is not None:
        keys = keys + noise
    ids = np.argsort(-keys, axis=1, kind="stable")[:, :k]
    top = logits.max(1, keepdims=True)
    lse = top + np.log(np.exp(logits - top).sum(1, keepdims=True))
    scaled = (logits.astype(np.float32) * np.float32(scale)).astype(np.float64)
    mass = np.exp(scaled - scaled.max(1, keepdims=True)).sum(1)
    return ids, np.take_along_axis(logits, ids, 1), lse[:, 0], mass
