"""peft: LoRA on a Llama, trained, merged and saved."""

import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2,
)  # fmt: skip


def base():
    set_seed(0)
    return LlamaForCausalLM(config)


lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
model = get_peft_model(base(), lora).train()
print("trainable", *model.get_nb_trainable_parameters())
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
ids = torch.randint(64, (4, 12))
for _ in range(5):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    model.save_pretrained(folder)
    again = PeftModel.from_pretrained(base(), folder).eval()
    print("again", again(input_ids=ids).logits.abs().mean().item())
    print("merged", model.merge_and_unload()(input_ids=ids).logits.abs().mean().item())
