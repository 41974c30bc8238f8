#!/usr/bin/env python3
"""Prints, by name, the literal values in op_samples_*.cpp that are not obvious by hand. Needs PyTorch (1.13.1 was used).

Everything is computed in float64. Random numbers come from a plain transcription of Philox4x32-10 (Salmon et al., SC11).
"""
import math

import torch
import torch.nn.functional as F

values = {}


def put(name, tensor):
    values[name] = [float(v) for v in torch.as_tensor(tensor, dtype=torch.float64).flatten()]


def t(*numbers):
    # Literals are f32 in the samples.
    return torch.tensor(numbers, dtype=torch.float32).double()


def ramp(*sizes):
    """-1, -0.75, -0.5, ... wrapped into [-1, 1.5) by steps of 7: no two neighbours equal, exact in f32."""
    count = math.prod(sizes)
    return torch.tensor([((7 * i) % 10) * 0.25 - 1 for i in range(count)], dtype=torch.float64).reshape(sizes)


# Pointwise
put("pow", t(2, 3, 1.5, 0.25) ** t(3, -1, 2.5, 0.5))
put("exp", torch.exp(t(0, 1, -2.5, 10)))
put("expm1", torch.expm1(t(1e-6, 1, -2.5)))
put("log", torch.log(t(1, 10, 0.3)))
put("log1p", torch.log1p(t(1e-6, 10, -0.7)))
put("sqrt", torch.sqrt(t(4, 2, 0.09)))
put("rsqrt", torch.rsqrt(t(4, 2, 0.09)))
put("sin", torch.sin(t(0.5, 3, -10)))
put("cos", torch.cos(t(0.5, 3, -10)))
put("tanh", torch.tanh(t(0.01, 0.5, -3)))
put("erf", torch.erf(t(0.01, 0.5, -2)))
put("sigmoid", torch.sigmoid(t(0, 2, -5)))
put("gelu", F.gelu(t(0.5, 2, -1)))
x = t(0.5, 2, -1).requires_grad_()
F.gelu(x).backward(t(1, 2, -1))
put("gelu_grad", x.grad)
put("silu", F.silu(t(0.5, 2, -1)))


