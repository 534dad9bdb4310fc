"""Sound as far as speech recognition needs it, with torchaudio's names.

>>> import weft
>>> from weft.audio import transforms
>>> transforms.MFCC(n_mfcc=13, melkwargs={"n_mels": 40})(weft.zeros(1, 16000)).shape
torch.Size([1, 13, 81])
"""

from weft.audio import functional, models, transforms
from weft.audio.files import AudioMetaData, info, load, save

__all__ = ["AudioMetaData", "functional", "info", "load", "models", "save", "transforms"]

# The release of torchaudio whose interface and numbers are followed.
__version__ = "2.11.0"


def list_audio_backends() -> list[str]:
    """The ways to read files: one, for WAV."""
    return ["weft"]
