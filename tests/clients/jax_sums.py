"""JAX: compiled sums, a matrix product, a gradient. It takes three quarters of what it believes to be the GPU's memory at its
start. Prints "NAME VALUE UNIT"; units "result" must be the same with and without the shim."""
import jax
import jax.numpy as jnp

device = jax.devices()[0]
assert device.platform == "gpu", device
a = jax.random.uniform(jax.random.PRNGKey(13), (1024, 1024))
print("sum", float(jnp.arange(1_000_000).astype(jnp.float32).mean()), "result")
print("product", float(jax.jit(lambda x: jnp.abs(x @ x.T).mean())(a)), "result")
gradient = jax.jit(jax.grad(lambda w: jnp.tanh(a @ w).sum()))
print("gradient", float(jnp.abs(gradient(a[:, 0])).mean()), "result")
total = device.memory_stats()["bytes_limit"]
try:
    jnp.zeros((2 * total,), dtype=jnp.uint8).block_until_ready()
    raise SystemExit("more than everything was given")
except (RuntimeError, ValueError) as error:
    assert "RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error).lower(), error
print("product_again", float(jax.jit(lambda x: jnp.abs(x @ x.T).mean())(a)), "result")
print("passed JAX", jax.__version__)
