"""torchvision's Faster R-CNN, trained on lists of images of several sizes."""

import hand_clock
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn as network


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        boxes = torch.tensor([[4.0, 4.0, 40.0, 40.0]] * (1 + index % 3))
        return torch.rand(3, 64, 64 + index % 9), {
            "boxes": boxes,
            "labels": torch.ones(len(boxes), dtype=torch.int64),
        }


model = network(
    weights=None,
    weights_backbone=None,
    num_classes=3,
    min_size=64,
    max_size=96,
    rpn_post_nms_top_n_train=32,
    box_batch_size_per_image=16,
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(
    Images(), batch_size=2, collate_fn=lambda parts: tuple(zip(*parts))
)
for images, targets in loader:
    loss = sum(model(list(images), list(targets)).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hand_clock.step(len(images))
