import json
import os
import time
from pathlib import Path

import torch
from common import BATCH, FEATURES, dataset
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

SAMPLES = 160
NOTED = Path(f"{os.environ['RUN']}.{os.environ['RANK']}.jsonl")


class Rows(Dataset):
    def __init__(self) -> None:
        self.features, self.labels = dataset().tensors

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.features[index], "labels": self.labels[index], "ids": index}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(FEATURES, 4)
        self.ids: list[int] = []
        self.losses = 0.0

    def forward(self, x: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> object:
        scores = self.body(x.view(-1, FEATURES))
        loss = cross_entropy(scores, labels)
        self.ids += ids.tolist()
        self.losses += float(loss.detach()) * len(ids)
        return {"loss": loss, "logits": scores}


network = Network()


class Noting(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs) -> None:
        entry = {"step": state.global_step, "ids": network.ids, "losses": network.losses}
        with NOTED.open("a") as noted:
            noted.write(json.dumps(entry) + "\n")
        time.sleep(0.03)
        network.ids, network.losses = [], 0.0


arguments = TrainingArguments(
    output_dir="unused",
    per_device_train_batch_size=BATCH,
    num_train_epochs=3,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    logging_strategy="no",
    learning_rate=1e-2,
)
trainer = Trainer(model=network, args=arguments, train_dataset=Rows(), callbacks=[Noting()])
trainer.train()
if os.environ["RANK"] == "0":
    torch.save(network.state_dict(), "weights.pt")
