"""Rules, freezing and the optimiser: who is trained, at which rate, and that the rest stays to the last bit."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import common
from lpe import build, optim, rules, step
from lpe.params import Spec, flatten, init, nest, normal
from lpe.tasks.base import Task

OPTIM = common.get_config().optim.to_dict()
SPECS = {
    "embeddings/word": Spec((5, 4), ("vocab", "embed"), normal(1.0)),
    "position/table": Spec((6, 4), ("position", "embed"), normal(1.0)),
    "layers/kernel": Spec((3, 4, 4), ("layers", None, None), normal(1.0)),
    "layers/bias": Spec((3, 4), ("layers", None), normal(1.0)),
    "classifier/kernel": Spec((4, 2), ("embed", None), normal(1.0)),
}


def planned(rows=None, fresh=(), **changes) -> optim.Plan:
    return optim.plan({**OPTIM, **changes}, SPECS, rows, fresh)


def trained(plan: optim.Plan) -> set[str]:
    """The paths, layer by layer, that are trained."""
    found = set()
    for path, spec in SPECS.items():
        names = rules.paths(path, spec)
        on = np.broadcast_to(plan.train[path].ravel(), len(names)) if len(names) > 1 else [plan.train[path].any()]
        found |= {n for n, t in zip(names, on, strict=True) if t}
    return found


def updates(plan: optim.Plan, steps: int = 3, **changes) -> tuple[dict, dict]:
    """Parameters before and after some steps with the same gradient."""
    config = {**OPTIM, "schedule": "constant", "warmup_steps": 0, "learning_rate": 0.1, **changes}
    tx = optim.make(config, plan, 10)
    start = init(SPECS, jax.random.key(0))
    grads = init(SPECS, jax.random.key(1))
    params, state = start, tx.init(start)
    for _ in range(steps):
        change, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, change)
    return flatten(start), flatten(params)


def test_the_first_rule_that_matches_the_whole_path_decides():
    got = rules.assign((("layers/1/.*", "a"), ("layers/.*", "b"), ("layers", "c"), (".*", "d")), SPECS, "key")
    assert got["layers/kernel"] == ["b", "a", "b"] and got["embeddings/word"] == ["d"]


def test_a_path_without_a_rule_and_a_rule_without_a_path_are_named():
    with pytest.raises(ValueError, match=r"optim.decay: no rule for embeddings/word, position/table, classifier/kernel; end"):
        planned(decay=(("layers/.*", 1.0),))
    with pytest.raises(ValueError, match=r"optim.freeze_rules: 'layer/.\*' decides nothing.*paths are embeddings/word"):
        planned(freeze_rules=(("layer/.*", "freeze"), (".*", "train")))
    with pytest.raises(ValueError, match="are both given; leave one out"):
        planned(freeze="first_1_layers", freeze_rules=((".*", "train"),))
    with pytest.raises(ValueError, match="optim.freeze='first_9_layers', but the model has 3 layers"):
        planned(freeze="first_9_layers")


@pytest.mark.parametrize(
    ("freeze", "want"),
    [
        ("none", {"embeddings/word", "position/table", "classifier/kernel"}
         | {f"layers/{i}/{n}" for i in range(3) for n in ("kernel", "bias")}),
        ("all_but_positions", {"position/table", "classifier/kernel"}),
        ("first_2_layers", {"layers/2/kernel", "layers/2/bias", "classifier/kernel"}),
        ((("layers/1/bias", "train"), (".*", "freeze")), {"layers/1/bias"}),
    ],
    ids=["none", "all_but_positions", "first_2_layers", "own rules"],
)  # fmt: skip
def test_what_is_frozen_stays_to_the_last_bit_and_the_rest_moves(freeze, want):
    option = {"freeze": freeze} if isinstance(freeze, str) else {"freeze_rules": freeze}
    plan = planned(fresh=("classifier/kernel",), **option)
    assert trained(plan) == want
    before, after = updates(plan)
    for path, spec in SPECS.items():
        names = rules.paths(path, spec)
        pairs = zip(before[path], after[path], strict=True) if len(names) > 1 else [(before[path], after[path])]
        for name, (old, new) in zip(names, pairs, strict=True):
            assert np.array_equal(old, new) == (name not in want), name


def test_new_rows_only_trains_the_rows_that_do_not_repeat_their_own_place():
    plan = planned(freeze="new_rows_only", rows=np.array([0, 1, 2, -1, 1, -1]))
    before, after = updates(plan)
    moved = (before["position/table"] != after["position/table"]).all(axis=1)
    assert moved.tolist() == [False, False, False, True, True, True]
    assert np.array_equal(before["embeddings/word"], after["embeddings/word"])
    with pytest.raises(ValueError, match="finds no new row in position/table.*materialize=True"):
        planned(freeze="new_rows_only", rows=np.arange(6))


def test_nothing_left_to_train_is_an_error():
    without = {p: s for p, s in SPECS.items() if p != "position/table"}
    with pytest.raises(ValueError, match="optim.freeze='all_but_positions' leaves nothing to train"):
        optim.plan({**OPTIM, "freeze": "all_but_positions"}, without)


def test_layer_decay_counts_from_the_head_down():
    """BEiT's counting: head 1, last layer d, …, embeddings d^(layers + 1)."""
    plan = planned(layer_decay=0.5)
    assert plan.rate["classifier/kernel"] == 1.0 and plan.rate["embeddings/word"] == plan.rate["position/table"] == 0.5**4
    assert plan.rate["layers/bias"].ravel().tolist() == [0.125, 0.25, 0.5]
    before, after = updates(plan, steps=1, weight_decay=0.0)
    size = {p: np.abs(after[p] - before[p]).max() for p in SPECS}  # Adam's first step has the size of the rate
    np.testing.assert_allclose(size["classifier/kernel"] / size["embeddings/word"], 16, rtol=1e-3)
    moved = np.abs(after["layers/kernel"] - before["layers/kernel"]).max(axis=(1, 2))
    np.testing.assert_allclose(moved / moved[2], [0.25, 0.5, 1], rtol=1e-3)


