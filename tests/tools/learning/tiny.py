"""A chat model of a few thousand weights, with a tokenizer trained here; nothing is downloaded."""

from collections.abc import Sequence
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_tiny(folder: Path, texts: Sequence[str], spread: float = 1.0) -> None:
    """Write the model; its tokenizer knows the words of these texts.

    Adapters leave the embeddings as they are: the wider these are spread, the more of the random
    model can adapters alone decide.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=640, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    trained.train_from_iterator([text for text in texts for _ in range(4)], trainer)
    # As in converted models, the tokenizer names another end than its template has.
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=trained, eos_token=special[0], pad_token=special[0],
        additional_special_tokens=special[1:], chat_template=TEMPLATE,
    )  # fmt: skip
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(spread)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
