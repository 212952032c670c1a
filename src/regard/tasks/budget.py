"""The token budget of a batch: as it is set, or found by trying."""

import torch

from regard.data import UNKNOWN, Batch, Prepared, collate
from regard.tasks.settings import Settings
from regard.tasks.task import make_task
from regard.training import Group, is_out_of_memory

CPU = 4096
DOCUMENTS = 8192
PICTURES = 65_536  # of which there are so many rows (training.batch_rows)
LEAST, MOST = 1024, 2**17
EPOCH = {"cuda": 50, "cpu": 200}  # batches that an epoch should have: a small corpus learns little from large steps
SHARE = 0.7  # of the device's memory: other lengths than those tried need other amounts


def token_budget(settings: Settings, prepared: Prepared, group: Group) -> int:
    """Choose the tokens per side of a batch: the setting; 4,096 on a CPU; on a CUDA GPU the most that fit a step.

    Documents and pictures have budgets of their own. Of a small corpus a batch is a fiftieth, on a CPU a 200th.
    """
    batch_tokens, reads = settings.training.batch_tokens, settings.data.reads
    if batch_tokens != "auto":
        return batch_tokens
    if reads == "pictures":
        return PICTURES
    if reads == "documents" or group.device.type != "cuda":
        return min(DOCUMENTS if reads == "documents" else CPU, most_of(prepared, reads, group.device.type))
    budget: int = group.same(tried(settings, prepared, group.device) if group.first else None)
    return budget


def tried(settings: Settings, prepared: Prepared, device: torch.device) -> int:
    """Find the largest power of two whose step fits into its share of the device's memory."""
    objective = make_task(settings, prepared, LEAST).objective.to(device)
    # The optimiser's two tensors and the averages are not there yet.
    later = 3 * sum(parameter.numel() * parameter.element_size() for parameter in objective.parameters())
    room = SHARE * torch.cuda.mem_get_info(device)[0] - later
    longest = int(prepared.train.lengths.max()) + 1
    budget, most = LEAST, most_of(prepared, settings.data.reads, device.type)
    while 2 * budget <= most and fits(objective, worst(2 * budget, longest).to(device), room, settings):
        budget *= 2
    del objective
    torch.cuda.empty_cache()
    return budget


def most_of(prepared: Prepared, reads: str | None, device: str) -> int:
    """Choose the largest budget, a power of two, with which an epoch still has enough batches."""
    lengths = prepared.train.lengths[:, 0 if reads == "documents" else 1]
    share = int(lengths.sum(dtype="int64") + len(lengths)) // EPOCH["cuda" if device == "cuda" else "cpu"]
    return max(LEAST, min(MOST, 2 ** (max(1, share).bit_length() - 1)))


def fits(objective: torch.nn.Module, batch: Batch, room: float, settings: Settings) -> bool:
    """Return whether a forward and a backward pass stay within the room."""
    torch.cuda.reset_peak_memory_stats()
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=settings.training.precision != "fp32"):
            loss = objective(batch)
        loss.total.backward()
        objective.zero_grad(set_to_none=True)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return torch.cuda.max_memory_allocated() <= room


def worst(budget: int, longest: int) -> Batch:
    """Build a full batch of the longest sentences."""
    rows = max(1, budget // longest)
    return collate([([UNKNOWN] * longest, [UNKNOWN] * (longest - 1))] * rows)