# Random numbers: seed 42, offset 7
def philox(seed, counter):
    key = [seed & 0xFFFFFFFF, seed >> 32]
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def word(i, seed=42, offset=7):
    return philox(seed, offset + i // 4)[i % 4]


def uniform(i):
    return (word(i) >> 8) * 2.0**-24


def normal(i):
    lane = i % 4
    a, b = word(i - lane % 2), word(i - lane % 2 + 1)
    radius = math.sqrt(-2 * math.log(((a >> 8) + 1) * 2.0**-24))
    turn = 2 * math.pi * b / 2.0**32
    return radius * (math.sin(turn) if lane % 2 else math.cos(turn))


put("uniform", [uniform(i) for i in range(6)])
put("normal", [normal(i) for i in range(6)])
put("bernoulli", [float(uniform(i) < 0.4) for i in range(6)])
put("dropout", [0.0 if uniform(i) < 0.25 else (i + 1) / 0.75 for i in range(6)])

# Contractions: operands are ramps
put("matmul", ramp(2, 3, 4) @ ramp(4, 2))
x, w, b = ramp(1, 4, 4, 3), ramp(4, 2, 2, 2), torch.arange(4.0).double() / 4
for v in (x, w, b):
    v.requires_grad_()
geometry = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
y = F.conv2d(x, w, b, **geometry)
put("conv", y.detach())
put("conv_sizes", y.shape)
y.backward(ramp(*y.shape))
put("conv_input_grad", x.grad)
put("conv_weight_grad", w.grad)
put("conv_plain", F.conv2d(ramp(1, 2, 3, 3), ramp(1, 2, 2, 2)))

# Composites
x, g = ramp(2, 5).requires_grad_(), ramp(5, 2).flatten().reshape(2, 5)
y = F.softmax(x, 1)
put("softmax", y.detach())
y.backward(g)
put("softmax_grad", x.grad)
put("softmax_0", F.softmax(ramp(2, 5), 0))
x.grad = None
y = F.log_softmax(x, 1)
put("log_softmax", y.detach())
y.backward(g)
put("log_softmax_grad", x.grad)

x, target = ramp(3, 4).requires_grad_(), torch.tensor([2, -100, 0])
y = F.cross_entropy(x, target, reduction="none")
put("cross_entropy", y.detach())
put("log_sum_exp", torch.logsumexp(x.detach(), 1))
y.backward(t(1, 2, -3))
put("cross_entropy_grad", x.grad)

x, w, b = ramp(3, 4).requires_grad_(), t(1, -2, 0.5, 3).requires_grad_(), t(0.25, 0, -1, 2).requires_grad_()
y = F.layer_norm(x, (4,), w, b, 1e-3)
put("layer_norm", y.detach())
mean = x.detach().mean(1, keepdim=True)
put("layer_norm_mean", mean)
put("layer_norm_rstd", ((x.detach() - mean) ** 2).mean(1).add(1e-3).rsqrt())
y.backward(ramp(4, 3).reshape(3, 4))
put("layer_norm_grad_x", x.grad)
put("layer_norm_grad_w", w.grad)
put("layer_norm_grad_b", b.grad)

x, w, b = ramp(2, 3, 2, 2).requires_grad_(), t(1, -2, 0.5).requires_grad_(), t(0.25, 0, -1).requires_grad_()
running_mean, running_var = t(0, 1, -1), t(1, 2, 0.5)
put("batch_norm_eval", F.batch_norm(x, running_mean, running_var, w, b, False, 0.25, 1e-3).detach())
y = F.batch_norm(x, running_mean, running_var, w, b, True, 0.25, 1e-3)
put("batch_norm", y.detach())
flat = x.detach().transpose(0, 1).reshape(3, 8)
put("batch_norm_mean", flat.mean(1))
put("batch_norm_rstd", flat.var(1, unbiased=False).add(1e-3).rsqrt())
put("batch_norm_running_mean", running_mean)
put("batch_norm_running_var", running_var)
y.backward(ramp(2, 2, 3, 2).reshape(2, 3, 2, 2))
put("batch_norm_grad_x", x.grad)
put("batch_norm_grad_w", w.grad)
put("batch_norm_grad_b", b.grad)


# Optimisers: the second step, from known buffers
def sgd(nesterov):
    p = t(1, -2, 0.5).requires_grad_()
    optimizer = torch.optim.SGD([p], lr=0.125, momentum=0.75, weight_decay=0.25, nesterov=nesterov)
    p.grad = t(0, 0, 0)
    optimizer.state[p]["momentum_buffer"] = t(0.5, 1, -1)
    p.grad = t(2, 1, -4)
    optimizer.step()
    return p.detach(), optimizer.state[p]["momentum_buffer"]


for nesterov in (False, True):
    p, buffer = sgd(nesterov)
    put(f"sgd_{int(nesterov)}_p", p)
    put(f"sgd_{int(nesterov)}_buffer", buffer)
put("sgd_plain", t(1, -2, 0.5) - 0.125 * (t(2, 1, -4) + 0.25 * t(1, -2, 0.5)))


def adam(decoupled):
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    p = t(1, -2, 0.5).requires_grad_()
    optimizer = kind([p], lr=0.125, betas=(0.75, 0.5), eps=0.0625, weight_decay=0.25)
    for g in (t(2, 1, -4), t(1, 1, 1)):
        if g[0] == 1:
            put(f"adam_{int(decoupled)}_before", torch.cat([p.detach(), optimizer.state[p]["exp_avg"],
                                                            optimizer.state[p]["exp_avg_sq"]]))
        p.grad = g
        optimizer.step()
    state = optimizer.state[p]
    return p.detach(), state["exp_avg"], state["exp_avg_sq"]


for decoupled in (False, True):
    for name, tensor in zip(("p", "m", "v"), adam(decoupled)):
        put(f"adam_{int(decoupled)}_{name}", tensor)

if __name__ == "__main__":
    for name, numbers in values.items():
        print(f"{name}: {', '.join(repr(round(v, 12)).removesuffix('.0') for v in numbers)}")
