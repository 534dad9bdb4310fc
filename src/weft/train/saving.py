"""Checkpoints of a training: the last and the best, each replaced as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from weft import serialization
from weft.core import errors
from weft.utils._random_state import random_state, set_random_state
from weft.utils.checkpointing import _plain as plain
from weft.utils.checkpointing import load_checkpoint, save_checkpoint


class Checkpoints:
    """The checkpoints in a folder, or none at all."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.saved: Path | None = None  # the last one that was written
        self.failed = False  # whether the last one could not be written
        self._random: Any = None

    def begin(self, trainer: Any, resume: Any) -> int | None:
        """Prepare the folder and load what is to be gone on with; None if that is nothing."""
        path = None
        if self.folder is not None:
            self._check_folder(self.folder)
            path = self.folder / "last.pt"
            plain(
                trainer.state_dict(), "the state of the callbacks"
            )  # before there is work to lose
        if isinstance(resume, (str, os.PathLike)):
            return self._load(trainer, Path(resume))
        if resume and path is None:
            raise ValueError(f"Trainer: resume=True needs a folder\n  at {errors.here()}")
        if resume and path is not None and path.exists():
            return self._load(trainer, path)
        if resume is None and path is not None and path.exists():
            raise FileExistsError(
                f"Trainer: {str(path)!r} holds a training: fit(..., resume=True) resumes it, "
                "resume=False starts over and replaces it; or give another folder"
                f"\n  at {errors.here()}"
            )
        return None

    @staticmethod
    def _check_folder(folder: Path) -> None:
        """Find out now, and not after an epoch, whether files can be written there."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OSError(
                error.errno,
                f"Trainer: checkpoints can't be written to this folder ({error.strerror}); give "
                "another one, or folder=None to train without checkpoints"
                f"\n  at {errors.here()}\n ",
                str(folder),
            ) from None

    def save(
        self, trainer: Any, name: str, again: str = "The training continues, and will try again"
    ) -> bool:
        """Save everything; if that fails the training continues, and the previous file is kept."""
        if self.folder is None:
            return False
        path = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # another process may have removed it
            save_checkpoint(path, **_parts(trainer))
            self.saved, self.failed = path, False
        except (OSError, TypeError) as error:  # no room; or a callback's state of a foreign type
            self.failed = True
            why = getattr(error, "strerror", None) or error
            trainer.progress.say(
                f"warning: no checkpoint of update {trainer.updates} ({why}); {self.older(path)}. "
                + again
            )
        return not self.failed

    def finish(self, trainer: Any) -> None:
        """The training is over: what could not be saved before is tried once more."""
        if self.failed:
            self.save(
                trainer, "last.pt", "The training is over and its final state is only in memory: "
                "save trainer.model.state_dict() elsewhere before the program ends",
            )  # fmt: skip

    @staticmethod
    def older(path: Path) -> str:
        """What is left of a checkpoint that could not be written."""
        return f"{path} still has the previous state" if path.exists() else "there is none yet"

    def _load(self, trainer: Any, path: Path) -> int:
        before = random_state()
        try:
            load_checkpoint(path, **_parts(trainer))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"Trainer: there is no checkpoint {str(path)!r} to resume from"
                f"\n  at {errors.here()}"
            ) from None
        except RuntimeError as error:  # the file is damaged, or of another network
            set_random_state(before)
            best = path.with_name("best.pt")
            other = f"resume={str(best)!r} resumes from the best epoch, " if best.exists() else ""
            raise RuntimeError(
                f"Trainer: can't resume from {str(path)!r}: {error}\n{other}"
                f"resume=False starts over\n  at {errors.here()}"
            ) from None
        except BaseException:
            set_random_state(before)
            raise
        self.saved, self._random = path, random_state()
        return trainer.batch

    def load_model(self, trainer: Any, name: str) -> None:
        """Put the model alone into a saved state."""
        if self.folder is None or not (self.folder / name).exists():
            raise FileNotFoundError(
                f"Trainer: no {name} was saved; it needs folder=... and an epoch"
                f"\n  at {errors.here()}"
            )
        trainer.model.load_state_dict(serialization.load(self.folder / name)["states"]["model"])

    @staticmethod
    def resumes_within(data: Any) -> bool:
        """Whether data supports resuming in the middle of an epoch."""
        return hasattr(data, "load_state_dict")

    def restore_random(self) -> None:
        """The random states as they were saved, after batches were passed over."""
        set_random_state(self._random)


def _parts(trainer: Any) -> dict[str, Any]:
    parts = {"model": trainer.model, "optimizer": trainer.optimizer}
    if trainer.scheduler is not None:
        parts["scheduler"] = trainer.scheduler
    if trainer.scaler.is_enabled():
        parts["scaler"] = trainer.scaler
    if Checkpoints.resumes_within(trainer.data):
        parts["data"] = trainer.data
    return {**parts, "trainer": trainer}
