"""A small training in PyTorch with pauses: says "ready", waits for a line on stdin, then prints the losses of some steps, which
are the same in each run."""
import sys
import time

import torch

torch.manual_seed(13)
device = torch.device("cuda")
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
x, y = torch.randn(1024, 256, device=device), torch.randn(1024, 1, device=device)
held = torch.arange(1 << 27, device=device)
print("ready", flush=True)
sys.stdin.readline()
for step in range(1, 801):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print("loss", step, loss.item(), int(held.sum().item()), flush=True)
        time.sleep(1)
