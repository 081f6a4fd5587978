"""Small models, words and rows that several drivers train on."""

from __future__ import annotations

from typing import Any

import torch


def rows(count: int, features: int = 32) -> torch.utils.data.TensorDataset:
    made = torch.Generator().manual_seed(0)
    return torch.utils.data.TensorDataset(
        torch.randn(count, features, generator=made), torch.randint(4, (count,), generator=made)
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
    made = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    found.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return found


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


def clocked(optimizer: Any, samples: Any) -> None:
    """Have a hand's clock after each step of ``optimizer``."""
    import hand_clock

    step = optimizer.step

    def timed(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        hand_clock.step(samples())
        return result

    optimizer.step = timed
