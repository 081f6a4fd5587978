import torch
from common import BATCH, FEATURES, dataset, network, show
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Rows(Dataset):
    def __init__(self) -> None:
        self.features, self.labels = dataset().tensors

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.features[index], "labels": self.labels[index]}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.body(x.view(-1, FEATURES))
        loss = cross_entropy(scores, labels)
        show(loss.detach())
        return {"loss": loss, "logits": scores}


arguments = TrainingArguments(
    output_dir="unused",
    per_device_train_batch_size=BATCH,
    num_train_epochs=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    logging_strategy="no",
)
Trainer(model=Network(), args=arguments, train_dataset=Rows()).train()
