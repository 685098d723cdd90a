"""One rank of a job of trainers_test.py: reads the digits through a framework.

    trainers_ranks.py MODE DATABASE FOLDER [OPTION=NUMBER]...

It writes FOLDER/RANK.json, a list of the batches that it got, each a list of record numbers; or
FOLDER/RANK.error, the message of lmdbio. Options of each mode: workers; stop: save a checkpoint
after so many batches and end with the next one; resume: begin at that checkpoint.
"""

import json
import os
import pathlib
import re
import sys

import torch
import torch.distributed

import lmdbio.torch

PAGE = pathlib.Path(__file__).resolve().parents[3] / "lmdbio" / "docs" / "trainers.md"
GLOBAL_BATCH = 120
EPOCHS = 2
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def decode(batch):
    """The numbers of the records: the keys of the digits are decimal."""
    return torch.tensor([int(key) for key in batch.keys()], dtype=torch.int64)


class Stopped(Exception):
    """Ends the job as a kill would."""


class Job:
    """What the modes share: the options, and the batches of this rank."""

    def __init__(self, database, folder, options):
        self.database, self.folder, self.options = database, pathlib.Path(folder), options
        self.batches = []
        self.checkpoint = self.folder.parent / f"checkpoint.{options.get('at', 0)}"

    def option(self, name, otherwise=0):
        return self.options.get(name, otherwise)

    def train_step(self, numbers):
        if self.option("stop") and len(self.batches) == self.option("stop"):
            raise Stopped
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # as the gradients of a step
        self.batches.append(numbers.tolist())

    def is_time_to_save(self):
        return len(self.batches) == self.option("stop")

    def dataset(self, **more):
        return lmdbio.torch.IterableDataset(self.database, GLOBAL_BATCH // RANKS, shuffle=True,
                                            seed=5, decode=decode, **more)

    def recipe(self, name, **names):
        """Runs the code below a heading of the page."""
        text = PAGE.read_text(encoding="utf-8")
        code = re.search(rf"^### {name}\n.*?```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
        names = {"lmdbio": lmdbio, "torch": torch, "path": self.database, "decode": decode,
                 "rank": RANK, "ranks": RANKS, "epochs": EPOCHS,
                 "batch_size": GLOBAL_BATCH // RANKS,
                 "num_workers": self.option("workers"), "train_step": self.train_step,
                 "is_time_to_save": self.is_time_to_save, "checkpoint": self.checkpoint, **names}
        exec(compile(code[1], f"{PAGE.name}: {name}", "exec"), names)


def lightning_module(job):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, numbers, _index):
            job.train_step(numbers)
            return self.layer(numbers.float()[:, None] / 2000).square().sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    return Module()


def lightning_trainer(**options):
    import lightning

    return lightning.Trainer(
        accelerator="cpu", devices=RANKS, strategy="ddp" if RANKS > 1 else "auto", logger=False,
        max_epochs=EPOCHS, enable_progress_bar=False, enable_model_summary=False, **options)


def run_lightning(job):
    """It saves a checkpoint after each batch. Option at: the one to go on from."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    steps, at = job.folder.parent / "steps", job.option("at")
    if at:
        trainer = lightning_trainer(enable_checkpointing=False)
    else:
        trainer = lightning_trainer(callbacks=[
            ModelCheckpoint(steps, "{step}", every_n_train_steps=1, save_top_k=-1)])
    job.recipe("Lightning", trainer=trainer, module=lightning_module(job),
               checkpoint=steps / f"step={at}.ckpt" if at else None)


def run_lightning_with_few_batches(job):
    trainer = lightning_trainer(limit_train_batches=3, enable_checkpointing=False)
    job.recipe("Lightning", trainer=trainer, module=lightning_module(job), checkpoint=None)


def run_lightning_with_dataset(job):
    trainer = lightning_trainer(enable_checkpointing=False)
    trainer.fit(lightning_module(job), torch.utils.data.DataLoader(
        job.dataset(), batch_size=None, num_workers=job.option("workers")))


def run_fabric(job):
    import lightning

    fabric = lightning.Fabric(accelerator="cpu", devices=RANKS,
                              strategy="ddp" if RANKS > 1 else "auto")
    fabric.launch()
    job.recipe("Fabric", fabric=fabric, model=fabric.setup(torch.nn.Linear(1, 1)))


def run_accelerate(job):
    import accelerate

    job.recipe("Accelerate", accelerator=accelerate.Accelerator(cpu=True),
               model=torch.nn.Linear(1, 1))


def run_accelerate_with_dataset(job):
    """Options: dispatch, split: how Accelerate shards; alone: the dataset does not."""
    import accelerate

    configuration = accelerate.DataLoaderConfiguration(
        dispatch_batches={0: False, 1: True}.get(job.option("dispatch", None)),
        split_batches=bool(job.option("split")))
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=configuration)
    more = {"num_shards": 1, "shard_id": 0} if job.option("alone") else {}
    for numbers in accelerator.prepare(torch.utils.data.DataLoader(
            job.dataset(**more), batch_size=1 if job.option("batched") else None,
            num_workers=job.option("workers"), drop_last=False)):
        job.train_step(numbers)


def run_loop(job):
    """Option tensor: the number of ranks that work on the same batch."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo")
    tensor = job.option("tensor", 1)
    mesh = init_device_mesh("cpu", (RANKS // tensor, tensor), mesh_dim_names=("dp", "tp"))
    job.recipe("A loop of your own", mesh=mesh, batch_size=GLOBAL_BATCH * tensor // RANKS)


def run_distributed_checkpoint(job):
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
    job.recipe("Distributed checkpoints")


def run_mesh_without_a_word(job):
    """Option tensor: as above."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo")
    tensor = job.option("tensor", 1)
    init_device_mesh("cpu", (RANKS // tensor, tensor), mesh_dim_names=("dp", "tp"))
    for numbers in lmdbio.torch.DataLoader(job.database, GLOBAL_BATCH // RANKS, decode=decode):
        job.train_step(numbers)


def run_stateful(job):
    """Options: at: batches before the checkpoint; persistent: of the workers."""
    if RANKS > 1:
        torch.distributed.init_process_group("gloo")
    job.recipe("StatefulDataLoader", dataset=job.dataset(),
               options={"persistent_workers": bool(job.option("persistent"))})


def main():
    mode, database, folder, *words = sys.argv[1:]
    job = Job(database, folder, {name: int(value) for name, value in
                                 (word.split("=") for word in words)})
    try:
        globals()[f"run_{mode}"](job)
    except Stopped:
        pass
    except lmdbio.LmdbioError as error:
        (job.folder / f"{RANK}.error").write_text(str(error))
        raise
    (job.folder / f"{RANK}.json").write_text(json.dumps(job.batches))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
