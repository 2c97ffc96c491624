"""nano's network in PyTorch, for training: exactly a Llama (RMSNorm, rotary positions, SwiGLU, tied embeddings)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """The network's size, named as in a Hugging Face Llama configuration."""

    vocab_size: int = 1080
    hidden_size: int = 128
    num_hidden_layers: int = 6
    num_attention_heads: int = 4
    head_dim: int = 64
    intermediate_size: int = 256
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 1024


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, wide = shape.hidden_size, shape.num_attention_heads * shape.head_dim
        self.heads, self.eps = shape.num_attention_heads, shape.rms_norm_eps
        self.input_norm = nn.Parameter(torch.ones(width))
        self.q, self.k, self.v = (nn.Linear(width, wide, bias=False) for _ in range(3))
        self.o = nn.Linear(wide, width, bias=False)
        self.post_norm = nn.Parameter(torch.ones(width))
        self.gate, self.up = (nn.Linear(width, shape.intermediate_size, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.intermediate_size, width, bias=False)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        h = functional.rms_norm(x, x.shape[-1:], self.input_norm, self.eps)
        q, k, v = (p(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, attn_mask=bias
        )
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = functional.rms_norm(x, x.shape[-1:], self.post_norm, self.eps)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Network(nn.Module):  # type: ignore[misc]
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size) * 0.15)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.Parameter(torch.ones(shape.hidden_size))

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        half = self.shape.head_dim // 2
        turns = self.shape.rope_theta ** (-torch.arange(half) / half)
        angles = positions[:, None, :, None] * turns
        cos, sin = angles.cos(), angles.sin()
        x = self.embed[ids]
        for layer in self.layers:
            x = layer(x, cos, sin, bias)
        return functional.rms_norm(x, x.shape[-1:], self.norm, self.shape.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.embed.T
