"""transformers, accelerate: Trainer with evaluation, a schedule, and a checkpoint loaded again."""

import os
import tempfile

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)  # fmt: skip

os.environ["HF_HUB_OFFLINE"] = "1"
set_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, num_labels=2,
)  # fmt: skip
model = BertForSequenceClassification(config)
ids = torch.randint(50, (32, 8))
rows = [{"input_ids": r, "labels": int(r[0] > 25)} for r in ids]
with tempfile.TemporaryDirectory() as folder:
    options = TrainingArguments(
        folder, num_train_epochs=2, per_device_train_batch_size=8, learning_rate=5e-3,
        logging_steps=2, report_to=[], use_cpu=True, save_strategy="epoch", eval_strategy="epoch",
        disable_tqdm=True, warmup_steps=2,
    )  # fmt: skip
    trainer = Trainer(model, options, train_dataset=rows, eval_dataset=rows[:8])
    trainer.remove_callback(PrinterCallback)  # it prints times
    trainer.train()
    for entry in trainer.state.log_history:
        for key in ("loss", "grad_norm", "eval_loss", "train_loss"):
            if key in entry:
                print(key, float(entry[key]))
    saved = os.path.join(folder, "saved")
    trainer.save_model(saved)
    model.eval()
    again = BertForSequenceClassification.from_pretrained(saved).eval()
    with torch.no_grad():
        print("logits", *again(ids[:1]).logits[0].tolist())
        print("same", bool((again(ids).logits == model(ids).logits).all()))
