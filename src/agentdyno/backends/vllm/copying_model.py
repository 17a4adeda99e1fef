"""A language model of 0.8 MB that copies: what the chat template wrote so many tokens before is what it says next.

A server of real weights needs gigabytes, and one of random weights says nothing that a framework can use. This one has
the architecture of Qwen2 and a single attention head whose query and key biases, turned by the rotary embedding, look
back a fixed number of tokens (`REACH` - 1) and nowhere else. Its chat template ends each prompt with the answer, filled
up to `REACH` tokens, so that the first token to be generated is the answer's first. Everything else about it is drawn
from a seed. It must be served in float32: the head tells neighbours apart by less than bfloat16 can hold.

Standard library only, and the same bytes on every machine.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

REACH = 160
NAME = "agentdyno-copying"
SEED = 1
CONTEXT_TOKENS = 8192
_HIDDEN = 128  # and the head's size
_INNER = 256
_ROPE_THETA = 10_000.0
_SHARPNESS = 20.0  # of the head: the next best token has e^-70 of the weight
_COPIED = 4.0  # how much more the copied token counts than the current one
_NOISE = 0.05  # of the feed-forward's random weights, too little to change a token
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")
_WHOLE = (
    "<tool_call>",
    "</tool_call>",
    '\n{"name": "',
    # Two, as in most real vocabularies: else a stream may have a call's name and its first arguments in one chunk, as
    # two parts, of which LlamaIndex 0.14.25 was seen to lose the second.
    '", "arguments": ',
    '{"reference": "',
    '"}}\n',
    "order_status",
    "refund_policy",
    "resolution",
    "The resolution's reference is ",
    "I found no order id in the messages, so there is nothing that I can look up.",
    "I need a tool which this request does not offer: ",
)


def write_model(folder: Path, template: Path) -> str:
    """Write the model, its tokenizer and `template` into `folder`; returns what tells two models apart, 16 digits.

    What is there already and the same stays as it is. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {**_descriptions(), "chat_template.jinja": template.read_bytes(), "model.safetensors": weights()}
    for name, content in files.items():
        file = folder / name
        if not file.exists() or file.read_bytes() != content:
            file.write_bytes(content)
    return sha256(b"".join(sha256(files[name]).digest() for name in sorted(files))).hexdigest()[:16]


def vocabulary() -> dict[str, int]:
    """Token and id: the 256 bytes as GPT-2 spells them, then what is always one token."""
    names = [_byte_name(value) for value in range(256)]
    return {name: number for number, name in enumerate([*names, *_SPECIAL, *_WHOLE])}


def weights() -> bytes:
    """The file model.safetensors, float32."""
    random = Random(SEED)
    size, inner, tokens = _HIDDEN, _INNER, len(vocabulary())
    # Signs only: such rows have a root mean square of one, which the norms leave as it is, and are nearly orthogonal.
    embeddings = [random.choice((-1.0, 1.0)) for _ in range(tokens * size)]

    def drawn(count: int) -> list[float]:
        return [random.uniform(-_NOISE, _NOISE) for _ in range(count)]

    layer = "model.layers.0."
    zero, ones = [0.0] * (size * size), [1.0] * size
    tensors: dict[str, tuple[list[int], list[float]]] = {
        "model.embed_tokens.weight": ([tokens, size], embeddings),
        "lm_head.weight": ([tokens, size], embeddings),
        "model.norm.weight": ([size], ones),
        f"{layer}input_layernorm.weight": ([size], ones),
        f"{layer}post_attention_layernorm.weight": ([size], ones),
        f"{layer}self_attn.q_proj.weight": ([size, size], zero),
        f"{layer}self_attn.k_proj.weight": ([size, size], zero),
        f"{layer}self_attn.v_proj.weight": ([size, size], _diagonal(size, 1.0)),
        f"{layer}self_attn.o_proj.weight": ([size, size], _diagonal(size, _COPIED)),
        # A key at n has the angle n * theta in each plane, a query at m that of a key REACH - 1 before: m - n decides.
        f"{layer}self_attn.q_proj.bias": ([size], list(_planes(lambda theta: -(REACH - 1) * theta))),
        f"{layer}self_attn.k_proj.bias": ([size], list(_planes(lambda _: 0.0))),
        f"{layer}self_attn.v_proj.bias": ([size], [0.0] * size),
        f"{layer}mlp.gate_proj.weight": ([inner, size], drawn(inner * size)),
        f"{layer}mlp.up_proj.weight": ([inner, size], drawn(inner * size)),
        f"{layer}mlp.down_proj.weight": ([size, inner], drawn(inner * size)),
    }
    return _safetensors(tensors)


def _planes(angle: Callable[[float], float]) -> Iterator[float]:
    """A head's bias, of length _SHARPNESS in each plane that the rotary embedding turns by its own theta."""
    half = _HIDDEN // 2
    thetas = [_ROPE_THETA ** (-plane / half) for plane in range(half)]
    yield from (_SHARPNESS * math.cos(angle(theta)) for theta in thetas)
    yield from (_SHARPNESS * math.sin(angle(theta)) for theta in thetas)


def _diagonal(size: int, value: float) -> list[float]:
    return [value if row == column else 0.0 for row in range(size) for column in range(size)]


def _safetensors(tensors: dict[str, tuple[list[int], list[float]]]) -> bytes:
    """A JSON header with its length before it, then the numbers, little-endian."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (shape, values) in tensors.items():
        numbers = array("f", values)
        if sys.byteorder == "big":
            numbers.byteswap()
        content = numbers.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + body


def _descriptions() -> dict[str, bytes]:
    known = vocabulary()
    end, pad = known["<|im_end|>"], known["<|pad|>"]
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": len(known),
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": _ROPE_THETA},
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
    }
    added = [
        {
            "id": known[name],
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": name in _SPECIAL,
        }
        for name in (*_SPECIAL, *_WHOLE)
    ]
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": bytewise,
        "post_processor": None,
        "decoder": bytewise,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {name: number for name, number in known.items() if number < 256},
            "merges": [],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "model_max_length": CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
    }
    named = {"config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": settings}
    return {name: (json.dumps(content, indent=1) + "\n").encode() for name, content in named.items()}


def _byte_name(value: int) -> str:
    """A byte as GPT-2's byte-level BPE writes it: itself where it can be printed, else a character above 255."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if value in printable:
        return chr(value)
    return chr(256 + sorted(set(range(256)) - set(printable)).index(value))
