"""Transformers models built from a configuration: recorded, shrunk and trained unmodified."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tuning.core import hydro

transformers = pytest.importorskip("transformers", reason="transformers is an optional test dependency")
pytestmark = pytest.mark.filterwarnings("ignore::tuning.core.hydro.errors.HydroWarning")


def gpt2(**options: Any) -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=100,
            n_positions=16,
            n_embd=96,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
            **options,
        )
    )


def bert(kind: str) -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=16,
    )  # fmt: skip
    return getattr(transformers, kind)(config)


def swin() -> torch.nn.Module:
    config = transformers.SwinConfig(
        image_size=32,
        patch_size=4,
        embed_dim=32,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
        num_labels=7,
    )
    return transformers.SwinForImageClassification(config)


def resnet() -> torch.nn.Module:
    config = transformers.ResNetConfig(embedding_size=32, hidden_sizes=[32, 64], depths=[1, 2], num_labels=7)
    return transformers.ResNetForImageClassification(config)


def mobilenet() -> torch.nn.Module:
    config = transformers.MobileNetV2Config(num_labels=7, depth_multiplier=0.5, image_size=32)
    return transformers.MobileNetV2ForImageClassification(config)


def ids(n: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 100, (n, 5 + n))}


def masked(n: int) -> dict[str, torch.Tensor]:
    tokens = ids(n)["input_ids"]
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def pixels(n: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(n, 3, 32, 32)}


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[int], dict[str, torch.Tensor]]]] = {
    "GPT-2": (gpt2, ids),
    "GPT-2, eager attention": (lambda: gpt2(attn_implementation="eager"), ids),
    "BERT classifier": (lambda: bert("BertForSequenceClassification"), masked),
    "BERT masked words": (lambda: bert("BertForMaskedLM"), ids),
    "Swin": (swin, pixels),
    "ResNet": (resnet, pixels),
    "MobileNetV2": (mobilenet, pixels),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_from_a_configuration_shrinks_unmodified(name: str) -> None:
    torch.manual_seed(0)
    make, batch = MODELS[name]
    model = make()
    same = hydro.shrink(model, batch(2), scaling=1)
    same.load_state_dict(model.state_dict())
    inputs = batch(3)
    expected = model.eval()(**inputs)
    found = same.eval()(**inputs)
    assert type(found) is type(expected)
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-6)

    surrogate = hydro.shrink(model.train(), batch(2), scaling=4, min_width=2)
    assert list(surrogate.state_dict()) == list(model.state_dict())
    assert sum(map(torch.numel, surrogate.parameters())) < 0.3 * sum(map(torch.numel, model.parameters()))
    logits = surrogate(**inputs).logits
    assert logits.shape == expected.logits.shape
    logits.square().mean().backward()


def test_gpt2_keeps_its_tied_head_and_reads_conv1d_the_right_way_round() -> None:
    torch.manual_seed(0)
    surrogate = hydro.shrink(gpt2(), ids(2), scaling=4)
    rules = hydro.rules_of(surrogate) or {}
    assert surrogate.get_parameter("lm_head.weight") is surrogate.get_parameter("transformer.wte.weight")
    assert rules["transformer.wte.weight"].role == "tied"
    assert rules["transformer.wpe.weight"].role == "embedding"
    up = surrogate.get_parameter("transformer.h.0.mlp.c_fc.weight")
    assert up.shape == (24, 96)
    # Stored (in, out): the variance must follow the 96 inputs of the target, not its 384 outputs.
    assert float(up.detach().std()) == pytest.approx((4 / (3 * 96)) ** 0.5, rel=0.05)


def test_gpt2_loses_every_other_block_under_depth_scaling() -> None:
    surrogate = hydro.shrink(gpt2(), ids(2), scaling=4, depth_scaling=2)
    assert any("h.0." in key for key in surrogate.state_dict())
    assert not any("h.1." in key for key in surrogate.state_dict())
    assert surrogate(**ids(3)).logits.shape == (3, 8, 100)


def test_a_checkpoints_name_is_refused() -> None:
    model = gpt2()
    model.name_or_path = "gpt2"
    with pytest.raises(hydro.ShrinkError, match="pretrained"):
        hydro.shrink(model, ids(2))


def test_labels_inside_the_batch_give_the_models_own_loss() -> None:
    batch = {**ids(2), "labels": torch.randint(0, 100, (2, 7))}
    surrogate = hydro.shrink(gpt2(), batch, scaling=4)
    output = surrogate(**batch)
    assert output.loss.dim() == 0
    output.loss.backward()