def test_decay_rules_are_factors_of_weight_decay_layer_by_layer():
    plan = planned(decay=(("layers/0/.*", 0.0), ("layers/.*", 2.0), (".*", 1.0)))
    tx = optim.make({**OPTIM, "schedule": "constant", "warmup_steps": 0, "learning_rate": 0.1, "weight_decay": 0.5}, plan, 10)
    params = init(SPECS, jax.random.key(0))
    change, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    ratio = np.asarray(change["layers"]["kernel"] / params["layers"]["kernel"])
    np.testing.assert_allclose(ratio.reshape(3, -1).mean(1), [0, -0.1, -0.1], atol=1e-6)
    np.testing.assert_allclose(change["embeddings"]["word"], -0.05 * params["embeddings"]["word"], rtol=1e-5)


def test_frozen_parameters_have_no_moments_and_do_not_count_for_clipping():
    plan = planned(freeze="all_but_positions")
    params = init(SPECS, jax.random.key(0))
    tx = optim.make(OPTIM, plan, 10)
    shapes = {x.shape for x in jax.tree.leaves(tx.init(params)) if x.ndim}
    assert shapes == {(6, 4)}
    config = {**OPTIM, "schedule": "constant", "warmup_steps": 0, "clip_norm": 1.0}
    small = nest({p: jnp.full(s.shape, 1e-3 if p == "position/table" else 1e6) for p, s in SPECS.items()})
    _, state = optim.make(config, plan, 10).update(small, optim.make(config, plan, 10).init(params), params)
    (mu,) = [x for x in jax.tree.leaves(state) if x.shape == (6, 4)][:1]
    np.testing.assert_allclose(mu, 1e-3 * (1 - OPTIM["b1"]), rtol=1e-5)


