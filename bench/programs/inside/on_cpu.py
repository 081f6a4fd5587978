"""Import first: makes programs written for a GPU run on the CPU (``.cuda()`` does nothing)."""

import torch


def same(self, *_, **__):
    return self


torch.Tensor.cuda = torch.nn.Module.cuda = same
torch.cuda.manual_seed = torch.cuda.manual_seed_all = torch.cuda.set_device = same
torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
