"""PyTorch on a real GPU: an out-of-memory that is caught and survived, a small training loop, optionally as a CUDA
graph. Prints "NAME VALUE UNIT"; units "result" must be the same with and without the shim.
Usage: torch_train.py [graph]"""
import sys
import torch

torch.manual_seed(13)
device = torch.device("cuda")
free, total = torch.cuda.mem_get_info()
assert free <= total
print("total", total, "bytes")
try:
    torch.empty(total + (1 << 30), dtype=torch.uint8, device=device)
    raise SystemExit("more than everything was given")
except torch.cuda.OutOfMemoryError:
    pass
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(1024, 256, device=device), torch.randn(1024, 1, device=device)


def step():
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


first = step().item()
if sys.argv[1:] == ["graph"]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(200):
        graph.replay()
else:
    for _ in range(200):
        loss = step()
torch.cuda.synchronize()
assert loss.item() < first, (first, loss.item())
print("first_loss", first, "result")
print("last_loss", loss.item(), "result")
print("passed PyTorch", torch.__version__)
