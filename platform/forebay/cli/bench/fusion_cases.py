"""The models that `forebay bench fusion` trains, and the four ways in which it trains them."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forebay import hydro

_MOMENTUM = 0.9
_PROCESSES = 2


@dataclass(frozen=True)
class Case:
    """F trials of one model on one batch size."""

    name: str
    kind: str
    trials: int
    batch: int
    steps: int
    device: str = "cpu"

    def finish(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device != "cpu":
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Contender:
    """One way to train all trials of a case.

    ``run`` trains every trial for the steps of the case; ``weights`` gives a trial's parameters by name.
    """

    run: Callable[[], None]
    weights: Callable[[int], dict[str, Tensor]]


def cases(quick: bool, device: str = "cpu", trials: int | None = None) -> list[Case]:
    """What is measured; a quick run takes fewer steps per round. `trials` replaces each case's own F."""
    scale = 1 if quick else 4
    return [
        Case("mlp-64 batch 32", "mlp", trials or 32, 32, 25 * scale, device),
        Case("mlp-64 batch 64", "mlp", trials or 32, 64, 25 * scale, device),
        Case("cnn", "cnn", trials or 16, 64, 5 * scale, device),
        Case("signal", "signal", trials or 16, 64, 5 * scale, device),
        Case("transformer", "transformer", trials or 16, 16, 5 * scale, device),
    ]


class Mlp(nn.Sequential):
    """Four layers of width 64 over 8 x 8 digits."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(64, 64), nn.ReLU()]
        super().__init__(*layers, nn.Linear(64, 10))


class Cnn(nn.Module):
    """A residual network of width 8 with batch norm: a surrogate at S = 8 of one of width 64."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        value = F.relu(self.stem_norm(self.stem(images)))
        for block in (0, 2):
            branch = F.relu(self.norms[block](self.convolutions[block](value)))
            branch = self.norms[block + 1](self.convolutions[block + 1](branch))
            value = F.relu(value + branch)
        return self.head(value.mean((2, 3)))


class Signal(nn.Sequential):
    """Three strided convolutions of width 8 over 40 points, much like a surrogate of mnist1d-conv."""

    def __init__(self, width: int = 8) -> None:
        layers: list[nn.Module] = []
        for inputs in (1, width, width):
            layers += [nn.Conv1d(inputs, width, 5, 2, padding=2), nn.BatchNorm1d(width), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(width * 5, 10))


