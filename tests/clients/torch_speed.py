"""PyTorch training steps a second of a model so small that launching limits them, and the processor time of a step: what the shim
costs an application. Prints "NAME VALUE UNIT", the best of five rounds. Usage: torch_speed.py [SECONDS]"""
import sys
import time
import torch

seconds = float(sys.argv[1]) if sys.argv[1:] else 0.6
device = torch.device("cuda")
layers = [torch.nn.Linear(64, 64) for _ in range(8)]
model = torch.nn.Sequential(*[part for layer in layers for part in (layer, torch.nn.ReLU())]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
x = torch.randn(32, 64, device=device)


def step():
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()


def rate():
    torch.cuda.synchronize()
    begin, begin_cpu, steps = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(20):
            step()
        steps += 20
    torch.cuda.synchronize()
    return steps / (time.perf_counter() - begin), (time.process_time() - begin_cpu) / steps * 1e6


rate()
rounds = [rate() for _ in range(5)]
print("steps_per_second", max(steps for steps, _ in rounds), "steps/s")
print("processor_time_per_step", min(cpu_us for _, cpu_us in rounds), "us")
big = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)


def products():
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(100):
        big @ big
    torch.cuda.synchronize()
    return 100 / (time.perf_counter() - begin)


products()
print("products_per_second", max(products() for _ in range(5)), "products/s")
