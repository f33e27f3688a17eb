"""Prices of sublayers, from draft steps of a few skip sets on a machine whose prices are planted."""

import random

import pytest

from swiftk.draft.draft_spec import DraftSpec
from swiftk.search.sublayers import SublayerPrices, sublayers
from swiftk.search.swift import random_set

LAYERS = 16
CONFIG = {
    "num_layers": LAYERS,
    "hidden_size": 256,
    "vocab_size": 4000,
    "head_dim": 32,
    "num_heads": 8,
    "num_kv_heads": 4,
    "ffn": 700,
}
NONE, ALL = DraftSpec(), DraftSpec.early_exit(0)


def planted(shares, skip):
    """Plain steps of a draft step, where head, attention and MLP take these shares of one."""
    skipped = sublayers(skip, LAYERS)
    attention = sum(2 * i not in skipped for i in range(LAYERS)) / LAYERS
    mlp = sum(2 * i + 1 not in skipped for i in range(LAYERS)) / LAYERS
    return shares[0] + shares[1] * attention + shares[2] * mlp


def test_the_prior_is_bytes():
    prices = SublayerPrices(CONFIG)
    head, attention, mlp = 256 * 4000, LAYERS * 2 * 256 * 32 * 12, LAYERS * 3 * 256 * 700
    whole = head + attention + mlp
    assert prices.price(NONE) == pytest.approx(1)
    assert prices.price(ALL) == pytest.approx(head / whole)
    assert prices.price(DraftSpec(attn=range(LAYERS))) == pytest.approx((head + mlp) / whole)
    assert prices.price(DraftSpec(mlp=range(8))) == pytest.approx(1 - mlp / 2 / whole)
    assert prices.price(DraftSpec(attn=[3, 12], mlp=[13], exit_layer=4)) == pytest.approx(
        (head + 3 / 16 * attention + 4 / 16 * mlp) / whole
    )


@pytest.mark.parametrize("shares", [(0.1, 0.4, 0.5), (0.05, 0.5, 0.45), (0.2, 0.1, 0.7)], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_planted_prices_are_found_from_a_few_sets(shares, seed):
    """Attention may cost more than its bytes say, and the head less."""
    rng, prices, bytes_alone = random.Random(seed), SublayerPrices(CONFIG), SublayerPrices(CONFIG)
    played = [random_set(rng.randint(4, 20), LAYERS, rng) for _ in range(5)]
    for _ in range(12):
        for skip in [*played, DraftSpec.early_exit(5), DraftSpec(attn=range(2, 14))]:
            prices.observe(skip, planted(shares, skip) * rng.gauss(1, 0.03))
    unseen = [NONE, DraftSpec.early_exit(2), DraftSpec(mlp=range(2, 14))]
    unseen += [random_set(rng.randint(2, 26), LAYERS, rng) for _ in range(10)]
    wrong = [abs(prices.price(skip) - planted(shares, skip)) for skip in unseen]
    before = [abs(bytes_alone.price(skip) - planted(shares, skip)) for skip in unseen]
    assert max(wrong) < 0.05
    assert sum(wrong) < 0.5 * sum(before)


def test_one_set_reports_its_own_price_and_leaves_the_others_in_order():
    prices, skip = SublayerPrices(CONFIG), DraftSpec.uniform(LAYERS)
    dear = prices.price(skip) + 0.15
    for _ in range(20):
        prices.observe(skip, dear)
    assert prices.price(skip) == pytest.approx(dear, abs=0.02)
    assert prices.price(NONE) == pytest.approx(1, abs=0.1), "a draft that skips nothing is a plain step"
    exits = [prices.price(DraftSpec.early_exit(layer)) for layer in range(LAYERS + 1)]
    assert exits == sorted(exits)


def test_a_change_of_the_machine_is_followed():
    prices, skip = SublayerPrices(CONFIG), DraftSpec.early_exit(4)
    for price in [0.5] * 200 + [0.25] * 200:
        prices.observe(skip, price)
    assert prices.price(skip) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("price", [1e-6, 50.0])
def test_absurd_measurements_leave_every_price_positive(price):
    prices = SublayerPrices(CONFIG)
    for _ in range(50):
        prices.observe(DraftSpec.uniform(LAYERS), price)
    for skip in (NONE, ALL, DraftSpec(attn=range(LAYERS)), DraftSpec(mlp=range(LAYERS))):
        assert prices.price(skip) > 0
