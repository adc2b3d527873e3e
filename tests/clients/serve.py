"""Serves a language model of random weights in the shape of a common one of four billion parameters (36 layers, 32 heads of 128, 8
for keys and values): batches of 1, 4 and 16 requests of 2,048 tokens, each answered by 256, decoding by a CUDA graph over a cache of fixed
size. Prints "NAME VALUE UNIT" for each batch: tokens a second, time to the first token, time between tokens.
Usage: serve.py FOLDER MODELS [SECONDS]: so many of these programs measure at the same times, for which they meet in the empty FOLDER."""
import os
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

GPU = torch.cuda.is_available()
# Without a GPU the program itself is tried, on a model that is none.
LAYERS, HIDDEN, INNER, VOCABULARY, ASKED, ANSWERED = (36, 2560, 9728, 151936, 2048, 256) if GPU else (2, 64, 128, 100, 32, 8)
HEADS, GROUPS, HEAD = (32, 8, 128) if GPU else (4, 2, 16)
LENGTH = ASKED + ANSWERED
device, dtype = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)


def weights(*shape):
    return torch.empty(*shape, device=device, dtype=dtype).normal_(0, 0.02)


def synchronize():
    if GPU:
        torch.cuda.synchronize()


class Layer:
    def __init__(self):
        self.qkv = weights((HEADS + 2 * GROUPS) * HEAD, HIDDEN)
        self.out = weights(HIDDEN, HEADS * HEAD)
        self.up, self.down = weights(2 * INNER, HIDDEN), weights(HIDDEN, INNER)

    def __call__(self, x, at, turn, keys, values, visible):
        batch, length, _ = x.shape
        heads = F.linear(normal(x), self.qkv).view(batch, length, -1, HEAD).transpose(1, 2)
        q, k, v = heads.split((HEADS, GROUPS, GROUPS), dim=1)
        q, k = rotated(q, turn), rotated(k, turn)
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        if length > 1:
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            # The heads of a group are rows of one product, so that keys and values are read once.
            scores = q.view(batch, GROUPS, -1, HEAD) @ keys.transpose(2, 3) * HEAD**-0.5
            seen = (scores.masked_fill(~visible, -torch.inf).softmax(-1) @ values).view(batch, HEADS, 1, HEAD)
        x = x + F.linear(seen.transpose(1, 2).reshape(batch, length, -1), self.out)
        gate, up = F.linear(normal(x), self.up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


def normal(x):
    return F.rms_norm(x, (HIDDEN,))


def rotated(x, turn):
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Batch:
    """Requests that are answered together, and their cache."""

    def __init__(self, model, requests):
        self.layers, self.words, self.turns = model
        shape = (LAYERS, requests, GROUPS, LENGTH, HEAD)
        self.keys, self.values = (torch.zeros(*shape, device=device, dtype=dtype) for _ in range(2))
        self.asked = torch.randint(VOCABULARY, (requests, ASKED), device=device)
        self.at = torch.zeros(1, device=device, dtype=torch.long)
        self.token = torch.zeros(requests, 1, device=device, dtype=torch.long)
        self.places = torch.arange(LENGTH, device=device)
        self.begin()
        self.decode()
        if GPU:
            synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.decode()

    def forward(self, tokens, at):
        x = F.embedding(tokens, self.words)
        turn = [one[at] for one in self.turns]
        visible = self.places <= at[-1]
        for layer, keys, values in zip(self.layers, self.keys, self.values):
            x = layer(x, at, turn, keys, values, visible)
        self.token.copy_(F.linear(normal(x[:, -1:]), self.words).argmax(-1))

    def begin(self):
        self.forward(self.asked, self.places[:ASKED])
        self.at.fill_(ASKED)

    def decode(self):
        self.forward(self.token, self.at)
        self.at.add_(1)

    def step(self):
        self.graph.replay() if GPU else self.decode()


def meet(folder, models, name):
    """Waits for all programs; the time at which the last of them was there."""
    (folder / f"{name}-{os.getpid()}").touch()
    while len(there := list(folder.glob(f"{name}-*"))) < models:
        time.sleep(0.001)
    return max(file.stat().st_mtime for file in there) + 0.2


def serve(batch, begin, seconds):
    """Times of first tokens, times between tokens (s), and the number of tokens by batch, within the seconds from `begin` on."""
    first, between, steps = [], [], 0
    time.sleep(max(0, begin - time.time()))
    while (asked := time.time()) < begin + seconds:
        batch.begin()
        synchronize()
        last = time.time()
        first.append(last - asked)
        steps += 1
        for _ in range(ANSWERED - 1):
            batch.step()
            synchronize()
            now = time.time()
            if now > begin + seconds:
                break
            between.append(now - last)
            last, steps = now, steps + 1
    return first, between, steps


@torch.inference_mode()
def main():
    folder, models = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    seconds = float(sys.argv[3]) if sys.argv[3:] else 8
    torch.manual_seed(13)
    angles = torch.arange(LENGTH, device=device)[:, None] * 1e6 ** -(torch.arange(0, HEAD, 2, device=device) / HEAD)
    model = [Layer() for _ in range(LAYERS)], weights(VOCABULARY, HIDDEN), [angles.cos().to(dtype), angles.sin().to(dtype)]
    for requests in (1, 4, 16):
        batch = Batch(model, requests)
        begin = meet(folder, models, requests)
        first, between, steps = serve(batch, begin, seconds)
        print(f"tokens_per_second_{requests}", requests * steps / seconds, "tokens/s")
        for name, times in ("first_token", first), ("between_tokens", between):
            times.sort()
            for part in 50, 99:
                print(f"{name}_{requests}_p{part}", times[len(times) * part // 100] * 1e3, "ms", flush=True)


main()
