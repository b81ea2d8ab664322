"""The article's config.yml (`001…txt` §5) as lpe's: its three examples run, with its own numbers too."""

import numpy as np
import pytest

from configs import position
from lpe import build, model, train
from lpe.models.bert import BertConfig

EXAMPLES = ["method=hierarchical,alpha=0.8", "method=ntk-aware,base_frequency=10000", "method=linear"]


@pytest.mark.filterwarnings("ignore:positions.hierarchical. alpha=0.8 > 0.5")
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_train_and_reach_what_the_article_wants(example, tmp_path):
    config = position.get_config(f"{example},max_length=384,debug").to_dict()
    assert "accuracy after" in (train.run(config, tmp_path / "run") / "report.md").read_text(encoding="utf-8")
    wanted = position.get_config(f"{example},max_length=32768").to_dict()["position"]
    cfg = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    m = model.initialise(cfg, ()).extend(position=wanted)
    assert m.max_length == 32_768
    far = m.encode({"input_ids": np.ones((1, 3), int), "position_ids": np.array([[0, 1000, 32_767]])})
    assert np.isfinite(far).all()


def test_the_examples_are_these_methods():
    found = [position.get_config(f"{e},max_length=32768").to_dict()["position"] for e in EXAMPLES]
    assert found == [
        {"name": "hierarchical", "max_length": 32768, "alpha": 0.8},
        {"name": "sinusoidal_ntk", "max_length": 32768, "base": 10000.0},
        {"name": "interpolate", "max_length": 32768},
    ]


@pytest.mark.parametrize("names", ["rope_yarn", "learned+alibi", "rope+logn", "shaw", "nezha", "t5", "transformer_xl", "xpos"])
def test_any_method_is_at_hand_by_its_name(names):
    length = 128 if "learned" in names else 384
    config = position.get_config(f"method={names},max_length={length},causal={'xpos' in names}").to_dict()
    cfg = BertConfig(max_position_embeddings=128)
    net = build.network(
        build.Recipe(
            "bert", cfg, (), build.positions(config["position"]), build.freeze(config["attention"] or {"name": "full"})
        )
    )
    assert net.position.max_length in (None, length)


def test_two_that_rotate_stop_the_run_before_it_starts(tmp_path):
    config = position.get_config("method=rope+rope_yarn,debug").to_dict()
    with pytest.raises(ValueError, match="'rope' and 'rope_yarn' both rotate"):
        train.run(config, tmp_path / "run")


def test_a_folder_that_no_class_could_read_is_refused_before_training(tmp_path):
    config = position.get_config("method=rope,debug").to_dict()
    config["save"]["format"] = "stock"
    with pytest.raises(ValueError, match=r"'rope' acts within attention, .*--config.save.format=lpe"):
        train.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
