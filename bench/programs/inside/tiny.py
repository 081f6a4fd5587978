"""Small models and synthetic data shared by the drivers."""

from __future__ import annotations

from typing import Any

import torch


def rows(count: int, features: int = 32) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return torch.utils.data.TensorDataset(
        torch.randn(count, features, generator=generator),
        torch.randint(4, (count,), generator=generator),
    )


def network(features: int = 32, width: int = 256) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(features, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 4),
    )


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(200))]
    word_tokenizer = Tokenizer(
        models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>")
    )
    word_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast_tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    fast_tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return fast_tokenizer


def language_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=203,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def text(number: int, words: int = 12) -> str:
    return " ".join(f"w{(number * 7 + n * n) % 200}" for n in range(words))


def add_clock(optimizer: Any, samples: Any) -> None:
    """Clock each step of ``optimizer``."""
    import hand_clock

    step = optimizer.step

    def step_with_clock(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        hand_clock.step(samples())
        return result

    optimizer.step = step_with_clock