def test_the_state_of_frozen_parameters_can_be_laid_out_over_devices():
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    params = init(SPECS, jax.random.key(0))
    for freeze in ("none", "all_but_positions", "first_3_layers"):
        tx = optim.make(OPTIM, planned(freeze=freeze), 10)
        state = optim.init(tx, params, jax.tree.map(lambda _: where, params), where)
        assert jax.tree.structure(state) == jax.tree.structure(tx.init(params))


def test_how_many_layers_need_no_gradient():
    assert optim.frozen_layers(planned(freeze="first_2_layers"), SPECS) == 2
    assert optim.frozen_layers(planned(), SPECS) == 0
    only_middle = ((r"layers/[12]/bias", "train"), (".*", "freeze"))
    assert optim.frozen_layers(planned(freeze_rules=only_middle), SPECS) == 1
    assert optim.frozen_layers(planned(freeze="all_but_positions"), SPECS) == 0


def test_the_table_names_every_parameter_and_what_happens_to_it():
    plan = planned(freeze="first_2_layers", layer_decay=0.5)
    text = optim.table(plan, SPECS, OPTIM)
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert set(SPECS) <= set(lines)
    assert re.search(r"5×4 +no +– +–", lines["embeddings/word"])
    assert re.search(r"3×4×4 +layer 2 +0.5 +0.01$", lines["layers/kernel"])
    assert "28 of 112 parameters are trained" in text


def test_gradients_end_above_the_frozen_layers(mini):
    """The loss's gradient with frozen_layers equals the full one above, and is zero below."""
    ids = {"input_ids": jnp.asarray(np.random.default_rng(0).integers(5, 500, (2, 12)), jnp.int32)}

    def loss(params, net):
        return jnp.square(net.encode(params, ids)[0]).mean() + net.encode(params, ids)[0][:, 0, 0].sum()

    whole = flatten(jax.grad(loss)(mini.params, build.network(mini.recipe)))
    cut = flatten(jax.grad(loss)(mini.params, build.network(mini.recipe, frozen_layers=2)))
    for path in whole:
        if path.startswith("layers/"):
            assert not np.asarray(cut[path][:2]).any(), path
            np.testing.assert_allclose(cut[path][2:], whole[path][2:], rtol=1e-4, atol=1e-6, err_msg=path)
    assert not np.asarray(cut["embeddings/word"]).any() and np.asarray(whole["embeddings/word"]).any()


def toy() -> tuple[Task, dict, dict]:
    """Least squares with rows of unequal counts, as masked tokens are."""

    def loss(params, batch, key):
        error = jnp.where(batch["used"], (batch["x"] @ params["w"] - batch["y"]) ** 2, 0.0)
        count = batch["used"].sum()
        return error.sum() / jnp.maximum(count, 1), {"loss": (error.sum(), count)}

    rng = np.random.default_rng(0)
    batch = {"x": rng.normal(size=(8, 3)), "y": rng.normal(size=8), "used": np.array([1, 1, 1, 1, 1, 0, 0, 1], bool)}
    task = Task._make([None] * len(Task._fields))._replace(loss=loss)
    return task, {"w": jnp.ones(3)}, {k: jnp.asarray(v, jnp.float32 if k != "used" else bool) for k, v in batch.items()}


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_accumulated_steps_equal_the_whole_batch(parts):
    task, params, batch = toy()
    specs = {"w": Spec((3,), (None,), normal(1.0))}
    plan = optim.plan(OPTIM, specs)
    tx = optax.sgd(0.1)
    state = {"params": params, "opt_state": tx.init(params), "rng": jax.random.key_data(jax.random.key(0))}
    whole, metrics = step.make(task, tx, plan)(state, batch, 0)
    got, in_parts = jax.jit(step.make(task, tx, plan, accumulate=parts))(state, batch, 0)
    np.testing.assert_allclose(got["params"]["w"], whole["params"]["w"], rtol=1e-6)
    for name in metrics:
        np.testing.assert_allclose(in_parts[name][0] / in_parts[name][1], metrics[name][0] / metrics[name][1], rtol=1e-6)


