"""Speech recognition by CTC: spell the words of a made voice.

    python examples/ctc_speech.py [--save FOLDER]

Each letter is a chord of two tones of unknown length and loudness, over noise. MFCC features, a
convolution and a GRU learn to spell without being told when a letter sounds; after 250 steps fewer
than 5% of the letters of new words are wrong. --save writes some of the words as WAV files.
"""

from __future__ import annotations

import argparse
import math
import pathlib

import weft as torch
from weft import audio, nn
from weft.audio.functional import edit_distance
from weft.audio.models.decoder import ctc_beam_search, ctc_greedy_search
from weft.audio.transforms import MFCC, FrequencyMasking
from weft.nn.utils.rnn import pad_sequence

LETTERS = "-aeioklmnst"  # the first is the blank
RATE, GOAL, STEPS = 8000, 0.05, 250


def letter(number: int, generator: torch.Generator) -> torch.Tensor:
    """The sound of a letter: two tones, 60 to 130 ms long."""
    low, high = 250 + 60 * (number % 4), 900 + 170 * number
    count = int(torch.randint(480, 1040, (), generator=generator))
    t = torch.arange(count) / RATE
    pitch = 1 + 0.03 * torch.randn((), generator=generator)
    tone = (2 * math.pi * low * pitch * t).sin() + 0.7 * (2 * math.pi * high * pitch * t).sin()
    return tone * torch.hann_window(count) * (0.3 + torch.rand((), generator=generator))


def word(generator: torch.Generator) -> tuple[torch.Tensor, list[int]]:
    """A waveform, and the numbers of its letters."""
    count = int(torch.randint(2, 7, (), generator=generator))
    numbers = torch.randint(1, len(LETTERS), (count,), generator=generator).tolist()
    parts = []
    for number in numbers:
        parts.append(torch.zeros(int(torch.randint(80, 400, (), generator=generator))))
        parts.append(letter(number, generator))
    sound = torch.cat([*parts, torch.zeros(200)])
    return sound + 0.05 * torch.randn(len(sound), generator=generator), numbers


class Speller(nn.Module):
    """MFCC, a convolution over two frames at a time, a GRU in both directions."""

    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        frames = {"n_fft": 256, "hop_length": 80, "n_mels": 30}
        self.features = MFCC(RATE, 20, melkwargs=frames)
        self.norm = nn.InstanceNorm1d(20)
        self.mask = FrequencyMasking(3)
        self.conv = nn.Conv1d(20, hidden, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(LETTERS))

    def forward(self, sounds: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities (batch, time, letters), and how many frames each sound has."""
        frames = [self.norm(self.features(sound)[None])[0].T for sound in sounds]
        lengths = torch.tensor([(len(f) + 1) // 2 for f in frames])
        x = pad_sequence(frames, batch_first=True).transpose(1, 2)
        x = self.conv(self.mask(x) if self.training else x).relu().transpose(1, 2)
        return self.out(self.rnn(x)[0]).log_softmax(dim=2), lengths


def error_rate(net: Speller, generator: torch.Generator, count: int) -> tuple[float, float]:
    """The share of wrong letters by the best path, and by beam search."""
    sounds, right = zip(*(word(generator) for _ in range(count)), strict=True)
    net.eval()
    with torch.no_grad():
        log_p, lengths = net(list(sounds))
    greedy = ctc_greedy_search(log_p, lengths)
    beam = [best[0][0] for best in ctc_beam_search(log_p, lengths, beam_size=8)]
    total = sum(map(len, right))
    spell = lambda numbers: "".join(LETTERS[n] for n in numbers)
    for numbers, said in list(zip(right, beam, strict=True))[:4]:
        print(f"spoken {spell(numbers):7s} heard {spell(said)}")
    wrong = [sum(map(edit_distance, found, right)) for found in (greedy, beam)]
    return wrong[0] / total, wrong[1] / total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=pathlib.Path, help="folder for WAV files of some words")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(1 + options.seed)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for _ in range(4):
            sound, numbers = word(generator)
            name = "".join(LETTERS[n] for n in numbers)
            audio.save(options.save / f"{name}.wav", sound[None] / 3, RATE, encoding="PCM_S")
    net = Speller()
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(1, options.steps + 1):
        sounds, letters = zip(*(word(generator) for _ in range(16)), strict=True)
        log_p, lengths = net(list(sounds))
        targets = torch.tensor([n for numbers in letters for n in numbers])
        counts = torch.tensor([len(numbers) for numbers in letters])
        loss = criterion(log_p.transpose(0, 1), targets, lengths, counts)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        if step % 25 == 0 or step <= 6:
            print(f"step {step} loss {loss.item():.5f}")
    test = torch.Generator().manual_seed(1000)
    greedy, beam = error_rate(net, test, 100 if options.steps >= STEPS else 8)
    print(f"wrong letters by the best path: {greedy:.1%}")
    print(f"result: {beam:.1%} of letters wrong by beam search (goal below {GOAL:.0%})")
    if options.steps >= STEPS and beam >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