class Transformer(nn.Module):
    """Two encoder layers of width 16 over 32 characters: a surrogate at S = 16 of one of width 256."""

    def __init__(self, width: int = 16, length: int = 32, symbols: int = 96) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols, bias=False)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.embedding(tokens) + self.positions
        value = self.encoder(value, mask=self.mask, is_causal=False)
        return self.head(self.norm(value))


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": Mlp,
    "cnn": Cnn,
    "signal": Signal,
    "transformer": Transformer,
}
_SHAPES = {"mlp": (64,), "cnn": (1, 8, 8), "signal": (1, 40)}  # of one sample


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy over the batch and, for text, over positions."""
    if output.dim() == 3:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())
    return F.cross_entropy(output, target)


def batch_of(case: Case) -> tuple[Tensor, Tensor]:
    """A random batch that all contenders train on."""
    generator = torch.Generator().manual_seed(0)
    if case.kind == "transformer":
        tokens = torch.randint(0, 96, (case.batch, 33), generator=generator)
        return tokens[:, :-1].contiguous().to(case.device), tokens[:, 1:].contiguous().to(case.device)
    inputs = torch.randn((case.batch, *_SHAPES[case.kind]), generator=generator)
    labels = torch.randint(0, 10, (case.batch,), generator=generator)
    return inputs.to(case.device), labels.to(case.device)


def rates(count: int) -> list[float]:
    """Another learning rate for every trial, small enough that none diverges."""
    return [1e-3 * 1.05**index for index in range(count)]


def models_of(case: Case) -> list[nn.Module]:
    torch.manual_seed(0)
    return [_MODELS[case.kind]().to(case.device) for _ in range(case.trials)]


@contextlib.contextmanager
def contenders(case: Case) -> Iterator[dict[str, Callable[[], float | None]]]:
    """The four ways, each as a function that trains all trials for ``case.steps`` steps."""
    with _processes(case) as processes:
        yield {
            "fused": fused(case).run,
            "one_by_one": one_by_one(case).run,
            "vmap": vectorised(case).run,
            "processes": processes,
        }


def fused(case: Case) -> Contender:
    """Our way."""
    inputs, target = batch_of(case)
    module = hydro.fuse(models_of(case), inputs, seeds=list(range(case.trials))).train()
    optimizer = hydro.optimizer(torch.optim.SGD, module, lr=rates(case.trials), momentum=_MOMENTUM)

    def run() -> None:
        for _ in range(case.steps):
            optimizer.zero_grad()
            hydro.backward(hydro.losses(loss_of, module(inputs), target))
            optimizer.step()
        case.finish()

    return Contender(run, lambda trial: dict(hydro.extract(module, trial).named_parameters()))


def one_by_one(case: Case, share: Sequence[int] | None = None) -> Contender:
    """Ordinary PyTorch, one trial after the other in this process; all trials or a share of them."""
    inputs, target = batch_of(case)
    models, lrs = models_of(case), rates(case.trials)
    pairs = [
        (
            models[trial].train(),
            torch.optim.SGD(models[trial].parameters(), lr=lrs[trial], momentum=_MOMENTUM),
        )
        for trial in (range(case.trials) if share is None else share)
    ]

    def run() -> None:
        for model, optimizer in pairs:
            for _ in range(case.steps):
                optimizer.zero_grad()
                loss_of(model(inputs), target).backward()
                optimizer.step()
        case.finish()

    return Contender(run, lambda trial: dict(models[trial].named_parameters()))


def vectorised(case: Case) -> Contender:
    """``torch.func``: ``vmap`` of the loss over stacked state, autograd, and SGD on the stacked tensors."""
    inputs, target = batch_of(case)
    models = models_of(case)
    stacked, buffers = torch.func.stack_module_state(models)
    parameters = {name: nn.Parameter(tensor.detach()) for name, tensor in stacked.items()}
    stacks: dict[str, Tensor] = dict(parameters)
    masks = {name: buffers.pop(name)[0] for name in list(buffers) if name == "mask"}
    skeleton = models[0].train()
    momenta = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
    lr = torch.tensor(rates(case.trials), device=case.device)
    columns = {name: lr.view(-1, *(1,) * (tensor.dim() - 1)) for name, tensor in parameters.items()}

    def loss(weights: dict[str, Tensor], state: dict[str, Tensor]) -> Tensor:
        return loss_of(torch.func.functional_call(skeleton, {**weights, **state, **masks}, (inputs,)), target)

    losses = torch.func.vmap(loss)

    def run() -> None:
        for _ in range(case.steps):
            for tensor in parameters.values():
                tensor.grad = None
            losses(stacks, buffers).sum().backward()
            with torch.no_grad():
                for name, tensor in parameters.items():
                    momenta[name].mul_(_MOMENTUM).add_(tensor.grad)  # type: ignore[arg-type]
                    tensor.sub_(momenta[name] * columns[name])
        case.finish()

    return Contender(run, lambda trial: {name: tensor[trial] for name, tensor in parameters.items()})


@contextlib.contextmanager
def _processes(case: Case) -> Iterator[Callable[[], float]]:
    """As many processes as usual machines have cores here, each with its share of the trials.

    They are started and warmed up before anything is timed.
    """
    context = multiprocessing.get_context("spawn")
    shares = [list(range(case.trials))[number::_PROCESSES] for number in range(_PROCESSES)]
    pipes = [context.Pipe() for _ in shares]
    workers = [
        context.Process(target=_work, args=(case, share, there), daemon=True)
        for share, (_, there) in zip(shares, pipes, strict=True)
    ]
    for worker in workers:
        worker.start()
    for here, _ in pipes:
        here.recv()

    def run() -> float:
        begin = time.perf_counter()
        for here, _ in pipes:
            here.send("go")
        for here, _ in pipes:
            here.recv()
        return time.perf_counter() - begin

    try:
        yield run
    finally:
        for here, _ in pipes:
            here.send(None)
        for worker in workers:
            worker.join()


def _work(case: Case, share: list[int], pipe: Connection) -> None:
    torch.set_num_threads(1)
    run = one_by_one(case, share).run
    pipe.send("ready")
    while pipe.recv() is not None:
        run()
        pipe.send("done")