def test_the_moving_average_follows_its_schedule():
    task, params, batch = toy()
    plan = optim.plan(OPTIM, {"w": Spec((3,), (None,), normal(1.0))})
    tx = optax.sgd(0.1)
    state = {"params": params, "opt_state": tx.init(params), "rng": jax.random.key_data(jax.random.key(0)), "ema": params}
    make = step.make(task, tx, plan, ema=0.15)
    want = np.ones(3)
    for number in range(4):
        state, _ = make(state, batch, number)
        decay = min(0.15, (1 + number) / (10 + number))
        want = decay * want + (1 - decay) * np.asarray(state["params"]["w"])
        np.testing.assert_allclose(state["ema"]["w"], want, rtol=1e-6)


def test_the_schedule_warms_up_and_decays():
    c = {"learning_rate": 2.0, "warmup_steps": 10, "schedule": "linear"}
    at = optim.schedule(c, 110)
    assert [round(float(at(s)), 4) for s in (0, 5, 10, 60, 110)] == [0.0, 1.0, 2.0, 1.0, 0.0]
    assert float(optim.schedule({**c, "schedule": "constant"}, 110)(100)) == 2.0


def test_adamw_equals_torch_and_spares_norms_and_biases():
    import torch

    c = {
        "learning_rate": 0.01, "warmup_steps": 0, "schedule": "constant", "weight_decay": 0.1, "b1": 0.9, "b2": 0.98,
        "eps": 1e-6, "clip_norm": 1e9, "decay": ((".*/bias", 0.0), (".*", 1.0)), "freeze": "none", "freeze_rules": (),
        "layer_decay": 1.0,
    }  # fmt: skip
    specs = {"a/kernel": Spec((3,), (None,), normal(1.0)), "a/bias": Spec((3,), (None,), normal(1.0))}
    tx = optim.make(c, optim.plan(c, specs), 100)
    start = np.asarray([1.0, -2.0, 3.0], np.float32)
    params = {"a": {"kernel": start, "bias": start}}
    state = tx.init(params)
    kernel, bias = (torch.nn.Parameter(torch.tensor(start)) for _ in range(2))
    stock = torch.optim.AdamW(
        [{"params": [kernel], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    for number in range(5):
        g = np.asarray([0.5, -1.0, number], np.float32)
        change, state = tx.update({"a": {"kernel": g, "bias": g}}, state, params)
        params = optax.apply_updates(params, change)
        kernel.grad, bias.grad = torch.tensor(g), torch.tensor(g)
        stock.step()
    assert not np.allclose(params["a"]["kernel"], params["a"]["bias"])
    np.testing.assert_allclose(params["a"]["kernel"], kernel.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(params["a"]["bias"], bias.detach().numpy(), rtol=1e-5)


def test_positions_of_layers_belong_to_their_layers():
    stack = Spec((3, 7, 2), ("layers", None, None), normal(1.0))
    specs = {**SPECS, "position/relative_key": stack, "position/bias": Spec((4, 2), (None, None), normal(1.0))}
    plan = optim.plan({**OPTIM, "freeze": "first_2_layers", "layer_decay": 0.5}, specs)
    assert plan.train["position/relative_key"].ravel().tolist() == [False, False, True]
    assert not plan.train["position/bias"] and optim.frozen_layers(plan, specs) == 2
    assert plan.rate["position/relative_key"].ravel().tolist() == [0.125, 0.25, 0.5] and plan.rate["position/bias"] == 0.0625
    fresh = optim.plan({**OPTIM, "freeze": "first_2_layers"}, specs, None, {"position/relative_key", "position/bias"})
    assert fresh.train["position/relative_key"].all() and fresh.train["position/bias"]
    assert optim.frozen_layers(fresh, specs) == 0
